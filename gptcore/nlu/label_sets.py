"""Sets of labels, of tasks whose rows have any number of them: as one number a row, and as a truth value a label.

N rows, K labels.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

MOST_LABELS = 52
"""Labels of such a task at most: what a float64 counts without a gap."""


def as_number(labels: Iterable[int]) -> float:
    """A set of labels as the sum of 2 to the power of each one's number."""
    return float(sum(1 << label for label in set(labels)))


def from_number(number: float) -> list[int]:
    """The labels of a set, in their order."""
    return [label for label in range(MOST_LABELS) if int(number) >> label & 1]


def as_numbers(members: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Which labels each row has, [N, K], as one number a row, [N]."""
    found: NDArray[np.float64] = members @ (2.0 ** np.arange(members.shape[1]))
    return found


def from_numbers(numbers: NDArray[np.float64], n_labels: int) -> NDArray[np.bool_]:
    """The inverse of :func:`as_numbers`: [N] -> [N, K]."""
    found: NDArray[np.bool_] = (numbers.astype(np.int64)[:, None] >> np.arange(n_labels) & 1).astype(bool)
    return found


def sizes(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many labels each row has: [N] -> [N]."""
    return np.bitwise_count(numbers.astype(np.uint64)).astype(np.int64)
