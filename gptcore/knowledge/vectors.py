"""What the vectors of a graph say of its entities: whose are alike; and what others report of such vectors.

Legend of shape comments: E entities, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.base.tables import read_table
from gptcore.knowledge.graph import KnowledgeGraph


def entity_vectors(folder: Path) -> Tensor:
    """The entities' vectors in the folder of a `vectors` artifact: float32 [E, D]."""
    found: Tensor = load_file(str(folder / "vectors" / "model.safetensors"))["entities"]
    return found


def chosen_entities(graph: KnowledgeGraph, names: Sequence[str], count: int) -> list[int]:
    """The entities of these names or labels; of no name those that most facts tell of.

    A label that several entities have is that of the one that most facts tell of.

    :raises InputError: no entity is called so.
    """
    if not names:
        return graph.by_degree[:count]
    known = {name.casefold(): entity for entity, name in reversed(list(enumerate(graph.entities)))}
    for entity in graph.by_degree:
        known.setdefault(graph.called(entity).casefold(), entity)
    if missing := next((name for name in names if name.casefold() not in known), None):
        raise InputError(f"--entities: found no entity called {missing!r:.60}, expected one of the graph's")
    return [known[name.casefold()] for name in names]


def nearest(vectors: Tensor, entity: int, count: int) -> list[int]:
    """The entities whose vectors point most nearly where this one's does, by the cosine: the best first."""
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    likeness = unit @ unit[entity]  # (E,)
    likeness[entity] = -torch.inf
    return likeness.topk(min(count, len(vectors) - 1)).indices.tolist()


@dataclass(frozen=True)
class PublishedVectors:
    """A printed row: what was measured of link prediction, in per cent; None where it is not printed."""

    method: str
    source: str
    mrr: float | None = None
    hits_1: float | None = None
    hits_3: float | None = None
    hits_10: float | None = None


_tables = read_table(__file__, "published.toml")

GRAPHS: Mapping[tuple[int, int], str] = {
    (graph["entities"], graph["relations"]): name for name, graph in _tables.items()
}
"""Entities and relations -> the public graph that has so many."""
PUBLISHED: Mapping[str, tuple[PublishedVectors, ...]] = {
    name: tuple(PublishedVectors(**row) for row in graph["rows"]) for name, graph in _tables.items()
}
"""Graph -> what others report of TransE on it, filtered."""
