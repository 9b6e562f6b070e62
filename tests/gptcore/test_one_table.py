"""One table in every file and dialect that people's programs write: the same dataset, or one line that refuses it.

What a dialect cannot carry stands where it is written: a mark in front is no text, a CR without quotes amid other line
ends is refused, bytes that are UTF-8 are read as that, and a first row that holds the word "text" may be a header.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.nlu.guess import Unclear, guess_task
from gptcore.nlu.own_rows import own_example, own_table
from gptcore.nlu.own_task import read_own_task
from gptcore.nlu.readers import iterate
from tests.gptcore.test_own_task import toml

Row = dict[str, Any]
Draw = Callable[..., Any]
REFUSAL = re.compile(r"(\S+rows\.\w+|own|\S+own\.toml).*: found .+, expected .+", re.DOTALL)
FOREIGN_WORDS = re.compile("field larger|expected after|unexpected end|new-line|Traceback")
PACKERS = (bytes, gzip.compress, bz2.compress, lzma.compress, lambda data: pa.compress(data, "zstd", asbytes=True))


@dataclass(frozen=True)
class Table:
    """Rows as JSON has them, and what a task's file says of them besides their format."""

    columns: tuple[str, ...]
    rows: list[Row]
    task: Row


@dataclass(frozen=True)
class Written:
    """A table in a file: what the file is called, who writes it, and what a task's file has to say of it."""

    name: str
    write: Callable[[Path], object]
    told: Row
    must: bool = False
    """Whether there is nothing that could be refused."""


# --- tables ----------------------------------------------------------------------------------------------------------

ODD = [
    *("a, b", 'he said "no"', "x;y", "a|b", "a\tb", "two\nlines", "of\r\nDOS", "of\rMac", '"', '""', '"all"', '"a" b'),
    *(
        "sep=;",
        "# a",
        "1,5",
        "007",
        "1e5",
        "12",
        "1.0",
        "NaN",
        "nan",
        "TRUE",
        "None",
        "null",
        "#N/A",
        "=1+1",
        "'=1",
        "-",
    ),
    *(
        " a ",
        "\ta",
        "a\n",
        "\xa0",
        "\ufeffa",
        "a\u2028b",
        "a\x85b",
        "\x1a",
        "e\u0301",
        "\u05e9\u05dc\u05d5\u05dd",
        "\U0001f469\u200d\U0001f467",
    ),
    *("_x000D_", "_x005F_", "[1]", "['a', 'b']", '{"a": 1}', "a\\b", "a\\", "text", "label", "é", "Ã©", "<b>&amp;</b>"),
]
WORDS = [
    "a plane takes off at noon",
    "nobody sat on the old mat",
    "it was, all in all, a fine day",
    "no; not again | ever",
]
TEXT = st.sampled_from(ODD) | st.sampled_from(WORDS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
FULL = TEXT.filter(str.strip)
CLASSES = st.sampled_from(
    [
        *(["a", "b"], ["yes", "no", "it depends"], ["x, y", "x; y"], ["é", "ü"], [0, 1], [1, 2, 3], [True, False]),
        *(["0", "1"], ["007", "1e5"], ["TRUE", "FALSE"], [0.5, 1.5], ['"', "''"], ["New\nYork", "Rome"], [-1, 1]),
    ]
)
NAMES = st.sampled_from(
    [
        ("text", "title", "more", "label"),
        ("premise", "hypothesis", "context", "gold_label"),
        ("Text ", "text;2", "a, b", "Label"),
        ("téxt", '"q"', "x\ty", "y"),
        ("1", "2", "3", "4"),
    ]
)


@st.composite
def tables(draw: Draw) -> Table:
    *names, label = draw(NAMES)
    form = draw(st.sampled_from(["single", "single", "pair", "labels", "choices", "graded"]))
    texts = tuple(names[: {"pair": 2, "choices": 1}.get(form, draw(st.integers(1, 3)))])
    choices = tuple(names[1:]) if form == "choices" else ()
    classes = draw(CLASSES)
    if form == "graded":
        answer: Any = st.integers(0, 5) | st.sampled_from([0.5, 3.8, 4.25, 5.0])
    elif form == "choices":
        answer = st.integers(0, 1)
    elif form == "labels":
        classes = draw(st.sampled_from([["a", "b"], ["x y", "é", "1"], ["0", "1", "2"]]))
        answer = st.lists(st.sampled_from(classes), max_size=3, unique=True)
    else:
        answer = st.sampled_from([*classes, None]) if draw(st.booleans()) else st.sampled_from(classes)
    other = st.one_of(TEXT, st.none())
    first = dict.fromkeys((texts[0], *choices), FULL)
    kinds = {name: first.get(name, other) for name in (*texts, *choices)} | {label: answer}
    if draw(st.booleans()):
        kinds["id"] = st.integers(0, 99)
    rows = draw(st.lists(st.fixed_dictionaries(kinds), min_size=4 if form == "labels" else 2, max_size=6))
    values = [*([each] for each in classes), classes] if form == "labels" else classes
    for row, value in zip(rows, values, strict=False):
        row[label] = row[label] if form in ("choices", "graded") else value
    columns = tuple(draw(st.permutations([*kinds])))
    rows = [{name: row[name] for name in columns} for row in rows]
    fields = list(texts) if form in ("pair", "choices") else [texts[0] if len(texts) == 1 else list(texts)]
    said = {"form": "single", "score_range": [0, 5]} if form == "graded" else {"form": form}
    if draw(st.booleans()) and form in ("single", "pair", "labels"):
        said["labels"] = list(classes)
    if form in ("single", "pair"):
        said["dropped_labels"] = [""]
    said |= {"choices": list(choices)} if choices else {}
    return Table(columns, rows, {"fields": fields, "label": label, **said})


# --- files -----------------------------------------------------------------------------------------------------------


def cell(value: Any) -> str:
    """A value as Python's writer of CSV, or pandas, has it."""
    return "" if value is None else ";".join(value) if isinstance(value, list) else str(value)


@st.composite
def cells(draw: Draw, table: Table, kind: str) -> Written:
    """A file of cells, in one of the dialects of CSV or TSV."""
    header = draw(st.sampled_from([True, True, True, False]))
    assume(header or "text" not in table.rows[0].values())  # by which a file without a header would have one
    rows = [[*table.columns]] * header + [[cell(row[name]) for name in table.columns] for row in table.rows]
    delimiter = "\t" if kind == "tsv" else draw(st.sampled_from(",;|\t"))
    end, last = draw(st.sampled_from(["\n", "\r\n", "\r"])), draw(st.booleans())
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC, csv.QUOTE_NONE]))
    if quoting == csv.QUOTE_NONE:
        broken = [delimiter, "\n", "\r", *(['"'] if kind == "csv" else [])]
        assume(not any(part in each for row in rows for each in row for part in broken))
        text = "".join(delimiter.join(row) + end for row in rows)
    else:
        csv.writer(out := io.StringIO(), delimiter=delimiter, quoting=quoting, lineterminator=end).writerows(rows)
        text = out.getvalue()
    assume(end != "\r" or "\n" not in text)  # whose lines end at LF
    assume(not text.startswith("\ufeff"))  # which is a mark, and no text
    sep = kind == "csv" and draw(st.booleans())
    text = f"sep={delimiter}{end}" * sep + (text if last or sep else text.removesuffix(end))
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"]))
    try:
        content = text.encode(encoding)
    except UnicodeEncodeError:
        assume(False)
    says = draw(st.booleans())
    if encoding == "cp1252" and not says and not text.isascii():  # bytes that happen to be UTF-8 are read as it
        assume(content.decode("utf-8", "replace").count("\ufffd"))
    told: Row = {} if header else {"columns": list(table.columns)}
    quoted = {"quoted": quoting != csv.QUOTE_NONE} if kind == "tsv" else {}
    told |= {"encoding": encoding, "delimiter": delimiter, **quoted} if says else {}
    pack = draw(st.sampled_from(PACKERS))
    event(f"{kind} said {says}")
    must = says and (end != "\n" or "\r" not in text)  # which Python's writer leaves without quotes there
    return Written(f"rows.{kind}", lambda path: path.write_bytes(pack(content)), told, must)


