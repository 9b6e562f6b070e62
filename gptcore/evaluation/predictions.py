"""What a fine-tuned model says about every row of a split: its scores, its answers as JSON, and the file of them.

A span's score is start + end; it has at most 30 pieces, and its start stands in the window that speaks for that piece.
The score of no answer is start + end of the first position, the smallest of all windows (BERT's paper, sections 4.2 and
4.3; released `run_squad.py`, which looks at the 20 best starts and ends; here all of them compete).

N rows, K classes or tags, C choices, T positions of a window.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gptcore.base.files import write_bytes_atomic
from gptcore.nlu.encoded import MarkedExample
from gptcore.nlu.examples import Annotation
from gptcore.nlu.forms import form_of
from gptcore.nlu.metrics import is_constant, score
from gptcore.nlu.place_metrics import best_threshold, entities, entity_scores, exact_match, span_scores, token_f1
from gptcore.nlu.rows import Rows, TaskRows, Window, WindowRows, first_pieces, speakers
from gptcore.nlu.spec import TaskSpec


class RowPredictions(ABC):
    """What training and evaluation do with predictions of any form."""

    rows: Rows
    """What is answered."""

    @property
    @abstractmethod
    def finite(self) -> bool:
        """Whether the network gave numbers: of logits that are none the largest would be some answer, too."""

    @property
    @abstractmethod
    def collapsed(self) -> bool:
        """Whether every row got the same answer, or every word of all rows the same tag."""

    @property
    def settings(self) -> dict[str, Any]:
        """What is chosen on dev rows, for the saved model."""
        return {}

    def tuned(self) -> Self:
        """These predictions with the :attr:`settings` that do best on their own rows, which are dev rows."""
        return self

    def using(self, settings: Mapping[str, Any]) -> Self:
        """These predictions with the :attr:`settings` of a saved model."""
        return self

    @abstractmethod
    def scores(self, spec: TaskSpec) -> dict[str, float]:
        """The task's metrics over the rows that carry a label, "score" being the headline's."""

    @abstractmethod
    def lines(self, spec: TaskSpec) -> Iterator[dict[str, Any]]:
        """Each row's ``row``, ``subset``, ``label``, ``prediction`` and what the form has beside them, as JSON."""

    @abstractmethod
    def described(self, spec: TaskSpec) -> list[dict[str, Any]]:
        """What each row is answered with, as JSON."""

    def write(self, spec: TaskSpec, path: Path) -> None:
        """Write the :meth:`lines`, atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in self.lines(spec))
        write_bytes_atomic(path, text.encode("utf-8"))


@dataclass(frozen=True)
class Predictions(RowPredictions):
    """Predictions of rows that are answered as a whole, in the split's order."""

    rows: TaskRows
    logits: NDArray[np.float32]  # (N, K) classes, or (N, C) choices
    values: NDArray[np.float64]  # (N,) class, choice, graded score or set of labels

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.logits).all())

    @property
    def collapsed(self) -> bool:
        return is_constant(self.values)

    def scores(self, spec: TaskSpec) -> dict[str, float]:
        """The task's metrics over the rows that carry a label, as :func:`gptcore.nlu.metrics.score`."""
        known = ~np.isnan(self.rows.labels)
        subsets = [subset for subset, is_known in zip(self.rows.subsets, known, strict=True) if is_known]
        return score(spec, self.values[known], self.rows.labels[known], subsets)

    def lines(self, spec: TaskSpec) -> Iterator[dict[str, Any]]:
        """Each row as JSON, with label and prediction as the dataset spells them, and ``logits``."""
        spelled = form_of(spec).spelled
        columns = (self.rows.names, self.rows.subsets, self.rows.labels, self.values, self.logits)
        for name, subset, label, value, logits in zip(*columns, strict=True):
            yield {
                "row": name,
                "subset": subset,
                "label": None if np.isnan(label) else spelled(spec, label),
                "prediction": spelled(spec, value),
                "logits": [round(float(logit), 4) for logit in logits],
            }

    def described(self, spec: TaskSpec) -> list[dict[str, Any]]:
        """What each row is answered with, as its form describes it."""
        return [form_of(spec).described(spec, logits) for logits in self.logits]


def label_predictions(spec: TaskSpec, rows: Rows, logits: Sequence[NDArray[np.float32]]) -> Predictions:
    """The answers of all rows from the logits of each."""
    assert isinstance(rows, TaskRows), "answered as a whole"
    stacked = np.stack(logits)
    return Predictions(rows, stacked, form_of(spec).predict(spec, stacked))


