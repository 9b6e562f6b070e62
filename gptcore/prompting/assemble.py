"""Prompts as ids: examples drawn and put before a question, as many of them as the model's positions hold.

Examples of a row are drawn anew from a seed and the row's number (GPT-3's paper, section 2.4), one by one, so that
those of fewer shots are among those of more. The first drawn stands nearest to the question; what does not fit
goes from the far end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from gptcore.prompting.items import NOTHING, Item, Rows
from gptcore.seeds import derive_seed
from gptcore.text.byte_bpe import CLOSING
from gptcore.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Prompt:
    """A row's question behind its examples."""

    ids: list[int]
    shots: int
    """Examples that found room."""


def drawn(rows: Rows, row: int, shots: int, seed: int) -> list[Item]:
    """Examples for a row, the nearest first; never the row itself or its neighbours, fewer where there are no more."""
    pool = rows.pool or rows.asked
    never = range(0) if rows.pool else range(max(0, row - rows.apart), min(len(pool), row + rows.apart + 1))
    wanted = min(shots, len(pool) - len(never))
    rng, found = Random(derive_seed(seed, "examples", row)), dict[int, Item]()
    while len(found) < wanted:
        place = rng.randrange(len(pool))
        if place not in never:
            found.setdefault(place, pool[place])
    return list(found.values())


def prompts(
    tokenizer: Tokenizer, item: Item, examples: Sequence[Item], shots: int, room: int, between: str = Rows.between
) -> list[Prompt]:
    """One prompt for each question of an item, with the same number of examples before all.

    :param examples: drawn ones, the nearest first; unused where the item has earlier questions of its own.
    :param room: ids that a prompt may have.
    :param between: what sets examples apart.
    """
    whole = _Whole(tokenizer, item, examples, shots, between)
    kept = min(whole.fitting(question, room) for question in item.questions)
    return [Prompt(whole.ids(question, kept, room), kept) for question in item.questions]


def empty_prompt(
    tokenizer: Tokenizer, item: Item, examples: Sequence[Item], kept: int, room: int, between: str = Rows.between
) -> list[int]:
    """The same prompt about nothing, behind the same examples: what answers are likely without a question."""
    bare = Item((item.empty,), item.answers, item.right, NOTHING if item.context else "", item.earlier)
    return _Whole(tokenizer, bare, examples, kept, between).ids(item.empty, kept, room)


class _Whole:
    """The text of a prompt with a number of examples."""

    def __init__(self, tokenizer: Tokenizer, item: Item, examples: Sequence[Item], shots: int, between: str) -> None:
        self._tokenizer, self._item = tokenizer, item
        if item.earlier is None:
            parts = [f"{example.context}{_told(*example.shown)}" for example in examples[:shots]]
            self._separator = between
        else:
            parts = [_told(*pair) for pair in reversed(item.earlier)][:shots]
            self._separator = ""
        self._parts = parts

    def ids(self, question: str, kept: int, room: int) -> list[int]:
        """Ids of the prompt with the ``kept`` nearest examples; what is still too long loses the end of its context."""
        before = "".join(f"{part}{self._separator}" for part in reversed(self._parts[:kept]))
        context = self._item.context
        if self._item.earlier is None:
            before, behind = f"{before}{context}", question
        else:
            before, behind = context, f"{before}{question}".removeprefix("" if context else "\n")
        ids = self._tokenizer.encode(f"{before}{behind}")
        if len(ids) <= room or not context:
            return ids[-room:]
        asked = self._tokenizer.encode(behind)[-room:]
        return [*self._tokenizer.encode(before)[: room - len(asked)], *asked]

    def fitting(self, question: str, room: int) -> int:
        """The most examples with which the prompt fits; 0 where it does not even without."""
        sizes = range(1, len(self._parts) + 1)
        return bisect_left(sizes, True, key=lambda kept: len(self.ids(question, kept, 1 << 30)) > room)


def _told(question: str, answer: str) -> str:
    """An example's text, spelt as an answer is that goes on a question."""
    return f"{question}{'' if answer[:1] in CLOSING else ' '}{answer}"
