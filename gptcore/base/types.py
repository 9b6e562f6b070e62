"""Types that the signatures of many rooms have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Progress = Callable[[int, int], object]
"""Called with (parts done, in all)."""
Advance = Callable[[int], object]
"""Called with the number of parts done since its last call."""
Map = Callable[..., Iterable[Any]]
"""The built-in ``map``, or one that gives results in order and whose workers see the same folders."""


def quiet(*_: object) -> None:
    """The progress that nobody hears of."""
