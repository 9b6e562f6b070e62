"""Answers as a table in a file: CSV, TSV, JSON lines or parquet by the file's name, compressed where it ends so."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gptcore.base.errors import InputError
from gptcore.nlu.examples import show
from gptcore.nlu.own_rows import as_json, table_format
from gptcore.nlu.readers.parquet import record_batches

_ROWS = 1024  # in memory at a time, as Python objects


def write_table(path: Path, rows: Iterable[Mapping[str, Any]], source: str = "") -> int:
    """Write rows under a temporary name, and give the file its own once they are all there.

    :param rows: streamed, but of parquet, whose types every row has a say in.
    :param source: the table whose rows they are, with columns of their own behind its; of parquet to parquet its
        columns stay as they are there.
    :return: how many there are.
    :raises InputError: a row that the format cannot hold.
    """
    kind, counted = table_format(path.name, written=True), itertools.count()
    partial = path.with_name(f".partial-{path.name}")
    numbered = (row for row, _ in zip(rows, counted, strict=False))
    try:
        if kind == "parquet":
            with pa.output_stream(str(partial)) as file:
                _write_parquet(file, numbered, path, source if table_format(source or ".csv") == kind else "")
        else:
            _write_text(partial, kind, numbered, path)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return next(counted)


def json_line(row: Mapping[str, Any] | list[Any]) -> str:
    """A row, or what is in its cell, as JSON; dates and the like, which parquet may have, as text."""
    return json.dumps(as_json(row), ensure_ascii=False, default=str)


def _write_text(partial: Path, kind: str, rows: Iterator[Mapping[str, Any]], path: Path) -> None:
    """Write rows to ``partial``; with a column that a row is the first to have the table is written anew."""
    plain: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None} if kind == "tsv" else {}
    with pa.output_stream(str(partial)) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        if kind == "jsonl":
            text.writelines(f"{json_line(row)}\n" for row in rows)
            return
        ends: Any = SimpleNamespace(write=lambda line: text.write(line.removesuffix("\r\n") + "\n"))
        writer = None  # told of CR and LF as what ends lines, so that neither stands bare in a cell
        for number, row in enumerate(rows, start=1):
            if writer is None:
                writer = csv.DictWriter(ends, list(row), lineterminator="\r\n", **plain)
                writer.writeheader()
            if late := [name for name in row if name not in writer.fieldnames]:
                break
            cells = {name: json_line(cell) if isinstance(cell, list | dict) else cell for name, cell in row.items()}
            try:
                writer.writerow(cells)
            except csv.Error as error:  # a tab or a line end in a cell
                raise InputError(f"{path}, row {number}: found {show(row)} ({error}), expected a .jsonl file") from None
        else:
            return
    former = partial.rename(partial.with_name(f".{len(writer.fieldnames)}-columns{partial.name}"))
    try:
        with pa.input_stream(str(former)) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
            before = (cells | dict.fromkeys(late, "") for cells in csv.DictReader(text, **plain))
            _write_text(partial, kind, itertools.chain(before, [row], rows), path)
    finally:
        former.unlink()


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
    """The record batches of a parquet file as they are, and behind their columns what else its rows have.

    What they have is held until the last row tells whether one has a note; whoever reads them has told by then what is
    broken.
    """
    names = {name for batch in itertools.islice(record_batches(source), 1) for name in batch.schema.names}
    others = [*_one_table({name: cell for name, cell in row.items() if name not in names} for row in rows)]
    for batch in record_batches(source) if others else ():
        table, more = pa.Table.from_batches([batch]), others[0].slice(0, batch.num_rows)
        others = [others[0].slice(batch.num_rows)]
        for name in more.column_names:
            table = table.append_column(name, more[name])
        yield table


def _one_table(rows: Iterator[Mapping[str, Any]]) -> Iterator[pa.Table]:
    """Rows as one table, as its types are known with the last row; what a row lacks is null."""
    tables = []
    while chunk := list(itertools.islice(rows, _ROWS)):
        names = dict.fromkeys(itertools.chain(*chunk))
        tables.append(pa.table({name: [row.get(name) for row in chunk] for name in names}))
    if tables:
        yield pa.concat_tables(tables, promote_options="permissive")
