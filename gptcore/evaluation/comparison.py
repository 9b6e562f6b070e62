"""Which of two models is better for certain: both have answered the same rows, so that differences are paired.

Of accuracies of one seed each the probability is McNemar's (1947), exact; of other metrics that of a permutation test,
in which the two exchange rows. Of several seeds, and of an average over tasks, it is the bootstrap's: rows are redrawn,
seeds too, and the share of differences on the other side of 0 is counted twice. The interval is the bootstrap's always.

N rows, V numbers a row, R redraws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import InputError
from gptcore.nlu.metrics import Evidence, evidence_of_file
from gptcore.nlu.spec import TaskSpec

REDRAWS = 4000
LEVEL = 0.05
"""The probability below which a difference is called certain."""
_SEED = 0


@dataclass(frozen=True)
class Difference:
    """How much better the first of two models is than the second, in fractions."""

    rows: int
    first: float
    second: float
    p: float
    """The probability of a difference at least as large between two models that are equally good."""
    redrawn: NDArray[np.float64]
    """(R,) differences on other rows, and of other seeds."""

    @property
    def interval(self) -> tuple[float, float]:
        """Where 95 % of the redrawn differences lie."""
        low, high = np.quantile(self.redrawn, [LEVEL / 2, 1 - LEVEL / 2])
        return float(low), float(high)


def compared(
    spec: TaskSpec, first: Sequence[Path], second: Sequence[Path], part: str = "", redraws: int = 0
) -> Difference:
    """Compare two models on the rows that both have answered.

    :param first: the files of predictions of a model's seeds; ``second``: of the other's.
    :param part: the rows of this subset alone; empty: all. ``redraws``: how many; 0: as many as settle an interval.
    :raises InputError: they are not of the same rows; a file is damaged, see
        :func:`gptcore.nlu.metrics.stderrs_of_file`.
    """
    rows, read = zip(*(evidence_of_file(spec, path, part) for path in (*first, *second)), strict=True)
    for other_rows in rows[1:]:
        _check_same(spec, rows[0], other_rows)
    one, other = read[: len(first)], read[len(first) :]
    n, measure = len(rows[0]), one[0].measure
    mine, theirs = (float(np.mean([measure(seed.values) for seed in seeds])) for seeds in (one, other))
    draws = np.random.default_rng(_SEED)
    redrawn = np.empty(redraws or REDRAWS)
    for draw in range(len(redrawn)):
        chosen = draws.integers(0, n, n)
        means = [
            np.mean([measure(seeds[seed].values[chosen]) for seed in draws.integers(0, len(seeds), len(seeds))])
            for seeds in (one, other)
        ]
        redrawn[draw] = means[0] - means[1]
    if len(one) + len(other) > 2:
        p = _outside(redrawn)
    elif spec.headline == "accuracy":
        p = _mcnemar(*(seeds[0].values[:, 0] == seeds[0].values[:, 1] for seeds in (one, other)))
    else:
        p = _permuted(one[0], other[0], len(redrawn))
    return Difference(n, mine, theirs, p, redrawn)


def average(differences: Sequence[Difference]) -> Difference:
    """The difference of two averages over tasks, each task counted once."""
    redrawn = np.mean([each.redrawn for each in differences], axis=0)
    first, second = (float(np.mean([getattr(each, name) for each in differences])) for name in ("first", "second"))
    return Difference(sum(each.rows for each in differences), first, second, _outside(redrawn), redrawn)


def holm(probabilities: Mapping[str, float]) -> dict[str, float]:
    """The probabilities of several comparisons, each as large as it has to be for that of any error to be as told
    (Holm 1979)."""
    corrected, largest = {}, 0.0
    for place, name in enumerate(sorted(probabilities, key=probabilities.__getitem__)):
        largest = max(largest, min(1.0, (len(probabilities) - place) * probabilities[name]))
        corrected[name] = largest
    return {name: corrected[name] for name in probabilities}


def _check_same(spec: TaskSpec, one: Sequence[tuple[str, Any]], other: Sequence[tuple[str, Any]]) -> None:
    if one != other:
        unlike = next((pair for pair in zip(one, other, strict=False) if pair[0] != pair[1]), ("", ""))
        at = f"{unlike[0][0]} beside {unlike[1][0]}" if unlike[0] else f"{len(one):,} beside {len(other):,} rows"
        raise InputError(f"{spec.name}: found answers to other rows ({at}), expected two models scored on the same")


def _mcnemar(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    from scipy.stats import binomtest

    better, worse = int((one & ~other).sum()), int((other & ~one).sum())
    return float(binomtest(better, better + worse).pvalue) if better + worse else 1.0


def _permuted(one: Evidence, other: Evidence, redraws: int) -> float:
    from scipy.stats import permutation_test

    both, n = np.concatenate([one.values, other.values]), len(one.values)
    tested = permutation_test(
        (np.arange(n), np.arange(n, 2 * n)),
        lambda rows, others: one.measure(both[rows]) - one.measure(both[others]),
        permutation_type="samples",
        n_resamples=redraws,
        rng=np.random.default_rng(_SEED),
    )
    return float(tested.pvalue)


def _outside(redrawn: NDArray[np.float64]) -> float:
    below, above = (1 + int((sign * redrawn <= 0).sum()) for sign in (-1, 1))
    return min(1.0, 2 * min(below, above) / (1 + len(redrawn)))
