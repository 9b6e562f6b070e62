"""What a fine-tuned model says about every row of a split: its scores, its answers as JSON, and the file of them.

N rows, K classes, C choices.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from gptcore.base.files import write_bytes_atomic
from gptcore.nlu.forms import form_of
from gptcore.nlu.metrics import is_constant, score
from gptcore.nlu.rows import Rows, TaskRows
from gptcore.nlu.spec import TaskSpec


class RowPredictions(Protocol):
    """What training and evaluation do with predictions of any form."""

    @property
    def finite(self) -> bool:
        """Whether the network gave numbers: of logits that are none the largest would be some answer, too."""
        ...

    @property
    def collapsed(self) -> bool:
        """Whether every row got the same answer."""
        ...

    @property
    def settings(self) -> dict[str, Any]:
        """What is chosen on dev rows, for the saved model."""
        ...

    def tuned(self) -> Self:
        """The same with what is chosen on dev rows chosen on these."""
        ...

    def using(self, settings: Mapping[str, Any]) -> Self:
        """The same with a saved model's settings."""
        ...

    def scores(self, spec: TaskSpec) -> dict[str, float]:
        """The task's metrics over the rows that carry a label, "score" being the headline's."""
        ...

    def write(self, spec: TaskSpec, path: Path) -> None:
        """One JSON a line: ``row``, ``subset``, ``label``, ``prediction`` and what the form has beside them."""
        ...

    def described(self, spec: TaskSpec) -> list[dict[str, Any]]:
        """What each row is answered with, as JSON."""
        ...


class Unchosen:
    """Of predictions with which nothing is chosen on dev rows."""

    @property
    def settings(self) -> dict[str, Any]:
        """Nothing is chosen."""
        return {}

    def tuned(self) -> Self:
        """The same."""
        return self

    def using(self, settings: Mapping[str, Any]) -> Self:
        """The same."""
        return self


@dataclass(frozen=True)
class Predictions(Unchosen):
    """Of rows that are answered as a whole, in the split's order."""

    rows: TaskRows
    logits: NDArray[np.float32]  # (N, K) classes, or (N, C) choices
    values: NDArray[np.float64]  # (N,) class, choice, graded score or set of labels

    @property
    def finite(self) -> bool:
        """See :class:`RowPredictions`."""
        return bool(np.isfinite(self.logits).all())

    @property
    def collapsed(self) -> bool:
        """See :class:`RowPredictions`."""
        return is_constant(self.values)

    def scores(self, spec: TaskSpec) -> dict[str, float]:
        """The task's metrics over the rows that carry a label, as :func:`gptcore.nlu.metrics.score`."""
        known = ~np.isnan(self.rows.labels)
        subsets = [subset for subset, is_known in zip(self.rows.subsets, known, strict=True) if is_known]
        return score(spec, self.values[known], self.rows.labels[known], subsets)

    def write(self, spec: TaskSpec, path: Path) -> None:
        """One JSON a line: ``row``, ``subset``, ``label`` and ``prediction`` as the dataset spells them, ``logits``."""
        spelled = form_of(spec).spelled
        columns = (self.rows.names, self.rows.subsets, self.rows.labels, self.values, self.logits)
        write_lines(
            path,
            (
                {
                    "row": name,
                    "subset": subset,
                    "label": None if np.isnan(label) else spelled(spec, label),
                    "prediction": spelled(spec, value),
                    "logits": [round(float(logit), 4) for logit in logits],
                }
                for name, subset, label, value, logits in zip(*columns, strict=True)
            ),
        )

    def described(self, spec: TaskSpec) -> list[dict[str, Any]]:
        """See :meth:`gptcore.nlu.forms.form.Form.described`."""
        return [form_of(spec).described(spec, logits) for logits in self.logits]


def label_predictions(spec: TaskSpec, rows: Rows, logits: Sequence[NDArray[np.float32]]) -> Predictions:
    """The answers of all rows from the logits of each."""
    assert isinstance(rows, TaskRows), "answered as a whole"
    stacked = np.stack(logits)
    return Predictions(rows, stacked, form_of(spec).predict(spec, stacked))


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    write_bytes_atomic(path, text.encode("utf-8"))
