"""Floors under every model's number, which need no model: the best single answer, and what words alone tell.

All are trained on the train rows and scored exactly as models are, and each form of rows names its own. Of labels the
second is a linear model on bags of words, which knows neither order nor which words two texts share; where a row has
several texts, the third is one on how much they share, and knows nothing else. Both are deterministic for a seed.

A passage's answer by words: the sentence that shares the rarest words with the question, and in it the rarest run of
words that the question does not have; after the sliding window of Richardson et al. 2013, SQuAD's own first baseline,
which chooses among the constituents of a parse. A question gets no answer where what is shared is too little, by a
threshold fitted on train rows.

A word's tag by words: the phrases that are entities in the train rows, the longest first, each of the kind that it is
most often. That is the baseline of CoNLL-2003's shared task, whose paper gives F1 71.18 on the development data; its
words, "entities which had a unique class in the training data", taken to the letter give 68.8 there.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gptcore.base.types import Floats
from gptcore.nlu.forms import form_of
from gptcore.nlu.forms.labels import as_numbers, from_numbers
from gptcore.nlu.metrics import METRICS, score, score_stderrs
from gptcore.nlu.place_metrics import best_threshold, entities, entity_scores, exact_match, span_scores, token_f1
from gptcore.nlu.readers import Example
from gptcore.nlu.registry import TaskSpec
from gptcore.text.word_edges import SENTENCE_ENDS, WORD, set_apart

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


_Weights = Callable[[str], float]
"""How much a word tells."""

_MAX_ROWS = 100_000
"""Train rows used, drawn from the seed: a floor must not take minutes on the largest set's 549 367 rows."""
_TOKENS = re.compile(rf"{WORD.pattern}|[^\w\s]")  # words and single marks
_MANY_ROWS = 1000
"""The rows from which on words of one row are left out: they help on no other and are most of the features."""


def best_constant(spec: TaskSpec, train: Sequence[Example], dev: Sequence[Example]) -> dict[str, float]:
    """Answer one label everywhere: that which scores best on the train rows by the task's headline metric.

    Of equals the commonest, then the first in label order; of any number of labels also sets of the commonest ones; for
    a graded label the mean.

    :return: the numbers of :func:`gptcore.nlu.metrics.score` on ``dev``, with their standard errors. Correlations are
        0 by definition here.
    """
    labels = _labels(train)
    if spec.score_range:
        return _score(spec, np.full(len(dev), float(np.mean(labels))), dev)
    counts = Counter(labels.tolist())
    answers = sorted(counts, key=lambda label: (-counts[label], label))
    if form_of(spec).several:
        members = from_numbers(labels, len(spec.labels))
        commonest = np.argsort(-members.sum(axis=0), kind="stable")
        answers += [float(sum(1 << int(label) for label in commonest[:n])) for n in range(1, len(commonest) + 1)]
    metric = METRICS[spec.headline]
    best = max(answers, key=lambda answer: metric(np.full(len(labels), answer), labels))
    return _score(spec, np.full(len(dev), best), dev)


def bag_of_words(spec: TaskSpec, train: Sequence[Example], dev: Sequence[Example], seed: int = 0) -> dict[str, float]:
    """Logistic regression (ridge regression for a graded label) on tf-idf weighted words, with the library's defaults.

    single: the text's words. labels: those, once for each label. pair: the words of each side, apart; of a symmetric
    one those of both sides together, as neither is first. choices: the words of each answer, right against wrong, the
    best-scored answer chosen; the document is the same for all answers, so that a linear model gains nothing from it.

    :param seed: draws the rows used of sets with more than 100 000.
    :return: the numbers of :func:`gptcore.nlu.metrics.score` on ``dev``, with their standard errors.
    """
    from scipy.sparse import hstack

    train = _sample(train, seed)
    sides = zip(*(_parts(spec, rows) for rows in (train, dev)), strict=True)
    apart = zip(*(_word_features(*texts) for texts in sides), strict=True)
    features, asked = (hstack(matrices, format="csr") for matrices in apart)
    return _score(spec, _fit_predict(spec, features, _targets(spec, train), asked), dev)


