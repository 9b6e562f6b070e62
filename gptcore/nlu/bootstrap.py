"""How far a score would move on other rows of the same kind: the bootstrap's standard error of the headline metric.

Rows are drawn with replacement and scored again (Efron 1979). For the metrics of classes that comes down to redrawing
the table of counts, so that 40 000 rows cost as little as 400. It says nothing of what another fine-tuning seed would
do: that is the spread over seeds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gptcore.base.errors import InputError
from gptcore.nlu.forms import form_of
from gptcore.nlu.metrics import METRICS, Values, cells, f1_of_counts, matthews_of_counts, of_parts
from gptcore.nlu.place_metrics import entity_counts
from gptcore.nlu.registry import TaskSpec

RESAMPLES = 1000
"""Redraws: they settle a standard error to about 2 % (1 / sqrt(2 x 1000))."""
_SEED = 0

Lines = Sequence[tuple[int, Mapping[str, Any]]]
"""The labelled rows of a predictions file, each with the number of its line."""


def score_stderrs(
    spec: TaskSpec, predictions: ArrayLike, labels: ArrayLike, subsets: Sequence[str] | None = None
) -> dict[str, float]:
    """Standard errors of the headline metric, in its own unit, over all rows and over each part.

    :param predictions: (N,) with ``labels`` and ``subsets`` as :func:`gptcore.nlu.metrics.score` takes them; N >= 1.
    :return: ``score_stderr``, and ``<column>_stderr`` for each leaderboard column that ``score`` gives.
    """
    predicted, expected = np.asarray(predictions, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    found = of_parts(spec, partial(_stderr, spec), predicted, expected, subsets)
    return {f"{name}_stderr": value for name, value in found.items()}


def _stderr(spec: TaskSpec, predictions: Values, labels: Values) -> float:
    n = len(labels)
    if spec.headline == "accuracy":  # the redrawn number of right rows is binomial: no draws needed
        right = float(np.mean(predictions == labels))
        return float(np.sqrt(right * (1 - right) / n))
    rng = np.random.default_rng(_SEED)
    if spec.headline in ("f1", "matthews"):
        shares = [float(np.mean(cell)) for cell in cells(predictions, labels)]
        drawn = rng.multinomial(n, shares, RESAMPLES)  # (RESAMPLES, 4)
        scores = (f1_of_counts if spec.headline == "f1" else matthews_of_counts)(*drawn.T.astype(np.float64))
    else:
        metric = METRICS[spec.headline]
        draws = (rng.integers(0, n, n) for _ in range(RESAMPLES))
        scores = np.asarray([metric(predictions[rows], labels[rows]) for rows in draws])
    return float(np.std(scores, ddof=1))


def stderrs_of_file(spec: TaskSpec, path: Path) -> dict[str, float]:
    """:func:`score_stderrs` of the labelled rows of a predictions file, as a fine-tune writes them.

    :raises InputError: naming file and line, where a value is none of the task's, or no row has a label.
    """
    with path.open(encoding="utf-8") as file:
        rows = [(line, json.loads(text)) for line, text in enumerate(file, start=1)]
    rows = [(line, row) for line, row in rows if row["label"] is not None]
    if not rows:
        raise InputError(f"{path}: found no labelled row, expected predictions of the task {spec.name}")
    stderrs: Callable[[TaskSpec, Path, Lines], dict[str, float]] = form_of(spec).part("stderrs")
    return stderrs(spec, path, rows)


def label_stderrs(spec: TaskSpec, path: Path, rows: Lines) -> dict[str, float]:
    """Of rows with labels or grades.

    :param path: the file, for messages.
    :raises InputError: naming file and line, where a value is none of the task's.
    """
    form = form_of(spec)

    def number(line: int, row: Mapping[str, Any], name: str) -> float:
        found = form.number_of(spec, row[name])
        if found is None:
            expected = form.spelled_in_words(spec)
            raise InputError(f"{path}, line {line}: {name}: found {row[name]!r}, expected {expected}")
        return found

    pairs = np.asarray([[number(*row, name) for name in ("prediction", "label")] for row in rows])
    return score_stderrs(spec, pairs[:, 0], pairs[:, 1], [str(row["subset"]) for _, row in rows])


def span_stderrs(spec: TaskSpec, path: Path, rows: Lines) -> dict[str, float]:
    """Of the mean over questions."""
    values = np.asarray([row[spec.headline] for _, row in rows], dtype=np.float64)
    return {"score_stderr": float(values.std() / np.sqrt(len(values)))}


def tag_stderrs(spec: TaskSpec, path: Path, rows: Lines) -> dict[str, float]:
    """Of an F1 over entities, from texts that are redrawn with what each counts."""
    counts = np.asarray([entity_counts(row["prediction"], row["label"]) for _, row in rows], dtype=np.float64)  # (N, 3)
    rng, n = np.random.default_rng(_SEED), len(rows)
    drawn = np.stack([counts[rng.integers(0, n, n)].sum(axis=0) for _ in range(RESAMPLES)])  # (RESAMPLES, 3)
    found = drawn[:, 1] + drawn[:, 2]
    scores = np.divide(2 * drawn[:, 0], found, out=np.zeros(RESAMPLES), where=found > 0)
    return {"score_stderr": float(np.std(scores, ddof=1))}
