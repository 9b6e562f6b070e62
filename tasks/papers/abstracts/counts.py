"""What the stages of abstracts count, as their manifests have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.store.counts import Counts, Generated, TokenizerCounts, TrainingCounts


class PapersCounts(Generated):
    """Stage `papers`."""

    papers: int
    read: int
    files: int
    repeated: int
    empty: int
    of_other_categories: int = 0
    by_category: Mapping[str, int]


class PaperIdsCounts(TokenizerCounts, Generated):
    """Stage `papers-ids`."""

    distribution: Sequence[Mapping[str, Any]]
    """The rows of Table 1: "split", "count", "percentage", "bpe_tokens", "from", "to"."""

    @property
    def tokens(self) -> dict[str, int]:
        """Split -> tokens."""
        return {row["split"]: row["bpe_tokens"] for row in self.distribution}


class WrittenCounts(Counts):
    """Stage `written`."""

    titles: int
    generated: Mapping[str, float]
    real: Mapping[str, float]
    future: Mapping[str, float]
    field_by_chance: float | None = None


class AdaptCounts(TrainingCounts):
    """Stage `adapt`."""

    tokenizer_digest: str
