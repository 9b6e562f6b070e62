"""Rows whose answers are places of a text, as windows of it that a network can read: spans and tags.

A text longer than the network reads is cut into windows that overlap, each behind the question. A window begins a third
of n_ctx after the one before it (BERT's released `run_squad.py`: 128 of 384), and in training stands for itself: one
without the answer points to the first position, [CLS], as a question without an answer does (released code). Among the
windows that hold a piece, the one with the most context on its shorter side speaks for it.

Legend: B batch, T positions, N pieces of a row's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import InputError
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.nlu.inputs import Ids, Inputs, TaskBatch
from gptcore.nlu.marked import MarkedExample
from gptcore.nlu.registry import TaskSpec

QUESTION_TOKENS = 64
"""Most pieces of a question that are read (released code)."""


class Window(NamedTuple):
    """A part of a row's text that the network reads at once."""

    row: int
    start: int
    end: int
    """Its pieces of the row's text: ``start`` to ``end``, the last one excluded."""
    first: int
    """The position of the sequence at which they begin."""


class WindowRows:
    """The windows of rows, ready to be batched: what :class:`gptcore.nlu.task_rows.TaskRows` is for whole rows.

    :param examples: the rows; read again whenever a batch asks for them.
    :param inputs: what the network's family makes of a row, with the ids of its special pieces.
    :raises InputError: there are no rows, or ``n_ctx`` has no room for a question and a piece.
    """

    def __init__(
        self, spec: TaskSpec, examples: Sequence[MarkedExample], inputs: Inputs, *, n_ctx: int, n_vocab: int
    ) -> None:
        if not len(examples):
            raise InputError(f"{spec.name}: found no rows to use, expected at least one")
        self._spec, self.examples, self._inputs = spec, examples, inputs
        self._n_ctx, self._n_vocab = n_ctx, n_vocab
        self.windows: list[Window] = []
        self.truncated = 0
        """Rows whose question is cut."""
        for row, example in enumerate(examples):
            self._add(row, example)
        self.names = [examples[window.row].row for window in self.windows]
        """Where each window's row came from, ``file:line``."""
        self.sizes = np.asarray([window.first + window.end - window.start + 1 for window in self.windows])
        """Tokens of each window's sequence."""
        self.tokens = int(self.sizes.sum())
        self.longest = int(self.sizes.max())

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def n_rows(self) -> int:
        """Rows of the task, each of one window or more."""
        return len(self.examples)

    def _add(self, row: int, example: MarkedExample) -> None:
        n_pieces = len(example.fields[-1])
        others = self._others(example)
        self.truncated += sum(map(len, others)) < sum(map(len, example.fields[:-1]))
        first = 1 + sum(len(part) + 1 for part in others)
        room = self._n_ctx - first - 1
        step = min(room, max(1, self._n_ctx // 3))
        start = 0
        while True:
            self.windows.append(Window(row, start, min(start + room, n_pieces), first))
            if start + room >= n_pieces:
                return
            start += step

    def _others(self, example: MarkedExample) -> list[Ids]:
        """What stands before the text, cut so that at least as much of the text has room."""
        most = min(QUESTION_TOKENS, (self._n_ctx - 3) // 2)
        if most < 1:
            raise InputError(f"model.n_ctx = {self._n_ctx} has no room for {self._spec.name}: expected at least 5")
        return [part[:most] for part in example.fields[:-1]]

    def batch(self, numbers: Sequence[int] | NDArray[np.int64]) -> TaskBatch:
        """The numbered windows, padded to the longest of them; labels as :func:`span_target` and :func:`tag_targets`
        give them, (B, 2) or (B, T).
        """
        import torch

        windows = [self.windows[number] for number in numbers]
        examples = [self.examples[window.row] for window in windows]
        batch = self._inputs.collate(
            self._spec,
            [[self._sequence(*pair)] for pair in zip(windows, examples, strict=True)],
            [None] * len(windows),
        )
        width = batch.tokens.shape[-1]
        if self._spec.form == "span":
            targets = np.asarray([span_target(*pair) for pair in zip(windows, examples, strict=True)])
        else:
            numbers_of = {name: number for number, name in enumerate(self._spec.labels)}
            targets = np.stack([tag_targets(*pair, numbers_of, width) for pair in zip(windows, examples, strict=True)])
        return replace(batch, labels=torch.from_numpy(targets.astype(np.int64)))

    def _sequence(self, window: Window, example: MarkedExample) -> Ids:
        parts = [*self._others(example), example.fields[-1][window.start : window.end]]
        (sequence,), _ = self._inputs.sequences(self._spec, parts, (), n_ctx=self._n_ctx, n_vocab=self._n_vocab)
        return sequence

    def of_rows(self) -> list[list[int]]:
        """The numbers of each row's windows."""
        found: list[list[int]] = [[] for _ in range(self.n_rows)]
        for number, window in enumerate(self.windows):
            found[window.row].append(number)
        return found


def covered(example: MarkedExample, start: int, end: int) -> NDArray[np.int64]:
    """The pieces that stand for any of the characters ``start`` to ``end`` of a row's text."""
    found: NDArray[np.int64] = np.flatnonzero((example.piece_ends > start) & (example.piece_starts < end))
    return found


def span_target(window: Window, example: MarkedExample) -> tuple[int, int]:
    """Positions of the first and the last piece of the first answer; (0, 0) where it is not, or not whole, in there."""
    if not example.annotations:
        return 0, 0
    answer = example.annotations[0]
    pieces = covered(example, answer.start, answer.end)
    if not len(pieces) or pieces[0] < window.start or pieces[-1] >= window.end:
        return 0, 0
    shift = window.first - window.start
    return int(pieces[0]) + shift, int(pieces[-1]) + shift


def first_pieces(example: MarkedExample) -> NDArray[np.int64]:
    """(W,) the first piece of each word; -1 for one without any (control characters alone)."""
    starts = np.asarray([word.start for word in example.annotations])
    found = np.searchsorted(example.piece_ends, starts, side="right")  # the first one that ends behind the word's start
    ends = np.asarray([word.end for word in example.annotations])
    inside = found < len(example.piece_starts)
    inside[inside] = example.piece_starts[found[inside]] < ends[inside]
    return np.where(inside, found, -1)


def tag_targets(window: Window, example: MarkedExample, numbers: dict[str, int], width: int) -> NDArray[np.int64]:
    """(T,) the tag of each word at its first piece (BERT's paper, section 5.3); no target elsewhere."""
    targets = np.full(width, IGNORE_INDEX, dtype=np.int64)
    for word, piece in zip(example.annotations, first_pieces(example), strict=True):
        if word.name and window.start <= piece < window.end:
            targets[window.first + piece - window.start] = numbers[word.name]
    return targets


def speakers(windows: Sequence[Window], n_pieces: int) -> NDArray[np.int64]:
    """(N,) which of a row's windows speaks for each piece: the one with the most context (released code).

    That is min(pieces before it, pieces behind it) + 0.01 x the window's length; of equals the first.
    """
    best = np.full(n_pieces, -np.inf)
    found = np.zeros(n_pieces, dtype=np.int64)
    for number, window in enumerate(windows):
        at = np.arange(window.end - window.start)
        context = np.minimum(at, len(at) - 1 - at) + 0.01 * len(at)
        better = context > best[window.start : window.end]
        best[window.start : window.end][better] = context[better]
        found[window.start : window.end][better] = number
    return found
