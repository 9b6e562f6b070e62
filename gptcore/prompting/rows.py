"""Rows that become items when they are asked for, and what identifies them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from gptcore.nlu.readers import Example
from gptcore.prompting.items import Item, Rows


class ItemsOfExamples(Sequence[Item]):
    """The rows of a dataset as items, each made when it is taken: of 549,367 training rows a few are shown.

    :param examples: the rows.
    :param make: an item of a row.
    :param recipe: what decides, beside the row, which item it becomes.
    """

    def __init__(self, examples: Sequence[Example], make: Callable[[Example], Item], recipe: Sequence[Any]) -> None:
        self.examples, self.recipe = examples, recipe
        self._make = make

    def __len__(self) -> int:
        return len(self.examples)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        if isinstance(index, slice):
            return [self._make(example) for example in self.examples[index]]
        return self._make(self.examples[index])


def digest(rows: Rows) -> str:
    """SHA-256 of rows: files that say the same have the same, and so have their prompts."""
    hashed = hashlib.sha256()
    for record in _records(rows):
        hashed.update(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    return hashed.hexdigest()


def _records(rows: Rows) -> Iterator[list[Any]]:
    """What decides every prompt of a task, piece by piece."""
    yield [rows.separator, rows.excluded_neighbours]
    for part in (rows.asked, rows.pool):
        yield [len(part)]
        if isinstance(part, ItemsOfExamples):
            yield list(part.recipe)
            yield from ([row.fields, row.choices, row.label, row.subset] for row in part.examples)
        else:
            yield from ([type(item).__name__, *vars(item).values()] for item in part)