# --- Answers that are places of a text --------------------------------------------------------------------------------

NO_ANSWER_THRESHOLD = "no_answer_threshold"
"""The setting of a model for questions that may have no answer: none is given where no answer scores more above."""
_OUTSIDE = "O"
ANSWER_TOKENS = 30
"""Most pieces of an answer (released code)."""


class SpanAnswer(NamedTuple):
    """What a network says about one question."""

    text: str
    """The likeliest answer, as the passage spells it."""
    start: int
    end: int
    """The answer's characters in the passage: ``start`` to ``end``, the last one excluded."""
    score: float
    no_answer: float
    """How much more the network scores no answer than this one."""


def best_answer(
    example: MarkedExample, windows: Sequence[Window], logits: Sequence[NDArray[np.floating]]
) -> SpanAnswer:
    """The likeliest answer of one question; empty where the passage has no pieces.

    :param windows: all of the row's.
    :param logits: (1 + pieces, 2) of each: start and end of the first position, then of the window's pieces.
    """
    n_pieces = len(example.piece_starts)
    speaking = speakers(windows, n_pieces)
    null = min(float(window_logits[0].sum()) for window_logits in logits)
    best, start, end = -np.inf, 0, 0
    for number, (window, window_logits) in enumerate(zip(windows, logits, strict=True)):
        starts = np.where(speaking[window.start : window.end] == number, window_logits[1:, 0], -np.inf)
        ends = window_logits[1:, 1]
        for length in range(min(ANSWER_TOKENS, len(ends))):
            scores = starts[: len(starts) - length] + ends[length:]
            at = int(np.argmax(scores))
            if scores[at] > best:
                best, start, end = float(scores[at]), window.start + at, window.start + at + length
    if not np.isfinite(best):
        return SpanAnswer("", 0, 0, null, 0.0)
    characters = int(example.piece_starts[start]), int(example.piece_ends[end])
    return SpanAnswer(example.text[slice(*characters)], *characters, best, null - best)


@dataclass(frozen=True)
class SpanPredictions(RowPredictions):
    """Predictions of questions whose answers stand in a passage."""

    rows: WindowRows
    answers: Sequence[SpanAnswer]  # (N,)
    may_lack: bool
    """Whether a question may have no answer."""
    threshold: float = 0.0

    @property
    def finite(self) -> bool:
        return all(np.isfinite((answer.score, answer.no_answer)).all() for answer in self.answers)

    @property
    def texts(self) -> list[str]:
        """The answers that are given; empty: none."""
        return ["" if self.may_lack and each.no_answer > self.threshold else each.text for each in self.answers]

    @property
    def collapsed(self) -> bool:
        return len(self.answers) > 1 and len(set(self.texts)) == 1

    @property
    def settings(self) -> dict[str, Any]:
        """The threshold, where a question may have no answer."""
        return {NO_ANSWER_THRESHOLD: self.threshold} if self.may_lack else {}

    def tuned(self) -> Self:
        """These predictions with the threshold of the best F1 over their rows (SQuAD 2.0's official script)."""
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
        """These predictions with a saved model's threshold; 0 where it has none."""
        return replace(self, threshold=float(settings.get(NO_ANSWER_THRESHOLD, 0.0)))

    def _known(self) -> list[tuple[int, list[str]]]:
        """The numbers of the rows that carry answers, or that they have none, with these."""
        return [
            (row, [example.text[each.start : each.end] for each in example.annotations])
            for row, example in enumerate(self.rows.examples)
            if example.label is not None
        ]

    def scores(self, spec: TaskSpec) -> dict[str, float]:
        """The metrics of spans (:func:`gptcore.nlu.place_metrics.span_scores`) over the rows that carry a label."""
        texts, known = self.texts, self._known()
        scores = span_scores([texts[row] for row, _ in known], [golds for _, golds in known], self.may_lack)
        return {**scores, "score": scores[spec.headline]}

    def lines(self, spec: TaskSpec) -> Iterator[dict[str, Any]]:
        """Each row as JSON, with the answer's place, how much more no answer scores, and what the answer is worth."""
        golds = dict(self._known())
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
            yield line

    def described(self, spec: TaskSpec) -> list[dict[str, Any]]:
        """What each question is answered with, as JSON.

        :return: "answer" (empty: none), "start" and "end", its characters in the passage; where a question may have
            no answer also "no_answer", how much more that scores, and "threshold", above which none is given.
        """
        told = []
        for answer, text in zip(self.answers, self.texts, strict=True):
            place = (answer.start, answer.end) if text else (0, 0)
            row: dict[str, Any] = {"answer": text, "start": place[0], "end": place[1]}
            if self.may_lack:
                row |= {"no_answer": round(answer.no_answer, 4), "threshold": round(self.threshold, 4)}
            told.append(row)
        return told


