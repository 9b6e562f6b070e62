"""The public file formats of the datasets, read strictly: any broken row is an error that names its place.

Three things that general-purpose readers get wrong here. Quotes in the tab-separated sets are text, not syntax. Lines
end at LF only (at CR where a file has no LF): U+2028, U+0085 and their like occur inside fields. And what is not UTF-8
is an error with its byte offset, not a replacement character. A compressed file is known by its first bytes, whatever
its name. Blank lines at a file's end are no rows. Files stream; a passage file of RACE is read whole. What else a
user's own files may be written as is in :mod:`gptcore.nlu.readers.dialect`.
"""

from __future__ import annotations

import bz2
import csv
import io
import itertools
import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import fsspec

from gptcore.base.errors import InputError, did_you_mean, require
from gptcore.base.filesystems import file_system
from gptcore.base.unpacking import bounded
from gptcore.nlu.examples import Record, show
from gptcore.nlu.readers.header import is_row, names_line
from gptcore.nlu.registry import Format, TaskSpec

csv.field_size_limit(1 << 30)  # characters of a cell; what Python allows, 131,072, is less than a book has
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\xfd7zXZ\0": "xz"}
_FOREIGN = {
    b"PK\x03\x04": 'a zip archive, or an Excel workbook; unpack it, or say format = "xlsx"',
    b"<!doctype": "a page in HTML; save the table itself as .csv",
    b"<html": "a page in HTML; save the table itself as .csv",
    b"<?xml": "XML; save the table itself as .csv",
    b"%pdf": "a PDF; save the table itself as .csv",
    b"sqlite format 3": "a database of SQLite; save the table itself as .csv",
    b"\x80\x05\x95": "a pickle of Python; save the table itself as .csv or .parquet",
    b"PAR1": 'parquet; say format = "parquet"',
    b"ARROW1": 'Arrow; say format = "arrow"',
    b"\xff\xff\xff\xff": 'Arrow; say format = "arrow"',
    b"\xd0\xcf\x11\xe0": "a workbook of an old Excel; save it as .xlsx or .csv",
    b"7z\xbc\xaf": "a 7z archive; unpack it",
    b"Rar!": "a rar archive; unpack it",
}
"""The first bytes of what is not read as text, in small letters -> what it is, and what to do about it."""
_MARKS = {
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
"""The first bytes of a text -> its encoding, where it is not UTF-8."""
_HEAD = 64  # bytes that tell what a file is
_LOOKED_AT = 1000  # rows that tell what the columns of a file without a header are
_FILES_AT_ONCE = 256  # passage files fetched together, so that a remote folder of thousands is not one trip each


def lines(url: str, encoding: str | None = None) -> Iterator[tuple[int, str]]:
    """Line number (from 1) and text of each line of a file, its line end included.

    :param encoding: of the file; "": UTF-8, or UTF-16 where its mark says so; None: UTF-8 alone.
    :raises InputError: no such file, a broken archive, another kind of file, or bytes that are not in the encoding.
    """
    return decoded_lines(byte_lines(url, encoding), url, encoding is not None)


def head_of(url: str) -> bytes:
    """The first bytes of a file, which tell what it is.

    :raises InputError: no such file.
    """
    try:
        with fsspec.open(url, "rb") as raw:
            return bytes(raw.read(_HEAD))
    except OSError as error:
        raise unreadable(url, error) from error


def byte_lines(url: str, encoding: str | None = None) -> Iterator[bytes]:
    """The lines of a file in UTF-8, whichever encoding it has; those of a file in UTF-8 as they are.

    :param encoding: as in :func:`lines`.
    :raises InputError: no such file, a broken archive or another kind of file.
    """
    head = head_of(url)
    small = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if kind := next((kind for magic, kind in _FOREIGN.items() if small.startswith(magic.lower())), None):
        what, _, remedy = kind.partition("; ")
        raise InputError(f"{url}: found {what}, expected text, plain or compressed; {remedy}")
    if encoding is None and head.startswith(tuple(_MARKS)):
        raise InputError(f"{url}: found UTF-16, expected UTF-8 text")
    packed = next((kind for magic, kind in _COMPRESSED.items() if head.startswith(magic)), "")
    try:
        with fsspec.open(url, "rb") as raw:
            stream = bounded(_unpacked(raw, packed), raw, url) if packed or encoding is not None else raw
            if encoding == "":
                encoding = _marked(stream.peek(4), url)
            yield from _in_utf_8(stream, encoding, url) if encoding else stream
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise unreadable(url, error) from error


def _marked(begin: bytes, url: str) -> str:
    """The encoding that a file's first bytes tell; empty: UTF-8."""
    if mark := next((mark for mark in _MARKS if begin.startswith(mark)), b""):
        return _MARKS[mark]
    if b"\0" in begin[:4]:
        raise InputError(f'{url}: found {show(begin[:4])}, expected UTF-8 text; say encoding = "utf-16-le"')
    return ""


def _unpacked(raw: Any, packed: str) -> Any:
    import pyarrow as pa

    own: dict[str, Callable[[Any], Any]] = {"": lambda file: file, "bz2": bz2.BZ2File, "xz": lzma.LZMAFile}
    return own[packed](raw) if packed in own else pa.input_stream(raw, compression=packed)


def _in_utf_8(stream: Any, encoding: str, url: str) -> Iterator[bytes]:
    number = 0
    try:
        for line in io.TextIOWrapper(stream, encoding, newline="\n"):
            number += 1
            yield line.encode("utf-8")
    except UnicodeError as error:
        remedy = "; `encoding` in the task's file says another"
        raise InputError(f"{url}, after line {number}: found {error}, expected {encoding} text{remedy}") from error


def decoded_lines(lines: Iterable[bytes], name: str, own: bool = False) -> Iterator[tuple[int, str]]:
    """Line number (from 1) and text of each line, its line end included; a leading byte order mark is not text.

    :param lines: they end in LF; where there is none, in CR.
    :param name: of the file, for messages.
    :param own: whether the file is one of a user's own task, where another encoding can be said, and a CR at the end of
        a line that goes on in a quoted cell stays one.
    :raises InputError: bytes that are not UTF-8; names line and byte offset.
    """
    offset, given = 0, iter(lines)
    begin = list(itertools.islice(given, 1))
    if begin and b"\r" in begin[0] and not begin[0].endswith(b"\n"):  # without a single LF that line is the file
        begin = (begin[0] if own else begin[0].replace(b"\r", b"\n")).splitlines(keepends=True)
    for number, line in enumerate(itertools.chain(begin, given), start=1):
        text = _decode(line, name, offset, number, own)
        yield number, text.removeprefix("\ufeff") if number == 1 else text
        offset += len(line)


def rows_of(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Numbered lines without the blank ones behind the last that is none."""
    blank = []
    for number, text in lines:
        blank.append((number, text))
        if text.strip(" \xa0\r\n"):  # a tab sets two cells apart
            yield from blank
            blank.clear()


def json_object(url: str, holds: str) -> Mapping[str, Any]:
    """The JSON object that a whole file is.

    :param holds: what it is expected to hold, for messages.
    :raises InputError: no such file, no JSON, or no object; names line and column.
    """
    return parse_object("".join(line for _, line in lines(url)), url, 1, f"an object with {holds}")


def _decode(data: bytes, url: str, offset: int, line: int, own: bool = False) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        says = '`encoding = "cp1252"` in the task\'s file (init-task: --encoding cp1252), or another one, reads it'
        remedy = f"; if Windows wrote it, {says}" if own else "; iconv makes it that"
        raise InputError(
            f"{url}, line {line}, byte offset {offset + error.start}: "
            f"found byte 0x{data[error.start]:02x}, expected UTF-8 text{remedy}"
        ) from error


def split_rows(lines: Iterable[tuple[int, str]], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of numbered lines in which quotes are text."""
    return ((n, line.removesuffix("\n").removesuffix("\r").split(delimiter)) for n, line in lines)


def _tabbed(url: str) -> Iterator[tuple[int, list[str]]]:
    return split_rows(rows_of(lines(url)), "\t")


def _unbroken(rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    """Rows joined where too few cells end in an open quote: questions of GLUE's first QQP file have line breaks."""
    width = 0
    for line, cells in rows:
        whole, width = cells, width or len(cells)
        while len(whole) < width and whole[-1][:1] == '"' and whole[-1].count('"') % 2 and (more := next(rows, None)):
            whole = [*whole[:-1], f"{whole[-1]}\n{more[1][0]}", *more[1][1:]]
        yield line, whole if len(whole) == width else cells


def csv_rows(url: str) -> Iterator[tuple[int, list[str]]]:
    """The line that each row of a comma-separated file begins in (from 1), and its cells; a quoted one may span lines.

    :raises InputError: as :func:`lines`, or a broken quote.
    """
    return quoted_rows(rows_of(lines(url)), url, ",")


_BROKEN = {
    "expected after": ("more text behind the quote that ends a cell", 'double a quote that is text ("")'),
    "unexpected end": ("a quoted cell without an end", 'double a quote that is text ("")'),
    "new-line": ("a line end that is CR alone beside others", "let all lines end alike"),
    "larger than": (f"a cell of more than {csv.field_size_limit():,} characters", "shorten it"),
}
"""Part of what Python's reader says -> what it has found, and what to do about it."""


def quoted_rows(lines: Iterable[tuple[int, str]], url: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The number of the line that each row begins in, and its cells; a quoted one may span lines.

    :param lines: numbered, one after the other.
    :raises InputError: a broken quote.
    """
    numbered = iter(lines)
    first = next(numbered, None)
    if first is None:
        return
    rows = csv.reader((line for _, line in itertools.chain([first], numbered)), delimiter=delimiter, strict=True)
    while True:
        line = rows.line_num + first[0]  # where the row starts, though a broken quote may run to the end of the file
        try:
            yield line, next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            broken = (words for part, words in _BROKEN.items() if part in str(error))
            found, remedy = next(broken, (str(error), "mend the line"))
            expected = f"cells with {show(delimiter)} between them" if delimiter != "," else "comma-separated values"
            raise InputError(f"{url}, line {line}: found {found}, expected {expected}; {remedy}") from error


TAKE_OUT = "; take the line out"
"""What may be done about a line that is no row."""


def table_of_cells(
    url: str, spec: TaskSpec, rows: Iterator[tuple[int, list[str]]], unit: str = "line"
) -> Iterator[Record]:
    """Rows of cells as records, named by the header line, or by the task where the file has none.

    :param unit: what the rows' numbers count.
    :raises InputError: a column that is missing or there twice, a row of another width, or the header once more.
    """
    names = list(spec.columns)
    header = sorted(map(plain_name, names))
    for line, cells in rows:
        if not names:
            names = named_columns(cells) if spec.dialect else cells
            for column in sorted(spec.required_columns or names):
                if names.count(column) != 1:
                    hint = "" if column in names else did_you_mean(column, names)
                    if spec.home and not hint and not spec.required_columns & {*names}:
                        hint = _headless(spec, names, rows)
                    raise InputError(
                        f"{url}, {unit} {line}, column {column!r}: found {names.count(column)} times in the header "
                        f"{show(names)}, expected once{hint}"
                    )
        elif cells == names or (header and sorted(map(plain_name, cells)) == header):
            hint = f": {in_words(cells)} (`columns` are for a file without such a line)" if header else TAKE_OUT
            raise InputError(f"{url}, {unit} {line}: found the names of the columns, expected a row{hint}")
        elif len(cells) != len(names):
            place, expected = f"{url}, {unit} {line}, number of columns", f"{len(names)} ({in_words(names)})"
            raise InputError(f"{place}: found {len(cells)}, expected {expected}")
        else:
            yield Record(url, str(line), dict(zip(names, cells, strict=True)), unit)


def plain_name(name: str) -> str:
    """A column's name without what a program or a person may have put around it; one of quotes alone stays."""
    bare = name.strip("\ufeff \t\xa0")
    return (bare.strip("\ufeff \t\xa0\"'") or bare).casefold()


def named_columns(names: Sequence[str]) -> list[str]:
    """The names of columns, where several that have none are called by their places, as pandas does."""
    blank = [place for place, name in enumerate(names) if not name.strip("\ufeff \t\xa0")]
    return [f"Unnamed: {n}" if n in blank and len(blank) > 1 else name for n, name in enumerate(names)]


def in_words(names: Sequence[str]) -> str:
    """Names of columns, those in quotes of which blanks would be overlooked."""
    return ", ".join(name if name.strip() == name != "" else repr(name) for name in names)


def _headless(spec: TaskSpec, first: list[str], rest: Iterator[tuple[int, list[str]]]) -> str:
    """What helps a task of somebody's own where the file's first line has none of the names."""
    rows = [first, *(cells for _, cells in itertools.islice(rest, _LOOKED_AT))]
    row = "it looks like a row" if is_row(first) else "if it is a row"
    return f"; {row}, the task's file names the columns: {names_line(spec, rows)}"


def read_jsonl(url: str, spec: TaskSpec) -> Iterator[Record]:
    """One JSON object a line."""
    for line, text in rows_of(lines(url, spec.dialect.encoding if spec.dialect else None)):
        yield Record(url, str(line), parse_object(text, url, line, own=spec.dialect is not None))


def _read_race(url: str, spec: TaskSpec) -> Iterator[Record]:
    """A folder of passages, one JSON object a file, each with several questions: one row a question."""
    for file, data in _passages(url):
        passage = parse_object(_decode(data, file, 0, 1).removeprefix("\ufeff"), file, 1)
        whole = Record(file, "1", passage)
        questions = whole.listed("questions")
        for column in ("options", "answers"):
            if (n := len(whole.listed(column))) != len(questions):
                raise whole.error(column, f"{n} entries", f"{len(questions)}, one for each question")
        options, answers = passage["options"], passage["answers"]
        for number, (question, choices, answer) in enumerate(zip(questions, options, answers, strict=True), start=1):
            asked = {**passage, "questions": question, "answers": answer, "options": choices}
            yield with_options(spec, Record(file, f"1, question {number}", asked), "options")


def with_options(spec: TaskSpec, row: Record, column: str) -> Record:
    """The row with each of the options that a column lists under the column of its choice."""
    n_options = len(spec.choices)
    options = row.listed(column, f"a list of {n_options} options", length=n_options)
    return replace(row, columns={**row.columns, **dict(zip(spec.choices, options, strict=True))})


READERS: dict[Format, Callable[[str, TaskSpec], Iterator[Record]]] = {
    "tsv": lambda url, spec: table_of_cells(url, spec, _tabbed(url) if spec.own else _unbroken(_tabbed(url))),
    "csv": lambda url, spec: table_of_cells(url, spec, csv_rows(url)),
    "jsonl": read_jsonl,
    "race": _read_race,
}
"""Format -> the rows of a file (a folder of passages for RACE) at an address."""


def passage_names(url: str) -> list[str]:
    """Names of the passage files of a folder, sorted.

    :raises InputError: no such folder, or none in it.
    """
    fs, root = file_system(url)
    try:
        names = sorted(path.rsplit("/", 1)[-1] for path in fs.ls(root, detail=False) if path.endswith(".txt"))
    except OSError as error:
        raise unreadable(url, error) from error
    require(names, f"{url}: found no .txt file, expected one for each passage")
    return names


def _passages(url: str) -> Iterator[tuple[str, bytes]]:
    fs, root = file_system(url)
    names = passage_names(url)
    for start in range(0, len(names), _FILES_AT_ONCE):
        group = names[start : start + _FILES_AT_ONCE]
        try:
            contents = fs.cat([f"{root}/{name}" for name in group])  # address -> bytes
        except OSError as error:
            raise unreadable(url, error) from error
        yield from ((f"{url}/{name}", contents[f"{root}/{name}"]) for name in group)


def parse_object(text: str, url: str, line: int, expected: str = "a JSON object", own: bool = False) -> dict[str, Any]:
    """The JSON object that stands in a line of a file, or in those from there on.

    :param expected: what it is, for messages.
    :param own: as in :func:`parse_json`.
    :raises InputError: no JSON, or no object; names line and column.
    """
    value = parse_json(text, url, line, own)
    if not isinstance(value, dict):
        raise InputError(f"{url}, line {line}: found {show(value)}, expected {expected}")
    return value


def parse_json(text: str, url: str, line: int = 1, own: bool = False) -> Any:
    """What stands as JSON in a line of a file, or in those from there on.

    :param own: whether it is a user's own, in which a key that stands twice in an object is an error.
    :raises InputError: no JSON; names line and column.
    """
    try:
        # with the line's end, what is cut off would be missed in the next one
        return json.loads(text.rstrip("\r\n"), object_pairs_hook=_each_once if own else None)
    except json.JSONDecodeError as error:
        place = f"{url}, line {line + error.lineno - 1}, column {error.colno}"
        there = text[error.pos :].rstrip("\r\n").partition("\n")[0]
        found = show(there[:_SHOWN]) if there else "the end"
        expected = next((words for began, words in _IN_JSON.items() if error.msg.startswith(began)), "JSON")
        raise InputError(f"{place}: found {found}, expected {expected}") from error
    except (ValueError, RecursionError) as error:
        found = next((words for began, words in _IN_NO_JSON.items() if str(error).startswith(began)), str(error))
        raise InputError(f"{url}, line {line}: found {found}, expected JSON") from error


_SHOWN = 20  # characters
_IN_JSON = {
    "Expecting ',' delimiter": "a comma, or the end of the JSON object or list",
    "Expecting ':' delimiter": "a colon behind a name of the JSON object",
    "Expecting value": "a value of JSON",
    "Expecting property name": "a name in double quotes, as JSON has them",
    "Illegal trailing comma": "no comma before the end of a JSON object or list",
    "Unterminated string": "JSON text with a quote at its end",
    "Invalid control character": "JSON text without tabs and line breaks, which are \\t and \\n there",
    "Invalid \\": "an escape that JSON has, such as \\n or \\u00e9",
    "Extra data": "the end of the JSON value",
}
"""How a message of Python's parser begins -> what JSON has at that place."""
_IN_NO_JSON = {
    "Exceeds the limit": "a number of thousands of digits",
    "maximum recursion": "brackets in brackets, thousands deep",
}
"""How a message of Python's parser begins -> what it does not read."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError(f"a key twice in {show([name for name, _ in pairs])}")
    return row


def unreadable(url: str, error: Exception) -> InputError:
    """The error that names a file which is missing or cannot be read."""
    known: dict[type[Exception], str] = {FileNotFoundError: "nothing there", IsADirectoryError: "a folder"}
    if found := known.get(type(error)):
        return InputError(f"{url}: found {found}, expected the dataset's file under its public name")
    return InputError(f"{url}: found what cannot be read ({error}), expected a whole file")
