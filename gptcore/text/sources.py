"""Raw corpus files, wherever fsspec reaches, as streams of documents.

`.txt` is one document; `.jsonl` has one a line and `.parquet` one a row, in a field of text. The first two may be
gzipped (`.gz`). Text is UTF-8; of these two, one whose first bytes beyond ASCII are something else is refused, or read
as the encoding that the settings name. A document's text is what remains after decoding: no byte order mark, line ends
"\\n", undecodable bytes and lone surrogates as U+FFFD, Gutenberg's additions cut where asked for.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import fsspec

from gptcore.base.errors import InputError, require
from gptcore.base.files import sha256_file
from gptcore.base.filesystems import file_system, is_folder, misspelt
from gptcore.base.unpacking import bounded
from gptcore.config import CorpusConfig
from gptcore.text.decoding import Read, as_utf8, decode, unified, without_surrogates
from gptcore.text.gutenberg import strip_gutenberg

BLOCK = 1 << 18  # bytes read at a time
MAX_ROW = 1 << 28  # bytes of one .jsonl line: a row has to be parsed as a whole, and memory is bounded

_ENDINGS = ".txt .txt.gz .jsonl .jsonl.gz .parquet"
_KIND = re.compile(r"\.(?:(txt|jsonl)(\.gz)?|(parquet))$")
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Source:
    """One file of a raw corpus."""

    root: str
    """The corpus' own address, with its protocol; all its files share it."""
    name: str
    """Path below the corpus' root: the name in reports and in cleaned rows, the same wherever the corpus lies."""
    kind: str
    """txt, jsonl or parquet."""
    gzipped: bool
    size: int
    """Bytes as stored."""

    @property
    def url(self) -> str:
        """Where to open it."""
        return self.root + self.name


@dataclass(frozen=True)
class RawCorpus:
    """A raw corpus whose files were looked up, once for all who read it."""

    url: str
    """The corpus' address, as messages name it."""
    sources: tuple[Source, ...]
    """Sorted by name."""

    @classmethod
    def at(cls, url: str) -> RawCorpus:
        """Look up the files; see :func:`find_sources`.

        :raises InputError: no source there, or one that nothing reads.
        """
        return cls(url, tuple(find_sources(url)))


def find_sources(url: str) -> list[Source]:
    """The files of a corpus, sorted by name.

    :param url: any fsspec URL of a file, of a folder (walked to its leaves; hidden files and those with other endings
        are passed over) or a glob (whose matches must all be readable).
    :raises InputError: nothing there, a file of an unknown kind, or a folder without a single known one.
    """
    filesystem, path = file_system(url)
    named: Iterable[str]
    if filesystem.isfile(path):
        root, named = path.rpartition("/")[0], [path]
    elif is_folder(filesystem, path):
        root = path.rstrip("/")
        named = (file for file in _files(filesystem, path) if _KIND.search(file) and not _hidden(file[len(root) :]))
    elif glob := _GLOB.search(path):
        root = path[: glob.start()].rpartition("/")[0]
        named = [match for match in filesystem.glob(path) if filesystem.isfile(match)]
        require(named, f"corpus {url}: no file matches, expected files ending in {_ENDINGS}")
    else:
        raise InputError(f"corpus {url}: no such file or folder, expected books in {_ENDINGS}{misspelt(url)}")
    if sources := [_source(filesystem, file, file[len(root) :].lstrip("/")) for file in named]:
        return sorted(sources, key=lambda source: source.name)
    others = sum(1 for _ in _files(filesystem, path))
    found = f"{others} files of other kinds" if others else "an empty folder"
    raise InputError(f"corpus {url}: found {found}, expected files ending in {_ENDINGS}")


def fingerprint(
    sources: Iterable[Source], digest: Callable[[str], str] = sha256_file, encoding: str | None = None
) -> list[dict[str, Any]]:
    """What identifies the corpus' content, for use in digests: no dates and no place.

    Local files: ``path`` (relative) and ``sha256``. Remote files: ``path``, ``size`` and the store's own ``tag`` of
    this version of the file (its ETag, the hub's blob id, or fsspec's unique key).

    :param digest: the SHA-256 of a local file.
    :param encoding: of files that are no UTF-8; of `.jsonl` it is part of what identifies the text.
    """
    prints: list[dict[str, Any]] = []
    for source in sources:
        filesystem, path = file_system(source.url)
        if _local(filesystem):
            prints.append({"path": source.name, "sha256": digest(path)})
        else:
            info = filesystem.info(path)
            tag = info.get("ETag") or info.get("etag") or info.get("blob_id") or filesystem.ukey(path)
            prints.append({"path": source.name, "size": source.size, "tag": str(tag).strip('"')})
        if encoding and source.kind == "jsonl":
            prints[-1]["encoding"] = encoding
    return prints


def local_path(source: Source) -> Path | None:
    """Where a source lies on this machine; None where it lies elsewhere."""
    filesystem, path = file_system(source.url)
    return Path(path) if _local(filesystem) else None


