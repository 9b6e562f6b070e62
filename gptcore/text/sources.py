"""Raw corpus files, wherever fsspec reaches, as streams of documents.

`.txt` and `.md` are one document; `.jsonl` (`.ndjson`) has one a line, `.json` one an element of its array and
`.parquet` one a row, in a field of text. All but the last may be compressed, as their ending or, where that does not
say so, their first bytes tell. Endings are read whatever their case, and files that are passed over are counted. Text
is UTF-8, or UTF-16 behind a byte order mark; a file whose first bytes beyond ASCII are something else is refused, or
read as the encoding that the settings name. A document's text is what remains after decoding: no byte order mark, line
ends "\\n", undecodable bytes and lone surrogates as U+FFFD, Gutenberg's additions cut where asked for.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
import pyarrow as pa

from gptcore.base.errors import InputError, require
from gptcore.base.files import sha256_file
from gptcore.base.filesystems import file_system, is_folder, misspelt
from gptcore.base.unpacking import bounded
from gptcore.config import CorpusConfig
from gptcore.text.decoding import Read, as_utf8, decode, unified, without_surrogates
from gptcore.text.gutenberg import strip_gutenberg

BLOCK = 1 << 18  # bytes read at a time
MAX_ROW = 1 << 28  # bytes of one row of JSON: it has to be parsed as a whole, and memory is bounded

_ENDINGS = ".txt .md .jsonl .ndjson .json (these also with .gz .zst .bz2 .xz behind) .parquet"
_KIND = re.compile(r"\.(?:(txt|md|jsonl|ndjson|json)(?:\.(gz|zst|bz2|xz))?|(parquet))$", re.IGNORECASE)
_ALIKE = {"md": "txt", "ndjson": "jsonl"}
"""An ending -> the kind whose reader reads such files, too."""
_ABOUT = re.compile(r"(?:^|/)(?:readme|licen[cs]e|changelog|contributing|synthetic)[^/]*\.md$", re.IGNORECASE)
"""What tells of a folder and is no book of it."""
_ODD_NAME = re.compile("::|[\ud800-\udfff]")
"""What fsspec takes for a chain of addresses, and bytes that no report could hold."""
_CONTENT = re.compile(
    rb"(?P<gz>\x1f\x8b\x08)|(?P<zst>\x28\xb5\x2f\xfd)|(?P<bz2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))|(?P<xz>\xfd7zXZ\x00)|"
    rb"(?P<utf16>\xff\xfe|\xfe\xff)"
)
"""The first bytes of what a file may hold though its ending does not say so."""
_HEAD = 16  # bytes that tell it
_TEXT = re.compile(r"(?:large_)?(?:string|binary)(?:_view)?|null")
"""Arrow's types that hold text, or nothing; some tools leave out the mark by which a column of bytes is text."""
_OUTSIDE, _IN_ARRAY = re.compile(r"\s*(\[?)\s*"), re.compile(r"[\s,]*(\]?)\s*")
"""What stands between the values of a .json file."""
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Source:
    """One file of a raw corpus."""

    root: str
    """The corpus' own address, with its protocol; all its files share it."""
    name: str
    """Path below the corpus' root: the name in reports and in cleaned rows, the same wherever the corpus lies."""
    kind: str
    """txt, jsonl, json or parquet."""
    packed: str
    """How its text is kept, by its ending or a local file's first bytes: gz, zst, bz2, xz or utf16; empty: plain."""
    size: int
    """Bytes as stored."""

    @property
    def url(self) -> str:
        """Where to open it."""
        return self.root + self.name

    @property
    def recognised(self) -> str:
        """What the file is though its ending does not say so; empty: nothing else."""
        return "" if self.name.lower().endswith(f".{self.packed}") else self.packed

    @property
    def ending(self) -> str:
        """What the file is counted under."""
        return _ending(self.name) + (f" that is {self.recognised}" if self.recognised else "")


