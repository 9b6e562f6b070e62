"""Floors under the numbers of spans and tags: the commonest answer, and what words alone tell.

A passage's answer by words: the sentence that shares the rarest words with the question, and in it the rarest run of
words that the question does not have; after the sliding window of Richardson et al. 2013, SQuAD's own first baseline,
which chooses among the constituents of a parse. A question gets no answer where what is shared is too little, by a
threshold fitted on train rows.

A word's tag by words: the phrases that are entities in the train rows, the longest first, each of the kind that it is
most often. That is the baseline of CoNLL-2003's shared task, whose paper gives F1 71.18 on the development data; its
words, "entities which had a unique class in the training data", taken to the letter give 68.8 there.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gptcore.nlu.entity_metrics import entities, entity_scores
from gptcore.nlu.readers import Example
from gptcore.nlu.registry import TaskSpec
from gptcore.nlu.span_metrics import best_threshold, span_scores, token_f1

_WORD = re.compile(r"\w+", re.UNICODE)
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s+")
_LONGEST_RUN = 5

_Weights = Callable[[str], float]


def commonest_answer(spec: TaskSpec, train: Sequence[Example], dev: Sequence[Example]) -> dict[str, float]:
    """No answer where the task knows that, else the commonest train answer that a passage holds.

    :return: the numbers of :func:`gptcore.nlu.span_metrics.span_scores` on ``dev``, and "score".
    """
    if len(spec.labels) > 1:
        return _span_scores(spec, [""] * len(dev), dev)
    answers = [text for text, _ in Counter(text for row in train for text in _golds(row)).most_common(1000)]
    return _span_scores(spec, [next((text for text in answers if text in row.fields[1]), "") for row in dev], dev)


def answer_by_words(spec: TaskSpec, train: Sequence[Example], dev: Sequence[Example]) -> dict[str, float]:
    """What words alone tell of a passage (this module's introduction); the result is :func:`commonest_answer`'s."""
    weight = _weights({row.fields[1] for row in (*train, *dev)})
    found = [_by_words(row, weight) for row in dev]
    threshold = math.inf
    if len(spec.labels) > 1:
        fitted = [_by_words(row, weight) for row in train]
        threshold, _ = best_threshold(
            np.asarray([-shared for _, shared in fitted]),
            np.asarray([token_f1(text, _golds(row), True) for (text, _), row in zip(fitted, train, strict=True)]),
            np.asarray([token_f1("", _golds(row), True) for row in train]),
        )
    return _span_scores(spec, [text if -shared <= threshold else "" for text, shared in found], dev)


def _golds(row: Example) -> list[str]:
    return [row.fields[-1][place.start : place.end] for place in row.annotations]


def _span_scores(spec: TaskSpec, answers: Sequence[str], rows: Sequence[Example]) -> dict[str, float]:
    scores = span_scores(answers, [_golds(row) for row in rows], may_lack=len(spec.labels) > 1)
    return {**scores, "score": scores[spec.headline]}


def _tag_scores(spec: TaskSpec, tags: Sequence[Sequence[str]], rows: Sequence[Example]) -> dict[str, float]:
    scores = entity_scores(tags, [[word.name for word in row.annotations] for row in rows])
    return {**scores, "score": scores[spec.headline]}


# --- spans ------------------------------------------------------------------------------------------------------------


def _weights(passages: set[str]) -> _Weights:
    """How much a word tells: log(passages / passages with it)."""
    counts = Counter(word for passage in passages for word in {each.lower() for each in _WORD.findall(passage)})
    return lambda word: math.log((1 + len(passages)) / (1 + counts[word]))


def _by_words(row: Example, weight: _Weights) -> tuple[str, float]:
    """An answer, and how much of the question its sentence shares."""
    question, passage = row.fields
    asked = {word.lower() for word in _WORD.findall(question)}
    best, start, end = -1.0, 0, 0
    for first, last in _sentences(passage):
        shared = asked & {word.lower() for word in _WORD.findall(passage[first:last])}
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
    for word in [*_WORD.finditer(passage, start, end), None]:
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

    :return: the numbers of :func:`gptcore.nlu.entity_metrics.entity_scores` on ``dev``, and "score".
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
    return {phrase: min(found, key=lambda kind: (-found[kind], kind)) for phrase, found in kinds.items()}


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
