"""Blocks of a stream of documents: every document behind the last one, cut every n tokens wherever that falls.

The other way to feed a language model than random windows: each block comes once an epoch, in an order drawn anew for
each ("Fine-Tuning GPT-2 to Generate Research Paper Abstracts", Table 2). What is left at the end of the stream is not
used, and the first token of a block is not predicted.

Legend of shape comments: B blocks in a batch, T tokens of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gptcore.base.errors import InputError
from gptcore.data.sampler import IGNORE_INDEX, WindowBatch
from gptcore.data.shards import Shards


class Blocks:
    """The blocks of a folder of shards, and the order in which a training takes them."""

    def __init__(self, shards: Shards, size: int, seed: int = 0) -> None:
        """:raises InputError: a block of fewer than two tokens, or of more than there are."""
        if not 2 <= size <= shards.n_tokens:
            raise InputError(f"{shards.folder}: blocks of {size} tokens, expected 2 to {shards.n_tokens}, all it has")
        self._shards, self._size, self._seed = shards, size, seed
        self._ends = np.cumsum(shards.lengths)  # [n_rows] where each row ends in the stream
        self.count = int(self._ends[-1]) // size
        """Blocks in an epoch."""
        self._order = lru_cache(maxsize=2)(self._drawn)

    def tokens(self, block: int) -> npt.NDArray[np.int64]:
        """Ids of a block by its place in the stream, [T]."""
        start, stop = block * self._size, (block + 1) * self._size
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right")
        begin = int(self._ends[first] - self._shards.lengths[first])  # of the first row, in the stream
        rows = np.concatenate([self._shards.tokens(row) for row in range(first, last + 1)])
        return rows[start - begin : stop - begin].astype(np.int64)

    def block(self, i: int) -> int:
        """Which block the i-th of a training is: each once an epoch."""
        epoch, place = divmod(i, self.count)
        return int(self._order(epoch)[place])

    def document(self, i: int) -> str:
        """The document in which the i-th block of a training begins."""
        row = int(np.searchsorted(self._ends, self.block(i) * self._size, side="right"))
        return self._shards.document(row)

    def batch(self, step: int, batch_size: int, start: int = 0, stop: int | None = None) -> WindowBatch:
        """Inputs and targets of the blocks ``step * batch_size + start .. stop`` of a training, [stop - start, T] each.

        Targets are the inputs one position later; a block's last position has none.
        """
        numbers = range(step * batch_size + start, step * batch_size + (batch_size if stop is None else stop))
        return _pair([self.tokens(self.block(i)) for i in numbers])

    def in_order(self, batch_size: int, most: int | None = None) -> Iterator[WindowBatch]:
        """All blocks once, or ``most`` of them spread evenly over the stream, for an evaluation."""
        kept = self.count if most is None else max(1, min(most, self.count))
        chosen = np.arange(kept) * self.count // kept
        for begin in range(0, kept, batch_size):
            yield _pair([self.tokens(int(block)) for block in chosen[begin : begin + batch_size]])

    def _drawn(self, epoch: int) -> npt.NDArray[np.int64]:
        # raw bits, because numpy promises the stability of nothing else (see WindowSampler)
        bits = np.random.Philox(key=self._seed, counter=epoch << 64).random_raw(self.count)
        return np.argsort(bits, kind="stable")


def _pair(blocks: list[npt.NDArray[np.int64]]) -> WindowBatch:
    inputs = np.stack(blocks)  # [B, T]
    targets = np.full_like(inputs, IGNORE_INDEX)
    targets[:, :-1] = inputs[:, 1:]
    return inputs, targets
