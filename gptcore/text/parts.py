"""Rows of text: a raw document cut into some, and cleaned text on disk, in Arrow IPC files.

    folder/train/part-00000.arrow ...    folder/validation/part-00000.arrow ...

A row on disk is at most about a megabyte of a document. A long document spans consecutive rows, parts 0, 1, 2 ... of
the same document, and never two files. Its words are those of `split_clean` on each row.

Text that stays as it is, for a tokenizer that takes any, is cut where byte-level encoding
(:mod:`gptcore.text.byte_bpe`) begins a new piece anyway, and WordPiece and SentencePiece a new word, so that the ids of
the rows, one after the other, are those of the whole document. Joined without anything between them, the rows are it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from gptcore.base.errors import InputError

SPLITS = ("train", "validation")
SCHEMA = pa.schema([("document", pa.string()), ("source", pa.string()), ("part", pa.int32()), ("text", pa.string())])
"""document: SHA-256 of its text; source: the file it came from; part: running number in the document; text: cleaned."""

BATCH = 1 << 21  # characters of a record batch, more by at most one row


def part_name(index: int) -> str:
    """File name of the part with this number; names sort as numbers do, as far as five digits go."""
    return f"part-{index:05d}.arrow"


def read_corpus(folder: Path, split: str) -> Iterator[tuple[str, Iterator[str]]]:
    """Stream a cleaned corpus: each document's hash and its rows of cleaned text, to be consumed in order."""
    for path in part_files(folder, split):
        for (_, document), group in groupby(read_part(path), key=lambda row: row[:2]):
            yield document, (text for _, _, text in group)


def part_files(folder: Path, split: str) -> list[Path]:
    """The files of one split, in order."""
    return sorted((folder / split).glob("part-*.arrow"))


def read_part(path: Path) -> Iterator[tuple[int, str, str]]:
    """Running number of the document, its hash, and the text of each row; a document's rows follow one another."""
    number = 0
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            for document, part, text in zip(*(batch.column(c) for c in ("document", "part", "text")), strict=True):
                number += part.as_py() == 0
                yield number, document.as_py(), text.as_py()


def read_sources(folder: Path) -> dict[str, str]:
    """Hash of each document of a cleaned corpus -> the file that it came from; its text is not read."""
    sources: dict[str, str] = {}
    for path in (path for split in SPLITS for path in part_files(folder, split)):
        with pa.memory_map(str(path)) as file:
            rows = pa.ipc.open_file(file).read_all().select(["document", "source"])
            sources.update(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    return sources


class Parts:
    """The Arrow files of one group of sources, one a split, made when a first row comes and complete when closed."""

    def __init__(self, out: Path, name: str) -> None:
        self._out, self._name = out, name
        self._files: dict[str, Any] = {}
        self._ending = f".{uuid.uuid4().hex[:8]}.tmp"  # a worker that was given up may still be writing its own
        self._waiting: dict[str, list[tuple[str, str, int, str]]] = {split: [] for split in SPLITS}
        self._size = dict.fromkeys(SPLITS, 0)

    def write(self, split: str, document: str, source: str, rows: Iterable[str]) -> int:
        """Append a document's rows; returns how many there were."""
        n_rows = 0
        for part, text in enumerate(rows):
            self._waiting[split].append((document, source, part, text))
            self._size[split] += len(text)
            if self._size[split] > BATCH:
                self._flush(split)
            n_rows += 1
        return n_rows

    def close(self) -> None:
        """Give the finished files their names, and remove those of an earlier attempt that has more."""
        for split in SPLITS:
            if self._waiting[split]:
                self._flush(split)
            path = self._out / split / self._name
            if split in self._files:
                self._files[split].close()
                path.with_suffix(self._ending).replace(path)
            else:
                path.unlink(missing_ok=True)

    def _flush(self, split: str) -> None:
        if split not in self._files:
            path = (self._out / split / self._name).with_suffix(self._ending)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files[split] = pa.ipc.new_file(str(path), SCHEMA)
        columns = zip(*self._waiting[split], strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
        self._files[split].write_batch(pa.record_batch(arrays, schema=SCHEMA))
        self._waiting[split], self._size[split] = [], 0


# --- rows of a raw document ---


ROW = 1 << 19  # characters of a row
SEGMENT = 1 << 16  # so many more, where no place to cut comes sooner

# GPT-2's pattern leaves the last white space of a run to what follows it, and cuts before it whatever stands before.
_CUT = re.compile(r"[ \n](?=\S)")


def raw_rows(chunks: Iterable[str]) -> Iterator[str]:
    """The rows of one document given in pieces, in bounded memory; how it was cut into pieces does not show.

    Where SEGMENT characters have neither a space nor a line break before a letter or mark, a row ends amid them.
    """
    pending = ""
    for chunk in chunks:
        pending += chunk
        while len(pending) > ROW + SEGMENT:
            cut = _CUT.search(pending, ROW, ROW + SEGMENT)
            end = cut.start() if cut else ROW + SEGMENT - 1
            yield pending[:end]
            pending = pending[end:]
    if pending:
        yield pending


def encodable(text: str) -> str:
    """The text itself.

    :raises InputError: the text holds half of a surrogate pair.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        place = f"text: character {error.start}"
        raise InputError(f"{place}: half of a surrogate pair, which UTF-8 cannot hold") from None
    return text
