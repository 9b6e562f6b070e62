"""Token ids on disk: Arrow IPC files, one row a document, read through memory mapping.

A folder of shards holds ``shard-00000.arrow``, ``shard-00001.arrow``, ... and ``index.json``, which is written last
and lists the files with their SHA-256. Columns: ``document`` (string), ``part`` (int32), ``tokens`` (list of uint16,
or uint32 where the vocabulary needs it). A document is one row, unless it is longer than a whole file may be: then it
goes on in further rows, parts 1, 2, ... For families that read sentences, a document's tokens have a separator behind
each of its sentences (:mod:`gptcore.data.encode`).

The index of a composed folder names files of other folders, relative to itself, and the rows of them to ``skip``. Rows
that are read ``again`` come behind all others, as often as the index lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gptcore.base.arrays import numbers
from gptcore.base.errors import InputError, require
from gptcore.base.files import checked_object, read_object, sha256_file, write_json_atomic
from gptcore.base.types import Ints

INDEX_FILE = "index.json"
_WHAT = "the list of a folder's token shards"
_LONGEST_NAME = 255
Tokens = npt.NDArray[np.unsignedinteger[Any]]
Row = tuple[str, int, Tokens]
"""Name of the document, running number of the row in it, token ids."""


def token_dtype(n_vocab: int) -> np.dtype[Any]:
    """The smallest of uint16 and uint32 that holds the ids 0..n_vocab-1."""
    return np.dtype(np.uint16 if n_vocab <= 1 << 16 else np.uint32)


def write_shards(
    documents: Iterable[tuple[str, Iterable[Sequence[int] | Tokens]]], folder: Path, *, n_vocab: int, max_tokens: int
) -> dict[str, Any]:
    """Write documents, in the order given, as shards of at most ``max_tokens`` tokens; returns what index.json holds.

    Memory: two files' worth of tokens, whatever the corpus. Shards that the folder held before are removed.

    :param documents: (name, token ids in pieces of any size); a document's tokens are its pieces one after the other.
    :raises InputError: an id that is not in 0..n_vocab-1, or ``max_tokens`` below 1.
    """
    require(max_tokens >= 1, f"shards.max_tokens = {max_tokens}: expected 1 or more")
    folder.mkdir(parents=True, exist_ok=True)
    for stale in [folder / INDEX_FILE, *folder.glob("shard-*.arrow")]:
        stale.unlink(missing_ok=True)
    dtype = token_dtype(n_vocab)
    files: list[dict[str, Any]] = []
    n_documents = 0
    shard: list[Row] = []
    room = max_tokens
    for name, pieces in documents:
        n_documents += 1
        for part, tokens in enumerate(_rows(name, pieces, n_vocab, dtype, max_tokens)):
            if shard and len(tokens) > room:
                files.append(write_file(folder, len(files), shard, dtype))
                shard, room = [], max_tokens
            shard.append((name, part, tokens))
            room -= len(tokens)
    if shard:
        files.append(write_file(folder, len(files), shard, dtype))
    return write_index(folder, n_vocab, n_documents, files)


def write_index(
    folder: Path,
    n_vocab: int,
    n_documents: int,
    files: Sequence[dict[str, Any]],
    n_tokens: int | None = None,
    again: Sequence[int] = (),
) -> dict[str, Any]:
    """Write, last, what a folder of shards holds; returns what index.json then says.

    :param files: an entry each, in order, as :func:`write_file` returns it.
    :param n_tokens: the tokens that are read, where rows of the files are skipped or read again; None: all of theirs.
    :param again: numbers of rows that are read once more behind all rows.
    """
    read = sum(file["n_tokens"] for file in files) if n_tokens is None else n_tokens
    index = {"n_vocab": n_vocab, "dtype": token_dtype(n_vocab).name, "n_tokens": read}
    index |= {"n_documents": n_documents, "files": [*files], **({"again": [*again]} if again else {})}
    write_json_atomic(folder / INDEX_FILE, index)
    return index


def _rows(
    name: str, pieces: Iterable[Sequence[int] | Tokens], n_vocab: int, dtype: np.dtype[Any], max_tokens: int
) -> Iterator[Tokens]:
    """Cut one document into rows of ``max_tokens``, the last one shorter; an empty document is one empty row."""
    held: list[Tokens] = []
    n_held = 0
    n_rows = 0
    for piece in pieces:
        ids = np.asarray(piece, dtype=np.int64)
        if len(ids) and not 0 <= ids.min() <= ids.max() < n_vocab:
            wrong = ids[(ids < 0) | (ids >= n_vocab)][0]
            raise InputError(f"document {name!r}: token id {wrong}, expected 0..{n_vocab - 1}")
        tokens = ids.astype(dtype)
        while n_held + len(tokens) > max_tokens:
            cut = max_tokens - n_held
            yield np.concatenate([*held, tokens[:cut]])
            n_rows += 1
            tokens, held, n_held = tokens[cut:], [], 0
        held.append(tokens)
        n_held += len(tokens)
    if n_held or not n_rows:
        yield np.concatenate([*held, np.zeros(0, dtype)])


def write_file(folder: Path, number: int, rows: Sequence[Row], dtype: np.dtype[Any]) -> dict[str, Any]:
    """Write one file of a folder of shards; returns its entry of index.json."""
    name = f"shard-{number:05d}.arrow"
    documents, parts, tokens = zip(*rows, strict=True)
    ends = np.cumsum([0, *map(len, tokens)], dtype=np.int32)  # one file, one record batch: offsets fit 31 bits
    lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(np.concatenate(tokens), type=pa.from_numpy_dtype(dtype)))
    columns = [pa.array(documents, pa.string()), pa.array(parts, pa.int32()), lists]
    batch = pa.record_batch(columns, names=["document", "part", "tokens"])
    with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return {"name": name, "n_tokens": int(ends[-1]), "n_rows": len(rows), "sha256": sha256_file(folder / name)}


class Mentions(Protocol):
    """Which entities the rows of a folder of shards mention."""

    def between(self, row: int, start: int, stop: int) -> Ints:
        """The entities of a stretch of a row: [stop - start], 1 + the entity's number, 0 where no mention begins."""


