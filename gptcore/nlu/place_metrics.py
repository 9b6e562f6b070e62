"""Scores of answers that are places of a text: of answers to questions, of named entities.

Answers are compared as SQuAD's official scripts do (Rajpurkar et al. 2016, section 6.1; 2018), with each that people
gave, and the best comparison counts. Before it both are normalised: lower case, no ASCII punctuation, none of the
articles a, an, the, words set apart by single spaces. F1 is over the words of the two as bags. A question without an
answer is right exactly where none is given.

Entities are counted as in the shared task of CoNLL-2003 (Tjong Kim Sang and De Meulder 2003, section 2.4): one is right
where its kind, its first and its last word are. Which words make one follows the task's script, `conlleval`, for any
sequence of tags in IOB1 or IOB2, also one that breaks its scheme, as a network's may: it begins at B, behind O, and
where the kind changes; it ends before the next one begins, and before O.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
Entity = tuple[str, int, int]
"""Kind, first word, and the one behind the last."""


def normalised_answer(text: str) -> str:
    """An answer as it is compared."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _golds(golds: Sequence[str], may_lack: bool) -> list[str]:
    """The answers that count as right, normalised.

    In version 2.0 those of which nothing is left do not count, and where none is left no answer is right.
    """
    answers = [normalised_answer(gold) for gold in golds]
    return [gold for gold in answers if gold] or [""] if may_lack else answers


def exact_match(prediction: str, golds: Sequence[str], may_lack: bool) -> float:
    """1 where an answer equals one that people gave, else 0.

    :param golds: their answers; none where the passage holds no answer.
    :param may_lack: whether the dataset has such passages: version 2.0's rules, else 1.1's.
    """
    return float(normalised_answer(prediction) in _golds(golds, may_lack))


def token_f1(prediction: str, golds: Sequence[str], may_lack: bool) -> float:
    """The best F1 (0..1) of an answer's words with those of one that people gave; parameters as in exact_match."""
    given = normalised_answer(prediction).split()
    return max((_f1(given, gold.split(), may_lack) for gold in _golds(golds, may_lack)), default=0.0)


def _f1(given: Sequence[str], gold: Sequence[str], may_lack: bool) -> float:
    if may_lack and not (given and gold):
        return float(given == gold)
    shared = sum((Counter(given) & Counter(gold)).values())
    return 2 * shared / (len(given) + len(gold)) if shared else 0.0


def span_scores(predictions: Sequence[str], golds: Sequence[Sequence[str]], may_lack: bool) -> dict[str, float]:
    """The numbers of a split, as fractions.

    :param predictions: an answer a question; empty: none.
    :param golds: what people answered; none where the passage holds no answer.
    :param may_lack: see :func:`exact_match`.
    :return: "span_f1" and "exact_match"; where some questions have no answer also "has_answer_f1", over those that have
        one, and "no_answer_accuracy", over the others.
    :raises ValueError: no questions, or not as many answers.
    """
    pairs = list(zip(predictions, golds, strict=True))
    if not pairs:
        raise ValueError("no questions to score")
    f1 = np.asarray([token_f1(*pair, may_lack) for pair in pairs])
    exact = np.mean([exact_match(*pair, may_lack) for pair in pairs])
    scores = {"span_f1": float(f1.mean()), "exact_match": float(exact)}
    answered = np.asarray([bool(gold) for gold in golds])
    if answered.all():
        return scores
    if answered.any():
        scores["has_answer_f1"] = float(f1[answered].mean())
    return {**scores, "no_answer_accuracy": float(f1[~answered].mean())}


def best_threshold(
    no_answer: NDArray[np.float64], answered: NDArray[np.float64], unanswered: NDArray[np.float64]
) -> tuple[float, float]:
    """The threshold with the best mean score, as the official script of version 2 finds it on dev rows.

    No answer is given where ``no_answer`` is above the threshold. Of equally good thresholds the lowest is taken, so
    that none is given rather than one that helps nobody.

    :param no_answer: (N,) how much more no answer scores than the best one.
    :param answered: (N,) what each question is worth if its best answer is given.
    :param unanswered: (N,) and if none is.
    :return: the threshold, and the mean score under it.
    :raises ValueError: no questions.
    """
    if not len(no_answer):
        raise ValueError("no questions to choose a threshold on")
    order = np.argsort(no_answer, kind="stable")
    ordered = no_answer[order]
    # gains[k]: what the mean is with answers for the k questions of the smallest differences
    gains = np.concatenate([[0.0], np.cumsum((answered - unanswered)[order])])
    cuts = np.concatenate(
        [[0], 1 + np.flatnonzero(ordered[1:] > ordered[:-1]), [len(ordered)]]
    )  # equal ones go together
    best = int(cuts[np.argmax(gains[cuts])])
    threshold = float(ordered[best - 1]) if best else float(np.nextafter(ordered[0], -np.inf))
    return threshold, float((unanswered.sum() + gains[best]) / len(ordered))


def entities(tags: Sequence[str]) -> set[Entity]:
    """The entities of a text, from a tag a word: "O", "B-KIND" or "I-KIND"."""
    named: set[Entity] = set()
    kind, start = "", 0
    for at, tag in enumerate([*tags, "O"]):
        prefix, _, its_kind = tag.partition("-")
        if kind and (prefix != "I" or its_kind != kind):
            named.add((kind, start, at))
            kind = ""
        if prefix != "O" and not kind:
            kind, start = its_kind, at
    return named


def entity_counts(predicted: Sequence[str], gold: Sequence[str]) -> tuple[int, int, int]:
    """How many entities of a text are right, are predicted, and are there."""
    ours, theirs = entities(predicted), entities(gold)
    return len(ours & theirs), len(ours), len(theirs)


def entity_f1(right: float, predicted: float, there: float) -> float:
    """F1 of counts; 0 where nothing is predicted and nothing there."""
    return 2 * right / (predicted + there) if predicted + there else 0.0


def entity_scores(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, float]:
    """The numbers of a split, as fractions.

    :param predicted: the tags of each text's words.
    :param gold: what is right.
    :return: "entity_f1", "entity_precision", "entity_recall", and "entity_f1 KIND" of each kind that is there; 0 for
        0/0.
    :raises ValueError: no texts, or texts of unequal lengths.
    """
    pairs = list(zip(predicted, gold, strict=True))
    if not pairs:
        raise ValueError("no texts to score")
    right, ours, theirs = Counter[str](), Counter[str](), Counter[str]()
    for tags, expected in pairs:
        if len(tags) != len(expected):
            raise ValueError(f"{len(tags)} tags for {len(expected)} words")
        mine, its = entities(tags), entities(expected)
        right.update(kind for kind, *_ in mine & its)
        ours.update(kind for kind, *_ in mine)
        theirs.update(kind for kind, *_ in its)
    n_right, n_ours, n_theirs = right.total(), ours.total(), theirs.total()
    return {
        "entity_f1": entity_f1(n_right, n_ours, n_theirs),
        "entity_precision": n_right / n_ours if n_ours else 0.0,
        "entity_recall": n_right / n_theirs if n_theirs else 0.0,
        **{f"entity_f1 {kind}": entity_f1(right[kind], ours[kind], theirs[kind]) for kind in sorted(theirs)},
    }
