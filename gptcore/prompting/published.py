"""Scores of GPT-2's paper and its rivals on what is asked in prompts, to stand beside ours: ``published.toml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gptcore.base.tables import read_table


@dataclass(frozen=True)
class PublishedScore:
    """One score of one model."""

    who: str
    score: float
    """In per cent; a perplexity as it is."""
    of: str = ""
    """Which of the task's scores it is; empty for the headline."""
    parts: tuple[float, ...] = ()
    """What the score is the mean of, in per cent: ROUGE-1, -2 and -L."""

    def __str__(self) -> str:
        parts = f" ({', '.join(f'{part:.2f}' for part in self.parts)})" if self.parts else ""
        return f"{self.who} {self.score:.2f}{parts}{f' ({self.of})' if self.of else ''}"


SIZES = ("117M", "345M", "762M", "1542M")
"""GPT-2's, as its paper's Table 3 names them."""
NO_STOP_WORDS = "accuracy, no stop words"
"""The score of LAMBADA that leaves out words which can hardly end a passage."""
WORD_PERPLEXITY = "perplexity of the word"
"""The score of LAMBADA that the right word's probability gives."""


def _scores(table: Mapping[str, Any]) -> Iterator[PublishedScore]:
    for row in table["rows"]:
        if "sizes" not in row:
            yield PublishedScore(**row)
            continue
        for size, score in zip(SIZES, row["sizes"], strict=True):
            yield PublishedScore(f"GPT-2 {size}", score, row.get("of", ""))


_tables = read_table(__file__, "published.toml")

PUBLISHED_PROMPTED: Mapping[str, Sequence[PublishedScore]] = {
    task: tuple(_scores(_tables[table.get("same_as", task)])) for task, table in _tables.items()
}
"""Task -> scores."""