@dataclass(frozen=True)
class RawCorpus:
    """A raw corpus whose files were looked up, once for all who read it."""

    url: str
    """The corpus' address, as messages name it."""
    sources: tuple[Source, ...]
    """Sorted by name."""
    passed_over: Mapping[str, int] = field(default_factory=dict)
    """How many files there are not read, by their ending or by what else they are passed over for."""

    @classmethod
    def at(cls, url: str, text_field: str = CorpusConfig.text_field) -> RawCorpus:
        """Look up the files by their names and, where these do not say what a file holds, by its first bytes.

        :param url: any fsspec URL of a file, of a folder (walked to its leaves; files that are hidden, have another
            ending or tell of the folder, as `README.md` does, are passed over, and so is a `.json` file without rows of
            text) or a glob (whose matches must all be readable).
        :param text_field: what holds the text in the rows of a `.json` file.
        :raises InputError: nothing there, a file of an unknown kind, or a folder without a single known one.
        """
        filesystem, path = file_system(url)
        passed_over: Counter[str] = Counter()
        named: Iterable[str]
        if filesystem.isfile(path):
            root, named = path.rpartition("/")[0], [path]
        elif is_folder(filesystem, path):
            root = path.rstrip("/")
            files = ((file, file[len(root) :]) for file in _files(filesystem, path))
            reasons = ((file, _no_file(filesystem, file) or _passed_over_for(name)) for file, name in files)
            named = (file for file, reason in reasons if not reason or passed_over.update([reason]))
        elif glob := _GLOB.search(path):
            root = path[: glob.start()].rpartition("/")[0]
            named = [match for match in filesystem.glob(path) if filesystem.isfile(match)]
            require(named, f"corpus {url}: no file matches, expected files ending in {_ENDINGS}")
        else:
            raise InputError(f"corpus {url}: found no such file or folder, expected books in {_ENDINGS}{misspelt(url)}")
        sources = []
        for source in (_source(filesystem, file, file[len(root) :].lstrip("/")) for file in named):
            if source.kind == "json" and not isinstance(named, list) and not _holds(source, text_field):
                passed_over[f"{source.ending} without {text_field!r}"] += 1
            else:
                sources.append(source)
        if not sources:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(passed_over.items()))
            found = f"{passed_over.total()} files of other kinds ({kinds})" if passed_over else "an empty folder"
            raise InputError(f"corpus {url}: found {found}, expected files ending in {_ENDINGS}")
        return cls(url, tuple(sorted(sources, key=lambda source: source.name)), dict(sorted(passed_over.items())))

    @property
    def files(self) -> dict[str, Mapping[str, int]]:
        """How many files are read, and how many are passed over, of each ending."""
        read = Counter(source.ending for source in self.sources)
        return {"read": dict(sorted(read.items())), "passed over": self.passed_over}


def find_sources(url: str) -> list[Source]:
    """The files of a corpus; see :meth:`RawCorpus.at`."""
    return list(RawCorpus.at(url).sources)


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
        if source.recognised:  # before, its bytes were taken for text
            prints[-1]["is"] = source.recognised
    return prints


def local_path(source: Source) -> Path | None:
    """Where a source lies on this machine; None where it lies elsewhere."""
    filesystem, path = file_system(source.url)
    return Path(path) if _local(filesystem) else None


Documents = Iterator[Iterator[str] | None]
"""Documents, each as a stream of pieces; None: a row whose text is null."""


def read_documents(source: Source, config: CorpusConfig, read: Read) -> Documents:
    """The documents of one file, to be consumed (or passed over) in order.

    Memory: a few BLOCKs for .txt, one row for the others. ``read`` is complete for a document once it is consumed.

    :raises InputError: a broken archive, line or row, a missing or wrongly typed field; undecodable bytes, where
        ``config.strict``. Names the file and the line, row or byte.
    """
    for pieces in _READERS[source.kind](source, config, read):
        text = None if pieces is None else unified(pieces)
        yield strip_gutenberg(text) if text and config.strip_gutenberg else text


# --- finding ---------------------------------------------------------------------------------------------------------


def _source(filesystem: Any, path: str, name: str) -> Source:
    kind = _KIND.search(path)
    if not kind:
        raise InputError(f"corpus file {path}: found an unknown kind, expected a name ending in {_ENDINGS}")
    require("::" not in name, f"corpus file {path}: found '::' in the name, which joins addresses; rename it")
    root = sys.intern(filesystem.unstrip_protocol(path).removesuffix(name))
    its, packed = (kind[1] or kind[3]).lower(), (kind[2] or "").lower()
    if _local(filesystem) and not packed and its != "parquet":  # elsewhere the one who reads it will see
        with open(path, "rb") as file:
            packed = _content(file.read(_HEAD))
    return Source(root, name, sys.intern(_ALIKE.get(its, its)), sys.intern(packed), int(filesystem.size(path) or 0))


