"""What a language model is fed with: random windows of the text to train on, all windows once, or blocks of it.

Legend of shape comments: B windows or blocks in a batch, T positions of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gptcore.base.errors import InputError, require
from gptcore.base.types import Ints
from gptcore.data.shards import Shards

IGNORE_INDEX = -100
"""Target of a position that has none; the losses leave it out."""

SHORTEST_REPEAT = 4
"""Tokens at least, that a window repeats."""

WindowBatch = tuple[Ints, Ints]


class WindowSampler:
    """Uniformly random contiguous windows of n_ctx + 1 tokens inside one document (section 4.1).

    The sample of global index i is a pure function of (seed, i). So a resumed run goes on with the windows it would
    have seen, and any number of processes that share the indices of a batch see the same batch. A row of at most
    n_ctx + 1 tokens has one window: all of it.
    """

    def __init__(self, shards: Shards, n_ctx: int, seed: int, repeating: int = 0, repeating_share: float = 0) -> None:
        """Half of the first ``repeating`` samples repeat their beginning, of 4 to n_ctx / 2 tokens, over and over.

        :param repeating_share: of all later samples this share does, in 0 .. 1.
        :raises InputError: no row has two tokens or more, or a seed or n_ctx out of range.
        """
        require(n_ctx >= 1, f"model.n_ctx = {n_ctx}: expected 1 or more")
        require(0 <= seed < 1 << 64, f"seed = {seed}: expected 0 or more, below 2**64")
        starts = np.where(shards.lengths < 2, 0, np.maximum(1, shards.lengths - n_ctx))  # [n_rows]
        self._cumulative = np.cumsum(starts)  # [n_rows] valid starts up to and including each row
        self._total = int(self._cumulative[-1]) if len(starts) else 0
        require(self._total, f"{shards.folder}: no document of two tokens or more to sample from")
        self.shards = shards
        self.n_ctx = n_ctx
        self.seed = seed
        self._repeating = repeating
        self._later_share = repeating_share

    def document(self, i: int) -> str:
        """Name of the document that sample ``i`` lies in."""
        return self.shards.document(int(self._places(i, 1)[0][0]))

    def batch(self, step: int, batch_size: int) -> WindowBatch:
        """Inputs and targets of samples ``step * batch_size .. (step + 1) * batch_size``, int64 [B, n_ctx] each.

        Targets are the inputs one position later; short windows end in input 0, target -100.
        """
        first = step * batch_size
        windows, lengths = _cut(self.shards, *self._places(first, batch_size), self.n_ctx + 1)
        if first < self._repeating or self._later_share:
            periods = self._periods(first, batch_size)  # (B,)
            windows = np.take_along_axis(windows, np.arange(self.n_ctx + 1) % periods[:, None], axis=1)
        return _pairs(windows, lengths)

    def _places(self, first: int, count: int) -> tuple[Ints, Ints]:
        """Rows, and starts in them, of ``count`` samples from ``first`` on: [count] each."""
        draws = _below(self._total, self._bits(first, count)[:, 0])  # uniform, up to total / 2**64
        rows = np.searchsorted(self._cumulative, draws, side="right")
        return rows, draws - np.where(rows > 0, self._cumulative[rows - 1], 0)

    def _periods(self, first: int, count: int) -> Ints:
        """After how many tokens each of ``count`` samples from ``first`` on begins again: [count]."""
        whole = self.n_ctx + 1
        longest = max(SHORTEST_REPEAT, self.n_ctx // 2)
        bits = self._bits(first, count)
        periods = SHORTEST_REPEAT + _below(longest - SHORTEST_REPEAT + 1, bits[:, 2])
        share = np.where(first + np.arange(count) < self._repeating, 0.5, self._later_share)
        repeats = bits[:, 1] / 2.0**64 >= 1 - share
        return np.where(repeats, periods, whole)

    def _bits(self, first: int, count: int) -> npt.NDArray[np.uint64]:
        """[count, 4] numbers of ``count`` samples from ``first`` on: its place, whether it repeats, how much of it."""
        # A counter-based generator has no state to carry; raw bits, because numpy promises their stability only.
        return np.random.Philox(key=self.seed, counter=first).random_raw(4 * count).reshape(count, 4)


def _below(bound: int, bits: npt.NDArray[np.uint64]) -> Ints:
    """Numbers from 0 to ``bound`` - 1 of 64 random bits each."""
    return np.array([draw * bound >> 64 for draw in bits.tolist()], np.int64)


def sequential_windows(
    shards: Shards, n_ctx: int, max_tokens: int | None = None, batch_size: int = 32
) -> Iterator[WindowBatch]:
    """Batches of windows that have each token but a row's first as a target exactly once, for evaluation.

    :param max_tokens: at most so many targets (but one window at least), from windows spread evenly over the shards.
    :returns: (inputs, targets), int64 [B, n_ctx] each with B <= batch_size, padded as in :meth:`WindowSampler.batch`.
    """
    n_targets = np.maximum(shards.lengths - 1, 0)  # [n_rows]
    n_windows = -(-n_targets // n_ctx)  # [n_rows]
    first = np.cumsum(n_windows) - n_windows  # [n_rows] number of each row's first window
    total = int(n_windows.sum())
    chosen = np.arange(total)
    if max_tokens is not None and max_tokens < n_targets.sum():
        kept = min(total, max(1, max_tokens // n_ctx))
        chosen = np.arange(kept) * total // kept
    rows = np.searchsorted(first, chosen, side="right") - 1
    starts = (chosen - first[rows]) * n_ctx
    for begin in range(0, len(chosen), batch_size):
        some = slice(begin, begin + batch_size)
        yield _pairs(*_cut(shards, rows[some], starts[some], n_ctx + 1))


def _cut(shards: Shards, rows: Ints, starts: Ints, size: int) -> tuple[Ints, Ints]:
    """Windows of rows, [B, size] with 0 behind a row's end, and how long each is, [B]."""
    lengths = np.minimum(shards.lengths[rows] - starts, size)
    windows = np.zeros((len(rows), size), np.int64)
    whole = lengths == size
    windows[whole] = shards.windows(rows[whole], starts[whole], size)
    for place in np.flatnonzero(~whole):
        windows[place, : lengths[place]] = shards.tokens(int(rows[place]))[starts[place] :]
    return windows, lengths


