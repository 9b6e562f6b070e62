"""Seeds derived by name, the rows that a seed chooses, and random numbers that belong to a sample's number alone.

A counter-based generator has no state to carry, so a resumed run draws what it would have drawn, and any number of
processes draw the same, in whatever order. Raw bits, because numpy promises the stability of nothing else.

Legend of shape comments: N samples, K numbers of each.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
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


Bits = npt.NDArray[np.uint64]
_PER_COUNT = 4  # numbers that Philox gives for each count


def sample_bits(seed: int, numbers: npt.NDArray[np.int64], count: int) -> Bits:
    """``count`` random 64-bit numbers of each sample: [N, K]. Other counts of the same seed give others.

    :param numbers: the samples' own, int64 [N], 0 or more.
    """
    counts = -(-count // _PER_COUNT)
    if not len(numbers):
        return np.empty((0, count), np.uint64)
    drawn = []
    for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):  # of consecutive samples
        generator = np.random.Philox(key=seed, counter=int(run[0]) * counts)
        drawn.append(generator.random_raw(len(run) * counts * _PER_COUNT).reshape(len(run), -1))
    return np.concatenate(drawn)[:, :count]


def uniforms(bits: Bits) -> npt.NDArray[np.float64]:
    """The numbers as uniform ones, 0 <= u < 1."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(bits: Bits, n: int) -> npt.NDArray[np.int64]:
    """The numbers as uniform whole ones of 0..n-1; n up to 2**40 or so, beyond which they are not quite uniform."""
    return (uniforms(bits) * n).astype(np.int64)