def _content(head: bytes) -> str:
    """What the first bytes say that a file is: gz, zst, bz2, xz or utf16; empty: nothing."""
    content = _CONTENT.match(head)
    return str(content.lastgroup) if content else ""


def _holds(source: Source, text_field: str) -> bool:
    """Whether a .json file begins with rows that have the field of text, or with an array of texts."""
    with fsspec.open(source.url, "rb") as file:
        begin = next(as_utf8(_blocks(file, source), source.name, "latin-1"), b"").lstrip(b"\xef\xbb\xbf \t\r\n")
    texts = re.match(rb'\[\s*(?:null\s*,\s*)*"', begin)
    name = re.escape(json.dumps(text_field).encode())
    return bool(texts or re.search(rb"[{,]\s*" + name + rb'\s*:\s*["n]', begin))


def _passed_over_for(name: str) -> str:
    """Why a file of a folder, by its path there, is passed over; empty: it is not."""
    if any(part.startswith((".", "_")) for part in name.split("/")):  # _SUCCESS, .ipynb_checkpoints, ...
        return "hidden"
    if _ODD_NAME.search(name):
        return "name with :: or no UTF-8"
    return name.rpartition("/")[2] if _ABOUT.search(name) else "" if _KIND.search(name) else _ending(name)


def _ending(name: str) -> str:
    """The ending of a file's name, in small letters, with that of what is compressed."""
    kind = _KIND.search(name)
    return kind[0].lower() if kind else os.path.splitext(name)[1].lower() or "without ending"


def _files(filesystem: Any, folder: str) -> Iterator[str]:
    """All in a folder and below, and folders that are not looked into; on this machine without fsspec's kilobyte for
    each.
    """
    if not _local(filesystem):
        yield from filesystem.find(folder)
        return
    locked: list[str] = []
    for path, folders, names in os.walk(folder, onerror=lambda error: locked.append(error.filename)):
        links = (name for name in folders if os.path.islink(f"{path}/{name}"))
        yield from (f"{path.rstrip('/')}/{name}" for name in chain(names, links))
    yield from locked


def _no_file(filesystem: Any, path: str) -> str:
    """What stands at a place in the place of a file; empty: a file, or nobody on this machine knows."""
    if not _local(filesystem) or os.path.isfile(path):
        return ""
    return "linked or locked folder" if os.path.isdir(path) else "broken link or special file"


def _local(filesystem: Any) -> bool:
    protocol = filesystem.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)


# --- reading ---------------------------------------------------------------------------------------------------------


def _read_txt(source: Source, config: CorpusConfig, read: Read) -> Documents:
    with fsspec.open(source.url, "rb") as file:
        yield decode(as_utf8(_blocks(file, source), source.name, config.encoding), source.name, config.strict, read)


def _read_json(source: Source, config: CorpusConfig, read: Read) -> Documents:
    rows = _json_lines if source.kind == "jsonl" else _json_values
    undecoded = Read()
    with fsspec.open(source.url, "rb") as file:
        blocks = as_utf8(_blocks(file, source), source.name, config.encoding)
        for where, value in rows(blocks, source.name, config, undecoded):
            text = _text_of(value, config.text_field, where, read)
            read.undecodable += undecoded.undecodable
            read.example = read.example or undecoded.example
            undecoded.undecodable = 0
            yield text


def _json_lines(blocks: Iterable[bytes], name: str, config: CorpusConfig, read: Read) -> Iterator[tuple[str, Any]]:
    """The place and the value of each line that is not blank."""
    offset = 0
    for number, line in enumerate(_byte_lines(blocks, name), 1):
        row = "".join(decode([line], name, config.strict, read, offset))
        offset += len(line)
        if row.strip():
            where = f"{name}, line {number}"
            try:
                yield where, json.loads(row)
            except (ValueError, RecursionError) as error:
                raise _no_json(where, error, config) from error


