"""A text, with a question or without, and several answers of which one is right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gptcore.nlu.forms.form import Form, Ids, Sides
from gptcore.nlu.spec import Metric, TaskSpec


class Choices(Form):
    """See this module's introduction."""

    def metrics(self, spec: TaskSpec) -> tuple[tuple[Metric, ...], tuple[Metric, ...]]:
        """See :class:`Form`; also of two choices none is the class that an F1 could be of."""
        return ("accuracy", "macro_f1"), ("accuracy",)

    def labels_of(self, spec: TaskSpec, found: Iterable[str]) -> tuple[str, ...]:
        """What the right choice is called: 0, 1, ... or 1, 2, ... or A, B, ..., or as its column.

        The first of these that the training rows fit; where none does, their own names in their order.
        """
        names, numbers = set(found), range(len(spec.choices))
        ways = [
            [str(k) for k in numbers],
            [str(k + 1) for k in numbers],
            [chr(65 + k) for k in numbers],
            list(spec.choices),
        ]
        return tuple(next((way for way in ways if names <= set(way)), sorted(names)))

    def sides(self, fields: Sequence[Ids], choices: Sequence[Ids]) -> list[Sides]:
        """See :class:`Form`; a sequence for each choice, which stands behind all fields."""
        return [(fields, [choice]) for choice in choices]


FORM = Choices(
    "choices",
    ("document", "question"),
    n_fields=(1, 2),
    fields_in_words="a list of one or two columns (the text; a question)",
    choices=True,
    graded=False,
    outputs=1,
    transformers="MultipleChoice",
)
