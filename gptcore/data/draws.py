"""Random numbers that belong to a sample's number alone, whoever asks for them, in whatever order.

A counter-based generator has no state to carry, so a resumed run draws what it would have drawn, and any number of
processes draw the same. Raw bits, because numpy promises the stability of nothing else.

Legend of shape comments: N samples, K numbers of each.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]
_PER_COUNT = 4  # numbers that Philox gives for each count


def sample_bits(seed: int, numbers: npt.NDArray[np.int64], count: int) -> Bits:
    """``count`` random 64-bit numbers of each sample: [N, K]. Other counts of the same seed give others.

    :param numbers: the samples' own, int64 [N], 0 or more.
    """
    counts = -(-count // _PER_COUNT)
    if not len(numbers):
        return np.empty((0, count), np.uint64)
    found = []
    for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):  # of consecutive samples
        generator = np.random.Philox(key=seed, counter=int(run[0]) * counts)
        found.append(generator.random_raw(len(run) * counts * _PER_COUNT).reshape(len(run), -1))
    return np.concatenate(found)[:, :count]


def uniforms(bits: Bits) -> npt.NDArray[np.float64]:
    """The numbers as uniform ones, 0 <= u < 1."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(bits: Bits, n: int) -> npt.NDArray[np.int64]:
    """The numbers as uniform whole ones of 0..n-1; n up to 2**40 or so, beyond which they are not quite uniform."""
    return (uniforms(bits) * n).astype(np.int64)
