"""What the stages of a knowledge graph count, as their manifests have it."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.store.counts import Counts, Generated


class GraphCounts(Generated):
    """Stage `graph`."""

    name: str
    entities: int
    relations: int
    facts: Mapping[str, int]
    """Split -> facts."""
    labelled: int
    false: int
    """Rows that say that they are false."""


class MentionsSplit(Counts):
    """A split of a text that speaks of a graph's entities."""

    tokens: int
    mentions: int
    entities: int


class MentionsCounts(Counts):
    """Stage `mentions`."""

    splits: Mapping[str, MentionsSplit]
    n_entities: int
    n_embd_entities: int
    n_names: int
    n_name_pieces: int
    links: int | None = None
    """Documents that have links of their own; None: no links were given."""
    links_unused: int = 0


class GroundedSplit(Counts):
    """A split of questions that were laid over a graph; shares from 0 to 1."""

    rows: int
    with_concept: float
    right_with_path: float
    wrong_with_path: float


class GroundedCounts(Counts):
    """Stage `grounded`."""

    splits: Mapping[str, GroundedSplit]
