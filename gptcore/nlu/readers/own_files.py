"""The rows of a user's own files, in each of the formats that a task's file may name."""

from __future__ import annotations

import ast
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, time
from typing import Any

import fsspec

from gptcore.base.errors import InputError, near, require
from gptcore.base.filesystems import file_system, is_folder
from gptcore.base.unpacking import check_unpacked
from gptcore.nlu.examples import Record, show
from gptcore.nlu.forms import label_text
from gptcore.nlu.readers.dialect import cells_of, dialect_of
from gptcore.nlu.readers.hub import HubSet
from gptcore.nlu.readers.parquet import arrow_files, read_parquet, read_whole_parquet
from gptcore.nlu.readers.text_files import (
    TAKE_OUT,
    head_of,
    lines,
    parse_json,
    plain_name,
    read_jsonl,
    table_of_cells,
    unreadable,
)
from gptcore.nlu.spec import Dialect, Format, TaskSpec

_MAGIC: dict[bytes, Format] = {b"PAR1": "parquet", b"ARRO": "arrow", b"\xff\xff\xff\xff": "arrow"}


def read_own(url: str, spec: TaskSpec) -> Iterator[Record]:
    """The rows of a file of a user's own.

    :param spec: a task with a dialect; one without fields gets every column that the file has.
    :raises InputError: as the reader of its format; a row that is the header once more.
    """
    for row in _READERS[spec.format](url, spec):
        row = opened(row, spec)
        named = [(name, cell) for name, cell in row.columns.items() if not name.startswith("Unnamed: ")]
        if len(named) > 1 and all(plain_name(name) == plain_name(str(cell)) for name, cell in named):
            place = f"{row.file}, {row.unit} {row.line}"
            raise InputError(f"{place}: found the names of the columns, expected a row{TAKE_OUT}")
        yield row


def opened(row: Record, spec: TaskSpec) -> Record:
    """A row in which what a task's dialect says is packed into one cell is unpacked: its labels, or its choices.

    :raises InputError: no list, or one of another length than the task has choices.
    """
    dialect = spec.dialect or Dialect()
    columns = dict(row.columns)
    if dialect.separator and isinstance(cell := columns.get(spec.label), str):
        columns[spec.label] = [label.strip() for label in cell.split(dialect.separator) if label.strip()]
    if dialect.options and spec.choices:
        listed, keys = listed_in(row, dialect.options)
        if listed is None or len(listed) != len(spec.choices):
            column = dialect.options.partition(".")[0]
            raise row.error(column, show(row.value(column)), f"a list of {len(spec.choices)} texts")
        columns |= zip(spec.choices, listed, strict=True)
        if (label := label_text(columns.get(spec.label))) in keys:
            columns[spec.label] = str(keys.index(label))
    return replace(row, columns=columns)


def listed_in(row: Record, path: str) -> tuple[list[Any] | None, list[str]]:
    """The list at a place of a row, and the names of its items, where they stand beside it; None: there is no list.

    :param path: a column, or a column and the name of a list in its object.
    """
    column, _, inner = path.partition(".")
    value = unwritten(row.columns.get(column))
    beside = value if isinstance(value, dict) else {}
    listed = beside.get(inner) if inner else value
    names = beside.get("label", beside.get("key"))
    keys = [label_text(name) for name in names] if isinstance(names, list) and names != listed else []
    return (listed if isinstance(listed, list) else None), keys


def unwritten(value: Any) -> Any:
    """The list or the object that a program has written into a cell of text, in JSON or as Python writes it."""
    if not isinstance(value, str) or value.strip()[:1] not in ("[", "{"):
        return value
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return read(value)
    return value


def kind_of(url: str, encoding: str = "") -> Format:
    """The format of a file of rows, by what it begins with; of a folder, that of `datasets`.

    :param encoding: of a text, as :func:`gptcore.nlu.readers.text_files.lines` takes it.
    :raises InputError: as :func:`gptcore.nlu.readers.text_files.lines`.
    """
    if is_folder(*file_system(url)):
        return "arrow"
    head = head_of(url)[:4]
    if head in _MAGIC or url.lower().endswith(".xlsx"):
        return _MAGIC.get(head, "xlsx")
    texts = (line.strip() for _, line in lines(url, encoding) if line.strip())
    first, second = next(texts, ""), next(texts, "")
    if first[:1] not in ("{", "["):
        tabs = "\t" in first and not (".csv" in url.rpartition("/")[2].lower() and "," in first)
        return "tsv" if tabs else "csv"
    return "jsonl" if first[:1] == "{" and first.endswith("}") and second else "json"


def _cells(url: str, spec: TaskSpec) -> Iterator[Record]:
    return table_of_cells(url, spec, cells_of(url, dialect_of(url, spec)))


