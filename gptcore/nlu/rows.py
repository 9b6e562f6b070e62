"""The rows of one split of a task, ready to be batched: whole rows as sequences, or long texts as windows.

A text whose places are asked for and that is longer than the network reads is cut into windows that overlap, each
behind the question. A window begins a third of n_ctx after the one before it (BERT's released `run_squad.py`: 128 of
384), and in training stands for itself: one without the answer points to the first position, [CLS], as a question
without an answer does (released code). Among the windows that hold a piece, the one with the most context on its
shorter side speaks for it.

Legend: B batch, T positions, N pieces of a row's text.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gptcore.base.errors import InputError, require
from gptcore.base.seeds import choose_rows
from gptcore.base.types import Floats, Ints
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.nlu.encoded import MarkedExample, marked_examples, read_encoded, read_marked, recorded_pieces
from gptcore.nlu.examples import Annotation, Example
from gptcore.nlu.forms import form_of
from gptcore.nlu.forms.form import Ids
from gptcore.nlu.inputs import EncodedExample, RowReader, TaskBatch, encode_rows
from gptcore.nlu.spec import TaskSpec
from gptcore.nlu.word_features import N_FEATURES, word_features
from gptcore.text.tokenizer import Tokenizer

_LONGEST_WORD = 100  # characters: of a longer one a window may see a part
_WORDS = re.compile(r"\d[\d.,]*\d|\w+|\S")
QUESTION_TOKENS = 64
"""Most pieces of a question that are read (released code)."""


class Rows(ABC):
    """What training and evaluation ask of rows: of a text that is read in windows each of them counts as one."""

    names: list[str]
    """Where each row came from, ``file:line``."""
    sizes: Ints
    """Padded tokens of each."""
    tokens: int
    """Real tokens of all together, specials included."""
    cut: dict[int, tuple[int, int]]
    """The numbers of the task's rows of which a part is never read: whole rows too long for ``n_ctx`` or
    ``part_tokens``, or rows whose question is cut; each with the tokens that are read, and all that it has."""
    longest: int
    """Tokens of the longest sequence."""
    reader: RowReader
    """How the network reads them."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def truncated(self) -> int:
        """How many of the task's rows are cut."""
        return len(self.cut)

    @property
    def n_rows(self) -> int:
        """Rows of the task."""
        return len(self)

    @abstractmethod
    def batch(self, rows: Sequence[int] | Ints) -> TaskBatch:
        """The numbered rows, padded to the longest of them."""


def split_rows(reader: RowReader, folder: Path, split: str, max_rows: int | None = None, seed: int = 0) -> Rows:
    """The chosen rows of an encoded split.

    :param folder: what :func:`gptcore.nlu.encoded.encode_task` wrote.
    :param max_rows: at most so many rows, drawn from ``seed``; None: all.
    :raises InputError: if the split is missing or has no rows.
    """
    return numbered_rows(reader, folder, split, choose_rows(len(read_encoded(folder, split)), max_rows, seed))


def numbered_rows(reader: RowReader, folder: Path, split: str, numbers: Ints) -> Rows:
    """The rows of an encoded split that ``numbers`` (N,) names, see :func:`split_rows`."""
    require(len(numbers), f"{folder / split}.arrow: found no rows to use, expected at least one")
    made: Callable[[RowReader, Path, str, Ints], Rows] = form_of(reader.spec).part("rows")
    return made(replace(reader, pieces=recorded_pieces(folder)), folder, split, numbers)


def encoded_rows(reader: RowReader, folder: Path, split: str, numbers: Ints) -> TaskRows:
    """Rows of an encoded split that are read whole; their ids stay in the memory-mapped file."""
    return TaskRows(reader, read_encoded(folder, split), numbers)


def encoded_windows(reader: RowReader, folder: Path, split: str, numbers: Ints) -> WindowRows:
    """Rows of an encoded split whose texts are read in windows."""
    marked = read_marked(folder, split)
    return WindowRows(reader, [marked[int(row)] for row in numbers])


def asked_rows(reader: RowReader, tokenizer: Tokenizer, examples: Sequence[Example]) -> TaskRows:
    """Whole rows of text: what a model is asked without an encoded dataset."""
    return TaskRows(reader, encode_rows(examples, tokenizer), np.arange(len(examples)))


def asked_windows(reader: RowReader, tokenizer: Tokenizer, examples: Sequence[Example]) -> WindowRows:
    """Windows of such rows."""
    return WindowRows(reader, marked_examples(tokenizer, examples))


