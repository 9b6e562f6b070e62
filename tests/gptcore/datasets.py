"""Writes rows of any of the twelve datasets in its public format, plainly, to any address: the readers' counterpart."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass

import fsspec

from gptcore.nlu.registry import Source, TaskSpec


@dataclass(frozen=True)
class Row:
    """Texts in the order of the task's columns, and the label as it stands in the file."""

    texts: tuple[str, ...]
    label: str
    choices: tuple[str, ...] = ()


def header(spec: TaskSpec) -> list[str]:
    """Column names of the public file, in an order in which a text stands last where it does in CoLA."""
    return list(spec.columns) or ["index", *spec.text_columns, *spec.choices, spec.label]


def plain_row(spec: TaskSpec, number: int) -> Row:
    """A valid row whose texts say which row and column they are."""
    label = f"{number % 6}.000" if spec.score_range else spec.labels[number % len(spec.labels)]
    texts = tuple(f'row {number} says "{column}.' for column in spec.text_columns)
    return Row(texts, label, tuple(f"choice {number}-{column}" for column in range(len(spec.choices))))


def cells(spec: TaskSpec, number: int, row: Row) -> list[str]:
    """The cells of one row in the header's order; columns that no reader needs are empty."""
    named = dict(zip(spec.text_columns, row.texts, strict=True)) | dict(zip(spec.choices, row.choices, strict=True))
    named |= {spec.label: row.label, "index": str(number)}
    return [named.get(column, "") for column in header(spec)]


def encode_file(
    spec: TaskSpec, rows: Sequence[Row], *, end: str = "\n", bom: bool = False, last_end: bool = True
) -> bytes:
    """One file of any format but RACE's."""
    if spec.format == "csv":
        sheet = io.StringIO()
        writer = csv.writer(sheet, quoting=csv.QUOTE_ALL, lineterminator=end)
        writer.writerows([header(spec), *(cells(spec, number, row) for number, row in enumerate(rows))])
        lines = [sheet.getvalue().removesuffix(end)]
    elif spec.format == "jsonl":
        lines = [
            json.dumps(dict(zip(header(spec), cells(spec, number, row), strict=True)), ensure_ascii=number % 2 == 0)
            for number, row in enumerate(rows)
        ]
    else:
        lines = ["\t".join(cells(spec, number, row)) for number, row in enumerate(rows)]
        lines = lines if spec.columns else ["\t".join(header(spec)), *lines]
    return (("\ufeff" if bom else "") + end.join(lines) + (end if last_end else "")).encode()


def encode_passage(rows: Sequence[Row]) -> bytes:
    """One RACE file: the rows must share their article."""
    passage = {
        "article": rows[0].texts[0],
        "questions": [row.texts[1] for row in rows],
        "options": [list(row.choices) for row in rows],
        "answers": [row.label for row in rows],
        "id": "x.txt",
    }
    return json.dumps(passage, ensure_ascii=False).encode()


def write_bytes(url: str, data: bytes) -> None:
    """Write one file, with the folders it needs."""
    fs, path = fsspec.url_to_fs(url)
    fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
    fs.pipe_file(path, data)


def source_url(datasets_url: str, spec: TaskSpec, source: Source) -> str:
    return f"{datasets_url}/{spec.folder}/{source.path}"


def write_source(datasets_url: str, spec: TaskSpec, source: Source, rows: Sequence[Row]) -> None:
    """One source of one split: a file, or for RACE a folder with one passage a row."""
    if spec.format == "race":
        for number, row in enumerate(rows):
            write_bytes(f"{source_url(datasets_url, spec, source)}/{number:03}.txt", encode_passage([row]))
    else:
        write_bytes(source_url(datasets_url, spec, source), encode_file(spec, rows))


def write_task(datasets_url: str, spec: TaskSpec, rows: int = 12) -> None:
    """Every split of one task, ``rows`` plain rows a file."""
    for sources in spec.splits.values():
        for source in sources:
            write_source(datasets_url, spec, source, [plain_row(spec, number) for number in range(rows)])


def thirteenth() -> TaskSpec:
    """A dataset that the project does not know, as one entry."""
    return TaskSpec(
        name="imdb",
        folder="IMDB",
        format="tsv",
        form="single",
        splits={"train": (Source("train.tsv", 25_000),), "dev": (Source("test.tsv", 25_000),)},
        fields=("review",),
        label="sentiment",
        labels=("neg", "pos"),
        metrics=("accuracy",),
        table=0,
        paper={"imdb": None},
    )