def span_predictions(spec: TaskSpec, rows: Rows, logits: Sequence[NDArray[np.float32]]) -> SpanPredictions:
    """The answers of all questions.

    :param logits: of each window (T, 2), the logits of its sequence's positions, padding behind them or not.
    """
    assert isinstance(rows, WindowRows), "answered by places"
    answers = [
        best_answer(
            example,
            [rows.windows[number] for number in numbers],
            [np.concatenate([logits[n][:1], _of_pieces(rows.windows[n], logits[n])]) for n in numbers],
        )
        for example, numbers in zip(rows.examples, rows.of_rows(), strict=True)
    ]
    return SpanPredictions(rows, answers, may_lack=len(spec.labels) > 1)


@dataclass(frozen=True)
class TagPredictions(RowPredictions):
    """Predictions of texts with a tag for each word."""

    rows: WindowRows
    tags: Sequence[Sequence[str]]  # of each row's words
    logits: Sequence[NDArray[np.float32]]  # (T, K) of each window

    @property
    def finite(self) -> bool:
        pairs = zip(self.rows.windows, self.logits, strict=True)
        return all(np.isfinite(_of_pieces(window, logits)).all() for window, logits in pairs)

    @property
    def collapsed(self) -> bool:
        return len({tag for tags in self.tags for tag in tags}) <= 1

    def scores(self, spec: TaskSpec) -> dict[str, float]:
        """The metrics of entities (:func:`gptcore.nlu.place_metrics.entity_scores`) over the rows that carry tags."""
        pairs = [
            (tags, [word.name for word in example.annotations])
            for tags, example in zip(self.tags, self.rows.examples, strict=True)
            if example.label is not None
        ]
        scores = entity_scores([tags for tags, _ in pairs], [gold for _, gold in pairs])
        return {**scores, "score": scores[spec.headline]}

    def lines(self, spec: TaskSpec) -> Iterator[dict[str, Any]]:
        """Each row as JSON; label and prediction are lists with a tag for each word."""
        for example, tags in zip(self.rows.examples, self.tags, strict=True):
            yield {
                "row": example.row,
                "subset": example.subset,
                "id": example.id,
                "label": None if example.label is None else [word.name for word in example.annotations],
                "prediction": list(tags),
            }

    def described(self, spec: TaskSpec) -> list[dict[str, Any]]:
        """What each text is answered with, as JSON.

        :return: "tags", one a word, and "entities", each with "text", "kind", "start" and "end".
        """
        return [
            {"tags": list(tags), "entities": _entities(tags, example.annotations, example.text)}
            for tags, example in zip(self.tags, self.rows.examples, strict=True)
        ]


def tag_predictions(spec: TaskSpec, rows: Rows, logits: Sequence[NDArray[np.float32]]) -> TagPredictions:
    """The tags of all rows' words.

    :param logits: of each window (T, K), as :func:`span_predictions` takes them.
    """
    assert isinstance(rows, WindowRows), "answered by places"
    tags = []
    for example, numbers in zip(rows.examples, rows.of_rows(), strict=True):
        windows = [rows.windows[number] for number in numbers]
        n_pieces = len(example.piece_starts)
        speaking = speakers(windows, n_pieces)
        chosen = np.zeros(n_pieces, dtype=np.int64)
        for at, (number, window) in enumerate(zip(numbers, windows, strict=True)):
            mine = speaking[window.start : window.end] == at
            chosen[window.start : window.end][mine] = np.argmax(_of_pieces(window, logits[number]), axis=1)[mine]
        first = first_pieces(example)
        tags.append([spec.labels[chosen[piece]] if piece >= 0 else _OUTSIDE for piece in first])
    return TagPredictions(rows, tags, logits)


def _of_pieces(window: Window, logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """The logits (pieces, K) of the window's own pieces."""
    return logits[window.first : window.first + window.end - window.start]


def _entities(tags: Sequence[str], words: Sequence[Annotation], text: str) -> list[dict[str, Any]]:
    marked = sorted(entities(tags), key=lambda each: each[1])
    places = [(kind, words[first].start, words[last - 1].end) for kind, first, last in marked]
    return [{"text": text[start:end], "kind": kind, "start": start, "end": end} for kind, start, end in places]
