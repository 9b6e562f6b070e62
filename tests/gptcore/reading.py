"""Rows of a task as a family's networks read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gptcore.nlu.forms.form import Ids
from gptcore.nlu.inputs import DECODER_INPUTS, Inputs, RowReader
from gptcore.nlu.rows import TaskRows, split_rows
from gptcore.nlu.spec import TaskSpec


def task_rows(
    spec: TaskSpec,
    folder: Path,
    split: str,
    *,
    max_rows: int | None = None,
    seed: int = 0,
    inputs: Inputs = DECODER_INPUTS,
    **reading: Any,
) -> TaskRows:
    """The chosen rows of an encoded split; ``reading``: fields of :class:`RowReader`."""
    rows = split_rows(RowReader(spec, inputs, **reading), folder, split, max_rows, seed)
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
    return RowReader(spec, DECODER_INPUTS, n_ctx, n_vocab, part_tokens).sequences(fields, choices)
