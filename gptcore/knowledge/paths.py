"""Paths of a graph between two entities, and how likely the vectors take them to be (KagNET, section 3.2).

An edge is walked in both directions; the number of a relation against its direction is that of the relation plus how
many there are. Between two entities the graph may have several relations, of which the likeliest stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gptcore.knowledge.graph import KnowledgeGraph

Vectors = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
_FAR = 255
_MANY = 48  # neighbours from which on an array is faster than a loop


class _Left(NamedTuple):
    """Hops that each entity is away from a goal, `_FAR` where it is too far."""

    many: npt.NDArray[np.uint8]
    few: bytes
    """The same: one of bytes is looked up faster than an array's element."""

    @classmethod
    def of(cls, hops: npt.NDArray[np.uint8]) -> _Left:
        return cls(hops, hops.tobytes())


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
        self._starts = np.cumsum([0, *map(len, best)])
        self._ends = np.fromiter((end for ends in best for end in ends), np.int64, int(self._starts[-1]))
        self._wide = np.diff(self._starts) > most_neighbours
        self._left = ((-1, 0), _Left.of(np.zeros(0, np.uint8)))  # of the last goal: a choice is asked often

    def edges_among(self, entities: Sequence[int]) -> Numbers:
        """Which of some entities, each named once, are neighbours, in both directions: their places, int64 [X, 2]."""
        chosen = np.asarray(entities, np.int64)
        places = np.full(len(self._best), -1)
        places[chosen] = np.arange(len(chosen))
        lengths, ends = self._edges_of(chosen)
        starts, reached = np.repeat(np.arange(len(chosen)), lengths), places[ends]
        return np.stack([starts, reached], 1)[reached >= 0]

    def between(self, start: int, goal: int, max_hops: int, most: int, least: float = 0.0) -> list[Path]:
        """The paths from one entity to another that come by no entity twice: the shortest first.

        :param most: no more than so many: of the longest that have room those whose facts were read first.
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

    def _distances(self, goal: int, most: int) -> _Left:
        """Hops that each entity is away from the goal, up to ``most``."""
        if self._left[0] == (goal, most):
            return self._left[1]
        found = np.full(len(self._best), _FAR, np.uint8)
        found[goal] = 0
        edge = np.array([goal])
        for hops in range(1, most + 1):
            _, ends = self._edges_of(edge)
            found[ends[found[ends] == _FAR]] = hops
            edge = np.flatnonzero((found == hops) & ~self._wide)
        self._left = (goal, most), _Left.of(found)
        return self._left[1]

    def _edges_of(self, entities: Numbers) -> tuple[Numbers, Numbers]:
        """How many neighbours each of some entities has, and the neighbours of all."""
        return counts(self._starts, entities), self._ends[ranges(self._starts, entities)]

    def _walks(
        self, entities: list[int], relations: list[int], score: float, goal: int, hops: int, left: _Left, least: float
    ) -> Iterator[Path]:
        """Every path of exactly so many further hops."""
        here = entities[-1]
        if len(entities) > 1 and self._wide[here]:
            return
        if hops == 1:
            if goal in self._best[here]:
                likely, relation = self._best[here][goal]
                if score * likely >= least:
                    yield Path((*entities, goal), (*relations, relation), score * likely)
            return
        edges = self._best[here]
        for neighbour in self._nearer(here, hops, left):
            likely, relation = edges[neighbour]
            if neighbour != goal and neighbour not in entities and score * likely >= least:
                further = [*entities, neighbour], [*relations, relation], score * likely
                yield from self._walks(*further, goal, hops - 1, left, least)

    def _nearer(self, here: int, hops: int, left: _Left) -> list[int]:
        """The neighbours that are less than ``hops`` away from the goal."""
        edges = self._best[here]
        if len(edges) < _MANY:
            return [neighbour for neighbour in edges if left.few[neighbour] < hops]
        ends = self._ends[self._starts[here] : self._starts[here + 1]]
        nearer: list[int] = ends[left.many[ends] < hops].tolist()
        return nearer


def counts(starts: Numbers, rows: Numbers) -> Numbers:
    """How much lies between each row's start and the next one."""
    return starts[rows + 1] - starts[rows]


def ranges(starts: Numbers, rows: Numbers) -> Numbers:
    """What lies between each row's start and the next one, row after row."""
    lengths = counts(starts, rows)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    found: Numbers = np.repeat(starts[rows], lengths) + within
    return found


def _likeliness(entities: Vectors, relations: Vectors, facts: Numbers) -> Vectors:
    """(1 + cosine of r and t - h) / 2 of each fact: float32 [N]."""
    steps = entities[facts[:, 2]] - entities[facts[:, 0]]  # (N, D)
    wanted = relations[facts[:, 1]]
    lengths = np.linalg.norm(steps, axis=1) * np.linalg.norm(wanted, axis=1)
    cosines = (steps * wanted).sum(1) / np.maximum(lengths, 1e-9)
    found: Vectors = ((1 + cosines) / 2).astype(np.float32)
    return found
