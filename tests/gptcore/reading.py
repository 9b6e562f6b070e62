"""Rows of a task as a family's networks read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gptcore.nlu.forms.form import Ids
from gptcore.nlu.inputs import DecoderReader, RowReader, TaskBatch
from gptcore.nlu.rows import TaskRows, split_rows
from gptcore.nlu.spec import TaskSpec


def task_rows(
    spec: TaskSpec,
    folder: Path,
    split: str,
    *,
    max_rows: int | None = None,
    seed: int = 0,
    kind: type[RowReader] = DecoderReader,
    **reading: Any,
) -> TaskRows:
    """The chosen rows of an encoded split; ``reading``: fields of :class:`RowReader`."""
    rows = split_rows(kind(spec, **reading), folder, split, max_rows, seed)
    assert isinstance(rows, TaskRows)
    return rows


def sequences_of(
    spec: TaskSpec,
    fields: Sequence[Ids],
    choices: Sequence[Ids],
    n_ctx: int,
    n_vocab: int,
    part_tokens: int | None = None,
) -> tuple[list[Ids], bool]:
    """A row's sequences for a decoder, and whether anything had to be cut."""
    return DecoderReader(spec, n_ctx, n_vocab, part_tokens).sequences(fields, choices)


def collate(spec: TaskSpec, sequences: Sequence[Sequence[Ids]], labels: Sequence[float | None]) -> TaskBatch:
    """A decoder's rows of equally many sequences as one padded batch."""
    return DecoderReader(spec, n_ctx=512, n_vocab=1000).collate(sequences, labels)
