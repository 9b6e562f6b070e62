"""The rows of a user's own files, in each of the formats that a task's file may name."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
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
from gptcore.nlu.readers.dialect import beginning, cells_of, dialect_of, unnamed_columns
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

_ESCAPED = re.compile("_x([0-9A-Fa-f]{4})_")
"""How Excel writes a character that XML cannot hold, or would change."""
_ARRAY = re.compile(r"array\((\[.*?\]), dtype=object\)", re.DOTALL)  # of numpy, in an object
_OF_WORKBOOKS = (b"[Content_Types].xml", b"docProps/", b"xl/")
"""The first file in an Excel workbook, which is a zip archive, is one of these."""
_MAGIC: dict[bytes, Format] = {b"PAR1": "parquet", b"ARRO": "arrow", b"\xff\xff\xff\xff": "arrow"}


def read_own(url: str, spec: TaskSpec) -> Iterator[Record]:
    """The rows of a file of a user's own.

    :param spec: a task with a dialect; one without fields gets every column that the file has.
    :raises InputError: as the reader of its format; a row that is the header once more.
    """
    for row in _READERS[spec.format](url, spec):
        names = {*map(plain_name, row.columns)}
        cells = [cell for cell in row.columns.values() if isinstance(cell, str) and cell.strip()]
        if len(cells) > 1 and all(plain_name(cell) in names for cell in cells) and len({*cells}) == len(cells):
            place = f"{row.file}, {row.unit} {row.line}"
            raise InputError(f"{place}: found the names of the columns, expected a row{TAKE_OUT}")
        yield opened(row, spec)


def opened(row: Record, spec: TaskSpec) -> Record:
    """A row in which what a task's dialect says is packed into one cell is unpacked: its labels, or its choices.

    :raises InputError: no list, or one of another length than the task has choices.
    """
    dialect = spec.dialect or Dialect()
    columns = dict(row.columns)
    if dialect.separator and isinstance(cell := columns.get(spec.label), str):
        columns[spec.label] = labels_apart(cell, dialect.separator)
    if dialect.options and spec.choices:
        listed, keys = listed_in(row, dialect.options)
        if listed is None or len(listed) != len(spec.choices):
            column = dialect.options.partition(".")[0]
            raise row.error(column, show(row.value(column)), f"a list of {len(spec.choices)} texts")
        columns |= zip(spec.choices, listed, strict=True)
        if (label := label_text(columns.get(spec.label))) in keys:
            columns[spec.label] = chr(65 + keys.index(label))
    return replace(row, columns=columns)


def labels_apart(cell: str, separator: str) -> list[Any]:
    """The labels in a cell of text: those with a separator between them, or of a list that a program has written."""
    listed = unwritten(cell)
    return listed if isinstance(listed, list) else [part.strip() for part in cell.split(separator) if part.strip()]


def listed_in(row: Record, path: str) -> tuple[list[Any] | None, list[str]]:
    """The list at a place of a row, and the names of its items, where they stand beside it; None: there is no list.

    :param path: a column, whose object has a text under each name; or a column and the name of a list in its object, or
        of a text in each of its objects.
    """
    column, _, inner = path.partition(".")
    listed, names = unwritten(row.columns.get(column)), None
    if inner and isinstance(listed, list) and all(isinstance(item, dict) for item in listed):
        listed = {name: [item.get(name) for item in listed] for name in (listed[0] if listed else ())}
    if isinstance(listed, dict):
        names = listed.get("label", listed.get("key")) if inner else [*listed]
        listed = listed.get(inner) if inner else [*listed.values()]
    elif inner:
        listed = None
    keys = [label_text(name) for name in names] if isinstance(names, list) and names != listed else []
    return (listed if isinstance(listed, list) else None), keys


def unwritten(value: Any) -> Any:
    """The list or the object that a program has written into a cell of text, in JSON or as Python or numpy write it."""
    if not isinstance(value, str) or value.strip()[:1] not in ("[", "{"):
        return value
    with suppress(ValueError, RecursionError):
        return json.loads(value)
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError):
        return ast.literal_eval(_with_commas(value.strip()))
    return value


def _with_commas(written: str) -> str:
    """Lists as Python writes them: numpy leaves the commas out, without which Python joins two texts."""
    parts, former = "", False
    for token in tokenize.generate_tokens(io.StringIO(_ARRAY.sub(r"\1", written)).readline):
        item = token.type in (tokenize.STRING, tokenize.NUMBER)
        parts += ", " * (item and former) + token.string.strip()
        former = item or (former and not token.string.strip())
    return parts


def kind_of(url: str, encoding: str = "") -> Format:
    """The format of a file of rows, by what it begins with; of a folder, that of `datasets`.

    :param encoding: of a text, as :func:`gptcore.nlu.readers.text_files.lines` takes it.
    :raises InputError: as :func:`gptcore.nlu.readers.text_files.lines`.
    """
    if binary := binary_kind(url):
        return binary
    texts = (line.strip() for line in beginning(url, encoding)[0] if line.strip())
    first, second = next(texts, ""), next(texts, "")
    if first[:1] not in ("{", "["):
        tabs = "\t" in first and not (".csv" in url.rpartition("/")[2].lower() and "," in first)
        return "tsv" if tabs else "csv"
    return "jsonl" if first[:1] == "{" and first.endswith("}") and second else "json"


def binary_kind(url: str) -> Format | None:
    """The format of a file of rows that is no text, or of a folder of `datasets`, whatever it is called; None: a text.

    :raises InputError: no such file.
    """
    if is_folder(*file_system(url)):
        return "arrow"
    head = head_of(url)
    if url.lower().endswith(".xlsx") or any(part in head for part in _OF_WORKBOOKS):
        return "xlsx"
    return _MAGIC.get(head[:4])


def _cells(url: str, spec: TaskSpec) -> Iterator[Record]:
    return table_of_cells(url, spec, cells_of(url, dialect_of(url, spec)))


def _columns(url: str, spec: TaskSpec) -> Iterator[Record]:
    for file in arrow_files(url) if spec.format == "arrow" else [url]:
        whole = not spec.fields or (spec.dialect and spec.dialect.options)
        yield from read_whole_parquet(file) if whole else read_parquet(file, spec, HubSet("", {}))


# --- JSON ------------------------------------------------------------------------------------------------------------


def _objects(url: str, spec: TaskSpec) -> Iterator[Record]:
    """Rows of JSON; of one that lacks a key which others have, the label or the text is missing."""
    read = read_jsonl if spec.format == "jsonl" else _read_json
    usual: set[str] | None = None
    for row in read(url, spec):
        if missing := spec.required_columns - row.columns.keys():
            if usual is None:
                whole = (other.columns.keys() for other in read(url, spec) if spec.required_columns <= {*other.columns})
                usual = {*next(whole, ())}
            if usual and not any(near(name, row.columns.keys() - usual) for name in missing):  # it is not misspelt
                row = replace(row, columns={**row.columns, **dict.fromkeys(sorted(missing))})
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
    if isinstance(value, dict) and isinstance(rows := value.get("data"), list):
        names = value.get("columns")
        if value.keys() == {"schema", "data"}:
            return objects_in(rows, url)
        if isinstance(names, list) and all(isinstance(row, list) and len(row) == len(names) for row in rows):
            return [dict(zip(names, row, strict=True)) for row in rows]
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
    """What is told of a workbook: what it has beside the sheet that is read, columns without a name; empty: nothing."""
    name, *others = sheets = _sheets(url)
    told = ", ".join(f"{show(other)} ({len(sheets[other]):,} rows)" for other in others if sheets[other])
    beside = [f"the sheet {show(name)} is read, and not {told}"] if told else []
    return "; ".join([*beside, *unnamed_columns(iter(sheets[name]))])


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
    """A cell as a CSV of the table has it: a day has no hour, a formula that failed no value, and what XML cannot hold
    stands for itself.
    """
    if isinstance(value, datetime) and value.time() == time():
        return str(value.date())
    return "" if value != value else _ESCAPED.sub(lambda mark: chr(int(mark[1], 16)), str(value))


_READERS: dict[Format, Callable[[str, TaskSpec], Iterator[Record]]] = {
    **dict.fromkeys(("csv", "tsv"), _cells),
    **dict.fromkeys(("jsonl", "json"), _objects),
    **dict.fromkeys(("parquet", "arrow"), _columns),
    "xlsx": _read_excel,
}
OWN_FORMATS: tuple[Format, ...] = tuple(_READERS)
"""What a user's own rows may lie in."""