def _pairs(windows: Ints, lengths: Ints) -> WindowBatch:
    inside = np.arange(windows.shape[1] - 1) < lengths[:, None] - 1  # [B, T]
    return np.where(inside, windows[:, :-1], 0), np.where(inside, windows[:, 1:], IGNORE_INDEX)


class Blocks:
    """Blocks of a folder of shards: every document behind the last one, cut every n tokens wherever that falls.

    The other way to feed a language model than random windows: each block comes once an epoch, in an order drawn anew
    for each ("Fine-Tuning GPT-2 to Generate Research Paper Abstracts", Table 2). What is left at the end of the stream
    is not used, and the first token of a block is not predicted.
    """

    def __init__(self, shards: Shards, size: int, seed: int = 0) -> None:
        """:raises InputError: a block of fewer than two tokens, or of more than there are."""
        if not 2 <= size <= shards.n_tokens:
            raise InputError(f"{shards.folder}: blocks of {size} tokens, expected 2 to {shards.n_tokens}, all it has")
        self._shards, self._size, self._seed = shards, size, seed
        self._ends = np.cumsum(shards.lengths)  # [n_rows] where each row ends in the stream
        self.count = int(self._ends[-1]) // size
        """Blocks in an epoch."""
        self._order = lru_cache(maxsize=2)(self._drawn)

    def tokens(self, block: int) -> Ints:
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

    def batch(self, step: int, batch_size: int) -> WindowBatch:
        """Inputs and targets of the blocks ``step * batch_size .. (step + 1) * batch_size`` of a training, [B, T] each.

        Targets are the inputs one position later; a block's last position has none.
        """
        return _pair([self.tokens(self.block(i)) for i in range(step * batch_size, (step + 1) * batch_size)])

    def in_order(self, batch_size: int, most: int | None = None) -> Iterator[WindowBatch]:
        """All blocks once, or ``most`` of them spread evenly over the stream, for an evaluation."""
        kept = self.count if most is None else max(1, min(most, self.count))
        chosen = np.arange(kept) * self.count // kept
        for begin in range(0, kept, batch_size):
            yield _pair([self.tokens(int(block)) for block in chosen[begin : begin + batch_size]])

    def _drawn(self, epoch: int) -> Ints:
        # raw bits, because numpy promises the stability of nothing else (see WindowSampler)
        bits = np.random.Philox(key=self._seed, counter=epoch << 64).random_raw(self.count)
        return np.argsort(bits, kind="stable")


def _pair(blocks: list[Ints]) -> WindowBatch:
    inputs = np.stack(blocks)  # [B, T]
    return inputs, np.pad(inputs[:, 1:], ((0, 0), (0, 1)), constant_values=IGNORE_INDEX)
