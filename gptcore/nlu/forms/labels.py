"""A text with any number of labels. They are known as one number a row, or as a truth value a label.

N rows, K labels.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import did_you_mean
from gptcore.nlu.examples import Example, Record, show
from gptcore.nlu.forms.form import Form, Values, label_number, label_text, shares
from gptcore.nlu.spec import TaskSpec

MOST_LABELS = 52
"""Labels of such a task at most: what a float64 counts without a gap."""
_WRITTEN_LIST = re.compile(r"\s*\[\s*(\]|['\"\d])")
"""How a list begins that a program has written into a cell of text."""


def as_number(labels: Iterable[int]) -> float:
    """A set of labels as the sum of 2 to the power of each one's number."""
    return float(sum(1 << label for label in set(labels)))


def from_number(number: float) -> list[int]:
    """The labels of a set, in their order."""
    return [label for label in range(MOST_LABELS) if int(number) >> label & 1]


def as_numbers(members: NDArray[np.bool_]) -> Values:
    """Which labels each row has, [N, K], as one number a row, [N]."""
    numbers: Values = members @ (2.0 ** np.arange(members.shape[1]))
    return numbers


def from_numbers(numbers: Values, n_labels: int) -> NDArray[np.bool_]:
    """The inverse of :func:`as_numbers`: [N] -> [N, K]."""
    members: NDArray[np.bool_] = (numbers.astype(np.int64)[:, None] >> np.arange(n_labels) & 1).astype(bool)
    return members


def sizes(numbers: Values) -> NDArray[np.int64]:
    """How many labels each row has: [N] -> [N]."""
    return np.bitwise_count(numbers.astype(np.uint64)).astype(np.int64)


class Labels(Form):
    """The form of rows with any number of labels."""

    def label_texts(self, value: Any) -> list[Any]:
        """The labels of a list, or of a text in which semicolons set them apart; else one label."""
        if isinstance(value, str):
            if _WRITTEN_LIST.match(value):
                return [[value]]  # no label
            value = [label for label in value.split(";") if label.strip()]
        labels = value if isinstance(value, list) else [value]
        return [label_text(label.strip() if isinstance(label, str) else label) for label in labels]

    def label_of(self, spec: TaskSpec, row: Record) -> float:
        numbers = []
        for label in self.label_texts(row.value(spec.label)):
            if (number := label_number(spec.labels, label)) is None:
                hint = did_you_mean(str(label), spec.labels)
                raise row.error(spec.label, show(label), f"some of {', '.join(spec.labels)}{hint}")
            numbers.append(number)
        return as_number(numbers)

    def counted(self, spec: TaskSpec, row: Example) -> list[str]:
        return ["none"] if row.label is None else self.labels_in(spec, row)

    def labels_in(self, spec: TaskSpec, row: Example) -> list[str]:
        assert row.label is not None, "labelled splits"
        return self.spelled(spec, row.label)

    def targets(self, spec: TaskSpec, labels: Values) -> NDArray[np.float32]:
        """Targets of 0 or 1 for each label, (N, K)."""
        return from_numbers(labels, self.n_outputs(spec)).astype(np.float32)

    def predict(self, spec: TaskSpec, logits: NDArray[np.floating]) -> Values:
        """The labels that are likelier than not."""
        return as_numbers(np.asarray(logits, dtype=np.float64) > 0)

    def spelled(self, spec: TaskSpec, value: float) -> list[str]:
        return [spec.labels[label] for label in from_number(value)]

    def number_of(self, spec: TaskSpec, spelled: object) -> float | None:
        if not isinstance(spelled, list) or not all(label in spec.labels for label in spelled):
            return None
        return as_number(map(spec.labels.index, spelled))

    def spelled_in_words(self, spec: TaskSpec) -> str:
        return f"a list of some of {', '.join(spec.labels)}"

    def described(self, spec: TaskSpec, logits: NDArray[np.float32]) -> dict[str, Any]:
        """An answer as JSON: "labels", a list, and "probabilities" of every label by itself."""
        value = float(self.predict(spec, logits[None])[0])
        each = 1 / (1 + np.exp(-logits.astype(np.float64)))
        return {"labels": self.spelled(spec, value), "probabilities": shares(spec, each)}

    def signature(self, spec: TaskSpec) -> dict[str, str]:
        return {"labels": "string", **{f"probability {label}": "double" for label in spec.labels}}

    def cells(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The cells of a table's row, the list of labels as JSON."""
        return super().cells({**answer, "labels": json.dumps(answer["labels"], ensure_ascii=False)})


FORM = Labels(
    "labels",
    ("text",),
    n_fields=(1,),
    fields_in_words="a list of one column",
    label_in_words="a list of labels, or text with semicolons between them",
    most_labels=MOST_LABELS,
    several=True,
    own_metrics=("micro_f1", "accuracy"),
    returns="`labels`, a list as JSON (any number of {labels}), and `probability LABEL` of each",
    graded=False,
    loss="gptcore.objectives.losses:label_loss",
    soft_loss="gptcore.objectives.losses:soft_label_loss",
)