class TaskRows(Rows):
    """Whole rows, each of which is one of the task's.

    Sequences are built when a batch asks for them. One pass at the start builds each row once to learn its size and
    whether it is cut.

    :param rows: of which those that ``chosen`` numbers are meant, in its order.
    """

    def __init__(self, reader: RowReader, rows: Sequence[EncodedExample], chosen: Ints) -> None:
        self.reader, self._rows, self._chosen = reader, rows, chosen
        self.labels: Floats = np.full(len(chosen), np.nan)
        """(N,) NaN where a row has none."""
        self.subsets: list[str] = []
        self.names = []
        self.sizes = np.zeros(len(chosen), dtype=np.int64)
        self.tokens = self.longest = 0
        self.cut = {}
        for row, number in enumerate(chosen):
            example = rows[int(number)]
            if example.label is not None:
                self.labels[row] = example.label
            self.subsets.append(example.subset)
            self.names.append(example.row)
            sequences, cut = self.reader.sequences(example.fields, example.choices)
            longest = max(map(len, sequences))
            self.sizes[row] = len(sequences) * longest
            self.longest = max(self.longest, longest)
            self.tokens += sum(map(len, sequences))
            if cut:
                parts = [len(part) for part in (*example.fields, *sorted(example.choices, key=len)[-1:])]
                self.cut[row] = longest, sum(parts) + (2 + self.reader.joints if len(parts) > 1 else 2)

    def batch(self, rows: Sequence[int] | Ints) -> TaskBatch:
        examples = [self._rows[int(self._chosen[row])] for row in rows]
        sequences = [self.reader.sequences(example.fields, example.choices)[0] for example in examples]
        return self.reader.collate(sequences, [example.label for example in examples])


class Window(NamedTuple):
    """A part of a row's text that the network reads at once."""

    row: int
    start: int
    end: int
    """The window's pieces of the row's text: ``start`` to ``end``, the last one excluded."""
    first: int
    """The position of the sequence at which they begin."""