def overlap(spec: TaskSpec, train: Sequence[Example], dev: Sequence[Example], seed: int = 0) -> dict[str, float]:
    """The regression of :func:`bag_of_words` on how much two texts have in common, in the place of their words: the two
    of a pair, or what a row asks and each of its answers.

    Its features are the cosine of their tf-idf vectors; the shares of either one's words that the other has, plain and
    by rarity; the logarithms of their lengths. A symmetric pair has the least and the greatest of its two sides'.

    :param seed: as for :func:`bag_of_words`.
    :return: the numbers of :func:`gptcore.nlu.metrics.score` on ``dev``, with their standard errors.
    """
    from scipy.sparse import csr_matrix
    from sklearn.preprocessing import StandardScaler

    train = _sample(train, seed)
    weight = _word_weights({text for row in train for text in (*row.fields, *row.choices)}, _tokens)
    features = [csr_matrix(_overlaps(spec, rows, weight)) for rows in (train, dev)]
    scale = StandardScaler(with_mean=False).fit(features[0])
    fitted, asked = (scale.transform(part) for part in features)
    return _score(spec, _fit_predict(spec, fitted, _targets(spec, train), asked), dev)


def _word_features(train: Sequence[str], dev: Sequence[str]) -> tuple[csr_matrix, csr_matrix]:
    """Two matrices with a row a text: of the train texts' words; of zeros, which tell nothing, where no word counts."""
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer

    several = len(train) >= _MANY_ROWS
    rows_of_word = Counter(word for text in train for word in set(_tokens(text)))
    if not any(rows > several for rows in rows_of_word.values()):
        return csr_matrix((len(train), 1)), csr_matrix((len(dev), 1))
    weights = TfidfVectorizer(
        tokenizer=_tokens, token_pattern=None, lowercase=False, min_df=1 + several, sublinear_tf=True, dtype=np.float32
    )
    return weights.fit_transform(train), weights.transform(dev)


def _overlaps(spec: TaskSpec, rows: Sequence[Example], weight: _Weights) -> Floats:
    """(rows, or rows x answers; features)."""
    features = []
    for row in rows:
        asked, *others = (" ".join(row.fields), *row.choices) if row.choices else row.fields
        one = Counter(_tokens(asked))
        sides = (Counter(_tokens(text)) for text in others)
        features += [_shared(one, other, weight, spec.symmetric) for other in sides]
    return np.asarray(features)


def _shared(one: Counter[str], other: Counter[str], weight: _Weights, symmetric: bool) -> list[float]:
    common = one.keys() & other.keys()
    weights = {word: weight(word) for word in one.keys() | other.keys()}
    both = sum(one[word] * other[word] * weights[word] ** 2 for word in sorted(common))
    norms = [math.sqrt(sum((n * weights[word]) ** 2 for word, n in side.items())) for side in (one, other)]
    cosine = both / (norms[0] * norms[1]) if both else 0.0
    sides = [
        (
            len(common) / max(1, len(side)),
            sum(weights[word] for word in sorted(common)) / max(1e-9, sum(weights[word] for word in sorted(side))),
            math.log1p(sum(side.values())),
        )
        for side in (one, other)
    ]
    each = zip(*sides, strict=True)
    parts = [part for pair in each for part in (sorted(pair) if symmetric else pair)]
    return [cosine, float(one == other), *parts]


def _word_weights(texts: set[str], words: Callable[[str], Iterable[str]]) -> _Weights:
    """How much a word tells: log(texts / texts with it)."""
    counts = Counter(word for text in texts for word in set(words(text)))
    return lambda word: math.log((1 + len(texts)) / (1 + counts[word]))


def _sample(rows: Sequence[Example], seed: int) -> Sequence[Example]:
    if len(rows) <= _MAX_ROWS:
        return rows
    chosen = np.random.default_rng(seed).choice(len(rows), _MAX_ROWS, replace=False)
    return [rows[row] for row in sorted(chosen)]


def _parts(spec: TaskSpec, rows: Sequence[Example]) -> list[list[str]]:
    """Texts whose words are counted apart: one list a side, each as long as there are rows (or answers)."""
    if form_of(spec).choices:
        return [[choice for row in rows for choice in row.choices]]
    if spec.symmetric:
        return [[" ".join(row.fields) for row in rows]]
    return [[row.fields[side] for row in rows] for side in range(len(spec.fields))]


def _targets(spec: TaskSpec, rows: Sequence[Example]) -> Floats:
    labels = _labels(rows)
    if not form_of(spec).choices:
        return labels
    return np.asarray([float(number == row.label) for row in rows for number in range(len(row.choices))])