@st.composite
def jsons(draw: Draw, table: Table, kind: str, loose: bool) -> Written:
    """Lines of JSON, an array, or an object of columns.

    :param loose: rows differ in the order of their keys, and some have further ones.
    """
    ascii_, rows = draw(st.booleans()), []
    for row in table.rows:
        row = {**row, **(draw(st.sampled_from([{}, {}, {"_more": [1, {"a": None}]}, {"_id": "x"}])) if loose else {})}
        rows.append({name: row[name] for name in (draw(st.permutations([*row])) if loose else row)})
    form = draw(st.sampled_from(["lines", "array", "columns", "numbered", "by row"])) if kind == "json" else "lines"
    assume(form != "by row" or not table.columns[0].isdecimal())  # which are columns by their names, or rows by numbers
    if form == "lines":
        end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
        text = "".join(json.dumps(row, ensure_ascii=ascii_) + end for row in rows)
        text = text if draw(st.booleans()) else text.removesuffix(end)
    else:
        of_columns = {name: [row[name] for row in table.rows] for name in table.columns}
        value: Any = {
            "array": rows,
            "columns": of_columns,
            "numbered": {name: {str(n): each for n, each in enumerate(part)} for name, part in of_columns.items()},
            "by row": {str(n): row for n, row in enumerate(rows)},
        }[form]
        text = json.dumps(value, ensure_ascii=ascii_, indent=draw(st.sampled_from([None, 1])))
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le"]))
    told = {"encoding": encoding} if encoding == "utf-16-le" or draw(st.booleans()) else {}
    content, pack = text.encode(encoding), draw(st.sampled_from(PACKERS))
    return Written(f"rows.{kind}", lambda path: path.write_bytes(pack(content)), told, True)


def saved(table: pa.Table, path: Path) -> None:
    """A folder as `datasets` saves it."""
    path.mkdir()
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    with pa.ipc.new_stream(str(path / "data.arrow"), table.schema) as stream:
        stream.write_table(table)