def _columns(url: str, spec: TaskSpec) -> Iterator[Record]:
    for file in arrow_files(url) if spec.format == "arrow" else [url]:
        whole = not spec.fields or (spec.dialect and spec.dialect.options)
        yield from read_whole_parquet(file) if whole else read_parquet(file, spec, HubSet("", {}))


# --- JSON ------------------------------------------------------------------------------------------------------------


def _objects(url: str, spec: TaskSpec) -> Iterator[Record]:
    """Rows of JSON; of one that lacks the label's key, which others have, the label is missing."""
    read = read_jsonl if spec.format == "jsonl" else _read_json
    usual: set[str] | None = None
    for row in read(url, spec):
        if spec.label and spec.label not in row.columns:
            if usual is None:
                usual = next(({*other.columns} for other in read(url, spec) if spec.label in other.columns), set())
            if usual and not near(spec.label, row.columns.keys() - usual):  # which would be the label, misspelt
                row = replace(row, columns={**row.columns, spec.label: None})
        yield row


def _read_json(url: str, spec: TaskSpec) -> Iterator[Record]:
    """The rows of a file that is one JSON value, or has one object a line, as many do that are called .json."""
    encoding = spec.dialect.encoding if spec.dialect else ""
    if kind_of(url, encoding) == "jsonl":
        return read_jsonl(url, spec)
    rows = objects_in(parse_json("".join(line for _, line in lines(url, encoding)), url, own=True), url)
    return (Record(url, str(number), row, unit="row") for number, row in enumerate(rows, start=1))


def objects_in(value: Any, url: str) -> list[Mapping[str, Any]]:
    """The rows of a JSON value: an array of objects, or an object of columns in one of pandas' orientations.

    :raises InputError: another value, or columns of several lengths.
    """
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return value
    if isinstance(value, dict) and not any(isinstance(part, dict | list) for part in value.values()):
        return [value]
    columns = list(value.values()) if isinstance(value, dict) else []
    if columns and all(isinstance(part, dict) for part in columns):
        if all(name.isdecimal() for name in value) and not all(name.isdecimal() for name in columns[0]):
            return columns  # rows by their numbers
        columns = [list(part.values()) if [*part] == [*columns[0]] else [] for part in columns]
    if columns and all(isinstance(part, list) and len(part) == len(columns[0]) for part in columns):
        return [dict(zip(value, cells, strict=True)) for cells in zip(*columns, strict=True)]
    expected = "an array of objects, or an object of columns with a cell for each row"
    raise InputError(f"{url}, line 1, column 1: found {show(value)}, expected {expected}")


# --- Excel -----------------------------------------------------------------------------------------------------------


def _read_excel(url: str, spec: TaskSpec) -> Iterator[Record]:
    return table_of_cells(url, spec, enumerate(next(iter(_sheets(url).values())), start=1), "row")


def unread_sheets(url: str) -> str:
    """What a workbook has beside the sheet that is read; empty: nothing."""
    name, *others = sheets = _sheets(url)
    told = ", ".join(f"{show(other)} ({len(sheets[other]):,} rows)" for other in others if sheets[other])
    return f"the sheet {show(name)} is read, and not {told}" if told else ""


def _sheets(url: str) -> dict[str, list[list[str]]]:
    """The sheets of a workbook by their names, each as its rows of cells.

    :raises InputError: no such file, no workbook, or openpyxl is not installed.
    """
    import pandas as pd

    try:
        with fsspec.open(url, "rb") as raw:
            check_unpacked(sum(part.file_size for part in zipfile.ZipFile(raw).infolist()), raw.seek(0, 2), url)
            read = pd.read_excel(raw, sheet_name=None, header=None, dtype=object, na_filter=False, engine="openpyxl")
    except InputError:
        raise
    except ImportError:
        expected = "openpyxl, which reads it; `pip install 'gptmill[excel]'` brings it"
        raise InputError(f"{url}: found an Excel workbook, expected {expected}") from None
    except OSError as error:
        raise unreadable(url, error) from error
    except Exception as error:  # each part of a workbook has its own words for what is wrong
        raise InputError(f"{url}: found what cannot be read ({error}), expected an Excel workbook (.xlsx)") from error
    require(read, f"{url}: found a workbook without sheets, expected one with rows")
    return {name: [list(map(_cell, row)) for row in sheet.to_numpy().tolist()] for name, sheet in read.items()}


def _cell(value: Any) -> str:
    """A cell as a CSV of the table has it: a day has no hour."""
    return str(value.date() if isinstance(value, datetime) and value.time() == time() else value)


_READERS: dict[Format, Callable[[str, TaskSpec], Iterator[Record]]] = {
    **dict.fromkeys(("csv", "tsv"), _cells),
    **dict.fromkeys(("jsonl", "json"), _objects),
    **dict.fromkeys(("parquet", "arrow"), _columns),
    "xlsx": _read_excel,
}
OWN_FORMATS: tuple[Format, ...] = tuple(_READERS)
"""What a user's own rows may lie in."""
