"""Answers as a table in a file: CSV, TSV, JSON lines or parquet by the file's name, compressed where it ends so."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from gptcore.base.errors import InputError
from gptcore.nlu.examples import show
from gptcore.nlu.own_rows import table_format
from gptcore.nlu.readers.parquet import record_batches

_ROWS = 1024  # in memory at a time, as Python objects


def write_table(path: Path, rows: Iterable[Mapping[str, Any]], source: str = "") -> int:
    """Write rows under a temporary name, and give the file its own once they are all there.

    :param rows: streamed; the first one has all the columns, but of parquet, whose types every row has a say in.
    :param source: the table whose rows they are, with columns of their own behind its; of parquet to parquet its
        columns stay as they are there.
    :return: how many there are.
    :raises InputError: a row that the format cannot hold.
    """
    kind, counted = table_format(path.name, written=True), itertools.count()
    partial = path.with_name(f".partial-{path.name}")
    numbered = (row for row, _ in zip(rows, counted, strict=False))
    try:
        with pa.output_stream(str(partial)) as file:  # compressed as its name says
            if kind == "parquet":
                _write_parquet(file, numbered, path, source if table_format(source or ".csv") == kind else "")
            else:
                with io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
                    _write_text(text, kind, numbered, path)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return next(counted)


def json_line(row: Mapping[str, Any] | list[Any]) -> str:
    """A row, or what is in its cell, as JSON; dates and the like, which parquet may have, as text."""
    return json.dumps(row, ensure_ascii=False, default=str)


def _write_text(text: IO[str], kind: str, rows: Iterator[Mapping[str, Any]], path: Path) -> None:
    if kind == "jsonl":
        text.writelines(f"{json_line(row)}\n" for row in rows)
        return
    plain: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None} if kind == "tsv" else {}
    ends: Any = SimpleNamespace(write=lambda line: text.write(line.removesuffix("\r\n") + "\n"))
    writer = None  # told of CR and LF as what ends lines, so that neither stands bare in a cell
    for number, row in enumerate(rows, start=1):
        if writer is None:
            writer = csv.DictWriter(ends, list(row), lineterminator="\r\n", **plain)
            writer.writeheader()
        cells = {name: json_line(cell) if isinstance(cell, list | dict) else cell for name, cell in row.items()}
        try:
            writer.writerow(cells)
        except (csv.Error, ValueError) as error:  # a tab or a line end in a cell; a column that the first row lacks
            raise InputError(f"{path}, row {number}: found {show(row)} ({error}), expected a .jsonl file") from None


def _write_parquet(file: Any, rows: Iterator[Mapping[str, Any]], path: Path, source: str) -> None:
    try:
        tables = _beside(source, rows) if source else _one_table(rows)
        if (first := next(tables, None)) is None:
            raise InputError(f"{path}: found no row, expected one or more")
        with pq.ParquetWriter(file, first.schema) as writer:
            for table in itertools.chain([first], tables):
                writer.write_table(table)
    except (pa.ArrowException, OverflowError) as error:
        found = f"columns that parquet cannot hold ({' '.join(str(error).split())})"
        raise InputError(f"{path}: found {found}, expected a .jsonl file") from None


def _beside(source: str, rows: Iterator[Mapping[str, Any]]) -> Iterator[pa.Table]:
    """The record batches of a parquet file as they are, and behind their columns what else its rows have."""
    batches = record_batches(source)
    for row in rows:  # whoever reads them has told by now what is broken in their batch
        table = pa.Table.from_batches([next(batches)])
        chunk = [row, *itertools.islice(rows, table.num_rows - 1)]
        for name in [name for name in row if name not in table.column_names]:
            table = table.append_column(name, [[row[name] for row in chunk]])
        yield table


def _one_table(rows: Iterator[Mapping[str, Any]]) -> Iterator[pa.Table]:
    """Rows as one table, as its types are known with the last row; what a row lacks is null."""
    tables = []
    while chunk := list(itertools.islice(rows, _ROWS)):
        names = dict.fromkeys(itertools.chain(*chunk))
        tables.append(pa.table({name: [row.get(name) for row in chunk] for name in names}))
    if tables:
        yield pa.concat_tables(tables, promote_options="permissive")
