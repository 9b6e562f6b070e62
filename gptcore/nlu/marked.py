"""A split's texts with what is marked in them: which characters each piece stands for, and answers or tagged words.

It lies beside the encoded rows, for the forms of rows whose answers are places of a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gptcore.base.arrays import numbers
from gptcore.base.errors import InputError
from gptcore.nlu.forms.form import Ids
from gptcore.nlu.inputs import EncodedExample, encode_rows
from gptcore.nlu.readers import Annotation, Example
from gptcore.text.alignment import Aligner
from gptcore.text.tokenizer import Tokenizer

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


class MarkedWriter:
    """Writes the marks of a split, some rows at a time.

    :param path: the file; see :func:`marks_file`.
    """

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        self._aligner = Aligner(tokenizer)
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, _SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
        self._sink.close()

    def write(self, examples: Sequence[Example]) -> list[Ids]:
        """Write rows.

        :return: the ids of each one's last field.
        """
        texts = {example.fields[-1]: None for example in examples}
        aligned = {text: self._aligner.align(text) for text in texts}
        found = [aligned[example.fields[-1]] for example in examples]
        columns: Mapping[str, list[Any]] = {
            "text": [example.fields[-1] for example in examples],
            "piece_starts": [each.starts for each in found],
            "piece_ends": [each.ends for each in found],
            "starts": [[each.start for each in example.annotations] for example in examples],
            "ends": [[each.end for each in example.annotations] for example in examples],
            "names": [[each.name for each in example.annotations] for example in examples],
            "id": [example.id for example in examples],
        }
        self._writer.write_batch(pa.RecordBatch.from_pydict(dict(columns), schema=_SCHEMA))
        return [each.ids for each in found]


def marks_file(folder: Path, split: str) -> Path:
    """Where a split's marks lie."""
    return folder / f"{split}.marks.arrow"


class MarkedSplit(Sequence[MarkedExample]):
    """Encoded rows with their marks: random access.

    :param path: what :class:`MarkedWriter` wrote.
    :raises InputError: there are no marks.
    """

    def __init__(self, rows: Sequence[EncodedExample], path: Path) -> None:
        if not path.exists():
            raise InputError(f"{path}: found nothing there, expected the marks of an encoded split")
        self._rows = rows
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all().combine_chunks()
        self._columns = {name: table.column(name).combine_chunks() for name in _SCHEMA.names}

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> MarkedExample: ...
    @overload
    def __getitem__(self, index: slice) -> list[MarkedExample]: ...
    def __getitem__(self, index: int | slice) -> MarkedExample | list[MarkedExample]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        example, column = self._rows[index], self._columns
        starts, ends, names = (column[name][index].as_py() for name in ("starts", "ends", "names"))
        return MarkedExample(
            **vars(example),
            text=column["text"][index].as_py(),
            piece_starts=numbers(column["piece_starts"][index].values),
            piece_ends=numbers(column["piece_ends"][index].values),
            annotations=tuple(map(Annotation, starts, ends, names)),
            id=column["id"][index].as_py(),
        )
