"""Sequences of two segments for masked language models: [CLS] A [SEP] B [SEP], of sentences that follow each other.

A sample is a run of consecutive sentences of one document up to a target length, cut in two at one of its borders. What
the second segment is depends on the objective (`gptcore.config.training.PAIRS`): what follows, or with p 1/2 a run
of another document (BERT, section 3.1, task 2), or with p 1/2 the two in the wrong order (ALBERT, section 3.1). Where
BERT's original code walks through each document and puts back what a random second segment has replaced, runs are drawn
anew for each sample, so that nothing is lost and nothing has to be put back.

Legend of shape comments: B samples in a batch, T positions, S sentences in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gptcore.base.errors import require
from gptcore.base.seeds import Bits, below, derive_seed, sample_bits, uniforms
from gptcore.base.types import Ints
from gptcore.config.training import SHORTEST
from gptcore.data.masking import PieceTable
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.data.shards import Shards

ID_BITS = 32
"""Lower bits of a number that hold a token's id, where the bits above them hold its entity."""


Run = range
"""Sentences by their numbers, first to stop, the last one left out."""


class SentenceTable:
    """The sentences of all rows, in order, without empty ones; one that is longer than ``longest`` counts as several.

    It takes 24 bytes of memory a sentence, of which a book of half a megabyte has some 4,000.

    :ivar lengths: tokens of each, int32 [S].
    """

    def __init__(self, shards: Shards, separator: int, longest: int) -> None:
        """:param separator: the id behind each sentence of the shards."""
        self._shards, self._separator = shards, separator
        rows, stops = shards.places_of(separator)
        rows = np.concatenate([rows, np.arange(shards.n_rows)])  # a row's end ends a sentence, too
        stops = np.concatenate([stops, shards.lengths])
        order = np.lexsort((stops, rows))
        rows, stops = rows[order], stops[order]
        follows = np.zeros(len(rows), bool)
        follows[1:] = rows[1:] == rows[:-1]
        starts = np.where(follows, np.concatenate([[0], stops[:-1] + 1]), 0)
        kept = stops > starts
        rows, starts, lengths = rows[kept], starts[kept], (stops - starts)[kept]
        parts = -(-lengths // longest)
        part = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        self._rows = np.repeat(rows, parts).astype(np.int32)  # [S]
        self._starts = (np.repeat(starts, parts) + part * longest).astype(np.int32)  # [S] in the row
        self.lengths = np.minimum(longest, np.repeat(lengths, parts) - part * longest).astype(np.int32)
        self._ends = np.cumsum(self.lengths, dtype=np.int64)  # [S] tokens of this and all sentences before it
        self._row_stop = np.searchsorted(self._rows, np.arange(shards.n_rows), side="right")  # [n_rows]
        documents = shards.document_numbers
        self._documents = documents
        self._document_stop = np.searchsorted(documents[self._rows], np.arange(shards.n_documents), side="right")

    def starts(self, length: int, least: int) -> npt.NDArray[np.int32]:
        """The sentences at which runs of up to ``length`` tokens and ``least`` sentences (1 or 2) begin.

        Those that have ``length`` tokens up to the end of their row, the next one, and each row's first.
        """
        numbers = np.arange(len(self.lengths))
        first = np.ones(len(numbers), bool)
        first[1:] = self._rows[1:] != self._rows[:-1]
        left = self._ends[self._row_stop[self._rows] - 1] - self._ends + self.lengths if len(numbers) else self._ends
        begins = first.copy()
        begins[1:] |= left[:-1] >= length
        enough = self._row_stop[self._rows] - numbers >= least
        # A row with fewer sentences is read as it is, unless there are no others.
        return np.flatnonzero(begins & (enough | first)).astype(np.int32) if enough.any() else np.zeros(0, np.int32)

    def run(self, first: int, length: int, least: int) -> Run:
        """Sentences from ``first`` on until they have ``length`` tokens and are ``least``, or their row ends."""
        reached = int(np.searchsorted(self._ends, self._ends[first] - self.lengths[first] + length)) + 1
        return Run(first, min(max(reached, first + least), int(self._row_stop[self._rows[first]])))

    def consecutive(self, length: int, least: int) -> Iterator[Run]:
        """All sentences once, in runs as :meth:`run` makes them."""
        first = 0
        while first < len(self.lengths):
            yield (run := self.run(first, length, least))
            first = run.stop

    def elsewhere(self, sentence: int, bits: Bits) -> int:
        """A sentence of another document, all equally likely; of the same one where there is no other.

        The original code draws the document first, so that a sentence of a short one is likelier.
        """
        document = self._documents[self._rows[sentence]]
        stop = int(self._document_stop[document])
        first = int(self._document_stop[document - 1]) if document else 0
        others = len(self.lengths) - (stop - first)
        if not others:
            return int(below(bits, len(self.lengths)))
        drawn = int(below(bits, others))
        return drawn if drawn < first else drawn + stop - first

    def tokens(self, run: Run) -> Ints:
        """The ids of a run, one sentence behind the other without separators: int64.

        Where the shards' mentions are known, a number holds two: its lower 32 bits are the token's id, the upper ones 1
        + the number of the entity whose mention begins at the token, or 0 where none begins.
        """
        if not run:
            return np.zeros(0, np.int64)
        last = run.stop - 1
        row = int(self._rows[run.start])
        start, stop = int(self._starts[run.start]), int(self._starts[last] + self.lengths[last])
        ids = self._shards.tokens(row)[start:stop]
        kept = ids != self._separator
        marked: Ints = ids[kept].astype(np.int64)
        if self._shards.mentions is not None:
            marked |= self._shards.mentions.between(row, start, stop)[kept] << ID_BITS
        return marked

    def document(self, sentence: int) -> str:
        """Name of the document that a sentence belongs to."""
        return self._shards.document(int(self._rows[sentence]))


_MARKS = 3  # [CLS], and [SEP] twice
_SHORT = {"none": (0.05, 5), "nsp": (0.1, 2), "sop": (0.1, 2)}
"""The share of samples with a random target length, and the least of those; original code of ELECTRA, BERT, ALBERT."""
_SINGLE = 0.1  # of ELECTRA's samples are one segment, as some tasks are (original code)
_CHOICES = 8  # numbers drawn for a sample, before the bits of its truncation
_HELD_OUT = 0  # seed of what is drawn for held-out text: the same for every model


class Segments(NamedTuple):
    """The numbers of a sample, as :meth:`SentenceTable.tokens` gives them, without marks.

    The second is empty where there is one segment.
    """

    first: Ints
    second: Ints
    label: int
    """nsp: 1 where the second comes from elsewhere; sop: 1 where the two were swapped; IGNORE_INDEX where there is
    nothing to tell."""


@dataclass(frozen=True)
class SentenceBatch:
    """Sequences behind one another, padded at the end."""

    tokens: Ints
    """[B, T]"""
    segments: Ints
    """[B, T] 0 for [CLS] A [SEP], 1 for B [SEP], 0 for padding."""
    mask: Ints
    """[B, T] 1 for a word or a mark, 0 for padding."""
    labels: Ints
    """[B]"""
    entities: Ints | None = None
    """[B, T] 1 + the number of the entity whose mention begins at a position, else 0; None: not known."""


class SentencePairs:
    """Random sequences of a folder of shards; the one of number i is a pure function of (seed, i).

    Runs begin at a sentence drawn uniformly of those from which a document fills the length, of its first, and of the
    first that does not, so that no sentence is left out. A sentence that is longer than a sequence counts as several.
    """

    def __init__(self, shards: Shards, table: PieceTable, length: int, pairs: str, seed: int) -> None:
        """Find where runs of sentences begin.

        :raises InputError: no sentence at all, no two of one document where their order is to be told, or a length with
            no room for two segments.
        """
        require(length >= SHORTEST, f"sequences of {length} tokens; pre-training on sentences takes {SHORTEST} or more")
        self.length, self._pairs = length, pairs
        self._room = length - _MARKS
        self._table = table
        self._linked = shards.mentions is not None
        self._sentences = SentenceTable(shards, table.sep, self._room)
        self._least = 2 if pairs == "sop" else 1  # sentences of a run, where its document has them
        self._starts = self._sentences.starts(self._room, self._least)
        require(len(self._starts), f"{shards.folder}: no document with {self._least} sentences or more to sample from")
        self._seed = derive_seed(seed, "sentence pairs", length)

    def batch(self, numbers: Ints) -> SentenceBatch:
        """The sequences of these numbers, int64 [B]."""
        bits = self._bits(self._seed, numbers)
        return self._padded([self._sample(self._run(row), self._target(row), row) for row in bits])

    def document(self, number: int) -> str:
        """The document from which the sequence of this number has its run."""
        [row] = self._bits(self._seed, np.array([number]))
        return self._sentences.document(self._run(row).start)

    def in_order(self, batch_size: int, max_tokens: int | None = None) -> Iterator[tuple[Ints, SentenceBatch]]:
        """Runs from the first sentence on, one behind the other, for an evaluation: each batch with its runs' numbers.

        What is drawn for them (second segments, truncation) is the same for every seed.

        :param max_tokens: no more than so many, in runs spread evenly over the shards, but one run at least.
        """
        runs = list(self._sentences.consecutive(self._room, self._least))
        kept = len(runs) if max_tokens is None else min(len(runs), max(1, max_tokens // self.length))
        chosen = np.arange(kept) * len(runs) // kept
        seed = derive_seed(_HELD_OUT, "sentence pairs", self.length)
        for begin in range(0, kept, batch_size):
            numbers = chosen[begin : begin + batch_size]
            bits = self._bits(seed, numbers)
            samples = [self._sample(runs[number], self._room, row) for number, row in zip(numbers, bits, strict=True)]
            yield numbers, self._padded(samples)

    # --- one sample -------------------------------------------------------------------------------------------------

    def _bits(self, seed: int, numbers: Ints) -> Bits:
        return sample_bits(seed, numbers, _CHOICES + 2 * self._words)

    @property
    def _words(self) -> int:
        """64-bit numbers with a bit for each token that a segment may lose."""
        return -(-2 * self._room // 64)

    def _run(self, bits: Bits) -> Run:
        """The sentences of a sample."""
        start = self._starts[below(bits[2], len(self._starts))]
        return self._sentences.run(int(start), self._target(bits), self._least)

    def _target(self, bits: Bits) -> int:
        share, least = _SHORT[self._pairs]
        if uniforms(bits[0]) >= share:
            return self._room
        least = min(least, self._room)
        return least + int(below(bits[1], self._room - least + 1))

    def _sample(self, run: Run, target: int, bits: Bits) -> Segments:
        read = self._sentences.tokens
        if self._pairs == "none":
            return self._continued(run, target, bits)
        alone = len(run) == 1
        border = run.stop if alone else run.start + 1 + int(below(bits[3], len(run) - 1))
        first, coin = read(Run(run.start, border)), uniforms(bits[4]) < 0.5
        if self._pairs == "nsp":
            label = int(alone or coin)
            followed = Run(border, run.stop)
            if label:  # a run of one sentence has none that follows (original code)
                start = self._sentences.elsewhere(run.start, bits[5])
                followed = self._sentences.run(start, max(1, target - len(first)), 1)
            return self._truncated(first, read(followed), label, bits)
        if alone:  # a document of one sentence has no order: one segment that the loss of pairs leaves out
            return Segments(first[: self._room + 1], first[:0], IGNORE_INDEX)
        second = read(Run(border, run.stop))
        return self._truncated(*((second, first) if coin else (first, second)), int(coin), bits)

    def _continued(self, run: Run, target: int, bits: Bits) -> Segments:
        """ELECTRA's: one segment, or two that are cut near the middle (original code).

        There a later, shorter sentence may still go into the first segment, out of its order; here none does.
        """
        half = target // 2
        sizes = np.cumsum(self._sentences.lengths[run.start : run.stop])
        taken = max(1, int(np.searchsorted(sizes, half)))  # sentences that stay below the half
        if sizes[taken - 1] < half and uniforms(bits[3]) < 0.5:
            taken += 1
        if uniforms(bits[4]) < _SINGLE or taken >= len(run):
            return Segments(self._sentences.tokens(run)[: self._room + 1], np.zeros(0, np.int64), IGNORE_INDEX)
        first = self._sentences.tokens(Run(run.start, run.start + taken))[: self._room - 1]
        second = self._sentences.tokens(Run(run.start + taken, run.stop))
        return Segments(first, second[: self._room - len(first)], IGNORE_INDEX)

    def _truncated(self, first: Ints, second: Ints, label: int, bits: Bits) -> Segments:
        """Token by token the longer segment loses one, at its front or its end with p 1/2 (original code)."""
        a, b = len(first), len(second)
        excess = max(0, a + b - self._room)
        uneven = min(excess, abs(a - b))
        lost = [(excess - uneven) // 2, (excess - uneven + 1) // 2]  # of two that are as long the second loses one
        lost[int(b > a)] += uneven
        kept = []
        for number, (ids, n) in enumerate(zip((first, second), lost, strict=True)):
            begin = _CHOICES + number * self._words
            coins = int.from_bytes(bits[begin : begin + self._words].tobytes(), "little")
            front = (coins & ((1 << n) - 1)).bit_count()
            kept.append(ids[front : len(ids) - (n - front)])
        return Segments(kept[0], kept[1], label)

    def _padded(self, samples: list[Segments]) -> SentenceBatch:
        shape = len(samples), self.length
        tokens = np.full(shape, self._table.pad, np.int64)
        segments, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        cls, sep = [self._table.cls], [self._table.sep]
        for row, (first, second, _) in enumerate(samples):
            n = len(first) + 2
            tokens[row, :n] = np.concatenate([cls, first, sep])
            if len(second):
                end = n + len(second) + 1
                tokens[row, n:end] = np.concatenate([second, sep])
                segments[row, n:end] = 1
                n = end
            mask[row, :n] = 1
        labels = np.array([sample.label for sample in samples], np.int64)
        entities = tokens >> ID_BITS if self._linked else None
        return SentenceBatch(tokens & ((1 << ID_BITS) - 1), segments, mask, labels, entities)
