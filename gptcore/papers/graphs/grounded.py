"""Questions with choices as parts of a graph: pairs of concepts, the paths between them, and the sub-graph of all.

Legend of shape comments: Q questions, C choices, P pairs, N paths, L entities of the longest path, M entities of
sub-graphs, X edges.

Which concepts a text speaks of (KagNET, section 3.1): a run of words that is an entity's name is a mention of it,
whatever the words' endings. Words that mean nothing by themselves are none (spaCy's list of them). Of mentions that
overlap the shortest stays, as in the original code: "play" and "ice" rather than "play on ice". A name that several
entities have is that of the one that most facts tell of.

The sub-graph has the edges of the paths, and those between the question's concepts and between the choice's (section
3.2), in both directions. A path's edges are walked in both directions; the number of a relation against its direction
is that of the relation plus how many there are. Between two entities the graph may have several relations, of which the
likeliest stands.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from gptcore.nlu.examples import Example
from gptcore.papers.graphs.config import GroundingConfig
from gptcore.papers.graphs.graph import KnowledgeGraph, Places, counts, ranges

Vectors = npt.NDArray[np.float32]
_FAR = 255
_MANY = 48  # neighbours from which on an array is faster than a loop


class _Left(NamedTuple):
    """Hops that each entity is away from a goal, `_FAR` where it is too far."""

    many: npt.NDArray[np.uint8]
    few: bytes
    """The hops of ``many`` as bytes, one of which is looked up faster than an array's element."""


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
        self._left = ((-1, 0), _Left(np.zeros(0, np.uint8), b""))  # of the last goal: a choice is asked often

    def edges_among(self, entities: Sequence[int]) -> Places:
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
        :param least: none of a lower score, which no further edge would raise again. They take no other one's place
            among ``most``, so that these are paths of the paper, which prunes all that are short enough (section 3.3);
            the released code prunes the first hundred.
        """
        if start == goal:
            return []
        left = self._distances(goal, max_hops - 1)
        paths: list[Path] = []
        for hops in range(1, max_hops + 1):
            for path in self._walks([start], [], 1.0, goal, hops, left, least):
                paths.append(path)
                if len(paths) == most:
                    return paths
        return paths

    def _distances(self, goal: int, most: int) -> _Left:
        """Hops that each entity is away from the goal, up to ``most``."""
        if self._left[0] == (goal, most):
            return self._left[1]
        distances = np.full(len(self._best), _FAR, np.uint8)
        distances[goal] = 0
        edge = np.array([goal])
        for hops in range(1, most + 1):
            _, ends = self._edges_of(edge)
            distances[ends[distances[ends] == _FAR]] = hops
            edge = np.flatnonzero((distances == hops) & ~self._wide)
        self._left = (goal, most), _Left(distances, distances.tobytes())
        return self._left[1]

    def _edges_of(self, entities: Places) -> tuple[Places, Places]:
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


def _likeliness(entities: Vectors, relations: Vectors, facts: Places) -> Vectors:
    """(1 + cosine of r and t - h) / 2 of each fact: float32 [N]."""
    steps = entities[facts[:, 2]] - entities[facts[:, 0]]  # (N, D)
    wanted = relations[facts[:, 1]]
    lengths = np.linalg.norm(steps, axis=1) * np.linalg.norm(wanted, axis=1)
    cosines = (steps * wanted).sum(1) / np.maximum(lengths, 1e-9)
    likeliness: Vectors = ((1 + cosines) / 2).astype(np.float32)
    return likeliness


# --- questions over a graph ---


Numbers = npt.NDArray[np.int32]
NONE = -1  # where a shorter path has no entity or relation
_STARTS = ("pair_starts", "path_starts", "node_starts", "edge_starts")
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_LONGEST = 5  # words of a name that is looked for
_ENDINGS = (
    *(("ies", "y"), ("ves", "f"), ("ches", "ch"), ("shes", "sh"), ("sses", "ss"), ("xes", "x"), ("zes", "z")),
    *(("men", "man"), ("es", "e"), ("es", ""), ("s", ""), ("ied", "y"), ("ed", "e"), ("ed", "")),
    *(("ing", "e"), ("ing", ""), ("'s", "")),
)
"""An inflected word's end -> its base's: WordNet's rules of detachment for nouns and verbs."""
_SHORTEST = 3  # letters of what a rule may leave


