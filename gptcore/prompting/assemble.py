"""Prompts as ids: examples are drawn and put before a question, as many of them as the model's positions hold.

Examples of a row are drawn anew from a seed and the row's number (GPT-3's paper, section 2.4), one by one, so that
those of fewer shots are among those of more. The first one drawn stands nearest to the question. Where not all of them
fit, the farthest ones are left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from gptcore.base.seeds import choose_rows, derive_seed
from gptcore.prompting.items import NO_CONTENT, SEED, Graded, Item, MultipleChoice, Rows
from gptcore.prompting.rows import digest
from gptcore.text.byte_bpe import CLOSING
from gptcore.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class AskedRow:
    """A row that is asked, and the examples that were drawn for it."""

    number: int
    """The row's number among all rows of the file."""
    item: Item
    examples: tuple[Item, ...]
    """The nearest one first."""


@dataclass(frozen=True)
class Selection:
    """What is asked of a task, without the rows that are neither asked nor shown."""

    rows: tuple[AskedRow, ...]
    separator: str
    examples_from: str
    """As in :class:`gptcore.prompting.items.Rows`."""
    digest: str
    """SHA-256 of all rows of the task, those that are not asked too."""


@dataclass(frozen=True)
class EncodedPrompt:
    """A row's question behind its examples, as ids."""

    ids: list[int]
    shots: int
    """Examples that found room."""


def select(rows: Rows, shots: int, max_rows: int | None = None) -> Selection:
    """Choose the rows to ask, and up to ``shots`` examples for each; only these are made into items.

    :param max_rows: the most rows that are taken, drawn by a seed; None takes all.
    """
    chosen = [int(number) for number in choose_rows(len(rows.asked), max_rows, SEED)]
    asked = (AskedRow(number, rows.asked[number], tuple(draw_examples(rows, number, shots, SEED))) for number in chosen)
    return Selection(tuple(asked), rows.separator, rows.examples_from, digest(rows))


def draw_examples(rows: Rows, row: int, shots: int, seed: int) -> list[Item]:
    """Examples for a row, the nearest first; never the row itself or its neighbours, fewer where there are no more."""
    pool = rows.pool or rows.asked
    apart = rows.excluded_neighbours
    never = range(0) if rows.pool else range(max(0, row - apart), min(len(pool), row + apart + 1))
    wanted = min(shots, len(pool) - len(never))
    rng, found = Random(derive_seed(seed, "examples", row)), dict[int, Item]()
    while len(found) < wanted:
        number = rng.randrange(len(pool))
        if number not in never and number not in found:
            found[number] = pool[number]
    return list(found.values())


def prompts(
    tokenizer: Tokenizer, item: Item, examples: Sequence[Item], shots: int, room: int, separator: str = Rows.separator
) -> list[EncodedPrompt]:
    """One prompt for each question of an item, with the same number of examples before all.

    :param examples: drawn ones, the nearest first; unused where the item has earlier turns of its own.
    :param room: ids that a prompt may have.
    :param separator: stands between two examples.
    """
    text = _PromptText(tokenizer, item.context, item, examples, shots, separator)
    kept = min(text.fitting(question, room) for question in item.questions)
    return [EncodedPrompt(text.ids(question, kept, room), kept) for question in item.questions]


def prompt_without_content(
    tokenizer: Tokenizer,
    item: MultipleChoice | Graded,
    examples: Sequence[Item],
    kept: int,
    room: int,
    separator: str = Rows.separator,
) -> list[int]:
    """Ids of the prompt behind ``kept`` examples whose question says nothing: how likely its answers are anyway."""
    context = NO_CONTENT if item.context else ""
    return _PromptText(tokenizer, context, item, examples, kept, separator).ids(item.no_content, kept, room)


class _PromptText:
    """The text of a prompt with any number of examples."""

    def __init__(
        self, tokenizer: Tokenizer, context: str, item: Item, examples: Sequence[Item], shots: int, separator: str
    ) -> None:
        self._tokenizer, self._context = tokenizer, context
        self._is_conversation = item.earlier is not None
        if item.earlier is None:
            parts = [f"{example.context}{_joined(*example.shown)}" for example in examples[:shots]]
            self._separator = separator
        else:
            parts = [_joined(*turn) for turn in reversed(item.earlier)][:shots]
            self._separator = ""
        self._parts = parts

    def ids(self, question: str, kept: int, room: int) -> list[int]:
        """Ids of the prompt with the ``kept`` nearest examples; what is still too long loses the end of its context."""
        before = "".join(f"{part}{self._separator}" for part in reversed(self._parts[:kept]))
        context = self._context
        if self._is_conversation:
            before, behind = context, f"{before}{question}".removeprefix("" if context else "\n")
        else:
            before, behind = f"{before}{context}", question
        ids = self._tokenizer.encode(f"{before}{behind}")
        if len(ids) <= room or not context:
            return ids[-room:]
        asked = self._tokenizer.encode(behind)[-room:]
        return [*self._tokenizer.encode(before)[: room - len(asked)], *asked]

    def fitting(self, question: str, room: int) -> int:
        """The most examples with which the prompt fits; 0 where it does not even without any."""
        sizes = range(1, len(self._parts) + 1)
        return bisect_left(sizes, True, key=lambda kept: len(self.ids(question, kept, 1 << 30)) > room)


def _joined(question: str, answer: str) -> str:
    """An example's text, spelt as an answer is that goes on a question."""
    return f"{question}{'' if answer[:1] in CLOSING else ' '}{answer}"
