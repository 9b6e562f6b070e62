"""Answers as a table in a file: CSV, TSV, JSON lines or parquet by the file's name, compressed where it ends so."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from gptcore.base.errors import InputError
from gptcore.nlu.examples import show
from gptcore.nlu.own_rows import table_format

_ROWS = 1024  # of a row group of parquet


def write_table(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows under a temporary name, and give the file its own once they are all there.

    :param rows: streamed; the first one has all the columns.
    :return: how many there are.
    :raises InputError: a row that the format cannot hold.
    """
    import pyarrow as pa

    kind, counted, partial = table_format(path.name), itertools.count(), path.with_name(f".partial-{path.name}")
    numbered = (row for row, _ in zip(rows, counted, strict=False))
    try:
        with pa.output_stream(str(partial)) as file:  # compressed as its name says
            if kind == "parquet":
                _write_parquet(file, numbered, path)
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
    writer = None
    for number, row in enumerate(rows, start=1):
        if writer is None:
            writer = csv.DictWriter(text, list(row), lineterminator="\n", **plain)
            writer.writeheader()
        cells = {name: json_line(cell) if isinstance(cell, list | dict) else cell for name, cell in row.items()}
        try:
            writer.writerow(cells)
        except (csv.Error, ValueError) as error:  # a tab or a line end in a cell; a column that the first row lacks
            raise InputError(f"{path}, row {number}: found {show(row)} ({error}), expected a .jsonl file") from None


def _write_parquet(file: Any, rows: Iterator[Mapping[str, Any]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = writer = None
    while chunk := list(itertools.islice(rows, _ROWS)):
        try:
            table = pa.Table.from_pylist(chunk, schema=schema)
        except pa.ArrowException as error:
            raise InputError(f"{path}: found columns of several types ({error}), expected a .jsonl file") from None
        if writer is None:
            empty = [pa.field(each.name, pa.string()) if pa.types.is_null(each.type) else each for each in table.schema]
            schema = pa.schema(empty)
            writer, table = pq.ParquetWriter(file, schema), table.cast(schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