def read_documents(source: Source, config: CorpusConfig, read: Read) -> Iterator[Iterator[str]]:
    """The documents of one file, each as a stream of pieces, to be consumed (or passed over) in order.

    Memory: a few BLOCKs for .txt, one row for the others. ``read`` is complete for a document once it is consumed.

    :raises InputError: a broken archive, line or row, a missing or wrongly typed field; undecodable bytes, where
        ``config.strict``. Names the file and the line, row or byte.
    """
    for pieces in _READERS[source.kind](source, config, read):
        text = unified(pieces)
        yield strip_gutenberg(text) if config.strip_gutenberg else text


# --- finding ---------------------------------------------------------------------------------------------------------


def _source(filesystem: Any, path: str, name: str) -> Source:
    kind = _KIND.search(path)
    if not kind:
        raise InputError(f"corpus file {path}: unknown kind, expected a name ending in {_ENDINGS}")
    root = sys.intern(filesystem.unstrip_protocol(path).removesuffix(name))
    return Source(root, name, sys.intern(kind[1] or kind[3]), bool(kind[2]), int(filesystem.size(path) or 0))


def _files(filesystem: Any, folder: str) -> Iterator[str]:
    """All in a folder and below; on this machine without fsspec's kilobyte for each."""
    if _local(filesystem):
        return (f"{path.rstrip('/')}/{name}" for path, _, names in os.walk(folder) for name in names)
    return iter(filesystem.find(folder))


def _hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))  # _SUCCESS, .ipynb_checkpoints, ...


def _local(filesystem: Any) -> bool:
    protocol = filesystem.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)


# --- reading ---------------------------------------------------------------------------------------------------------


def _read_txt(source: Source, config: CorpusConfig, read: Read) -> Iterator[Iterator[str]]:
    with fsspec.open(source.url, "rb") as file:
        yield decode(as_utf8(_blocks(file, source), source.name, config.encoding), source.name, config.strict, read)


def _read_jsonl(source: Source, config: CorpusConfig, read: Read) -> Iterator[Iterator[str]]:
    offset = 0
    with fsspec.open(source.url, "rb") as file:
        blocks = as_utf8(_blocks(file, source), source.name, config.encoding)
        for number, line in enumerate(_byte_lines(blocks, source.name), 1):
            undecoded = Read()
            row = "".join(decode([line], source.name, config.strict, undecoded, offset))
            offset += len(line)
            if not row.strip():
                continue  # a blank line is no row
            text = _json_field(row, config.text_field, f"{source.name}, line {number}")
            read.undecodable += undecoded.undecodable
            read.example = read.example or undecoded.example
            read.bytes += len(text.encode("utf-8", "surrogatepass"))
            yield iter([without_surrogates(text, read)])


def _json_field(row: str, field: str, where: str) -> str:
    try:
        value = json.loads(row)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: no valid JSON ({error}), expected an object with a field {field!r}") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: found JSON {type(value).__name__}, expected an object with a field {field!r}")
    if field not in value:
        raise InputError(f"{where}: no field {field!r} among {sorted(value)}, expected one that holds text")
    text = value[field]
    if not isinstance(text, str):
        raise InputError(f"{where}: field {field!r} holds {json.dumps(text)[:40]}, expected text")
    return text


def _read_parquet(source: Source, config: CorpusConfig, read: Read) -> Iterator[Iterator[str]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    column, number = config.text_field, 0
    with fsspec.open(source.url, "rb") as file:
        try:
            table = pq.ParquetFile(file, pre_buffer=False, buffer_size=BLOCK)
            schema = table.schema_arrow
            if column not in schema.names:
                raise InputError(f"{source.name}: no column {column!r} among {schema.names}, expected one of text")
            kind = schema.field(column).type
            if pa.types.is_dictionary(kind):
                kind = kind.value_type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise InputError(f"{source.name}: column {column!r} has type {kind}, expected string")
            for batch in table.iter_batches(batch_size=16, columns=[column]):
                # as bytes: whether they are UTF-8 is for us to say, as in the other kinds of file
                for value in batch.column(0).cast(pa.large_string()).cast(pa.large_binary()):
                    number += 1
                    if (raw := value.as_py()) is None:
                        raise InputError(f"{source.name}, row {number}: column {column!r} is null, expected text")
                    yield decode([raw], f"{source.name}, row {number}", config.strict, read)
        except (pa.ArrowException, EOFError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{source.name}, after row {number}: not readable as Parquet ({reason})") from error


_READERS = {"txt": _read_txt, "jsonl": _read_jsonl, "parquet": _read_parquet}


def _blocks(file: BinaryIO, source: Source) -> Iterator[bytes]:
    """The file's bytes, decompressed; every block full but the last."""
    stream: Any = bounded(gzip.GzipFile(fileobj=file), file, source.name) if source.gzipped else file
    position = 0
    try:
        while block := stream.read(BLOCK):
            yield block
            position += len(block)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{source.name}: broken gzip after byte {position} of its content ({error})") from error


def _byte_lines(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Split at newlines, which stay; lines may span blocks."""
    pending: list[bytes] = []
    size, number = 0, 1
    for block in blocks:
        *lines, last = block.split(b"\n")
        for piece in [*(line + b"\n" for line in lines), last]:
            pending.append(piece)
            size += len(piece)
            if size > MAX_ROW:
                raise InputError(f"{name}, line {number}: more than {MAX_ROW} bytes, expected a row of less")
            if piece.endswith(b"\n"):
                yield b"".join(pending)
                pending, size = [], 0
                number += 1
    if size:
        yield b"".join(pending)