class Mention(NamedTuple):
    """A run of words that names an entity."""

    start: int
    end: int
    """Words of the text: ``words[start:end]``."""
    entity: int


class Concepts:
    """The entities of a graph by what people call them, to be found in texts."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        from spacy.lang.en.stop_words import STOP_WORDS

        self._stop = STOP_WORDS
        self._known: set[str] = set()
        names: list[tuple[int, list[str]]] = []
        for entity in graph.by_degree:
            own = graph.entities[entity]
            for name in (own.replace("_", " "), *graph.labels.get(own, ())):
                if 0 < len(words := words_of(name)) <= _LONGEST:
                    names.append((entity, words))
                    self._known.update(words)
        self._entities: dict[tuple[str, ...], int] = {}
        for entity, words in names:
            self._entities.setdefault(tuple(map(self._base, words)), entity)

    def mentions(self, text: str) -> list[Mention]:
        """The mentions of a text, in its order; none overlaps with another."""
        words = words_of(text)
        by_length = sorted(self._all(words), key=lambda mention: (mention.end - mention.start, mention.start))
        kept: list[Mention] = []
        for mention in by_length:
            if all(mention.end <= other.start or other.end <= mention.start for other in kept):
                kept.append(mention)
        return sorted(kept)

    def entities(self, text: str) -> list[int]:
        """The entities that a text mentions, each once, in its order."""
        return list(dict.fromkeys(mention.entity for mention in self.mentions(text)))

    def answer(self, text: str) -> list[int]:
        """The entity that an answer as a whole names, else those that it mentions."""
        whole = self._entities.get(tuple(map(self._base, words_of(text))))
        return [whole] if whole is not None else self.entities(text)

    def _all(self, words: Sequence[str]) -> Iterator[Mention]:
        bases = [self._base(word) for word in words]
        for start in range(len(words)):
            for end in range(start + 1, min(start + _LONGEST, len(words)) + 1):
                if end == start + 1 and words[start] in self._stop:
                    continue
                entity = self._entities.get(tuple(bases[start:end]))
                if entity is not None:
                    yield Mention(start, end, entity)

    def _base(self, word: str) -> str:
        """The shortest base of a word that some name has; the word itself where none has one."""
        there = [base for base in bases(word) if base in self._known]
        return min(there, key=len, default=word)


def words_of(text: str) -> list[str]:
    """The words of a text, lower case."""
    return _WORD.findall(text.lower().replace("\u2019", "'"))


def bases(word: str) -> list[str]:
    """The word, and what it may be a form of."""
    bases = [word]
    for end, base in _ENDINGS:
        if word.endswith(end) and len(word) - len(end) + len(base) >= _SHORTEST:
            bases.append(word.removesuffix(end) + base)
    if (
        word.endswith(("ing", "ed"))
        and len(stem := re.sub(r"(ing|ed)$", "", word)) > _SHORTEST
        and stem[-1] == stem[-2]
    ):
        bases.append(stem[:-1])  # running, stopped
    return bases


@dataclass(frozen=True, eq=False)
class Grounded:
    """Questions of one split; a choice is the row question * C + number."""

    pair_starts: Places
    """[Q*C + 1] where each choice's pairs begin."""
    pairs: Numbers
    """[P, 2] a concept of the question, one of the choice."""
    path_starts: Places
    """[P + 1] where each pair's paths begin."""
    path_entities: Numbers
    """[N, L], -1 where a path is shorter."""
    path_relations: Numbers
    """[N, L - 1]"""
    node_starts: Places
    """[Q*C + 1] where each choice's entities begin."""
    nodes: Numbers
    """[M] the entities of each choice's sub-graph, each once."""
    edge_starts: Places
    """[Q*C + 1]"""
    edges: Numbers
    """[X, 2] places of two entities among the choice's own, in both directions, each once."""

    def save(self, file: FilePath) -> None:
        """Write all arrays into a local file."""
        save_file({field.name: np.ascontiguousarray(getattr(self, field.name)) for field in fields(self)}, str(file))

    @classmethod
    def load(cls, file: FilePath) -> Grounded:
        """Read what :meth:`save` wrote."""
        return cls(**load_file(str(file)))

    @classmethod
    def joined(cls, parts: Sequence[Grounded]) -> Grounded:
        """The questions of all parts, one after the other."""
        joined: dict[str, npt.NDArray[Any]] = {}
        for field in fields(cls):
            arrays = [getattr(part, field.name) for part in parts]
            if field.name in _STARTS:
                ends = np.cumsum([0, *(array[-1] for array in arrays)])
                arrays = [np.zeros(1, np.int64), *(a[1:] + end for a, end in zip(arrays, ends, strict=False))]
            joined[field.name] = np.concatenate(arrays)
        return cls(**joined)

    def paths_of(self, pair: int) -> list[tuple[list[int], list[int]]]:
        """Entities and relations of a pair's paths."""
        paths = []
        for row in range(self.path_starts[pair], self.path_starts[pair + 1]):
            entities = [int(entity) for entity in self.path_entities[row] if entity != NONE]
            paths.append((entities, self.path_relations[row][: len(entities) - 1].tolist()))
        return paths


