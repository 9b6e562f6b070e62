"""Scores that GPT-2's paper and its rivals reach on what is asked in prompts, as printed, to stand beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedScore:
    """One score of one model."""

    who: str
    score: float
    """In per cent; a perplexity as it is."""
    of: str = ""
    """Which of the task's scores; empty: the headline."""
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


def _by_size(scores: Sequence[float], of: str = "") -> tuple[PublishedScore, ...]:
    return tuple(PublishedScore(f"GPT-2 {size}", score, of) for size, score in zip(SIZES, scores, strict=True))


_SUMMARIES = (
    PublishedScore("Bottom-Up Sum", 32.75, parts=(41.22, 18.68, 38.34)),
    PublishedScore("Lede-3", 31.55, parts=(40.38, 17.66, 36.62)),
    PublishedScore("Seq2Seq + Attn", 23.99, parts=(31.33, 11.81, 28.83)),
    PublishedScore("GPT-2 TL;DR:", 21.40, parts=(29.34, 8.27, 26.58)),
    PublishedScore("Random-3", 20.98, parts=(28.78, 8.63, 25.52)),
    PublishedScore("GPT-2 no hint", 15.03, parts=(21.58, 4.03, 19.47)),
)

PUBLISHED_PROMPTED: Mapping[str, Sequence[PublishedScore]] = {
    "lambada": (
        PublishedScore("GPT-2 1542M", 52.66),  # section 3.3
        *_by_size((45.99, 55.48, 60.12, 63.24), NO_STOP_WORDS),  # Table 3
        *_by_size((35.13, 15.60, 10.87, 8.63), WORD_PERPLEXITY),  # Table 3
    ),
    "cbt-cn": _by_size((87.65, 92.35, 93.45, 93.30)),  # Table 3; validation rows (section 3.2)
    "cbt-ne": _by_size((83.40, 87.10, 88.00, 89.05)),  # Table 3; validation rows (section 3.2)
    "wsc273": (PublishedScore("GPT-2 1542M", 70.70),),  # section 3.4
    "summaries": _SUMMARIES,  # Table 4
    "summaries-no-hint": _SUMMARIES,  # Table 4
    "en-fr": (PublishedScore("GPT-2 1542M", 5.0),),  # section 3.7
    "fr-en": (PublishedScore("GPT-2 1542M", 11.5),),  # section 3.7
    "squad": (PublishedScore("GPT-2 1542M, on CoQA, all of whose questions have answers", 55.0),),  # section 3.5
}
"""Task -> scores; the sections and tables are those of GPT-2's paper."""
