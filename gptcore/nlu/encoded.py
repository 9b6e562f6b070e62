"""A dataset read, checked and encoded once: Arrow files of token ids, one a split, that fine-tuning maps into memory.

Every row of every split is read and validated before anything is trained. What comes out needs neither ftfy nor spaCy,
so that fine-tuning runs on a bare GPU machine. Columns: ``fields`` and ``choices`` (list<list<uint16|uint32>>),
``label`` (float64: class index, index of the right choice, score, or set of labels), ``subset``, ``row``
(``file:line``). Of forms whose answers are places of a text a second file beside it holds what is marked in the texts:
which characters each piece stands for, and answers or tagged words.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gptcore.base.arrays import numbers
from gptcore.base.errors import require
from gptcore.base.files import read_json, sha256_json, write_json_atomic
from gptcore.base.filesystems import file_fingerprint, is_synthetic
from gptcore.data.shards import token_dtype
from gptcore.nlu.findings import Findings
from gptcore.nlu.forms import form_of
from gptcore.nlu.forms.form import Ids
from gptcore.nlu.inputs import EncodedExample, encode_rows
from gptcore.nlu.readers import Annotation, Example, iterate, labelled_splits, parquet_layout, source_files, unreadable
from gptcore.nlu.registry import TaskSpec, recorded_task, task_settings
from gptcore.text.alignment import Aligner
from gptcore.text.tokenizer import Specials, Tokenizer

_PLACES = pa.list_(pa.int32())
_SCHEMA = pa.schema(
    {
        "text": pa.string(),
        "piece_starts": _PLACES,
        "piece_ends": _PLACES,
        "starts": _PLACES,
        "ends": _PLACES,
        "names": pa.list_(pa.string()),
        "id": pa.string(),
    }.items()
)
Row = TypeVar("Row", bound=EncodedExample)
_ROWS = 4096
"""Examples encoded at a time: memory stays bounded, and premises and passages that repeat are encoded once."""


@dataclass(frozen=True)
class MarkedExample(EncodedExample):
    """One row of a task whose answers are places of its last field."""

    text: str
    """The last field as it was read."""
    piece_starts: NDArray[np.int32]
    piece_ends: NDArray[np.int32]
    """(N,) characters of the text that each of the last field's pieces stands for."""
    annotations: tuple[Annotation, ...]
    id: str


def marked_examples(tokenizer: Tokenizer, examples: Sequence[Example]) -> list[MarkedExample]:
    """Rows of text, encoded: what a model is asked without an encoded dataset."""
    aligner = Aligner(tokenizer)
    aligned = [aligner.align(example.fields[-1]) for example in examples]
    return [
        MarkedExample(
            **vars(row),
            text=example.fields[-1],
            piece_starts=its.starts,
            piece_ends=its.ends,
            annotations=example.annotations,
            id=example.id,
        )
        for row, example, its in zip(
            encode_rows(examples, tokenizer, [each.ids for each in aligned]), examples, aligned, strict=True
        )
    ]


def _marks(examples: Sequence[Example], aligner: Aligner) -> tuple[pa.RecordBatch, list[Ids]]:
    """What is marked in some rows, and the ids of each one's last field."""
    aligned = {text: aligner.align(text) for text in {example.fields[-1]: None for example in examples}}
    rows = [aligned[example.fields[-1]] for example in examples]
    columns: dict[str, list[Any]] = {
        "text": [example.fields[-1] for example in examples],
        "piece_starts": [each.starts for each in rows],
        "piece_ends": [each.ends for each in rows],
        "starts": [[each.start for each in example.annotations] for example in examples],
        "ends": [[each.end for each in example.annotations] for example in examples],
        "names": [[each.name for each in example.annotations] for example in examples],
        "id": [example.id for example in examples],
    }
    return pa.RecordBatch.from_pydict(columns, schema=_SCHEMA), [each.ids for each in rows]


def marks_file(folder: Path, split: str) -> Path:
    """Where a split's marks lie."""
    return folder / f"{split}.marks.arrow"


class _Split(Sequence[Row]):
    """Rows with random access, of which a kind says what the row of a number is."""

    @abstractmethod
    def _row(self, number: int) -> Row:
        """The row of a number from 0 on."""

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self._row(number) for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._row(index % len(self))


