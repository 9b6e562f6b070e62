"""What the vectors of a graph say of its entities: whose are alike.

Legend of shape comments: E entities, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from gptcore.base.errors import InputError
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
