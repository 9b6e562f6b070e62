"""What a fine-tuned model says about every row of a split, in each form of tasks: its scores, and the file of it.

N rows, K classes, C choices.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from gptcore.base.files import write_bytes_atomic
from gptcore.nlu.entity_metrics import entity_scores
from gptcore.nlu.label_sets import from_number
from gptcore.nlu.metrics import is_constant, score
from gptcore.nlu.registry import TaskSpec
from gptcore.nlu.span_answers import SpanAnswer
from gptcore.nlu.span_metrics import best_threshold, exact_match, span_scores, token_f1
from gptcore.nlu.task_rows import TaskRows
from gptcore.nlu.windows import WindowRows

NO_ANSWER_THRESHOLD = "no_answer_threshold"
"""The setting of a model for questions that may have no answer: none is given where no answer scores more above."""


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


class _Unchosen:
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
class Predictions(_Unchosen):
    """Of rows with one label each, in the split's order."""

    rows: TaskRows
    logits: NDArray[np.float32]  # (N, K) classes, or (N, C) choices
    values: NDArray[np.float64]  # (N,) class, choice or graded score

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
        """One JSON a line: ``row``, ``subset``, ``label`` and ``prediction`` as the dataset spells them, ``logits``.

        Of any number of labels both are lists.
        """

        def spelled(value: float) -> str | list[str] | float | None:
            if np.isnan(value):
                return None
            if spec.form == "labels":
                return [spec.labels[label] for label in from_number(value)]
            return spec.labels[int(value)] if spec.labels else float(value)

        columns = (self.rows.names, self.rows.subsets, self.rows.labels, self.values, self.logits)
        _write_lines(
            path,
            (
                {
                    "row": name,
                    "subset": subset,
                    "label": spelled(label),
                    "prediction": spelled(value),
                    "logits": [round(float(logit), 4) for logit in logits],
                }
                for name, subset, label, value, logits in zip(*columns, strict=True)
            ),
        )


@dataclass(frozen=True)
class SpanPredictions:
    """Of questions whose answers stand in a passage."""

    rows: WindowRows
    answers: Sequence[SpanAnswer]  # (N,)
    may_lack: bool
    """Whether a question may have no answer."""
    threshold: float = 0.0

    @property
    def finite(self) -> bool:
        """See :class:`RowPredictions`."""
        return all(np.isfinite((answer.score, answer.no_answer)).all() for answer in self.answers)

    @property
    def texts(self) -> list[str]:
        """The answers that are given; empty: none."""
        return ["" if self.may_lack and each.no_answer > self.threshold else each.text for each in self.answers]

    @property
    def collapsed(self) -> bool:
        """See :class:`RowPredictions`."""
        return len(self.answers) > 1 and len(set(self.texts)) == 1

    @property
    def settings(self) -> dict[str, Any]:
        """The threshold, where a question may have no answer."""
        return {NO_ANSWER_THRESHOLD: self.threshold} if self.may_lack else {}

    def tuned(self) -> Self:
        """With the threshold of the best F1 over these rows (SQuAD 2.0's official script)."""
        known = self._known()
        if not self.may_lack or not known:
            return self
        threshold, _ = best_threshold(
            np.asarray([self.answers[row].no_answer for row, _ in known]),
            np.asarray([token_f1(self.answers[row].text, golds, True) for row, golds in known]),
            np.asarray([token_f1("", golds, True) for _, golds in known]),
        )
        return replace(self, threshold=threshold)

    def using(self, settings: Mapping[str, Any]) -> Self:
        """See :class:`RowPredictions`."""
        return replace(self, threshold=float(settings.get(NO_ANSWER_THRESHOLD, 0.0)))

    def _known(self) -> list[tuple[int, list[str]]]:
        """The numbers of the rows that carry answers, or that they have none, with these."""
        return [
            (row, [example.text[each.start : each.end] for each in example.annotations])
            for row, example in enumerate(self.rows.examples)
            if example.label is not None
        ]

    def scores(self, spec: TaskSpec) -> dict[str, float]:
        """See :func:`gptcore.nlu.span_metrics.span_scores`."""
        texts, known = self.texts, self._known()
        found = span_scores([texts[row] for row, _ in known], [golds for _, golds in known], self.may_lack)
        return {**found, "score": found[spec.headline]}

    def write(self, spec: TaskSpec, path: Path) -> None:
        """One JSON a line: also the answer's place, how much more no answer scores, and what it is worth."""
        golds = dict(self._known())
        lines = []
        for number, (example, answer, text) in enumerate(
            zip(self.rows.examples, self.answers, self.texts, strict=True)
        ):
            line = {
                "row": example.row,
                "subset": example.subset,
                "id": example.id,
                "label": golds.get(number),
                "prediction": text,
                "start": answer.start if text else 0,
                "end": answer.end if text else 0,
                "no_answer": round(answer.no_answer, 4),
            }
            if number in golds:
                compared = text, golds[number], self.may_lack
                line |= {"span_f1": token_f1(*compared), "exact_match": exact_match(*compared)}
            lines.append(line)
        _write_lines(path, lines)


@dataclass(frozen=True)
class TagPredictions(_Unchosen):
    """Of texts with a tag for each word."""

    rows: WindowRows
    tags: Sequence[Sequence[str]]  # of each row's words
    finite: bool

    @property
    def collapsed(self) -> bool:
        """Whether every word of all rows got the same tag."""
        return len({tag for tags in self.tags for tag in tags}) <= 1

    def scores(self, spec: TaskSpec) -> dict[str, float]:
        """See :func:`gptcore.nlu.entity_metrics.entity_scores`."""
        pairs = [
            (tags, [word.name for word in example.annotations])
            for tags, example in zip(self.tags, self.rows.examples, strict=True)
            if example.label is not None
        ]
        found = entity_scores([tags for tags, _ in pairs], [gold for _, gold in pairs])
        return {**found, "score": found[spec.headline]}

    def write(self, spec: TaskSpec, path: Path) -> None:
        """One JSON a line: ``label`` and ``prediction`` are lists, a tag a word."""
        _write_lines(
            path,
            (
                {
                    "row": example.row,
                    "subset": example.subset,
                    "id": example.id,
                    "label": None if example.label is None else [word.name for word in example.annotations],
                    "prediction": list(tags),
                }
                for example, tags in zip(self.rows.examples, self.tags, strict=True)
            ),
        )


def _write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    write_bytes_atomic(path, text.encode("utf-8"))
