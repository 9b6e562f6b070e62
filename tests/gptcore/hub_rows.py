"""Writes a task's public files again as the Hugging Face hub has them: its folders, columns, label numbers, metadata.

Spelled out here apart from the readers' own table, from the sets' dataset cards, so that a slip in either shows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from gptcore.nlu.readers.text_files import READERS
from gptcore.nlu.registry import REGISTRY, Source, TaskSpec
from tests.expected import expected


@dataclass(frozen=True)
class Shape:
    """One set on the hub."""

    repo: str
    columns: dict[str, str]
    """Column here -> column of the public file, texts first, the label last."""
    numbers: dict[str, int] = field(default_factory=dict)
    """Label text of the public file -> number here."""
    names: list[str] | None = None
    """ClassLabel names in the metadata; None: a plain value."""


SHAPES = {task: Shape(**shape) for task, shape in expected(__file__, "SHAPES").items()}


def stem(task: str, source: Source, split: str) -> str:
    """``config/split`` of the file in the task's repository."""
    hub_split = {"train": "train", "dev": "validation", "test": "test"}[split]
    if task == "mnli" and split == "dev":
        return "mnli/validation_matched" if source.subset == "mnli_m" else "mnli/validation_mismatched"
    if task == "race":
        return f"{source.path.rpartition('/')[2]}/{hub_split}"
    if task == "storycloze":
        return "2016/test" if split == "test" else "2016/validation"
    config = {"snli": "plain_text", "scitail": "snli_format"}.get(task, task)
    return f"{config}/{hub_split}"


def metadata(label: str, names: list[str] | None, others: list[str]) -> dict[str, str]:
    """The schema metadata that the hub's library writes."""
    value = {"dtype": "string", "_type": "Value"}
    features: dict[str, Any] = dict.fromkeys(others, value)
    features[label] = value if names is None else {"names": names, "_type": "ClassLabel"}
    return {"huggingface": json.dumps({"info": {"features": features}})}


def write_table(url: str, table: pa.Table, **options: Any) -> None:
    """Write one parquet file, with the folders it needs."""
    fs, path = fsspec.url_to_fs(url)
    fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
    with fs.open(path, "wb") as file:
        pq.write_table(table, file, **options)


def hub_table(task: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of the public file, by its columns, as the hub's table."""
    shape, spec = SHAPES[task], REGISTRY[task]
    *texts, label = shape.columns
    columns = {name: pa.array([row[shape.columns[name]] for row in rows], pa.string()) for name in texts}
    labels = [row[shape.columns[label]] for row in rows]
    if shape.numbers:
        columns[label] = pa.array([shape.numbers[text] for text in labels], pa.int64())
    elif spec.score_range:
        columns[label] = pa.array([float(text) for text in labels], pa.float32())
    else:
        words = {"entails": "entailment"} if task == "scitail" else {}
        columns[label] = pa.array([words.get(text, text) for text in labels], pa.string())
    if task == "race":
        columns["options"] = pa.array([[row[name] for name in spec.choices] for row in rows], pa.list_(pa.string()))
    columns["idx"] = pa.array(range(len(rows)), pa.int32())
    table = pa.table(columns)
    return table.replace_schema_metadata(metadata(label, shape.names, [*texts, "idx"]))


def write_hub(public_url: str, spec: TaskSpec, out: str, shards: int = 1, splits: tuple[str, ...] = ()) -> None:
    """Every split of one task, read in its public format, below ``out`` as in the task's repository."""
    for split, sources in spec.splits.items():
        for source in sources if not splits or split in splits else ():
            rows = list(READERS[spec.format](f"{public_url}/{spec.folder}/{source.path}", spec))
            table = hub_table(spec.name, [dict(row.columns) for row in rows])
            size = -(-len(rows) // shards)
            for shard in range(shards):
                url = f"{out}/{stem(spec.name, source, split)}-{shard:05}-of-{shards:05}.parquet"
                write_table(url, table.slice(shard * size, size))
