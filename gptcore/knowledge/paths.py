"""Paths of a graph between two entities, and how likely the vectors take them to be (KagNET, section 3.2).

An edge is walked in both directions; the number of a relation against its direction is that of the relation plus how
many there are. Between two entities the graph may have several relations, of which the likeliest stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gptcore.knowledge.graph import KnowledgeGraph

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Path:
    """A way through a graph, and what the vectors make of it."""

    entities: tuple[int, ...]
    relations: tuple[int, ...]
    """One less than entities; from the number of relations on: against their direction."""
    score: float
    """Product of its edges' (1 + cosine of r and t - h) / 2."""


class Ways:
    """A graph's edges by the entity that they leave, each neighbour once.

    :param entities: their vectors, float32 [E, D].
    :param relations: their vectors, float32 [R, D].
    :param most_neighbours: of an entity that a path may lead through: beyond, it is next to everything.
    """

    def __init__(
        self, graph: KnowledgeGraph, entities: Vectors, relations: Vectors, most_neighbours: int = 1000
    ) -> None:
        facts = graph.facts["train"]
        facts = facts[facts[:, 0] != facts[:, 2]]
        likely = _likeliness(entities, relations, facts)
        self.n_relations = len(graph.relations)
        best: list[dict[int, tuple[float, int]]] = [{} for _ in graph.entities]
        for (head, relation, tail), score in zip(facts.tolist(), likely.tolist(), strict=True):
            for start, end, number in ((head, tail, relation), (tail, head, relation + self.n_relations)):
                if score > best[start].get(end, (-1.0, 0))[0]:
                    best[start][end] = (score, number)
        self._best = best
        self._most = most_neighbours
        self._left: tuple[tuple[int, int], dict[int, int]] = ((-1, 0), {})  # of the last goal: a choice is asked often

    def neighbours(self, entity: int) -> dict[int, tuple[float, int]]:
        """Neighbour -> how likely the edge is, and the number of its relation."""
        return self._best[entity]

    def between(self, start: int, goal: int, max_hops: int, most: int, least: float = 0.0) -> list[Path]:
        """The paths from one entity to another that come by no entity twice: the shortest first.

        :param most: no more than so many.
        :param least: none of a lower score, which no further edge would raise again.
        """
        if start == goal:
            return []
        left = self._distances(goal, max_hops - 1)
        found: list[Path] = []
        for hops in range(1, max_hops + 1):
            for path in self._walks([start], [], 1.0, goal, hops, left, least):
                found.append(path)
                if len(found) == most:
                    return found
        return found

    def _distances(self, goal: int, most: int) -> dict[int, int]:
        """Hops that entities are away from the goal, up to ``most``."""
        if self._left[0] == (goal, most):
            return self._left[1]
        found, edge = {goal: 0}, [goal]
        for hops in range(1, most + 1):
            following = []
            for entity in edge:
                if entity != goal and len(self._best[entity]) > self._most:
                    continue
                for neighbour in self._best[entity]:
                    if neighbour not in found:
                        found[neighbour] = hops
                        following.append(neighbour)
            edge = following
        self._left = (goal, most), found
        return found

    def _walks(
        self,
        entities: list[int],
        relations: list[int],
        score: float,
        goal: int,
        hops: int,
        left: dict[int, int],
        least: float,
    ) -> Iterator[Path]:
        """Every path of exactly so many further hops."""
        here = entities[-1]
        if len(entities) > 1 and len(self._best[here]) > self._most:
            return
        if hops == 1:
            if goal in self._best[here]:
                likely, relation = self._best[here][goal]
                if score * likely >= least:
                    yield Path((*entities, goal), (*relations, relation), score * likely)
            return
        for neighbour, (likely, relation) in self._best[here].items():
            reaches = neighbour != goal and left.get(neighbour, hops) < hops and neighbour not in entities
            if reaches and score * likely >= least:
                further = [*entities, neighbour], [*relations, relation], score * likely
                yield from self._walks(*further, goal, hops - 1, left, least)


def _likeliness(entities: Vectors, relations: Vectors, facts: npt.NDArray[np.int64]) -> Vectors:
    """(1 + cosine of r and t - h) / 2 of each fact: float32 [N]."""
    steps = entities[facts[:, 2]] - entities[facts[:, 0]]  # (N, D)
    wanted = relations[facts[:, 1]]
    lengths = np.linalg.norm(steps, axis=1) * np.linalg.norm(wanted, axis=1)
    cosines = (steps * wanted).sum(1) / np.maximum(lengths, 1e-9)
    found: Vectors = ((1 + cosines) / 2).astype(np.float32)
    return found
