"""A text each of whose words has a tag, which say together where the text names something, and what kind of thing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gptcore.nlu.examples import Example
from gptcore.nlu.forms.form import Form
from gptcore.nlu.spec import TaskSpec


class Tags(Form):
    """The form of texts with a tag for each word."""

    def counted(self, spec: TaskSpec, row: Example) -> list[str]:
        """The kinds of what the text names."""
        return [word.name[2:] for word in row.annotations if word.name.startswith("B-")]

    def labels_in(self, spec: TaskSpec, row: Example) -> list[str]:
        return [word.name for word in row.annotations]

    def n_words(self, row: Example) -> int:
        """How many words have a tag; there may be white space in one."""
        return len(row.annotations)

    def shown(self, spec: TaskSpec, row: Example) -> str:
        text = row.fields[-1]
        return " | ".join(f"{text[word.start : word.end]} {word.name}" for word in row.annotations) or "none"

    def signature(self, spec: TaskSpec) -> dict[str, str]:
        return {"tags": "string", "entities": "string"}

    def cells(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return {"tags": " ".join(answer["tags"]), "entities": json.dumps(answer["entities"], ensure_ascii=False)}


FORM = Tags(
    "tags",
    ("text",),
    places=True,
    own_metrics=("entity_f1",),
    returns="`tags`, one a word ({labels}), and `entities` as JSON",
    graded=False,
    reads="the state of each position",
    pipeline="token-classification",
    transformers="TokenClassification",
    loss="gptcore.objectives.losses:tag_loss",
    soft_loss="gptcore.objectives.losses:soft_tag_loss",
    rows="gptcore.nlu.rows:encoded_windows",
    asked_rows="gptcore.nlu.rows:asked_windows",
    position_targets="gptcore.nlu.rows:tag_targets",
    marked_words="gptcore.nlu.rows:tagged_words",
    word_reader="gptcore.models.tagger:WordTagger",
    predictions="gptcore.evaluation.predictions:tag_predictions",
    stderrs="gptcore.nlu.metrics:tag_stderrs",
    evidence="gptcore.nlu.metrics:tag_evidence",
    own_row="gptcore.nlu.own_rows:row_of_words",
    floors={"best constant": "gptcore.nlu.floors:outside_alone", "bag of words": "gptcore.nlu.floors:tags_by_phrases"},
)
