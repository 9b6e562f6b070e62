"""How a user's own text files of cells are written: delimiter, encoding, quotes, and what is told of them.

A comma-separated file may have semicolons, pipes or tabs, where its rows agree on them; Excel's first line `sep=;` says
so itself. With semicolons bytes that are not UTF-8 are Windows' (cp1252), as a European Excel writes them. Quotes in a
tab-separated file are syntax where a program has written all of them, else text.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from gptcore.base.errors import InputError
from gptcore.nlu.examples import show
from gptcore.nlu.readers.text_files import (
    TAKE_OUT,
    byte_lines,
    decoded_lines,
    in_words,
    lines,
    named_columns,
    plain_name,
    quoted_rows,
    rows_of,
    split_rows,
)
from gptcore.nlu.spec import Dialect, TaskSpec

_DELIMITERS = ",;|\t"  # the likeliest first
_LOOKED_AT = 1000  # lines that tell the delimiter
_SEP = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)  # Excel's own word on it


def dialect_of(url: str, spec: TaskSpec, known: Collection[str] = ()) -> Dialect:
    """What the task says of how its files of cells are written, and the file of what it leaves out.

    :param known: names that a column may have, where the task has none yet.
    :raises InputError: as :func:`gptcore.nlu.readers.text_files.lines`; rows that agree on two delimiters, or a comment
        where the header is expected.
    """
    said = spec.dialect or Dialect()
    begin, is_utf_8 = beginning(url, said.encoding)
    sep = _SEP.fullmatch(begin[0]) if begin else None
    begin = begin[1:] if sep else begin
    comments = len(list(itertools.takewhile(lambda line: line.startswith("#"), begin)))
    delimiter = said.delimiter or (sep[1] if sep else "\t" if spec.format == "tsv" else "")
    delimiter = delimiter or _delimiter(url, spec, begin[comments:], known)
    if comments:
        rows = _cells(begin, delimiter)
        known = {*map(plain_name, spec.required_columns or known)}
        _refuse_comment(url, rows[:1] + rows[comments : comments + 1], known)
    western = 4 * sum(line.count("\ufffd") for line in begin) < sum(map(len, begin))
    encoding = said.encoding or ("cp1252" if delimiter == ";" and western and not is_utf_8 else "")
    return Dialect(delimiter, encoding, spec.format == "csv" if said.quoted is None else said.quoted)


def cells_of(url: str, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """The number of the line that each row of a file begins in (from 1), and its cells.

    :param dialect: all of it, as :func:`dialect_of` gives it.
    :raises InputError: as :func:`gptcore.nlu.readers.text_files.lines`, or a broken quote.
    """
    rows = rows_of(lines(url, dialect.encoding))
    numbered = (row for row in rows if row[0] > 1 or not _SEP.fullmatch(row[1]))
    if dialect.quoted:
        return quoted_rows(numbered, url, dialect.delimiter)
    return split_rows(numbered, dialect.delimiter)


def beginning(url: str, encoding: str) -> tuple[list[str], bool]:
    """The first lines of a file, whatever its bytes are, and whether these are UTF-8."""
    given = list(itertools.islice(byte_lines(url, encoding), _LOOKED_AT))
    decoded = [line.decode("utf-8", "replace").encode() for line in given]
    return [line for _, line in rows_of(decoded_lines(decoded, url))], decoded == given


def _cells(begin: Sequence[str], delimiter: str) -> list[list[str]]:
    """The cells of a file's first lines, without the last row where it may be cut."""
    try:
        rows = list(csv.reader(begin, delimiter=delimiter))
    except csv.Error:
        return []
    return rows[:-1] if len(begin) > _LOOKED_AT - 3 else rows


def _delimiter(url: str, spec: TaskSpec, begin: Sequence[str], known: Collection[str]) -> str:
    """What most rows agree on: each has as many cells as the first, two or more, and these are the task's columns, or
    some of them have ``known`` names.
    """
    agree: dict[str, tuple[bool, float]] = {}
    for delimiter in _DELIMITERS:
        rows = _cells(begin, delimiter)
        if rows and (width := len(rows[0])) > 1:
            its = len(spec.columns) == width if spec.columns else spec.required_columns <= {*rows[0]}
            its = its and not (known and {*known}.isdisjoint(map(plain_name, rows[0])))
            agree[delimiter] = its, sum(len(row) == width for row in rows) / len(rows)
    best = max(agree.values(), default=(False, 0.0))
    alike = [delimiter for delimiter, share in agree.items() if share == best]
    if len(alike) > 1 and "," not in alike:
        found = f"found rows that agree on {' and on '.join(map(show, alike))}, expected one between cells"
        raise InputError(f"{url}: {found}; `delimiter = {show(alike[0])}` in the task's file says which")
    return alike[0] if best[1] > 0.5 else ","


