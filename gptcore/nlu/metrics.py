"""The headline number of each task and the ones beside it, as fractions (correlations in -1..1).

scikit-learn and scipy are imported where they are used: reading a dataset needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gptcore.nlu.registry import Metric, TaskSpec

Values = NDArray[np.float64]


def accuracy(predictions: Values, labels: Values) -> float:
    """Share of equal values."""
    return float(np.mean(predictions == labels))


def f1(predictions: Values, labels: Values) -> float:
    """F1 of class 1 (paraphrase, duplicate); 0 where that class is neither predicted nor there."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, pos_label=1, zero_division=0.0))


def matthews(predictions: Values, labels: Values) -> float:
    """Matthews correlation; 0 where predictions or labels are all one class (the coefficient is 0/0 there)."""
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(labels, predictions))


def pearson(predictions: Values, labels: Values) -> float:
    """Pearson correlation; 0 where predictions or labels are constant, for these carry no order at all."""
    from scipy.stats import pearsonr

    return 0.0 if is_constant(predictions) or is_constant(labels) else float(pearsonr(predictions, labels).statistic)


def spearman(predictions: Values, labels: Values) -> float:
    """Rank correlation; 0 where predictions or labels are constant, as for Pearson."""
    from scipy.stats import spearmanr

    return 0.0 if is_constant(predictions) or is_constant(labels) else float(spearmanr(predictions, labels).statistic)


_METRICS: dict[Metric, Callable[[Values, Values], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def score(
    spec: TaskSpec, predictions: ArrayLike, labels: ArrayLike, subsets: Sequence[str] | None = None
) -> dict[str, float]:
    """All numbers of one task on one split.

    :param predictions: (N,) classes, choices or graded scores, as :func:`gptcore.nlu.inputs.predict` gives them.
    :param labels: (N,) what is right.
    :param subsets: (N,) each row's part of the split, for tasks that consist of several (MNLI, RACE).
    :return: ``score`` (the headline metric over all rows), every metric by its name, the headline metric of each part
        under its leaderboard column, and the task's own column where the paper has one beside the parts ("race").
    :raises ValueError: if the lengths differ or there are no rows.
    """
    predicted, expected = np.asarray(predictions, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if predicted.shape != expected.shape or predicted.ndim != 1 or not len(expected):
        raise ValueError(f"{spec.name}: {predicted.shape} predictions for {expected.shape} labels")
    if not np.isfinite(predicted).all():
        raise ValueError(f"{spec.name}: predictions are not finite")
    scores: dict[str, float] = {name: _METRICS[name](predicted, expected) for name in spec.metrics}
    scores["score"] = scores[spec.headline]
    parts = np.asarray(subsets if subsets is not None else [""] * len(expected))
    for part in spec.subsets:
        rows = parts == part
        if rows.any():
            scores[part] = _METRICS[spec.headline](predicted[rows], expected[rows])
    if spec.subsets and spec.name in spec.paper:
        scores[spec.name] = scores["score"]
    return scores


def leaderboard_cells(spec: TaskSpec, scores: dict[str, float]) -> dict[str, float]:
    """Leaderboard column -> value, from the numbers of :func:`score`; columns without rows are left out."""
    if not spec.subsets:
        return dict.fromkeys(spec.paper, scores["score"])
    return {column: scores[column] for column in spec.paper if column in scores}


def is_constant(values: ArrayLike) -> bool:
    """Whether all predictions are the same: a run that collapsed to one class (or one score)."""
    array = np.asarray(values, dtype=np.float64)
    return bool(len(array) > 0 and np.ptp(array) <= 1e-9 * max(1.0, float(np.abs(array).max())))