def in_chunks(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table, max_chunksize=2)


@st.composite
def arrows(draw: Draw, table: Table) -> Written:
    """Parquet or Arrow, with any of Arrow's types of text."""
    columns = {}
    for name in table.columns:
        values = [row[name] for row in table.rows]
        column = pa.array([float(v) if isinstance(v, int) and float in map(type, values) else v for v in values])
        if pa.types.is_string(column.type):
            kind = draw(st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), None]))
            column = column.dictionary_encode() if kind is None else column.cast(kind)
        elif pa.types.is_integer(column.type) and name == table.task["label"]:
            column = column.cast(draw(st.sampled_from([pa.int8(), pa.int64(), pa.float32(), pa.float64()])))
        elif pa.types.is_floating(column.type):
            column = column.cast(draw(st.sampled_from([pa.float32(), pa.float64()])))
        columns[name] = column
    made = pa.table(columns)
    kind, write = draw(st.sampled_from([("parquet", pq.write_table), ("arrow", in_chunks), ("arrow", saved)]))
    return Written(f"rows.{kind}", lambda path: write(made, path), {}, True)


def as_excel_has_it(text: str) -> str:
    """What XML cannot hold, or would change, as an escape."""
    escaped = re.sub("_(?=x[0-9A-Fa-f]{4}_)", "_x005F_", text)
    return re.sub("[\x00-\x08\x0b-\x1f\ufffe\uffff]", lambda mark: f"_x{ord(mark[0]):04X}_", escaped)


def excel(table: Table) -> Written:
    """A workbook: numbers are numbers, and texts texts, whatever they look like."""

    def write(path: Path) -> None:
        sheet = (book := openpyxl.Workbook()).active
        for number, row in enumerate([dict(zip(table.columns, table.columns, strict=True)), *table.rows], start=1):
            for place, name in enumerate(table.columns, start=1):
                value = cell(row[name]) if isinstance(row[name], list) else row[name]
                one = sheet.cell(number, place)
                one.value = as_excel_has_it(value) if isinstance(value, str) else value
                if isinstance(value, str):
                    one.data_type = "s"
        book.save(path)

    return Written("rows.xlsx", write, {}, True)


def written(table: Table, loose: bool = True) -> st.SearchStrategy[Written]:
    kinds = cells(table, "csv"), cells(table, "tsv"), arrows(table), st.just(excel(table))
    return st.one_of(kinds[0], *kinds, jsons(table, "jsonl", loose), jsons(table, "json", loose))


def plain(table: Table) -> Written:
    lines = "".join(json.dumps(row) + "\n" for row in table.rows)
    return Written("rows.jsonl", lambda path: path.write_text(lines), {}, True)


# --- the same --------------------------------------------------------------------------------------------------------


def dataset(table: Table, file: Written) -> Any:
    """The digest of the rows that a task has of a file, and those that are asked about; or why there are none."""
    with TemporaryDirectory() as folder:
        file.write(Path(folder) / file.name)
        given = {"name": "own", "format": file.name.split(".")[1], "train": file.name, "dev": file.name}
        task = Path(folder) / "own.toml"
        task.write_text(toml({**given, **table.task, **file.told}), encoding="utf-8")
        try:
            spec = read_own_task(str(task)).spec
            rows = [(row.fields, row.choices, row.label) for row in iterate(spec, "", "train")]
            asked = [own_example(spec, row).fields for row in own_table(spec, str(Path(folder) / file.name))]
        except InputError as error:
            return str(error)
    return spec.labels, rows, asked


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_one_table_is_one_dataset_in_every_dialect(data: st.DataObject) -> None:
    table = data.draw(tables())
    file = data.draw(written(table))
    expected, found = dataset(table, plain(table)), dataset(table, file)
    if isinstance(found, str):
        event("refused")
        assert REFUSAL.fullmatch(found), found
        assert not FOREIGN_WORDS.search(found)
        assert isinstance(expected, str) or not file.must, (found, expected)
    else:
        event(f"read {file.name}")
        assert found == expected


def guessed(file: Written) -> Any:
    """What is guessed of the task that a file holds, but for how it is written; or what it is asked for, or why not."""
    with TemporaryDirectory() as folder:
        file.write(Path(folder) / file.name)
        try:
            fields = guess_task(str(Path(folder) / file.name))
        except Unclear as error:
            return error.option
        except InputError as error:
            return str(error).replace(folder, "")
    written = ("format", "train", "delimiter", "encoding", "quoted", "separator")
    return {name: value for name, (value, _) in fields.items() if name not in written}


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_one_table_is_one_guess_in_every_dialect(data: st.DataObject) -> None:
    """The keys of JSON stand in the columns' order here, which is that of the texts, and no name is a number: of a file
    of cells that would be a row."""
    table = data.draw(tables().filter(lambda table: "4" not in table.columns))
    file = data.draw(written(table, loose=False).filter(lambda file: not file.told.keys() - {"quoted"}))
    expected, found = guessed(plain(table)), guessed(file)
    event("the same" if found == expected else "refused")
    assert found == expected or (isinstance(found, str) and REFUSAL.fullmatch(found)), (found, expected)