def _json_values(blocks: Iterable[bytes], name: str, config: CorpusConfig, read: Read) -> Iterator[tuple[str, Any]]:
    """The place and the value of each element of a file's array, or of what stands in it one behind the other.

    A value that is incomplete in what was read is tried again when there is twice as much.
    """
    decoder, pending, number, enough, bracket = json.JSONDecoder(), "", 1, 1, ""
    for piece, final in chain(zip(decode(blocks, name, config.strict, read), repeat(False)), [("", True)]):
        pending += piece
        at = 0
        while final or len(pending) >= enough:
            gap = (_IN_ARRAY if bracket == "[" else _OUTSIDE).match(pending, at)
            assert gap is not None, "both patterns match nothing, too"
            at, bracket = gap.end(), gap[1] or bracket
            if at == len(pending):
                break
            where = f"{name}, row {number}"
            try:
                value, end = decoder.raw_decode(pending, at)
            except (ValueError, RecursionError) as error:
                if final or isinstance(error, RecursionError) or len(pending) - at > MAX_ROW:
                    raise _no_json(where, error, config) from error
                break
            if end == len(pending) and not final:
                break  # a number may go on
            yield where, {config.text_field: value} if isinstance(value, str | None) else value
            at, number = end, number + 1
        pending = pending[at:]
        enough = 2 * len(pending)
    require(bracket != "[", f"{name}, row {number}: found the end of the file, expected that of its array")


def _no_json(where: str, error: Exception, config: CorpusConfig) -> InputError:
    return InputError(f"{where}: no valid JSON ({error}), expected an object with a field {config.text_field!r}")


def _text_of(value: Any, field: str, where: str, read: Read) -> Iterator[str] | None:
    """The text of a row of JSON."""
    if not isinstance(value, dict):
        raise InputError(f"{where}: found JSON {type(value).__name__}, expected an object with a field {field!r}")
    if field not in value:
        raise InputError(f"{where}: no field {field!r} among {sorted(value)}, expected one that holds text")
    if (text := value[field]) is None:
        return None
    if not isinstance(text, str):
        raise InputError(f"{where}: field {field!r} holds {json.dumps(text)[:40]}, expected text")
    read.bytes += len(text.encode("utf-8", "surrogatepass"))
    return iter([without_surrogates(text, read)])


def _read_parquet(source: Source, config: CorpusConfig, read: Read) -> Documents:
    import pyarrow.parquet as pq

    column, number = config.text_field, 0
    with fsspec.open(source.url, "rb") as file:
        try:
            table = pq.ParquetFile(file, pre_buffer=False, buffer_size=BLOCK)
            schema = table.schema_arrow
            if column not in schema.names:
                raise InputError(f"{source.name}: no column {column!r} among {schema.names}, expected one of text")
            kind = schema.field(column).type
            if not _TEXT.fullmatch(str(kind.value_type if pa.types.is_dictionary(kind) else kind)):
                raise InputError(f"{source.name}: column {column!r} has type {kind}, expected string")
            for batch in table.iter_batches(batch_size=16, columns=[column]):
                # as bytes: whether they are UTF-8 is for us to say, as in the other kinds of file
                for value in batch.column(0).cast(pa.large_binary()):
                    number += 1
                    where, raw = f"{source.name}, row {number}", value.as_py()
                    yield None if raw is None else decode([raw], where, config.strict, read)
        except (pa.ArrowException, EOFError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{source.name}, after row {number}: not readable as Parquet ({reason})") from error


_READERS = {"txt": _read_txt, "jsonl": _read_json, "json": _read_json, "parquet": _read_parquet}


def _blocks(file: BinaryIO, source: Source) -> Iterator[bytes]:
    """The file's bytes, decompressed; every block full but the last."""
    begin = b"" if source.packed else file.read(BLOCK)
    packed = source.packed or _content(begin)
    stream: Any = file
    if packed in _UNPACKED:
        file.seek(0)
        stream, begin = bounded(_UNPACKED[packed](file), file, source.name), b""
    position = 0
    try:
        while block := begin or stream.read(BLOCK):
            yield block
            position += len(block)
            begin = b""
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        if stream is file or getattr(error, "errno", None) is not None:  # it is the file system's, not the archive's
            raise
        broken = f"{source.name}: broken {packed.replace('gz', 'gzip')} after byte {position} of its content"
        raise InputError(f"{broken} ({error})") from error


_UNPACKED: Mapping[str, Callable[[BinaryIO], Any]] = {
    "gz": lambda file: gzip.GzipFile(fileobj=file),
    "zst": lambda file: pa.input_stream(file, compression="zstd"),
    "bz2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
}


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
