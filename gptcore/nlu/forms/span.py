"""A question and a passage in which its answer stands; of some tasks a question may have none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gptcore.nlu.examples import Example
from gptcore.nlu.forms.form import Form
from gptcore.nlu.spec import TaskSpec


class Span(Form):
    """The form of questions whose answer stands in a passage."""

    def counted(self, spec: TaskSpec, row: Example) -> list[str]:
        """Whether the question has an answer, as its label says it."""
        return [] if row.label is None else [spec.labels[int(row.label)]]

    def shown(self, spec: TaskSpec, row: Example) -> str:
        return " | ".join(row.fields[-1][place.start : place.end] for place in row.annotations) or "none"

    def signature(self, spec: TaskSpec) -> dict[str, str]:
        told = {"no_answer": "double", "threshold": "double"} if len(spec.labels) > 1 else {}
        return {"answer": "string", "start": "long", "end": "long", **told}

    def cells(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return dict(answer)


FORM = Span(
    "span",
    ("question", "passage"),
    places=True,
    over_positions=True,
    own_metrics=("span_f1", "exact_match"),
    returns="`answer` as the passage spells it, `start` and `end`, its characters there",
    graded=False,
    outputs=2,
    reads="the state of each position",
    pipeline="question-answering",
    transformers="QuestionAnswering",
    transformers_layer="qa_outputs",
    loss="gptcore.objectives.losses:span_loss",
    soft_loss="gptcore.objectives.losses:soft_span_loss",
    rows="gptcore.nlu.rows:encoded_windows",
    asked_rows="gptcore.nlu.rows:asked_windows",
    position_targets="gptcore.nlu.rows:span_targets",
    marked_words="gptcore.nlu.rows:words_of_passages",
    word_reader="gptcore.models.span_reader:SpanReader",
    predictions="gptcore.evaluation.predictions:span_predictions",
    stderrs="gptcore.nlu.metrics:span_stderrs",
    evidence="gptcore.nlu.metrics:span_evidence",
    floors={
        "best constant": "gptcore.nlu.floors:commonest_answer",
        "bag of words": "gptcore.nlu.floors:answer_by_words",
    },
)