class WindowRows(Rows):
    """The windows of rows.

    :param examples: the rows; read again whenever a batch asks for them.
    :raises InputError: there are no rows, or ``n_ctx`` has no room for a question and a piece.
    """

    def __init__(self, reader: RowReader, examples: Sequence[MarkedExample]) -> None:
        require(len(examples), f"{reader.spec.name}: found no rows to use, expected at least one")
        self.reader, self.examples = reader, examples
        self.windows: list[Window] = []
        self.cut = {}
        for row, example in enumerate(examples):
            self._add(row, example)
        self.names = [examples[window.row].row for window in self.windows]
        self.sizes = np.asarray([window.first + window.end - window.start + 1 for window in self.windows])
        self.tokens = int(self.sizes.sum())
        self.longest = int(self.sizes.max())

    @property
    def n_rows(self) -> int:
        return len(self.examples)

    def _add(self, row: int, example: MarkedExample) -> None:
        n_pieces = len(example.fields[-1])
        others = self._others(example)
        n_read, n_tokens = (n_pieces + sum(map(len, parts)) for parts in (others, example.fields[:-1]))
        if n_read < n_tokens:
            self.cut[row] = n_read, n_tokens
        first = 1 + sum(len(part) + self.reader.joints for part in others)
        room = self.reader.n_ctx - first - 1
        step = min(room, max(1, self.reader.n_ctx // 3))
        start = 0
        while True:
            self.windows.append(Window(row, start, min(start + room, n_pieces), first))
            if start + room >= n_pieces:
                return
            start += step

    def _others(self, example: MarkedExample) -> list[Ids]:
        """What stands before the text, cut so that at least as much of the text has room."""
        marks = 2 + self.reader.joints
        most = min(QUESTION_TOKENS, (self.reader.n_ctx - marks) // 2)
        if most < 1:
            room = f"has no room for {self.reader.spec.name}: expected at least {2 + marks}"
            raise InputError(f"model.n_ctx = {self.reader.n_ctx} {room}")
        return [part[:most] for part in example.fields[:-1]]

    def batch(self, rows: Sequence[int] | Ints) -> TaskBatch:
        """The numbered windows, padded to the longest of them; labels as :func:`span_targets` and :func:`tag_targets`
        give them, (B, 2) or (B, T).
        """
        import torch

        windows = [self.windows[number] for number in rows]
        examples = [self.examples[window.row] for window in windows]
        sequences = [
            self.reader.sequences([*self._others(example), example.fields[-1][window.start : window.end]], ())[0]
            for window, example in zip(windows, examples, strict=True)
        ]
        batch = self.reader.collate(sequences, [None] * len(windows))
        made: Targets = form_of(self.reader.spec).part("position_targets")
        width = batch.tokens.shape[-1]
        targets = made(self.reader.spec, windows, examples, width)
        batch = replace(batch, labels=torch.from_numpy(targets.astype(np.int64)))
        if not self.reader.words:
            return batch
        marked: Words = form_of(self.reader.spec).part("marked_words")
        return replace(batch, words=torch.from_numpy(marked(windows, examples, width)[:, None]))

    def of_rows(self) -> list[list[int]]:
        """The numbers of each row's windows."""
        numbers: list[list[int]] = [[] for _ in range(self.n_rows)]
        for number, window in enumerate(self.windows):
            numbers[window.row].append(number)
        return numbers


Targets = Callable[[TaskSpec, Sequence[Window], Sequence[MarkedExample], int], Ints]
"""What windows, each with its row, are to be answered with, in a batch of so many positions."""
Words = Callable[[Sequence[Window], Sequence[MarkedExample], int], Ints]
"""(B, T, F) what words of windows look like, at their places in a batch of so many positions; 0 elsewhere."""


def span_targets(spec: TaskSpec, windows: Sequence[Window], examples: Sequence[MarkedExample], width: int) -> Ints:
    """(B, 2) of each window what :func:`span_target` gives."""
    return np.asarray([span_target(*pair) for pair in zip(windows, examples, strict=True)])


def tag_targets(spec: TaskSpec, windows: Sequence[Window], examples: Sequence[MarkedExample], width: int) -> Ints:
    """(B, T) the tag of each word at its first piece (BERT's paper, section 5.3); no target elsewhere."""
    numbers = {name: number for number, name in enumerate(spec.labels)}
    targets = np.full((len(windows), width), IGNORE_INDEX, dtype=np.int64)
    for row, position, word in _words_at(windows, examples):
        if word.name:
            targets[row, position] = numbers[word.name]
    return targets


def tagged_words(windows: Sequence[Window], examples: Sequence[MarkedExample], width: int) -> Ints:
    """(B, T, F) what each word of windows looks like, at its first piece, where its tag stands, too; 0 elsewhere."""
    features = np.zeros((len(windows), width, N_FEATURES), dtype=np.int64)
    for row, position, word in _words_at(windows, examples):
        features[row, position] = word_features(examples[row].text[word.start : word.end])
    return features


def _words_at(windows: Sequence[Window], examples: Sequence[MarkedExample]) -> Iterator[tuple[int, int, Annotation]]:
    """The words that begin in windows: the number of the window, the position of the first piece in it, the word."""
    for row, (window, example) in enumerate(zip(windows, examples, strict=True)):
        for word, piece in zip(example.annotations, first_pieces(example), strict=True):
            if window.start <= piece < window.end:
                yield row, window.first + int(piece) - window.start, word


def words_of_passages(windows: Sequence[Window], examples: Sequence[MarkedExample], width: int) -> Ints:
    """(B, T, F) what the word looks like that each piece of a passage begins in, at the piece's position."""
    looks = np.zeros((len(windows), width, N_FEATURES), dtype=np.int64)
    for row, window, example in zip(looks, windows, examples, strict=True):
        pieces = example.piece_starts[window.start : window.end]
        if not len(pieces):  # control characters alone
            continue
        near = max(0, int(pieces[0]) - _LONGEST_WORD), int(pieces[-1]) + _LONGEST_WORD  # a passage may have any length
        words = [(match.start(), word_features(match[0])) for match in _WORDS.finditer(example.text, *near)]
        starts, features = (np.asarray(part) for part in zip(*words, strict=True))
        at = np.searchsorted(starts, pieces, side="right") - 1
        row[window.first : window.first + len(at)] = features[np.maximum(at, 0)]
    return looks


def covered(example: MarkedExample, start: int, end: int) -> Ints:
    """The pieces that stand for any of the characters ``start`` to ``end`` of a row's text."""
    pieces: Ints = np.flatnonzero((example.piece_ends > start) & (example.piece_starts < end))
    return pieces


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


def first_pieces(example: MarkedExample) -> Ints:
    """(W,) the first piece of each word; -1 for one without any (control characters alone)."""
    starts = np.asarray([word.start for word in example.annotations])
    pieces = np.searchsorted(example.piece_ends, starts, side="right")  # the first that ends behind the word's start
    ends = np.asarray([word.end for word in example.annotations])
    inside = pieces < len(example.piece_starts)
    inside[inside] = example.piece_starts[pieces[inside]] < ends[inside]
    return np.where(inside, pieces, -1)


def speakers(windows: Sequence[Window], n_pieces: int) -> Ints:
    """(N,) which of a row's windows speaks for each piece: the one with the most context (released code).

    That is min(pieces before it, pieces behind it) + 0.01 x the window's length; of equals the first.
    """
    best = np.full(n_pieces, -np.inf)
    speaking = np.zeros(n_pieces, dtype=np.int64)
    for number, window in enumerate(windows):
        at = np.arange(window.end - window.start)
        context = np.minimum(at, len(at) - 1 - at) + 0.01 * len(at)
        better = context > best[window.start : window.end]
        best[window.start : window.end][better] = context[better]
        speaking[window.start : window.end][better] = number
    return speaking