def _refuse_comment(url: str, rows: list[list[str]], known: Collection[str]) -> None:
    named = [not {*known}.isdisjoint(map(plain_name, row)) for row in rows]
    if len({len(row) for row in rows}) > 1 or (not named[0] and any(named)):
        found = f"found {show(rows[0][0])}, a comment, expected the names of the columns"
        raise InputError(f"{url}, line 1: {found}{TAKE_OUT}")


# --- what is told ----------------------------------------------------------------------------------------------------


def as_written(spec: TaskSpec) -> tuple[TaskSpec, list[str]]:
    """An own task that says whether quotes in its files are syntax; and what is read otherwise than it stands there.

    :raises InputError: as :func:`cells_of`.
    """
    said = spec.dialect or Dialect()
    files = {spec.address("", source.path): source.path for sources in spec.splits.values() for source in sources}
    asked = spec.format == "tsv" and said.quoted is None
    quotes = {url: quotes_in(url, dialect_of(url, spec)) for url in files if asked}
    quoted = any(marks for marks, _ in quotes.values()) and all(written for _, written in quotes.values())
    spec = replace(spec, dialect=replace(said, quoted=True) if quoted else said)
    how = "look quoted, and are read as text; `quoted = true` reads them without quotes"
    if quoted:
        how = "are quoted as programs do it, and are read without quotes; `quoted = false` reads them as they stand"
    notes = [f"{marks:,} cells of {files[url]} {how}" for url, (marks, _) in quotes.items() if marks]
    if spec.format in ("csv", "tsv"):
        notes += [f"{path}: {note}" for url, path in files.items() for note in _told(url, spec)]
    return spec, notes


def quotes_in(url: str, dialect: Dialect) -> tuple[int, bool]:
    """How many cells of a tab-separated file are between quotes, and whether a program wrote all quotes that it has.

    Then the same lines come when they are written again, with quotes around every cell, or doubled ones in some.
    """
    texts = [line.rstrip("\r\n") + "\r\n" for _, line in rows_of(lines(url, dialect.encoding))]
    marks = sum(len(cell) > 1 and cell[0] == cell[-1] == '"' for text in texts for cell in text[:-2].split("\t"))
    whole = "".join(texts)
    if '"' not in whole:
        return 0, True
    try:
        rows = list(csv.reader(texts, "excel-tab", strict=True))
    except csv.Error:
        return marks, False
    inner = sum(cell.count('"') for row in rows for cell in row)
    for quoting in (csv.QUOTE_ALL, csv.QUOTE_MINIMAL) if len({*map(len, rows)}) == 1 else ():
        csv.writer(out := io.StringIO(), "excel-tab", quoting=quoting).writerows(rows)
        if out.getvalue() == whole and (inner or quoting == csv.QUOTE_ALL):
            return whole.count('"') // 2 - inner, True
    return marks, False


def unnamed_columns(rows: Iterator[list[str]]) -> Iterator[str]:
    """What is told of a table's columns without a name, by its rows of which the first has the names."""
    names = next(rows, [])
    called = named_columns(names)
    unnamed = [place for place, name in enumerate(names) if not plain_name(name)]
    if unnamed:
        full = sum(any(place < len(cells) and cells[place].strip() for place in unnamed) for cells in rows)
        their = f"hold something in {full:,} rows: they are called {in_words([called[place] for place in unnamed])}"
        yield f"{len(unnamed)} columns without a name {their if full else 'are empty in all rows, and are not read'}"


def _told(url: str, spec: TaskSpec) -> Iterator[str]:
    """What is read of a file of cells otherwise than it stands there, or not at all, beyond what the task says."""
    dialect = dialect_of(url, spec)
    if not spec.columns:
        yield from unnamed_columns(cells for _, cells in cells_of(url, dialect))
    if dialect.encoding != (spec.dialect or Dialect()).encoding:
        n_lines = sum(not line.isascii() for line in byte_lines(url, ""))
        yield f"it is not UTF-8 in {n_lines:,} lines, and is read as Windows writes it; `encoding` says another"
