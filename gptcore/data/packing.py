"""Rows of many small folders of shards become the files of one, each file written by whoever has time.

Which rows a file holds follows from their lengths alone, so all files can be written at once, and are those that one
writer would make of all rows in order (:func:`gptcore.data.shards.write_shards`).
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.base.types import Ints
from gptcore.data.shards import Shards, token_dtype, write_file, write_index


@dataclass(frozen=True)
class Stretch:
    """The rows of one file; small, so that it travels well to another process."""

    number: int
    """The file's number."""
    rows: tuple[tuple[Path, int, int], ...]
    """A folder of shards, its first row here, and the one behind its last."""


def pack_shards(
    folders: Sequence[Path],
    lengths: Sequence[Ints],
    out: Path,
    work: Path,
    n_vocab: int,
    n_documents: int,
    max_tokens: int,
    map: Callable[..., Iterable[Any]] = map,
) -> dict[str, Any]:
    """Write the rows of ``folders``, in order, as shards into the folder ``out``; returns what index.json holds.

    Memory: two files' worth of tokens in a worker, 8 bytes a row in the caller. What ``out`` held before is removed.

    :param lengths: tokens of each row of each folder, none above ``max_tokens``.
    :param work: a folder of the same file system for files that are not whole yet; it is left to the caller.
    :param map: the built-in, or one that gives results in order and whose workers see all folders.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    write = partial(_write, out=out, work=work, n_vocab=n_vocab)
    return write_index(out, n_vocab, n_documents, [*map(write, _stretches(folders, lengths, max_tokens))])


def _stretches(folders: Sequence[Path], lengths: Sequence[Ints], max_tokens: int) -> Iterator[Stretch]:
    """Stretches of rows, one a file: as many rows as ``max_tokens`` allows, at least one."""
    tokens = np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))  # before each row, and in all
    firsts = np.cumsum([0, *map(len, lengths)])  # rows before each folder, and in all
    row = number = 0
    while row < firsts[-1]:
        end = int(np.searchsorted(tokens, tokens[row] + max_tokens, side="right")) - 1
        first, behind = np.searchsorted(firsts, row, side="right") - 1, np.searchsorted(firsts, end)
        rows = [
            (folders[n], max(0, row - int(firsts[n])), int(min(end, firsts[n + 1]) - firsts[n]))
            for n in range(first, behind)
        ]
        yield Stretch(number, tuple(rows))
        row, number = end, number + 1


def _write(stretch: Stretch, out: Path, work: Path, n_vocab: int) -> dict[str, Any]:
    """Whole or not there: a worker that was given up, and is not dead, writes a file of its own."""
    rows = [row for folder, first, end in stretch.rows for row in Shards(folder).rows(first, end)]
    aside = work / uuid.uuid4().hex
    aside.mkdir()
    entry = write_file(aside, stretch.number, rows, token_dtype(n_vocab))
    (aside / entry["name"]).replace(out / entry["name"])
    return entry
