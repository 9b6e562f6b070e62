"""Documents that are nearly the same text: MinHash (Broder 1997) over runs of letters, compared by locality hashing.

A run is 64 letters and digits, some 13 words; white space, punctuation (typographic, too) and case do not count. Two
editions of a novel share almost all of their runs, two novels almost none. Which runs are looked at follows from their
own first letters, one in 32, so that the same passage gives the same runs wherever it stands. A signature is made in
one pass and in bounded memory; it has 256 bytes. Only signatures that agree in one of 16 bands are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from datasketch import MinHash

RUN = 64  # letters
PERMUTATIONS = 64
_BANDS = 16  # of 4 values each: documents that share 8 of 10 runs agree in one of them with probability 0.9998
_SCHEME = "affine32"
_BATCH = 1 << 20  # letters

_LOWER = bytes(byte + 32 if 65 <= byte <= 90 else byte for byte in range(256))
# Of letters beyond ASCII the first byte in UTF-8 stays, which tells enough in a run; typographic marks go whole.
_DELETED = bytes(byte for byte in range(128) if not chr(byte).isalnum()) + bytes([*range(0x80, 0xC0), 0xC2, 0xE2, 0xEF])

Signature = npt.NDArray[np.uint32]
"""[PERMUTATIONS]; the share of equal values estimates the Jaccard similarity of two documents' runs."""


class Sketch:
    """The signature of one document, given in pieces."""

    def __init__(self) -> None:
        self._minima = MinHash(PERMUTATIONS, seed=1, hashfunc=int, scheme=_SCHEME)
        self._letters = bytearray()
        self._looked_at = False

    def update(self, piece: bytes) -> None:
        """Take in the next piece, in UTF-8; how a document is cut into pieces does not show."""
        self._letters += piece.translate(_LOWER, _DELETED)
        if len(self._letters) >= _BATCH:
            self._look()

    def signature(self) -> Signature:
        """That of all pieces; a document in which no run is looked at counts as one run, all of it."""
        if len(self._letters) < RUN and not self._looked_at:
            self._letters += b" " * (RUN - len(self._letters))
        self._look()
        if not self._looked_at:
            self._minima.update_batch([int(_hashed(self._letters, np.zeros(1, dtype=np.int64))[0])])
        return np.asarray(self._minima.hashvalues, dtype=np.uint32)

    def _look(self) -> None:
        """Enter the runs that begin in the letters at hand; those that begin in the last 63 wait for what follows."""
        n_runs = len(self._letters) - RUN + 1
        if n_runs < 1:
            return
        first = np.ndarray((n_runs,), dtype="<u4", buffer=self._letters, strides=(1,))  # 4 letters, at every place
        anchors = np.flatnonzero((first * np.uint32(0x9E3779B1)) >> np.uint32(27) == 0)  # one in 32
        if len(anchors):
            self._minima.update_batch(_hashed(self._letters, anchors).tolist())
            self._looked_at = True
        if self._looked_at:
            self._letters = self._letters[n_runs:]


def _hashed(letters: bytearray, places: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Hashes of 32 bits of the runs that begin at ``places``."""
    words = np.ndarray((len(letters) - 7,), dtype="<u8", buffer=letters, strides=(1,))  # 8 letters, at every place
    runs = np.zeros(len(places), dtype=np.uint64)
    for at in range(0, RUN, 8):
        runs = (runs ^ words[places + at]) * np.uint64(0x9E3779B97F4A7C15)
        runs ^= runs >> np.uint64(29)
    return runs >> np.uint64(32)


@dataclass(frozen=True)
class NearDuplicate:
    """A document and an earlier one that it nearly repeats, by their numbers."""

    document: int
    earlier: int
    similarity: float
    """Estimated share of the runs that the two have in common, of all runs of either."""


def near_duplicates(
    signatures: npt.NDArray[np.uint32], numbers: Sequence[int] | npt.NDArray[np.int64], least: float
) -> list[NearDuplicate]:
    """Documents that nearly repeat an earlier one, in order; each with the earliest found for it.

    Of documents that agree in a band each is compared with the first and with the one before it.

    :param signatures: [N, PERMUTATIONS], in the order of the documents.
    :param numbers: what the N documents are called, ascending.
    :param least: similarity from which on two documents count as nearly the same.
    """
    width = PERMUTATIONS // _BANDS
    found: dict[int, tuple[int, float]] = {}
    for band in range(_BANDS):
        keys = np.ascontiguousarray(signatures[:, band * width : (band + 1) * width]).view(f"V{4 * width}")[:, 0]
        order = np.argsort(keys, kind="stable")
        changes = np.flatnonzero(keys[order[1:]] != keys[order[:-1]]) + 1
        for start, end in pairwise([0, *changes.tolist(), len(order)]):
            group = order[start:end]
            for before, later in pairwise(group):
                for earlier in {int(group[0]), int(before)}:
                    similarity = float((signatures[earlier] == signatures[later]).mean())
                    known = found.get(int(later))
                    if similarity >= least and (known is None or earlier < known[0]):
                        found[int(later)] = (earlier, similarity)
    return [
        NearDuplicate(int(numbers[later]), int(numbers[earlier]), similarity)
        for later, (earlier, similarity) in sorted(found.items())
    ]
