"""A form of rows of another package: a text on one of several levels, of which each lies above those before it.

The network has an output for each border between two levels, and says whether a text lies beyond it (ordinal
regression, Frank and Hall 2001): to be wrong by two levels costs more than to be wrong by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gptcore.nlu.forms.form import Form, Values
from gptcore.nlu.spec import TaskSpec


class Levels(Form):
    def n_outputs(self, spec: TaskSpec) -> int:
        return len(spec.labels) - 1

    def targets(self, spec: TaskSpec, labels: Values) -> NDArray[np.float32]:
        return (labels[:, None] > np.arange(self.n_outputs(spec))).astype(np.float32)

    def predict(self, spec: TaskSpec, logits: NDArray[np.floating]) -> Values:
        return np.asarray((np.asarray(logits) > 0).sum(axis=1), dtype=np.float64)

    def described(self, spec: TaskSpec, logits: NDArray[np.float32]) -> dict[str, Any]:
        beyond = 1 / (1 + np.exp(-logits.astype(np.float64)))
        level = self.spelled(spec, float(self.predict(spec, logits[None])[0]))
        return {"level": level, "beyond": [round(float(share), 6) for share in beyond]}

    def signature(self, spec: TaskSpec) -> dict[str, str]:
        return {"level": "string", **{f"beyond {label}": "double" for label in spec.labels[:-1]}}

    def cells(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return {"level": answer["level"], **{f"beyond {n}": share for n, share in enumerate(answer["beyond"])}}

    def comes_back(self, spec: TaskSpec, labels: str) -> str:
        return f"`level` ({labels}), and how likely it is that the text lies beyond each"


FORM = Levels(
    "levels",
    ("text",),
    n_fields=(1,),
    fields_in_words="a list of one column",
    graded=False,
    transformers="",
    loss="gptcore.objectives.losses:label_loss",
    soft_loss="gptcore.objectives.losses:soft_label_loss",
)
