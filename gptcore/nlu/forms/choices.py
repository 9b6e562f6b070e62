"""A text, with a question or without, and several answers of which one is right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gptcore.base.errors import InputError
from gptcore.nlu.examples import Record, show
from gptcore.nlu.forms.form import FLOORS_OF_TEXTS, Form, Ids, Sides, label_number, label_text
from gptcore.nlu.spec import Metric, TaskSpec


class Choices(Form):
    """The form of rows that bring their own answers."""

    def metrics(self, spec: TaskSpec) -> tuple[tuple[Metric, ...], tuple[Metric, ...]]:
        """The metrics of one right choice: even of two none is the class that an F1 could be of."""
        return ("accuracy", "macro_f1"), ("accuracy",)

    def labels_of(self, spec: TaskSpec, labelled: Iterable[tuple[Record, str]]) -> tuple[str, ...]:
        """What the right choice is called: 0, 1, ... or 1, 2, ... or A, B, ..., or as its column; or by its own text.

        :raises InputError: none of these fits every training row, or several do and would have it that other choices
            are right.
        """
        numbers = range(len(spec.choices))
        named = [
            tuple(str(k) for k in numbers),
            tuple(str(k + 1) for k in numbers),
            tuple(chr(65 + k) for k in numbers),
            spec.choices,
        ]
        ways = {labels: _by_name(labels) for labels in named} | {(): _by_text(spec)}
        right: dict[tuple[str, ...], list[int]] = {labels: [] for labels in ways}
        texts: dict[str, None] = {}
        alike = False  # whether a choice's text is a column's name, so that a label could be either
        for row, label in labelled:
            texts[label] = None
            alike |= any(label_number(spec.choices, text) is not None for text in _texts(spec, row))
            for labels in list(right):
                if (choice := ways[labels](row, label)) is None:
                    del right[labels]
                else:
                    right[labels].append(choice)
        if len({tuple(choices) for choices in right.values()}) != 1:
            many = "which fit more than one way to count" if right else "of which some name no choice"
            expected = f"labels = [...], what the label is where the right one is {', '.join(spec.choices)}"
            raise InputError(
                f"{spec.name}: {spec.label}: found {show(sorted(texts)[:20])}, {many}, expected {expected}"
            )
        return next(iter(right)) or tuple(f"column {choice}" if alike else choice for choice in spec.choices)

    def label_of(self, spec: TaskSpec, row: Record) -> float:
        """The number of the right choice; a label that is none of the task's may be its text."""
        value = row.value(spec.label)
        label = label_text(value)
        if (number := label_number(spec.labels, label)) is None and (number := _by_text(spec)(row, label)) is None:
            expected = f"one of {', '.join(spec.labels)}, or the text of one of the choices"
            raise row.error(spec.label, show(value), expected)
        return number

    def sides(self, fields: Sequence[Ids], choices: Sequence[Ids]) -> list[Sides]:
        """A sequence for each choice, which stands behind all fields."""
        return [(fields, [choice]) for choice in choices]


_Way = Callable[[Record, Any], int | None]
"""A row and its label -> the right choice."""


def _by_name(labels: tuple[str, ...]) -> _Way:
    return lambda _, label: label_number(labels, label)


def _by_text(spec: TaskSpec) -> _Way:
    """A label that is the text of exactly one of the row's choices means that one."""

    def right(row: Record, label: Any) -> int | None:
        texts = _texts(spec, row)
        return texts.index(label.strip()) if isinstance(label, str) and texts.count(label.strip()) == 1 else None

    return right


def _texts(spec: TaskSpec, row: Record) -> list[Any]:
    return [label_text(row.text(choice).strip()) for choice in spec.choices]


FORM = Choices(
    "choices",
    ("document", "question"),
    n_fields=(1, 2),
    fields_in_words="a list of one or two columns (the text; a question)",
    choices=True,
    graded=False,
    outputs=1,
    transformers="MultipleChoice",
    floors=FLOORS_OF_TEXTS,
)
