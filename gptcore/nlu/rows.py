"""The rows of one encoded split of a task, ready to be batched, whatever the task's form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import InputError
from gptcore.base.seeds import choose_rows
from gptcore.nlu.encoded import read_marked, recorded_pieces
from gptcore.nlu.inputs import DECODER_INPUTS, Inputs, TaskBatch
from gptcore.nlu.registry import PLACE_FORMS, TaskSpec
from gptcore.nlu.task_rows import TaskRows
from gptcore.nlu.windows import WindowRows


class Rows(Protocol):
    """What training and evaluation ask of rows: of a text that is read in windows each of them counts as one."""

    names: list[str]
    """Where each row came from, ``file:line``."""
    sizes: NDArray[np.int64]
    """Padded tokens of each."""
    tokens: int
    """Real tokens of all together, specials included."""
    truncated: int
    """Rows of the task of which a part is never read."""
    longest: int
    """Tokens of the longest sequence."""

    def __len__(self) -> int: ...

    @property
    def n_rows(self) -> int:
        """Rows of the task."""
        ...

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> TaskBatch:
        """The numbered ones, padded to the longest of them."""
        ...


def split_rows(
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
) -> TaskRows | WindowRows:
    """The chosen rows of a split; the parameters are those of :class:`gptcore.nlu.task_rows.TaskRows`.

    :raises InputError: if the split is missing or has no rows.
    """
    if spec.form not in PLACE_FORMS:
        return TaskRows(
            spec,
            folder,
            split,
            n_ctx=n_ctx,
            n_vocab=n_vocab,
            max_rows=max_rows,
            seed=seed,
            part_tokens=part_tokens,
            inputs=inputs,
        )
    marked = read_marked(folder, split)
    chosen = [marked[int(row)] for row in choose_rows(len(marked), max_rows, seed)]
    if not chosen:
        raise InputError(f"{folder / split}.arrow: found no rows to use, expected at least one")
    pieces = inputs.with_pieces(recorded_pieces(folder))
    return WindowRows(spec, chosen, pieces, n_ctx=n_ctx, n_vocab=n_vocab)