def _fit_predict(spec: TaskSpec, features: csr_matrix, targets: Floats, dev_features: csr_matrix) -> Floats:
    from sklearn.linear_model import LogisticRegression, Ridge

    if form_of(spec).several:
        kinds = from_numbers(targets, len(spec.labels))  # (rows, K)
        single = replace(spec, form="single")
        told = [_fit_predict(single, features, has.astype(np.float64), dev_features) > 0 for has in kinds.T]
        return as_numbers(np.stack(told, axis=1))
    if spec.score_range:
        graded = Ridge(solver="lsqr").fit(features, targets).predict(dev_features)
        return np.clip(np.asarray(graded, dtype=np.float64), *spec.score_range)
    if len(set(targets.tolist())) == 1:  # a single class leaves nothing to fit
        return np.full(dev_features.shape[0], targets[0])
    model = LogisticRegression(max_iter=1000).fit(features, targets)
    if form_of(spec).choices:
        answers = model.decision_function(dev_features).reshape(-1, len(spec.choices))  # (rows, choices)
        return np.asarray(np.argmax(answers, axis=1), dtype=np.float64)
    return np.asarray(model.predict(dev_features), dtype=np.float64)


def _labels(rows: Sequence[Example]) -> Floats:
    return np.asarray([row.label for row in rows], dtype=np.float64)


