"""Seeds derived by name, and the rows that a seed chooses."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def derive_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed that belongs to ``names`` alone, so that two uses of one seed never share their draws."""
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def choose_rows(n_rows: int, max_rows: int | None, seed: int) -> NDArray[np.int64]:
    """Row numbers to use, ascending: all, or ``max_rows`` drawn without replacement from ``seed``.

    Raising ``max_rows`` only adds rows: the smaller choice is contained in the larger.
    """
    if max_rows is None or max_rows >= n_rows:
        return np.arange(n_rows, dtype=np.int64)
    generator = np.random.Generator(np.random.Philox(derive_seed(seed, "rows")))
    return np.sort(generator.permutation(n_rows)[:max_rows]).astype(np.int64)
