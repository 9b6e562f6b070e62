"""The public file formats of the datasets, read strictly: any broken row is an error that names its place.

Three things that general-purpose readers get wrong here. Quotes in the tab-separated sets are text, not syntax. Lines
end at LF only (at CR where a file has no LF): U+2028, U+0085 and their like occur inside fields. And what is not UTF-8
is an error with its byte offset, not a replacement character. A file compressed by gzip or zstd is known by its first
bytes, whatever its name. Blank lines at a file's end are no rows. Files stream; a passage file of RACE is read whole.
"""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
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
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_FOREIGN = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"PAR1": "parquet",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
"""The first bytes of what is not read -> what it is."""
_LOOKED_AT = 1000  # rows that tell what the columns of a file without a header are
_FILES_AT_ONCE = 256  # passage files fetched together, so that a remote folder of thousands is not one trip each


def lines(url: str) -> Iterator[tuple[int, str]]:
    """Line number (from 1) and text of each line of a file, its line end included.

    :raises InputError: no such file, a broken archive, another kind of file, or bytes that are not UTF-8.
    """
    try:
        yield from decoded_lines(_byte_lines(url), url)
    except OSError as error:
        raise unreadable(url, error) from error


def _byte_lines(url: str) -> Iterator[bytes]:
    import pyarrow as pa

    with fsspec.open(url, "rb") as raw:
        head = raw.read(max(map(len, (*_FOREIGN, *_COMPRESSED))))
    if kind := next((kind for magic, kind in _FOREIGN.items() if head.startswith(magic)), None):
        raise InputError(f"{url}: found {kind}, expected UTF-8 text (or that compressed by gzip or zstd)")
    packed = next((kind for magic, kind in _COMPRESSED.items() if head.startswith(magic)), None)
    with fsspec.open(url, "rb") as raw:
        yield from bounded(pa.input_stream(raw, compression=packed), raw, url) if packed else raw


def decoded_lines(lines: Iterable[bytes], name: str) -> Iterator[tuple[int, str]]:
    """Line number (from 1) and text of each line, its line end included; a leading byte order mark is not text.

    :param lines: they end in LF; where there is none, in CR.
    :param name: of the file, for messages.
    :raises InputError: bytes that are not UTF-8; names line and byte offset.
    """
    offset, given = 0, iter(lines)
    begin = list(itertools.islice(given, 1))
    if begin and b"\r" in begin[0] and not begin[0].endswith(b"\n"):  # without a single LF that line is the file
        begin = begin[0].replace(b"\r", b"\n").splitlines(keepends=True)
    for number, line in enumerate(itertools.chain(begin, given), start=1):
        text = _decode(line, name, offset, number)
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


def _decode(data: bytes, url: str, offset: int, line: int) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{url}, line {line}, byte offset {offset + error.start}: "
            f"found byte 0x{data[error.start]:02x}, expected UTF-8 text"
        ) from error


def tsv_rows(url: str) -> Iterator[tuple[int, list[str]]]:
    """The number of each line of a tab-separated file (from 1), and its cells; a quote is text there.

    :raises InputError: as :func:`lines`.
    """
    return ((n, line.removesuffix("\n").removesuffix("\r").split("\t")) for n, line in rows_of(lines(url)))


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
    rows = csv.reader((line for _, line in rows_of(lines(url))), strict=True)
    while True:
        line = rows.line_num + 1  # where the row starts, though a broken quote may run to the end of the file
        try:
            yield line, next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            found = "a line end that is CR alone beside others" if "new-line" in str(error) else error
            raise InputError(f"{url}, line {line}: found {found}, expected comma-separated values") from error


def _table(url: str, spec: TaskSpec, rows: Iterator[tuple[int, list[str]]]) -> Iterator[Record]:
    """Rows of cells as records, named by the header line, or by the task where the file has none."""
    names = list(spec.columns)
    header = sorted(name.strip().casefold() for name in names)
    for line, cells in rows:
        if not names:
            names = cells
            for column in sorted(spec.required_columns or names):
                if names.count(column) != 1:
                    hint = "" if column in names else did_you_mean(column, names)
                    if spec.home and not hint and not spec.required_columns & {*names}:
                        hint = _headless(spec, names, rows)
                    raise InputError(
                        f"{url}, line {line}, column {column!r}: found {names.count(column)} times in the header "
                        f"{show(names)}, expected once{hint}"
                    )
        elif cells == names or (header and sorted(cell.strip().casefold() for cell in cells) == header):
            hint = f": {', '.join(cells)} (`columns` are for a file without such a line)" if spec.columns else ""
            raise InputError(f"{url}, line {line}: found the names of the columns, expected a row{hint}")
        elif len(cells) != len(names):
            raise InputError(
                f"{url}, line {line}, number of columns: found {len(cells)}, expected {len(names)} ({', '.join(names)})"
            )
        else:
            yield Record(url, str(line), dict(zip(names, cells, strict=True)))


def _headless(spec: TaskSpec, first: list[str], rest: Iterator[tuple[int, list[str]]]) -> str:
    """What helps a task of somebody's own where the file's first line has none of the names."""
    rows = [first, *(cells for _, cells in itertools.islice(rest, _LOOKED_AT))]
    row = "it looks like a row" if is_row(first) else "if it is a row"
    return f"; {row}, the task's file names the columns: {names_line(spec, rows)}"


def read_jsonl(url: str, spec: TaskSpec) -> Iterator[Record]:
    """One JSON object a line."""
    for line, text in rows_of(lines(url)):
        yield Record(url, str(line), parse_object(text, url, line))


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
    "tsv": lambda url, spec: _table(url, spec, tsv_rows(url) if spec.own else _unbroken(tsv_rows(url))),
    "csv": lambda url, spec: _table(url, spec, csv_rows(url)),
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


def parse_object(text: str, url: str, line: int, expected: str = "a JSON object") -> dict[str, Any]:
    """The JSON object that stands in a line of a file, or in those from there on.

    :param expected: what it is, for messages.
    :raises InputError: no JSON, or no object; names line and column.
    """
    try:
        value = json.loads(text.rstrip("\r\n"))  # with its end, what is cut off would be missed in the next line
    except json.JSONDecodeError as error:
        place = f"{url}, line {line + error.lineno - 1}, column {error.colno}"
        raise InputError(f"{place}: found {error.msg}, expected JSON") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets thousands deep
        raise InputError(f"{url}, line {line}: found {error}, expected JSON") from error
    if not isinstance(value, dict):
        raise InputError(f"{url}, line {line}: found {show(value)}, expected {expected}")
    return value


def unreadable(url: str, error: OSError) -> InputError:
    """The error that names a file which is missing or cannot be read."""
    known = {FileNotFoundError: "nothing there", IsADirectoryError: "a folder"}
    found = known.get(type(error)) or f"{type(error).__name__}: {error}"
    return InputError(f"{url}: found {found}, expected the dataset's file under its public name")
