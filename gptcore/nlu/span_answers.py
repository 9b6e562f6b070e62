"""The answer of a question from a network's start and end logits over the windows of its passage.

An answer's score is start + end; it has at most 30 pieces, and its start stands in the window that speaks for that
piece. The score of no answer is start + end of the first position, the smallest of all windows (BERT's paper, sections
4.2 and 4.3; released `run_squad.py`, which looks at the 20 best starts and ends; here all of them compete).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gptcore.nlu.marked import MarkedExample
from gptcore.nlu.windows import Window, speakers

ANSWER_TOKENS = 30
"""Most pieces of an answer (released code)."""


class SpanAnswer(NamedTuple):
    """What a network says about one question."""

    text: str
    """The likeliest answer, as the passage spells it."""
    start: int
    end: int
    """Its characters in the passage."""
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
    null = min(float(found[0].sum()) for found in logits)
    best, start, end = -np.inf, 0, 0
    for number, (window, found) in enumerate(zip(windows, logits, strict=True)):
        starts = np.where(speaking[window.start : window.end] == number, found[1:, 0], -np.inf)
        ends = found[1:, 1]
        for length in range(min(ANSWER_TOKENS, len(ends))):
            scores = starts[: len(starts) - length] + ends[length:]
            at = int(np.argmax(scores))
            if scores[at] > best:
                best, start, end = float(scores[at]), window.start + at, window.start + at + length
    if not np.isfinite(best):
        return SpanAnswer("", 0, 0, null, 0.0)
    characters = int(example.piece_starts[start]), int(example.piece_ends[end])
    return SpanAnswer(example.text[slice(*characters)], *characters, best, null - best)
