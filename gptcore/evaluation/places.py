"""A network's logits over the windows of rows, made into answers: spans of passages, tags of words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gptcore.evaluation.predictions import SpanPredictions, TagPredictions
from gptcore.nlu.registry import TaskSpec
from gptcore.nlu.span_answers import best_answer
from gptcore.nlu.windows import Window, WindowRows, first_pieces, speakers

_OUTSIDE = "O"


def place_predictions(
    spec: TaskSpec, rows: WindowRows, logits: Sequence[NDArray[np.float32]]
) -> SpanPredictions | TagPredictions:
    """The answers of all rows.

    :param logits: of each window (T, K), the logits of its sequence's positions, padding behind them or not.
    """
    of_rows = rows.of_rows()
    if spec.form == "span":
        answers = [
            best_answer(
                example,
                [rows.windows[number] for number in numbers],
                [np.concatenate([logits[n][:1], _of_pieces(rows.windows[n], logits[n])]) for n in numbers],
            )
            for example, numbers in zip(rows.examples, of_rows, strict=True)
        ]
        return SpanPredictions(rows, answers, may_lack=len(spec.labels) > 1)
    tags, finite = [], True
    for example, numbers in zip(rows.examples, of_rows, strict=True):
        windows = [rows.windows[number] for number in numbers]
        n_pieces = len(example.piece_starts)
        speaking = speakers(windows, n_pieces)
        chosen = np.zeros(n_pieces, dtype=np.int64)
        for at, (number, window) in enumerate(zip(numbers, windows, strict=True)):
            found = _of_pieces(window, logits[number])
            finite = finite and bool(np.isfinite(found).all())
            mine = speaking[window.start : window.end] == at
            chosen[window.start : window.end][mine] = np.argmax(found, axis=1)[mine]
        first = first_pieces(example)
        tags.append([spec.labels[chosen[piece]] if piece >= 0 else _OUTSIDE for piece in first])
    return TagPredictions(rows, tags, finite)


def _of_pieces(window: Window, logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """The logits (pieces, K) of the window's own pieces."""
    return logits[window.first : window.first + window.end - window.start]
