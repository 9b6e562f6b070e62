"""What a row is answered with, as JSON: a score, a label and probabilities, a span of the passage, or tags.

K classes, C choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gptcore.evaluation.predictions import SpanPredictions, TagPredictions
from gptcore.nlu.entity_metrics import entities
from gptcore.nlu.inputs import predict
from gptcore.nlu.label_sets import from_number
from gptcore.nlu.readers import Annotation
from gptcore.nlu.registry import TaskSpec


def described(spec: TaskSpec, logits: NDArray[np.float32]) -> dict[str, Any]:
    """A row's answer: "score" for a graded label; "labels", a list, or "label"; and "probabilities" of every label.

    :param logits: (K,) classes, or (C,) choices.
    """
    value = float(predict(spec, logits[None])[0])
    if spec.score_range:
        return {"score": round(value, 4)}
    if spec.form == "labels":
        each = (round(float(share), 6) for share in 1 / (1 + np.exp(-logits.astype(np.float64))))
        return {
            "labels": [spec.labels[label] for label in from_number(value)],
            "probabilities": dict(zip(spec.labels, each, strict=True)),
        }
    weights = np.exp(logits.astype(np.float64) - logits.max())  # (K,) classes or (C,) choices
    shares = (round(float(share), 6) for share in weights / weights.sum())
    return {"label": spec.labels[int(value)], "probabilities": dict(zip(spec.labels, shares, strict=True))}


def described_places(found: SpanPredictions | TagPredictions) -> list[dict[str, Any]]:
    """The answers of rows whose answers are places of a text.

    :return: a span: "answer" (empty: none), "start" and "end", its characters in the passage; where a question may have
        no answer also "no_answer", how much more that scores, and "threshold", above which none is given. Tags: "tags",
        one a word, and "entities", each with "text", "kind", "start" and "end".
    """
    if isinstance(found, TagPredictions):
        return [
            {"tags": list(tags), "entities": _entities(tags, example.annotations, example.text)}
            for tags, example in zip(found.tags, found.rows.examples, strict=True)
        ]
    told = []
    for answer, text in zip(found.answers, found.texts, strict=True):
        place = (answer.start, answer.end) if text else (0, 0)
        row: dict[str, Any] = {"answer": text, "start": place[0], "end": place[1]}
        if found.may_lack:
            row |= {"no_answer": round(answer.no_answer, 4), "threshold": round(found.threshold, 4)}
        told.append(row)
    return told


def _entities(tags: Sequence[str], words: Sequence[Annotation], text: str) -> list[dict[str, Any]]:
    marked = sorted(entities(tags), key=lambda each: each[1])
    places = [(kind, words[first].start, words[last - 1].end) for kind, first, last in marked]
    return [{"text": text[start:end], "kind": kind, "start": start, "end": end} for kind, start, end in places]
