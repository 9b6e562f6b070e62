"""The headline number of each task and the ones beside it, as fractions (correlations in -1..1), and standard errors.

How far a score would move on other rows of the same kind is the bootstrap's standard error of the headline metric. Rows
are drawn with replacement and scored again (Efron 1979). For the metrics of classes that comes down to redrawing the
table of counts, so that 40 000 rows cost as little as 400. It says nothing of what another fine-tuning seed would do:
that is the spread over seeds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gptcore.base.errors import InputError, require
from gptcore.nlu.forms import form_of
from gptcore.nlu.forms.labels import sizes
from gptcore.nlu.place_metrics import entity_counts
from gptcore.nlu.registry import Metric, TaskSpec

RESAMPLES = 1000
"""Redraws: they settle a standard error to about 2 % (1 / sqrt(2 x 1000))."""
_SEED = 0

Values = NDArray[np.float64]
Lines = Sequence[tuple[int, Mapping[str, Any]]]
"""The labelled rows of a predictions file, each with the number of its line."""


def accuracy(predictions: Values, labels: Values) -> float:
    """Share of equal values."""
    return float(np.mean(predictions == labels))


def f1(predictions: Values, labels: Values) -> float:
    """F1 of class 1 (paraphrase, duplicate); 0 where that class is neither predicted nor there."""
    return float(f1_of_counts(*_counts(predictions, labels)))


def macro_f1(predictions: Values, labels: Values) -> float:
    """The mean of each class' own F1, over the classes that are predicted or there, so that rare ones count as much."""
    _, numbers = np.unique(np.concatenate([predictions, labels]), return_inverse=True)
    n = int(numbers.max()) + 1
    predicted, expected = np.split(numbers, 2)
    right = np.bincount(expected[predicted == expected], minlength=n)
    either = np.bincount(predicted, minlength=n) + np.bincount(expected, minlength=n)
    return float(np.mean(2 * right / either))


def micro_f1(predictions: Values, labels: Values) -> float:
    """F1 over the labels of all rows together, of which each has any number; 0 where none is predicted or there.

    :param predictions: (N,) sets of labels as :mod:`gptcore.nlu.forms.labels` numbers them, as ``labels`` are.
    """
    right = sizes((predictions.astype(np.int64) & labels.astype(np.int64)).astype(np.float64)).sum()
    either = sizes(predictions).sum() + sizes(labels).sum()
    return float(2 * right / either) if either else 0.0


def matthews(predictions: Values, labels: Values) -> float:
    """Matthews correlation; 0 where predictions or labels are all one class (the coefficient is 0/0 there)."""
    return float(matthews_of_counts(*_counts(predictions, labels)))


def pearson(predictions: Values, labels: Values) -> float:
    """Pearson correlation; 0 where predictions or labels are constant, for these carry no order at all."""
    if is_constant(predictions) or is_constant(labels):
        return 0.0
    p, q = predictions - predictions.mean(), labels - labels.mean()
    return float(np.clip((p / np.linalg.norm(p)) @ (q / np.linalg.norm(q)), -1.0, 1.0))


def spearman(predictions: Values, labels: Values) -> float:
    """Rank correlation, equal values at their mean rank; 0 where predictions or labels are constant."""
    return pearson(_ranks(predictions), _ranks(labels))


def f1_of_counts(_: Values, fn: Values, fp: Values, tp: Values) -> Values:
    """F1 of tables of counts, one a place: true negatives, false negatives, false positives, true positives."""
    return _ratio(2 * tp, 2 * tp + fp + fn)


def matthews_of_counts(tn: Values, fn: Values, fp: Values, tp: Values) -> Values:
    """Matthews correlation of such tables."""
    return _ratio(tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))


def cells(predictions: Values, labels: Values) -> list[NDArray[np.bool_]]:
    """For each row whether it is a true negative, a false negative, a false positive, a true positive: (N,) each."""
    return [predictions * 2 + labels == cell for cell in range(4)]


def _counts(predictions: Values, labels: Values) -> list[Values]:
    return [np.asarray(cell.sum(), dtype=np.float64) for cell in cells(predictions, labels)]


def _ratio(over: Values, under: Values) -> Values:
    """0 for 0/0."""
    return np.divide(over, under, out=np.zeros_like(over), where=under > 0)


def _ranks(values: Values) -> Values:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Values = (last - (counts - 1) / 2)[places]
    return ranks