class MarkedSplit(_Split[MarkedExample]):
    """Encoded rows with their marks: random access.

    :param path: see :func:`marks_file`.
    :raises InputError: there are no marks.
    """

    def __init__(self, rows: Sequence[EncodedExample], path: Path) -> None:
        require(path.exists(), f"{path}: found nothing there, expected the marks of an encoded split")
        self._rows = rows
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all().combine_chunks()
        self._columns = {name: table.column(name).combine_chunks() for name in _SCHEMA.names}

    def __len__(self) -> int:
        return len(self._rows)

    def _row(self, number: int) -> MarkedExample:
        example, column = self._rows[number], self._columns
        starts, ends, names = (column[name][number].as_py() for name in ("starts", "ends", "names"))
        return MarkedExample(
            **vars(example),
            text=column["text"][number].as_py(),
            piece_starts=numbers(column["piece_starts"][number].values),
            piece_ends=numbers(column["piece_ends"][number].values),
            annotations=tuple(map(Annotation, starts, ends, names)),
            id=column["id"][number].as_py(),
        )


def encode_task(spec: TaskSpec, datasets_url: str, tokenizer: Tokenizer, out: Path) -> dict[str, Any]:
    """Validate and encode every labelled split of one task into ``out``; train and dev must be there.

    :return: the report, also written to ``out/meta.json``: task (of a user's own what it is, too), whether the rows
        are synthetic, tokenizer digest, vocabulary size, the ids of its special pieces where it has any, and a split's
        rows read, published, dropped by reason, by subset and by label, with the tokens and the longest row; and what
        :mod:`gptcore.nlu.findings` tells of the rows.
    :raises InputError: bad input, as :func:`gptcore.nlu.readers.load_task`.
    """
    out.mkdir(parents=True, exist_ok=True)
    splits = labelled_splits(spec, datasets_url)
    findings = Findings(spec)
    read = {split: _encode_split(spec, datasets_url, split, tokenizer, out, findings) for split in splits}
    findings.check_scorable()
    report: dict[str, Any] = {
        **task_settings(spec),
        "note": spec.note,
        "synthetic": is_synthetic(spec.root(datasets_url)),
        "tokenizer_digest": tokenizer.digest,
        "n_vocab": tokenizer.n_vocab,
        **({"specials": tokenizer.specials._asdict()} if tokenizer.specials else {}),
        "splits": read,
        "findings": list(findings.notes()),
    }
    write_json_atomic(out / "meta.json", report)
    return report


def dataset_fingerprint(spec: TaskSpec, datasets_url: str) -> str:
    """SHA-256 of what :func:`encode_task` would read: every file's content, and how the registry reads it.

    Local files by their bytes; objects of a store that keeps one by ETag and size, so that nothing is downloaded.

    :raises InputError: if a file is missing.
    """
    files = []
    for url in source_files(spec, datasets_url):
        try:
            content = file_fingerprint(url)
        except OSError as error:
            raise unreadable(url, error) from error
        files.append({"file": url.removeprefix(spec.root(datasets_url) + "/"), **content})
    read_by = {part: str(getattr(spec, part)) for part in ("name", *spec.read_by)}
    if layout := parquet_layout(spec.folder, datasets_url):  # the public files keep the digests they had
        read_by |= {"hub": str(layout.hub)}
    return sha256_json({"files": files, "read_by": read_by})


def _encode_split(
    spec: TaskSpec, datasets_url: str, split: str, tokenizer: Tokenizer, out: Path, findings: Findings
) -> dict[str, Any]:
    dropped, subsets, labels = Counter[str](), Counter[str](), Counter[str]()
    rows = tokens = longest = 0
    form, schema = form_of(spec), _schema(tokenizer.n_vocab)
    examples = iterate(spec, datasets_url, split, dropped)
    aligner = Aligner(tokenizer) if form.places else None
    marks = pa.ipc.new_file(str(marks_file(out, split)), _SCHEMA) if form.places else nullcontext()
    with pa.ipc.new_file(str(out / f"{split}.arrow"), schema) as writer, marks as marked:
        while batch := list(islice(examples, _ROWS)):
            last = None
            if aligner is not None and marked is not None:
                marked_rows, last = _marks(batch, aligner)
                marked.write_batch(marked_rows)
            encoded = encode_rows(batch, tokenizer, last)
            writer.write_batch(_record_batch(encoded, schema))
            sizes = [sum(map(len, (*example.fields, *example.choices))) for example in encoded]
            rows, tokens, longest = rows + len(batch), tokens + sum(sizes), max(longest, *sizes)
            subsets.update(example.subset for example in batch if example.subset)
            labels.update(name for example in batch for name in form.counted(spec, example))
            for example in batch:
                findings.add(split, example)
    findings.dropped.update(dropped)
    return {
        "rows": rows,
        "published": spec.published_rows(split),
        "dropped": dict(dropped),
        "subsets": dict(subsets),
        "labels": dict(sorted(labels.items())),
        "tokens": tokens,
        "longest": longest,
    }