class Floored(dict[str, float]):
    """The scores of a floor, by their names, with what it answers to each row."""

    def __init__(self, scores: Mapping[str, float], rows: Sequence[Example], told: Iterable[Mapping[str, Any]]) -> None:
        """:param told: label and prediction of each row, and what its form has beside them."""
        super().__init__(scores)
        self._lines = [{"row": row.row, "subset": row.subset, **each} for row, each in zip(rows, told, strict=True)]

    def write(self, path: Path) -> None:
        """Write the answers as JSON lines, as a fine-tune writes its predictions, to be compared with these."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in self._lines), encoding="utf-8")


def _score(spec: TaskSpec, predictions: Floats, dev: Sequence[Example]) -> Floored:
    labels, subsets = _labels(dev), [row.subset for row in dev]
    figures = score(spec, predictions, labels, subsets) | score_stderrs(spec, predictions, labels, subsets)
    spelled, pairs = form_of(spec).spelled, zip(labels, predictions, strict=True)
    return Floored(figures, dev, ({"label": spelled(spec, a), "prediction": spelled(spec, b)} for a, b in pairs))


_SENTENCE_END = re.compile(rf"[.!?][\"')\]]*\s+|{SENTENCE_ENDS.pattern}\s*")
_LONGEST_RUN = 5


def _tokens(text: str) -> list[str]:
    return _TOKENS.findall(text.lower() if text.isascii() else set_apart(text.lower()))


def _words_of(text: str) -> set[str]:
    return {word.lower() for word in WORD.findall(text)}


def commonest_answer(spec: TaskSpec, train: Sequence[Example], dev: Sequence[Example]) -> dict[str, float]:
    """No answer where the task knows that, else the commonest train answer that a passage holds.

    :return: the numbers of :func:`gptcore.nlu.place_metrics.span_scores` on ``dev``, and "score".
    """
    if len(spec.labels) > 1:
        return _span_scores(spec, [""] * len(dev), dev)
    answers = [text for text, _ in Counter(text for row in train for text in _golds(row)).most_common(1000)]
    return _span_scores(spec, [next((text for text in answers if text in row.fields[1]), "") for row in dev], dev)


def answer_by_words(spec: TaskSpec, train: Sequence[Example], dev: Sequence[Example]) -> dict[str, float]:
    """What words alone tell of a passage (this module's introduction); the result is :func:`commonest_answer`'s."""
    weight = _word_weights({row.fields[1] for row in (*train, *dev)}, _words_of)
    answers = [_by_words(row, weight) for row in dev]
    threshold = math.inf
    if len(spec.labels) > 1:
        fitted = [_by_words(row, weight) for row in train]
        threshold, _ = best_threshold(
            np.asarray([-shared for _, shared in fitted]),
            np.asarray([token_f1(text, _golds(row), True) for (text, _), row in zip(fitted, train, strict=True)]),
            np.asarray([token_f1("", _golds(row), True) for row in train]),
        )
    return _span_scores(spec, [text if -shared <= threshold else "" for text, shared in answers], dev)


def _golds(row: Example) -> list[str]:
    return [row.fields[-1][place.start : place.end] for place in row.annotations]


def _span_scores(spec: TaskSpec, answers: Sequence[str], rows: Sequence[Example]) -> Floored:
    golds = [_golds(row) for row in rows]
    scores = span_scores(answers, golds, may_lack := len(spec.labels) > 1)
    worth = {"span_f1": token_f1, "exact_match": exact_match}
    told = (
        {"label": gold, "prediction": text, **{name: of(text, gold, may_lack) for name, of in worth.items()}}
        for text, gold in zip(answers, golds, strict=True)
    )
    return Floored({**scores, "score": scores[spec.headline]}, rows, told)


def _tag_scores(spec: TaskSpec, tags: Sequence[Sequence[str]], rows: Sequence[Example]) -> Floored:
    golds = [[word.name for word in row.annotations] for row in rows]
    scores = entity_scores(tags, golds)
    told = ({"label": gold, "prediction": each} for gold, each in zip(golds, tags, strict=True))
    return Floored({**scores, "score": scores[spec.headline]}, rows, told)


# --- spans ------------------------------------------------------------------------------------------------------------


def _by_words(row: Example, weight: _Weights) -> tuple[str, float]:
    """An answer, and how much of the question its sentence shares."""
    question, passage = row.fields
    asked = _words_of(question)
    best, start, end = -1.0, 0, 0
    for first, last in _sentences(passage):
        shared = asked & _words_of(passage[first:last])
        score = sum(map(weight, sorted(shared)))
        if score > best:
            best, start, end = score, first, last
    runs = list(_runs(passage, start, end, asked, weight))
    if not runs:
        return "", best
    _, first, last = max(runs, key=lambda run: (run[0], -run[1]))
    return passage[first:last], best


def _sentences(passage: str) -> Iterator[tuple[int, int]]:
    start = 0
    for mark in _SENTENCE_END.finditer(passage):
        yield start, mark.end()
        start = mark.end()
    if start < len(passage):
        yield start, len(passage)


def _runs(passage: str, start: int, end: int, asked: set[str], weight: _Weights) -> Iterator[tuple[float, int, int]]:
    """The longest runs of a sentence's words that the question does not have, no mark between two: weight and place."""
    run: list[re.Match[str]] = []
    for word in [*WORD.finditer(passage, start, end), None]:
        joined = run and word and not passage[run[-1].end() : word.start()].strip()
        new = word is not None and word.group().lower() not in asked
        if run and not (joined and new and len(run) < _LONGEST_RUN):
            yield sum(weight(each.group().lower()) for each in run), run[0].start(), run[-1].end()
            run = []
        if new and word is not None:
            run.append(word)


# --- tags -------------------------------------------------------------------------------------------------------------


def outside_alone(spec: TaskSpec, train: Sequence[Example], dev: Sequence[Example]) -> dict[str, float]:
    """No word is part of a name.

    :return: the numbers of :func:`gptcore.nlu.place_metrics.entity_scores` on ``dev``, and "score".
    """
    return _tag_scores(spec, [["O"] * len(row.annotations) for row in dev], dev)


def tags_by_phrases(spec: TaskSpec, train: Sequence[Example], dev: Sequence[Example]) -> dict[str, float]:
    """The tags of known phrases (this module's introduction); the result is :func:`outside_alone`'s."""
    known = _phrases(train)
    return _tag_scores(spec, [_matched(_words(row), known) for row in dev], dev)


def _words(row: Example) -> list[str]:
    return [row.fields[0][place.start : place.end] for place in row.annotations]


def _phrases(train: Sequence[Example]) -> dict[tuple[str, ...], str]:
    """The phrases that are entities, with the kind that each is most often; of equals the first by name."""
    kinds: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for row in train:
        words = _words(row)
        for kind, start, end in entities([word.name for word in row.annotations]):
            kinds[tuple(words[start:end])][kind] += 1
    return {phrase: min(times, key=lambda kind: (-times[kind], kind)) for phrase, times in kinds.items()}


def _matched(words: Sequence[str], known: dict[tuple[str, ...], str]) -> list[str]:
    """Tags of the longest known phrases, from left to right."""
    longest = max(map(len, known), default=0)
    tags: list[str] = []
    while len(tags) < len(words):
        at = len(tags)
        for length in range(min(longest, len(words) - at), 0, -1):
            if kind := known.get(tuple(words[at : at + length])):
                tags += [f"B-{kind}", *[f"I-{kind}"] * (length - 1)]
                break
        else:
            tags.append("O")
    return tags