METRICS: dict[Metric, Callable[[Values, Values], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "micro_f1": micro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}

OF_COUNTS: dict[Metric, Callable[[Values, Values, Values, Values], Values]] = {
    "f1": f1_of_counts,
    "matthews": matthews_of_counts,
}
"""Metrics of two classes that are no mean over rows, from tables of counts."""


def needs_threshold(spec: TaskSpec) -> bool:
    """Whether rows of a task are answered best for its metric from another probability than a half on; see
    :mod:`gptcore.training.decision`."""
    return spec.headline in OF_COUNTS and len(spec.labels) == 2


GLUE: dict[str, tuple[Metric, ...]] = {
    "mnli": ("accuracy",),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "cola": ("matthews",),
    "sst2": ("accuracy",),
    "mrpc": ("f1", "accuracy"),
    "stsb": ("pearson", "spearman"),
    "qqp": ("f1", "accuracy"),
}
"""The metrics that GLUE averages for each of its tasks. WNLI, its ninth, is left out: it is none of the paper's twelve
datasets, so that nothing here could fill it. A score of GLUE's server counts it: the two do not compare."""


def score(
    spec: TaskSpec, predictions: ArrayLike, labels: ArrayLike, subsets: Sequence[str] | None = None
) -> dict[str, float]:
    """All numbers of one task on one split.

    :param predictions: (N,) classes, choices, graded scores or sets of labels, as
        :meth:`gptcore.nlu.forms.form.Form.predict`
        gives them.
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
    scores: dict[str, float] = {name: METRICS[name](predicted, expected) for name in spec.metrics}
    return scores | of_parts(spec, METRICS[spec.headline], predicted, expected, subsets)


def of_parts(
    spec: TaskSpec,
    measure: Callable[[Values, Values], float],
    predictions: Values,
    labels: Values,
    subsets: Sequence[str] | None,
) -> dict[str, float]:
    """``score``, what is measured over all rows, and the same of each part that has rows, as :func:`score` names it."""
    scores = {"score": measure(predictions, labels)}
    parts = np.asarray(subsets if subsets is not None else [""] * len(labels))
    for part in spec.subsets:
        rows = parts == part
        if rows.any():
            scores[part] = measure(predictions[rows], labels[rows])
    return scores | ({spec.name: scores["score"]} if spec.subsets and spec.name in spec.paper else {})


def leaderboard_cells(spec: TaskSpec, scores: dict[str, float]) -> dict[str, float]:
    """Leaderboard column -> value, from the numbers of :func:`score`; columns without rows are left out."""
    if not spec.subsets:
        return dict.fromkeys(spec.paper, scores["score"])
    return {column: scores[column] for column in spec.paper if column in scores}


def glue_score(spec: TaskSpec, scores: dict[str, float]) -> float | None:
    """One task's part of GLUE's average, from the numbers of :func:`score`: the mean of its metrics or, for MNLI, of
    its two sets. None where the task is none of GLUE's, or one of the two sets has no rows."""
    if spec.name not in GLUE:
        return None
    names = spec.subsets or GLUE[spec.name]
    return float(np.mean([scores[name] for name in names])) if all(name in scores for name in names) else None


def glue_average(parts: Mapping[str, float]) -> float | None:
    """GLUE's average over its eight tasks here: their unweighted mean, each task counted once.

    :param parts: task -> :func:`glue_score`.
    :return: None where a task is missing, for such a mean compares with no other.
    """
    return float(np.mean([parts[task] for task in GLUE])) if GLUE.keys() <= parts.keys() else None


def is_constant(values: ArrayLike) -> bool:
    """Whether all predictions are the same: a run that collapsed to one class (or one score)."""
    array = np.asarray(values, dtype=np.float64)
    return bool(len(array) > 0 and np.ptp(array) <= 1e-9 * max(1.0, float(np.abs(array).max())))


def chance(spec: TaskSpec, labels: ArrayLike) -> float:
    """The headline score of the best single answer to all rows, which a network has that tells no row from another.

    :param labels: (N,) what is right.
    """
    expected = np.asarray(labels, dtype=np.float64)
    measure = METRICS[spec.headline]
    return max((measure(np.full_like(expected, answer), expected) for answer in np.unique(expected)), default=0.0)


# --- Standard errors --------------------------------------------------------------------------------------------------


def score_stderrs(
    spec: TaskSpec, predictions: ArrayLike, labels: ArrayLike, subsets: Sequence[str] | None = None
) -> dict[str, float]:
    """Standard errors of the headline metric, in its own unit, over all rows and over each part.

    :param predictions: (N,) with ``labels`` and ``subsets`` as :func:`score` takes them; N >= 1.
    :return: ``score_stderr``, and ``<column>_stderr`` for each leaderboard column that ``score`` gives.
    """
    predicted, expected = np.asarray(predictions, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    errors = of_parts(spec, partial(_stderr, spec), predicted, expected, subsets)
    return {f"{name}_stderr": value for name, value in errors.items()}


def _stderr(spec: TaskSpec, predictions: Values, labels: Values) -> float:
    n = len(labels)
    right = float(np.mean(predictions == labels))
    if right in (0.0, 1.0) and not spec.score_range:  # no redraw would differ: half of Wilson's interval (1927)
        return 1 / (2 * (n + 1))
    if spec.headline == "accuracy":  # the redrawn number of right rows is binomial: no draws needed
        return float(np.sqrt(right * (1 - right) / n))
    rng = np.random.default_rng(_SEED)
    if spec.headline in OF_COUNTS:
        shares = [float(np.mean(cell)) for cell in cells(predictions, labels)]
        drawn = rng.multinomial(n, shares, RESAMPLES)  # (RESAMPLES, 4)
        scores = OF_COUNTS[spec.headline](*drawn.T.astype(np.float64))
    else:
        metric = METRICS[spec.headline]
        draws = (rng.integers(0, n, n) for _ in range(RESAMPLES))
        scores = np.asarray([metric(predictions[rows], labels[rows]) for rows in draws])
    return float(np.std(scores, ddof=1))


def stderrs_of_file(spec: TaskSpec, path: Path) -> dict[str, float]:
    """:func:`score_stderrs` of the labelled rows of a predictions file, as a fine-tune writes them.

    :raises InputError: naming file and line, where a value is none of the task's, or no row has a label.
    """
    rows = _labelled(spec, path)
    stderrs: Callable[[TaskSpec, Path, Lines], dict[str, float]] = form_of(spec).part("stderrs")
    return stderrs(spec, path, rows)


def _labelled(spec: TaskSpec, path: Path) -> Lines:
    with path.open(encoding="utf-8") as file:
        rows = [(line, json.loads(text)) for line, text in enumerate(file, start=1)]
    rows = [(line, row) for line, row in rows if row["label"] is not None]
    require(rows, f"{path}: found no labelled row, expected predictions of the task {spec.name}")
    return rows


def label_stderrs(spec: TaskSpec, path: Path, rows: Lines) -> dict[str, float]:
    """Standard errors of rows with labels or grades.

    :param path: the file, for messages.
    :raises InputError: naming file and line, where a value is none of the task's.
    """
    pairs = label_evidence(spec, path, rows).values
    return score_stderrs(spec, pairs[:, 0], pairs[:, 1], [str(row["subset"]) for _, row in rows])


def span_stderrs(spec: TaskSpec, path: Path, rows: Lines) -> dict[str, float]:
    """The standard error of a mean over questions."""
    values = span_evidence(spec, path, rows).values
    return {"score_stderr": float(values.std() / np.sqrt(len(values)))}


def tag_stderrs(spec: TaskSpec, path: Path, rows: Lines) -> dict[str, float]:
    """The standard error of an F1 over entities, from texts that are redrawn with what each counts."""
    evidence = tag_evidence(spec, path, rows)
    rng, n = np.random.default_rng(_SEED), len(rows)
    scores = [evidence.measure(evidence.values[rng.integers(0, n, n)]) for _ in range(RESAMPLES)]
    return {"score_stderr": float(np.std(scores, ddof=1))}


# --- What each row adds -----------------------------------------------------------------------------------------------


class Evidence(NamedTuple):
    """What the rows of a predictions file add to the headline metric."""

    values: Values
    """(N, V) of each row what the metric is made of."""
    measure: Callable[[Values], float]
    """The metric of any such rows, a fraction."""


def evidence_of_file(spec: TaskSpec, path: Path, part: str = "") -> tuple[list[tuple[str, Any]], Evidence]:
    """Name and label of each labelled row of a predictions file, and what it adds to the headline metric.

    :param part: the rows of this subset alone; empty: all.
    :raises InputError: as :func:`stderrs_of_file`.
    """
    rows = [(line, row) for line, row in _labelled(spec, path) if not part or row["subset"] == part]
    read: Callable[[TaskSpec, Path, Lines], Evidence] = form_of(spec).part("evidence")
    return [(row["row"], row["label"]) for _, row in rows], read(spec, path, rows)


def label_evidence(spec: TaskSpec, path: Path, rows: Lines) -> Evidence:
    """Answer and label of each row, (N, 2), as numbers.

    :param path: the file, for messages.
    :raises InputError: naming file and line, where a value is none of the task's.
    """
    form = form_of(spec)

    def number(line: int, row: Mapping[str, Any], name: str) -> float:
        value = form.number_of(spec, row[name])
        if value is None:
            expected = form.spelled_in_words(spec)
            raise InputError(f"{path}, line {line}: {name}: found {row[name]!r}, expected {expected}")
        return value

    pairs = np.asarray([[number(*row, name) for name in ("prediction", "label")] for row in rows])
    metric = METRICS[spec.headline]
    return Evidence(pairs, lambda pairs: metric(pairs[:, 0], pairs[:, 1]))


def span_evidence(spec: TaskSpec, path: Path, rows: Lines) -> Evidence:
    """What each question scores, (N, 1), of which the metric is the mean."""
    values = np.asarray([[row[spec.headline]] for _, row in rows], dtype=np.float64)
    return Evidence(values, lambda values: float(values.mean()))


def tag_evidence(spec: TaskSpec, path: Path, rows: Lines) -> Evidence:
    """Entities that are right, that are told and that there are in each text, (N, 3)."""
    counts = np.asarray([entity_counts(row["prediction"], row["label"]) for _, row in rows], dtype=np.float64)

    def f1(counts: Values) -> float:
        right, told, there = counts.sum(axis=0)
        return float(_ratio(2 * right, told + there))

    return Evidence(counts, f1)
