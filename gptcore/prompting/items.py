"""What a prompt is made from: a row of any task as the text before its answer, and the answers that it may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NOTHING = "N/A"
"""What stands in a row's fields where a prompt is to say nothing (Zhao et al. 2021, section 5)."""
SEED = 0
"""Names the rows that are asked, their examples and what is drawn."""
UNKNOWN = "unknown"
"""The right answer to a question without one in its passage."""


@dataclass(frozen=True)
class Item:
    """A row as a prompt."""

    questions: tuple[str, ...]
    """The text that an answer goes on: one for all answers, or where the answer is the same, one for each reading."""
    answers: tuple[str, ...]
    """To choose from; where answers are written, those that are right."""
    right: float | None = None
    """Index of the right answer, or of the right question where there are several; a grade where answers are grades.
    None: answers are written, and the first is shown in an example."""
    context: str = ""
    """Stands before the question; what of it does not fit is cut from its end."""
    earlier: tuple[tuple[str, str], ...] | None = None
    """Questions and answers that came before this one, about the same context: its examples, the nearest ones. None:
    examples are other rows, each with its own context."""
    empty: str = ""
    """The question about nothing, which tells how likely an answer is without one; empty: it has none."""
    subset: str = ""
    """Part of the split that the row belongs to (MNLI, RACE)."""

    @property
    def shown(self) -> tuple[str, str]:
        """Question and right answer of an example."""
        if self.right is None:
            return self.questions[0], self.answers[0]
        nearest = round(self.right)
        if len(self.questions) > 1:
            return self.questions[nearest], self.answers[0]
        return self.questions[0], self.answers[nearest]


@dataclass(frozen=True)
class Writing:
    """How an answer is written."""

    max_tokens: int
    least: int = 0
    """What a model must have room for where ``max_tokens`` is more than half of its positions; 0: for all of them."""
    top_k: int = 1
    """1: always the likeliest token."""
    one_line: bool = True
    """The answer ends with its line."""
    sentences: int = 0
    """Only so many sentences are kept; 0: all."""

    @property
    def needed(self) -> int:
        """The tokens that a model must have room for."""
        return self.least or self.max_tokens

    def room(self, n_ctx: int) -> int:
        """The longest answer of a model with ``n_ctx`` positions: half of them are left to what it is asked."""
        return min(self.max_tokens, n_ctx // 2)


@dataclass(frozen=True)
class Answered:
    """What came of a task under one number of shots."""

    metric: str
    """The headline's."""
    scores: Mapping[str, float]
    """Fractions: ``score`` (the headline), ``calibrated`` where answers are chosen or graded, others by name."""
    chance: float | None
    """The headline of a guess that has seen no row; None where there is no such thing."""
    shots: float
    """Examples that found room before a question, on average."""
    rows: int
    answers: Sequence[Mapping[str, Any]] = ()
    """One a row: the end of its prompt, what was answered, what is right."""


@dataclass(frozen=True)
class Rows:
    """The rows of a task: what is asked, and what examples are drawn from."""

    asked: Sequence[Item]
    pool: Sequence[Item] = field(default=())
    """Labelled rows that are never asked; empty: examples are other rows of ``asked``."""
    between: str = "\n\n"
    """What sets examples apart from each other and from the question."""
    apart: int = 0
    """So many neighbours of a row are no examples for it: a schema's twin stands beside it."""
