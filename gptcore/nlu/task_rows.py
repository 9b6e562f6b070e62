"""The rows of one encoded split of a task, as padded batches of sequences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import InputError
from gptcore.base.seeds import choose_rows
from gptcore.nlu.encoded import read_encoded, recorded_pieces
from gptcore.nlu.inputs import DECODER_INPUTS, Ids, Inputs, TaskBatch
from gptcore.nlu.registry import TaskSpec


class TaskRows:
    """The chosen rows of one encoded split, ready to be batched.

    The token ids stay in the memory-mapped file; sequences are built when a batch asks for them. One pass at the start
    builds each row once to learn its size and whether it is cut.

    :param folder: what :func:`gptcore.nlu.encoded.encode_task` wrote.
    :param max_rows: at most so many rows, drawn from ``seed``; None: all.
    :param part_tokens: cut either side of the delimiter to so many tokens first, see :func:`build_sequences`.
    :param inputs: what the network's family makes of a row.
    :raises InputError: if the split is missing or has no rows.
    """

    def __init__(
        self,
        spec: TaskSpec,
        folder: Path,
        split: str,
        *,
        n_ctx: int,
        n_vocab: int,
        max_rows: int | None,
        seed: int,
        part_tokens: int | None = None,
        inputs: Inputs = DECODER_INPUTS,
    ) -> None:
        self._spec, self._n_ctx, self._n_vocab = spec, n_ctx, n_vocab
        self._part_tokens = part_tokens
        self._split = read_encoded(folder, split)
        self._inputs = inputs.with_pieces(recorded_pieces(folder))
        self._chosen = choose_rows(len(self._split), max_rows, seed)
        if not len(self._chosen):
            raise InputError(f"{folder / split}.arrow: found no rows to use, expected at least one")
        self.labels: NDArray[np.float64] = self._split.labels[self._chosen]
        self.subsets = [self._split.subsets[at] for at in self._chosen]
        self.names = [self._split.rows[at] for at in self._chosen]
        """Where each row came from, ``file:line``."""
        self.sizes = np.zeros(len(self), dtype=np.int64)
        """Padded tokens of each row: its sequences times the longest of them."""
        self.tokens = 0
        """Real tokens of all rows together, specials included."""
        self.truncated = 0
        """Rows too long for ``n_ctx`` or ``part_tokens``."""
        self.longest = 0
        """Tokens of the longest sequence."""
        for row in range(len(self)):
            sequences, cut = self._build(row)
            longest = max(map(len, sequences))
            self.sizes[row] = len(sequences) * longest
            self.longest = max(self.longest, longest)
            self.tokens += sum(map(len, sequences))
            self.truncated += cut

    def __len__(self) -> int:
        return len(self._chosen)

    @property
    def n_rows(self) -> int:
        """Rows of the task: each is one here."""
        return len(self)

    def _build(self, row: int) -> tuple[list[Ids], bool]:
        example = self._split[int(self._chosen[row])]
        return self._inputs.sequences(
            self._spec,
            example.fields,
            example.choices,
            n_ctx=self._n_ctx,
            n_vocab=self._n_vocab,
            part_tokens=self._part_tokens,
        )

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> TaskBatch:
        """The numbered rows, padded to the longest of them."""
        labels = [None if np.isnan(label) else float(label) for label in self.labels[rows]]
        return self._inputs.collate(self._spec, [self._build(row)[0] for row in rows], labels)
