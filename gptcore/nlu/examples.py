"""One row of a dataset: before it is checked against its task, and after."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from gptcore.base.errors import InputError, did_you_mean
from gptcore.nlu.spec import TaskSpec

_SURROGATE = re.compile("[\ud800-\udfff]")


class Annotation(NamedTuple):
    """A part of a text with a name: an answer, which has none, or a word with its tag."""

    start: int
    end: int
    """Characters of the text: ``text[start:end]``."""
    name: str = ""


class EmptyText(InputError):
    """There is no text where a row should have some; whoever asks about many rows may pass over this one."""


@dataclass(frozen=True)
class Example:
    """One row of a dataset as text."""

    fields: tuple[str, ...]
    choices: tuple[str, ...]
    label: float | None
    """Class index, index of the right choice, or score; of any number of labels the set of them as
    :func:`gptcore.nlu.forms.labels.as_number` has it, of a span whether there is an answer, of tags 0; None where the
    row carries no label."""
    subset: str
    row: str
    """``file:line``, relative to the folder of datasets."""
    annotations: tuple[Annotation, ...] = ()
    """What is marked in the last field: every answer that counts as right of a span, every word of tags."""
    id: str = ""
    """What the file itself calls the row; empty: nothing."""
    group: str = ""
    """Rows of one group stay together where train and dev are cut from one file; empty: each row is one by itself."""


@dataclass(frozen=True)
class Record:
    """One row before it is checked against the task: where it stands, and its columns."""

    file: str
    """Full address, for messages."""
    line: str
    columns: Mapping[str, Any]
    unit: str = "line"
    """What ``line`` counts."""
    called: Mapping[str, str] = field(default_factory=dict)
    """The file's own names of columns that stand in ``columns`` under the registry's."""
    fault: InputError | None = None
    """Why the row could not be read, where whoever reads it goes on to the next one; it may lack columns then."""

    def error(self, column: str, found: str, expected: str) -> InputError:
        place = f"{self.file}, {self.unit} {self.line}, column {self.called.get(column, column)!r}"
        return InputError(f"{place}: found {found}, expected {expected}")

    def value(self, column: str) -> Any:
        """What stands in a column that must be there."""
        if column not in self.columns:
            hint = did_you_mean(column, self.columns)
            raise self.error(column, f"only the columns {', '.join(self.columns)}", f"this column{hint}")
        return self.columns[column]

    def text(self, column: str, may_be_empty: bool = False) -> str:
        """The text of a column that must hold some, unless it ``may_be_empty``."""
        value = self.value(column)
        if not isinstance(value, str) or not (may_be_empty or value.strip()):
            error = self.error(column, show(value), "text that is not empty")
            raise EmptyText(str(error)) if value is None or isinstance(value, str) else error
        if not value.isascii() and _SURROGATE.search(value):  # JSON can escape half a pair; no encoding can store it
            raise self.error(column, show(value), "text without unpaired surrogates")
        return value

    def listed(
        self, column: str, expected: str = "a list", kind: type = object, length: int | None = None
    ) -> list[Any]:
        """The list of a column that must hold one.

        :param expected: what the list should be, in words.
        :param kind: the type of its items.
        :param length: how many items it must have; None: any number.
        """
        value = self.value(column)
        if (
            not isinstance(value, list)
            or not all(isinstance(item, kind) for item in value)
            or length not in (None, len(value))
        ):
            raise self.error(column, show(value), expected)
        return value

    def inner(self, value: Any, column: str) -> Record:
        """The record of an object that stands in a list, which is a column's value."""
        if not isinstance(value, dict):
            raise self.error(column, show(value), "a list of objects")
        return replace(self, columns=value)

    def name(self, datasets_url: str, place: str = "") -> str:
        """What the row is called: its file, relative to the folder of datasets, and the place in it.

        :param place: the place; empty: the line.
        """
        return f"{self.file.removeprefix(datasets_url.rstrip('/') + '/')}:{place or self.line}"


def example_of(
    spec: TaskSpec, row: Record, datasets_url: str = "", label: float | None = None, subset: str = ""
) -> Example:
    """A row's texts in the task's input order; of columns that are joined those that are empty leave no blank.

    :raises InputError: a column is missing, or does not hold text.
    """
    texts = [row.columns.get(column) for column in (*spec.text_columns, *spec.choices)]
    some = spec.may_be_empty and any(isinstance(text, str) and text.strip() for text in texts)
    if some and spec.own:  # null is what other formats have for an empty cell
        row = replace(row, columns={name: "" if cell is None else cell for name, cell in row.columns.items()})
    return Example(
        fields=tuple(
            row.text(field, some) if isinstance(field, str) else _joined([row.text(column, some) for column in field])
            for field in spec.fields
        ),
        choices=tuple(row.text(column) for column in spec.choices),
        label=label,
        subset=subset,
        row=row.name(datasets_url),
    )


def _joined(texts: list[str]) -> str:
    return " ".join(text for text in texts if text.strip())


def show(value: Any) -> str:
    """A value on one line, shortened."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