def write_encoded(path: Path, examples: Iterable[EncodedExample], n_vocab: int) -> int:
    """Write rows that are encoded already, as one split; gives their number."""
    schema, rows, count = _schema(n_vocab), iter(examples), 0
    with pa.ipc.new_file(str(path), schema) as writer:
        while batch := list(islice(rows, _ROWS)):
            writer.write_batch(_record_batch(batch, schema))
            count += len(batch)
    return count


def _schema(n_vocab: int) -> pa.Schema:
    ids = pa.list_(pa.list_(pa.from_numpy_dtype(token_dtype(n_vocab))))
    return pa.schema(
        {"fields": ids, "choices": ids, "label": pa.float64(), "subset": pa.string(), "row": pa.string()}.items()
    )


def _record_batch(examples: Sequence[EncodedExample], schema: pa.Schema) -> pa.RecordBatch:
    columns = {name: [getattr(example, name) for example in examples] for name in schema.names}
    return pa.RecordBatch.from_pydict(columns, schema=schema)


class EncodedSplit(_Split[EncodedExample]):
    """One split as written by :func:`encode_task`: random access to the rows' ids."""

    def __init__(self, path: Path) -> None:
        require(path.exists(), f"{path}: found nothing there, expected an encoded split")
        self._source = pa.memory_map(str(path))
        table = pa.ipc.open_file(self._source).read_all().combine_chunks()
        self._fields, self._choices = _Nested(table.column("fields")), _Nested(table.column("choices"))
        labels = table.column("label")
        self.labels: NDArray[np.float64] = numbers(labels.combine_chunks())
        """(N,) labels; NaN where a row has none."""
        self.subsets: list[str] = table.column("subset").to_pylist()
        self.rows: list[str] = table.column("row").to_pylist()

    def __len__(self) -> int:
        return len(self.rows)

    def _row(self, number: int) -> EncodedExample:
        label = float(self.labels[number])
        return EncodedExample(
            fields=self._fields[number],
            choices=self._choices[number],
            label=None if np.isnan(label) else label,
            subset=self.subsets[number],
            row=self.rows[number],
        )


class _Nested:
    """A list<list<integer>> column as numpy views."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        outer = column.combine_chunks()
        self._outer = numbers(outer.offsets)
        self._inner = numbers(outer.values.offsets)
        self._values: Ids = numbers(outer.values.values)

    def __getitem__(self, row: int) -> tuple[Ids, ...]:
        parts = range(self._outer[row], self._outer[row + 1])
        return tuple(self._values[self._inner[part] : self._inner[part + 1]] for part in parts)


def read_encoded(folder: Path, split: str) -> EncodedSplit:
    """One split of a folder written by :func:`encode_task`.

    :raises InputError: if the folder has no such split.
    """
    return EncodedSplit(Path(folder) / f"{split}.arrow")


def read_marked(folder: Path, split: str) -> MarkedSplit:
    """One split of a task whose answers are places of a text, with its marks.

    :raises InputError: if the folder has no such split.
    """
    return MarkedSplit(read_encoded(folder, split), marks_file(Path(folder), split))


def encoded_task(folder: Path, name: str) -> TaskSpec:
    """The task whose rows a folder written by :func:`encode_task` holds.

    :param name: which it should be.
    :raises InputError: the folder is no encoded dataset, or one of another task.
    """
    path = Path(folder) / "meta.json"
    require(path.is_file(), f"{folder}: no meta.json, expected an encoded dataset of the task {name}")
    meta = read_json(path)
    require(meta["task"] == name, f"{path}: found the task {meta['task']}, expected {name}")
    return recorded_task(meta)


def recorded_pieces(folder: Path) -> Specials | None:
    """The ids of the special pieces of the vocabulary that a folder's rows are encoded with; None: it has none."""
    roles = read_json(Path(folder) / "meta.json").get("specials")
    return None if roles is None else Specials(**roles)


def encoded_splits(folder: Path) -> list[str]:
    """The splits that a folder written by :func:`encode_task` holds, in the registry's order."""
    meta = read_json(Path(folder) / "meta.json")
    return [split for split in recorded_task(meta).splits if split in meta["splits"]]