Coverage = Counter[str]
"""How much of some questions a graph has: "questions", those "with_concept", "paths", "right" and "wrong" choices, and
of each those "_with_path"; sums, which add up."""


def shares(coverage: Coverage) -> dict[str, float]:
    """The number of paths; of the questions those with a concept, of right and wrong choices those with a path."""
    parts = {"with_concept": "questions", "paths": "", "right_with_path": "right", "wrong_with_path": "wrong"}
    return {part: coverage[part] / (max(1, coverage[whole]) if whole else 1) for part, whole in parts.items()}


def ground(
    examples: Sequence[Example], concepts: Concepts, ways: Ways, config: GroundingConfig
) -> tuple[Grounded, Coverage]:
    """Lay questions over a graph, and say what of them the graph has."""
    width = config.max_hops + 1
    parts: dict[str, list[int]] = {name: [0] for name in _STARTS}
    pairs: list[tuple[int, int]] = []
    entities: list[list[int]] = []
    relations: list[list[int]] = []
    nodes: list[int] = []
    edges: list[Numbers] = [np.zeros((0, 2), np.int32)]
    known: dict[tuple[int, int], list[Path]] = {}
    coverage = Coverage()
    for example in examples:
        asked = concepts.entities(" ".join(example.fields))
        coverage.update(questions=1, with_concept=bool(asked))
        for number, choice in enumerate(example.choices):
            answers = concepts.answer(choice)
            mine = [entity for entity in asked if entity not in answers][: config.most_concepts]
            here = dict.fromkeys([*mine, *answers])
            steps: set[tuple[int, int]] = set()
            before = len(entities)
            for answer in answers:
                for question in mine:
                    key = (question, answer)
                    if key not in known:
                        limits = config.max_hops, config.most_paths, config.least_score
                        known[key] = ways.between(question, answer, *limits)
                    pairs.append(key)
                    for path in known[key]:
                        here |= dict.fromkeys(path.entities)
                        steps.update(pairwise(path.entities))
                        entities.append([*path.entities, *[NONE] * (width - len(path.entities))])
                        relations.append([*path.relations, *[NONE] * (width - 1 - len(path.relations))])
                    parts["path_starts"].append(len(entities))
            nodes += here
            places = {entity: place for place, entity in enumerate(here)}
            there = {(places[a], places[b]) for step in steps for a, b in (step, step[::-1])}
            for some, first in ((mine, 0), (answers, len(mine))):
                there.update(map(tuple, (ways.edges_among(some) + first).tolist()))
            edges.append(np.array(sorted(there), np.int32).reshape(-1, 2))
            parts["pair_starts"].append(len(pairs))
            parts["node_starts"].append(len(nodes))
            parts["edge_starts"].append(parts["edge_starts"][-1] + len(edges[-1]))
            new = len(entities) - before
            kind = "right" if example.label is not None and number == int(example.label) else "wrong"
            coverage.update({"paths": new, kind: 1, f"{kind}_with_path": new > 0})
    made = Grounded(
        **{name: np.array(values, np.int64) for name, values in parts.items()},
        pairs=np.array(pairs, np.int32).reshape(-1, 2),
        path_entities=np.array(entities, np.int32).reshape(-1, width),
        path_relations=np.array(relations, np.int32).reshape(-1, width - 1),
        nodes=np.array(nodes, np.int32),
        edges=np.concatenate(edges),
    )
    return made, coverage