class Shards:
    """A folder of shards, memory-mapped: opening is cheap, and pages are shared between processes."""

    n_vocab: int
    n_tokens: int
    n_documents: int
    lengths: Ints
    """Tokens of each row, int64 [n_rows]."""

    def __init__(self, folder: str | Path, mentions: Mentions | None = None) -> None:
        """Open the shards of a local folder.

        :param mentions: which entities its rows mention; None: not known.
        :raises InputError: no index here, or a file that is missing, cut short or not what the index says.
        """
        self.folder = Path(folder)
        self.mentions = mentions
        if not (self.folder / INDEX_FILE).is_file():
            raise InputError(f"{self.folder}: no {INDEX_FILE} here, expected a folder of token shards")
        index = _read_index(self.folder / INDEX_FILE)
        self.n_vocab = index["n_vocab"]
        self.n_tokens = index["n_tokens"]
        self.n_documents = index["n_documents"]
        self._documents: list[pa.Array] = []
        self._values: list[Tokens] = []  # one flat array a file
        file_of, places, starts, lengths, parts = [], [], [], [], []
        for number, entry in enumerate(index["files"]):
            batch = _open_file(self.folder / entry["name"], entry)
            lists = batch.column("tokens")
            offsets = numbers(lists.offsets)
            kept = np.delete(np.arange(len(batch)), np.asarray(entry.get("skip", ()), np.int64))
            self._documents.append(batch.column("document"))
            self._values.append(numbers(lists.values))
            places.append(kept)
            parts.append(numbers(batch.column("part"))[kept])
            file_of.append(np.full(len(kept), number, np.int32))
            starts.append(offsets[:-1].astype(np.int64)[kept])
            lengths.append(np.diff(offsets).astype(np.int64)[kept])
        n_rows = sum(map(len, places))
        again = np.asarray(index.get("again", ()), np.int64)
        read = np.concatenate([np.arange(n_rows), again]) if len(again) else slice(None)
        self._file = _concatenate(file_of, np.int32)[read]  # [n_rows]
        self._place = _concatenate(places, np.int64)[read]  # [n_rows] in its file
        self._start = _concatenate(starts, np.int64)[read]  # [n_rows] first token, in its file
        self._part = _concatenate(parts, np.int32)[read]  # [n_rows]
        self.lengths = _concatenate(lengths, np.int64)[read]

    @property
    def n_rows(self) -> int:
        """Rows in all files; more than documents where a document is longer than a file."""
        return len(self.lengths)

    def tokens(self, row: int) -> Tokens:
        """Token ids of a row, uint16 or uint32 [lengths[row]], a read-only view of the mapped file."""
        start = self._start[row]
        view: Tokens = self._values[self._file[row]][start : start + self.lengths[row]]
        return view

    def rows(self, first: int, end: int) -> list[Row]:
        """Consecutive rows: what :func:`write_file` takes."""
        return [(self.document(row), int(self._part[row]), self.tokens(row)) for row in range(first, end)]

    def windows(self, rows: Ints, starts: Ints, n_tokens: int) -> Ints:
        """``n_tokens`` ids from each of ``starts`` in each of ``rows``, which are long enough: int64 [N, n_tokens]."""
        files, first = self._file[rows], self._start[rows] + starts
        cut = np.empty((len(rows), n_tokens), np.int64)
        for number in np.unique(files):
            its = files == number
            cut[its] = self._values[number][first[its, None] + np.arange(n_tokens)]
        return cut

    def document(self, row: int) -> str:
        """Name (content hash) of the document that a row belongs to."""
        name: str = self._documents[self._file[row]][int(self._place[row])].as_py()
        return name

    def places_of(self, token: int) -> tuple[Ints, Ints]:
        """Every place of an id, in order: its row, and where in the row. int64 [N] each."""
        rows, offsets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        by_file = np.argsort(self._file, kind="stable")
        borders = np.searchsorted(self._file[by_file], np.arange(len(self._values) + 1))
        for values, (begin, stop) in zip(self._values, pairwise(borders.tolist()), strict=True):
            its = by_file[begin:stop]
            starts = self._start[its]
            found = np.flatnonzero(values == token)
            first, end = np.searchsorted(found, [starts, starts + self.lengths[its]])  # of each row's places among all
            counts = end - first
            row = np.repeat(np.arange(len(its)), counts)
            place = np.arange(len(row)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
            rows.append(its[row])
            offsets.append(found[place] - starts[row])
        row, offset = np.concatenate(rows), np.concatenate(offsets)
        order = np.argsort(row, kind="stable")  # rows that are read again are of any file
        return row[order], offset[order]

    def repeated(self, copies: Callable[[str], int]) -> tuple[list[list[int]], list[int], int, int]:
        """What an index says where documents are read as often as ``copies`` of their name says: of each file the rows
        to ``skip``; the rows to read ``again``; then the tokens and the documents of all.

        :param copies: 0: the document is not read.
        """
        often = np.array([copies(self.document(row)) for row in range(self.n_rows)], np.int64)
        skipped = [self._place[(self._file == number) & (often == 0)].tolist() for number in range(len(self._values))]
        kept = often[often > 0]
        again = [np.flatnonzero(kept > already) for already in range(1, often.max(initial=1))]
        n_documents = int(often[self._part == 0].sum())
        return skipped, _concatenate(again, np.int64).tolist(), int((self.lengths * often).sum()), n_documents

    @property
    def document_numbers(self) -> Ints:
        """Which document each row belongs to, counted from 0: int64 [n_rows]."""
        return np.cumsum(self._part == 0) - 1

    def documents(self) -> Iterator[tuple[str, list[Tokens]]]:
        """Each document's name and the token ids of its rows, in order: what :func:`write_shards` takes."""
        firsts = np.flatnonzero(self._part == 0).tolist()
        for first, end in pairwise([*firsts, self.n_rows]):
            yield self.document(first), [self.tokens(row) for row in range(first, end)]


def _read_index(where: Path) -> dict[str, Any]:
    index = read_object(where, _WHAT, {"n_vocab": int, "n_tokens": int, "n_documents": int, "files": list})
    for number, entry in enumerate(index["files"]):
        fields = {"name": str, "n_rows": int, "n_tokens": int, "sha256": str}
        name = checked_object(entry, f"{where}: files[{number}]", "a JSON object", fields)["name"]
        if not 0 < len(name) <= _LONGEST_NAME or "\0" in name:
            raise InputError(f"{where}: files[{number}]: found the name {name!r:.60}, expected that of a file")
    return index


def _open_file(path: Path, entry: dict[str, Any]) -> pa.RecordBatch:
    """The one record batch of a file, mapped, nothing copied."""
    try:
        batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"{path}: cannot be read as a token shard: {error}") from error
    n_tokens = len(batch.column("tokens").values)
    if len(batch) != entry["n_rows"] or n_tokens != entry["n_tokens"]:
        raise InputError(
            f"{path}: holds {len(batch)} rows and {n_tokens} tokens, "
            f"{INDEX_FILE} says {entry['n_rows']} and {entry['n_tokens']}"
        )
    return batch


def _concatenate(arrays: list[npt.NDArray[Any]], dtype: type) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)
