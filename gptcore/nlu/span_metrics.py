"""Exact match and F1 of answers, as SQuAD's official scripts count them (Rajpurkar et al. 2016, section 6.1; 2018).

An answer is compared with each that people gave, and the best comparison counts. Before it both are normalised: lower
case, no ASCII punctuation, none of the articles a, an, the, words set apart by single spaces. F1 is over the words of
the two as bags. A question without an answer is right exactly where none is given.
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


def normalised_answer(text: str) -> str:
    """An answer as it is compared."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _golds(golds: Sequence[str], may_lack: bool) -> list[str]:
    """The answers that count as right, normalised.

    In version 2.0 those of which nothing is left do not count, and where none is left no answer is right.
    """
    found = [normalised_answer(gold) for gold in golds]
    return [gold for gold in found if gold] or [""] if may_lack else found


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
