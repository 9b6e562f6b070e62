"""Readers of the twelve datasets: text files of the public distributions, or parquet files of the hub."""

from __future__ import annotations

from gptcore.nlu.examples import Annotation, Example, Record, example_of, show
from gptcore.nlu.readers.layout import has_folder, parquet_layout
from gptcore.nlu.readers.tasks import (
    available,
    fitted,
    has_test_rows,
    iterate,
    iterate_test,
    labelled_splits,
    load_task,
    source_files,
)
from gptcore.nlu.readers.text_files import csv_rows, decoded_lines, lines, parse_object, rows_of, unreadable

__all__ = [
    "Annotation",
    "Example",
    "Record",
    "available",
    "csv_rows",
    "decoded_lines",
    "example_of",
    "fitted",
    "has_folder",
    "has_test_rows",
    "iterate",
    "iterate_test",
    "labelled_splits",
    "lines",
    "load_task",
    "parquet_layout",
    "parse_object",
    "rows_of",
    "show",
    "source_files",
    "unreadable",
]
