"""Where the sentences of a folder of shards lie, and the runs of consecutive ones that its documents have.

Tokens whose entities are known carry them: the lower half of such a number is the token's id, the upper half 1 + the
number of the entity whose mention begins there, or 0.

Memory: 24 bytes a sentence, of which a book of half a megabyte has some 4,000.

Legend of shape comments: S sentences in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gptcore.data.draws import Bits, below
from gptcore.data.shards import Shards

ID_BITS = 32
"""Of a token that carries an entity, those of its id."""


class Run(NamedTuple):
    """Sentences by their numbers, first to stop, the last one left out."""

    first: int
    stop: int

    @property
    def n_sentences(self) -> int:
        """How many there are."""
        return self.stop - self.first


class SentenceTable:
    """The sentences of all rows, in order, without empty ones; one that is longer than ``longest`` counts as several.

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

    def tokens(self, run: Run) -> npt.NDArray[np.int64]:
        """The ids of a run, one sentence behind the other without separators, with known entities: int64."""
        if run.first == run.stop:
            return np.zeros(0, np.int64)
        last = run.stop - 1
        row = int(self._rows[run.first])
        start, stop = int(self._starts[run.first]), int(self._starts[last] + self.lengths[last])
        ids = self._shards.tokens(row)[start:stop]
        kept = ids != self._separator
        found: npt.NDArray[np.int64] = ids[kept].astype(np.int64)
        if self._shards.mentions is not None:
            found |= self._shards.mentions.between(row, start, stop)[kept] << ID_BITS
        return found

    def document(self, sentence: int) -> str:
        """Name of the document that a sentence belongs to."""
        return self._shards.document(int(self._rows[sentence]))
