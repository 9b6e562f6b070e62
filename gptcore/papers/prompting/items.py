"""What a prompt is made from: one row of a task, as the text that an answer goes on and the answers that it may have.

There are four kinds of rows: a choice among answers, a grade, a Winograd schema, and an answer in words of the model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

NO_CONTENT = "N/A"
"""Stands for a row's texts in a prompt without content (Zhao et al. 2021, section 5)."""
ANSWER_CONTEXT = "Answer:"
"""The prompt that only says that an answer follows (GPT-3's paper, section 2.4)."""
SEED = 0
"""Names the draws of the rows that are asked, of their examples, and of what the model samples."""
UNKNOWN = "unknown"
"""The right answer to a question that its passage leaves open."""

Turns = tuple[tuple[str, str], ...]
"""Questions and answers that came before a question, about the same context, in their order."""


class Normalisation(StrEnum):
    """How the log-probability of an answer behind its prompt becomes the score by which answers compare."""

    TOTAL = "total"
    """log P(answer | prompt)."""
    PER_TOKEN = "per token"  # noqa: S105  # no password
    """log P(answer | prompt) / the answer's number of tokens (GPT-3's paper, section 2.4: most tasks)."""
    UNCONDITIONAL = "unconditional"
    """log P(answer | prompt) - log P(answer | "Answer:") (GPT-3's paper, section 2.4: ARC, OpenBookQA, RACE)."""
    CONTEXTUAL = "contextual calibration"
    """log P(answer | prompt) - log P(answer | the same examples and a question without content) (Zhao et al. 2021)."""


@dataclass(frozen=True)
class _Question:
    question: str
    answers: tuple[str, ...]

    @property
    def questions(self) -> tuple[str, ...]:
        """What answers go on: the question."""
        return (self.question,)


@dataclass(frozen=True)
class MultipleChoice(_Question):
    """A question with several answers, one of which is right."""

    right: int
    """Index of the right answer."""
    context: str = ""
    """Stands before the question; where the prompt is too long, its end is cut off."""
    earlier: Turns | None = None
    """The examples of this question; where it is None, other rows are the examples, each with its own context."""
    no_content: str = ""
    """The question with :data:`NO_CONTENT` in the place of its texts; empty where the task has no such question."""
    subset: str = ""
    """The part of the split that the row belongs to (MNLI, RACE)."""

    @property
    def shown(self) -> tuple[str, str]:
        """Question and answer of the row as an example."""
        return self.question, self.answers[self.right]


@dataclass(frozen=True)
class Graded(_Question):
    """A question whose answers are the grades 0, 1, ... in words; the right one may lie between two of them."""

    right: float
    """The grade."""
    context: str = ""
    no_content: str = ""
    subset: str = ""
    earlier: ClassVar[None] = None

    @property
    def shown(self) -> tuple[str, str]:
        """Question and nearest grade of the row as an example."""
        return self.question, self.answers[round(self.right)]


@dataclass(frozen=True)
class WinogradSchema:
    """Two readings of the beginning of a text, and its rest, which the right reading makes likelier."""

    readings: tuple[str, str]
    rest: str
    right: int
    """Index of the right reading."""
    context: ClassVar[str] = ""
    earlier: ClassVar[None] = None

    @property
    def questions(self) -> tuple[str, ...]:
        """What the rest goes on: each reading."""
        return self.readings

    @property
    def shown(self) -> tuple[str, str]:
        """Right reading and rest of the row as an example."""
        return self.readings[self.right], self.rest


@dataclass(frozen=True)
class FreeForm(_Question):
    """A question that the model answers in its own words; of all right answers the first one is shown in an example."""

    context: str = ""
    earlier: Turns | None = None

    @property
    def shown(self) -> tuple[str, str]:
        """Question and first right answer of the row as an example."""
        return self.question, self.answers[0]


Item = MultipleChoice | Graded | WinogradSchema | FreeForm
"""A row of any kind."""


@dataclass(frozen=True)
class Decoding:
    """How an answer in the model's own words is generated, and what of it counts."""

    max_tokens: int
    """The most tokens that are generated."""
    min_room: int = 0
    """Tokens that a model must have room for where ``max_tokens`` is over half of its positions; 0 asks for all."""
    top_k: int = 1
    """How many of the likeliest tokens each one is drawn from; 1 always takes the likeliest."""
    one_line: bool = True
    """Whether the answer ends with its line."""
    sentences: int = 0
    """How many sentences of the answer are kept; 0 keeps all."""

    @property
    def needed(self) -> int:
        """The tokens that a model must have room for."""
        return self.min_room or self.max_tokens

    def room(self, n_ctx: int) -> int:
        """The longest answer of a model with ``n_ctx`` positions: half of them are left to what it is asked."""
        return min(self.max_tokens, n_ctx // 2)


@dataclass(frozen=True)
class PromptResult:
    """The scores of one model on one task behind one number of examples."""

    metric: str
    """Name of the headline's metric."""
    scores: Mapping[str, float]
    """Fractions: "score" (the headline); each :class:`Normalisation` by name where answers are chosen; others by name.
    Only what is called a perplexity is none."""
    chance: float | None
    """The headline of a guess that has seen no row; None where there is no such thing."""
    shots: float
    """Examples that found room before a question, on average."""
    rows: int
    """How many rows were asked."""
    examples_from: str = ""
    """Where the examples come from, in words."""
    answers: Sequence[Mapping[str, Any]] = ()
    """For each row "prompt" (its end), "answer" (what was answered) and "right" (what is right)."""


@dataclass(frozen=True)
class Rows:
    """The rows of a task: those that may be asked, and those that examples are drawn from."""

    asked: Sequence[Item]
    pool: Sequence[Item] = field(default=())
    """Labelled rows that are never asked; where there are none, other rows of ``asked`` are the examples."""
    pool_name: str = ""
    """What the pool is, in words: "the train split"."""
    separator: str = "\n\n"
    """Stands between two examples, and between the last one and the question."""
    excluded_neighbours: int = 0
    """How many rows on either side of a row are no examples for it: the twin of a Winograd schema stands beside it."""

    @property
    def examples_from(self) -> str:
        """Where the examples come from, in words."""
        if self.pool:
            return self.pool_name
        return "earlier turns of the row" if self.asked and self.asked[0].earlier is not None else "other asked rows"
