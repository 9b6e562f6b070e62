"""TransE: a relation is a step from one entity's vector to another's (Bordes et al. 2013, section 2).

Or a rotation of it, as in RotatE (Sun et al. 2019, section 3.1), which a relation that goes both ways needs: a step
that leads back by itself is none at all. Also what such vectors say of a graph's entities, whose are alike; and what
others report of them.

Written here, as a library (PyKEEN) would bring thirty others in the place of this file, and a training loop of its own.

Every update takes the same entities as negatives for all of its facts, so that their distances are one matrix product;
each fact is told from the others by its tail and by its head. What makes a fact to learn from is no negative, as in
RotatE's released loader, which draws another in its place. Of the original TransE (Algorithm 1) the distance and the
first vectors are left: it draws one negative a fact, unfiltered, and has a margin between distances, plain SGD, and
entities of length 1 before each update.

Legend of shape comments: E entities, R relations, D width of a vector, B facts, K negatives, Q queries,
N facts, U different questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.base.seeds import below, derive_seed, sample_bits
from gptcore.base.tables import read_table
from gptcore.data.feed import Data, Losses, MicroBatch, Update
from gptcore.machine.distributed import MicroBatches, World
from gptcore.papers.graphs.config import TransEConfig
from gptcore.papers.graphs.graph import KnowledgeGraph, Places, Triples, counts, ranges

_LEAST = 1e-9  # of a squared distance, whose root has no slope at 0
_NEVER = -1e9  # the logarithm of a weight that is 0


class TransE(nn.Module):
    """Vectors of entities and of relations.

    :param rotation: relations are D / 2 angles in place of steps; an entity's numbers are D / 2 complex ones.
    :param generator: where the first ones are drawn from, uniform within 6 / sqrt(D) (Bordes et al., Algorithm 1), and
        angles over the whole circle (Sun et al.).
    """

    def __init__(
        self, n_entities: int, n_relations: int, dim: int, norm: int, generator: torch.Generator, rotation: bool = False
    ) -> None:
        super().__init__()
        self.entities = nn.Embedding(n_entities, dim)
        self.relations = nn.Embedding(n_relations, dim // 2 if rotation else dim)
        self.norm, self.rotation = norm, rotation
        for part in (self.entities, self.relations):
            most = torch.pi if rotation and part is self.relations else 6 / dim**0.5
            nn.init.uniform_(part.weight, -most, most, generator=generator)
        with torch.no_grad():
            for part in (self.entities,) if rotation else (self.entities, self.relations):
                part.weight.copy_(F.normalize(part.weight, dim=-1))

    def tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Where the tails of facts would be: [Q] and [Q] -> [Q, D]."""
        return self._moved(self.entities(heads), self.relations(relations))

    def heads(self, tails: Tensor, relations: Tensor) -> Tensor:
        """Where the heads of facts would be: [Q] and [Q] -> [Q, D]. Turned back, they are as far off as their tails."""
        return self._moved(self.entities(tails), -self.relations(relations))

    def _moved(self, vectors: Tensor, relations: Tensor) -> Tensor:
        if not self.rotation:
            return vectors + relations
        real, imaginary = vectors.chunk(2, dim=-1)
        cos, sin = relations.cos(), relations.sin()
        return torch.cat([real * cos - imaginary * sin, real * sin + imaginary * cos], dim=-1)

    def distances(self, places: Tensor, entities: Tensor) -> Tensor:
        """Distances [Q, K] of places [Q, D] from entities' vectors [K, D]."""
        if self.norm == 1:
            return torch.cdist(places, entities, p=1.0)
        squares = (places**2).sum(-1, keepdim=True) + (entities**2).sum(-1) - 2 * places @ entities.T
        return squares.clamp_min(_LEAST).sqrt()

    def lengths(self, differences: Tensor) -> Tensor:
        """The distance of facts, the norm of h + r - t: [B, D] -> [B]."""
        if self.norm == 1:
            return differences.abs().sum(-1)
        return (differences**2).sum(-1).clamp_min(_LEAST).sqrt()


def transe_losses(model: TransE, config: TransEConfig, batch: MicroBatch) -> Losses:
    """Facts are near, negatives far: the loss of "RotatE", equation 5, of tails and of heads, half each."""
    heads, relations, tails = batch["facts"].unbind(-1)  # (B,) each
    others = model.entities(batch["negatives"])  # (K, D)
    places = model.tails(heads, relations)  # (B, D)
    near = F.logsigmoid(config.margin - model.lengths(places - model.entities(tails)))  # (B,)
    far = torch.zeros_like(near)
    for at, true in ((places, batch["true_tails"]), (model.heads(tails, relations), batch["true_heads"])):
        distances = model.distances(at, others)  # (B, K)
        likely = (-config.temperature * distances.detach()).masked_fill(true, _NEVER)
        weights = torch.softmax(likely, dim=-1) * ~true  # 0 even where all of them are facts
        far = far + (weights * F.logsigmoid(distances - config.margin)).sum(-1) / 2
    loss = -((near + far) / 2).sum() * batch["weight"]
    return loss, {"loss": loss}


class _TrueEnds:
    """Some facts of a graph by the entity that stands in a column of theirs, head (0) or tail (2)."""

    def __init__(self, graph: KnowledgeGraph, facts: Triples, column: int) -> None:
        self._given, self._n_relations = 2 - column, len(graph.relations)
        order = np.argsort(facts[:, column], kind="stable")
        self._starts = np.searchsorted(facts[order, column], np.arange(len(graph.entities) + 1))
        self._keys = self._keys_of(facts[order])

    def among(self, facts: Triples, entities: Places) -> npt.NDArray[np.bool_]:
        """Which of some entities [K] make known facts in that column of others [B, 3]: [B, K]."""
        asked, rows = np.unique(self._keys_of(facts), return_inverse=True)  # (U,), (B,)
        keys = self._keys[ranges(self._starts, entities)]  # (N,) of the facts that have one of the entities
        places = np.minimum(np.searchsorted(asked, keys), len(asked) - 1)
        same = asked[places] == keys
        known = np.zeros((len(asked), len(entities)), bool)
        known[places[same], np.repeat(np.arange(len(entities)), counts(self._starts, entities))[same]] = True
        return known[rows]

    def _keys_of(self, facts: Triples) -> Places:
        """What is given of a fact where the column is asked for: its other entity and its relation."""
        keys: Places = facts[:, self._given] * self._n_relations + facts[:, 1]
        return keys


class Facts(Data):
    """Updates of facts drawn at random, each a pure function of the seed and its number, with their negatives, and
    which of these make facts to learn from as a tail or a head of each: "true_tails" and "true_heads" [B, K].
    """

    def __init__(self, graph: KnowledgeGraph, config: TransEConfig, world: World) -> None:
        self._facts, self._n_entities = graph.facts["train"], len(graph.entities)
        self._size, self._negatives = config.batch_size, config.negatives
        self._seeds = [derive_seed(config.seed, name) for name in ("facts", "negatives")]
        self._micro = MicroBatches(config.batch_size, None, world)
        self._true = {f"true_{end}s": _TrueEnds(graph, self._facts, at) for at, end in ((2, "tail"), (0, "head"))}

    def update(self, step: int) -> Update:
        """Facts step * batch_size .. (step + 1) * batch_size."""
        numbers = np.arange(step * self._size, (step + 1) * self._size)
        chosen = below(sample_bits(self._seeds[0], numbers, 1)[:, 0], len(self._facts))
        drawn = below(sample_bits(self._seeds[1], np.array([step]), self._negatives)[0], self._n_entities)
        facts, others = self._facts[chosen], torch.from_numpy(drawn)
        shared = {"negatives": others, "weight": torch.tensor(1.0 / self._size)}
        batches = []
        for its in self._micro.parts:
            true = {name: torch.from_numpy(ends.among(facts[its], drawn)) for name, ends in self._true.items()}
            batches.append({"facts": torch.from_numpy(facts[its]), **shared, **true})
        return Update(batches, self._size)


def ranks(model: TransE, graph: KnowledgeGraph, facts: Triples, at_once: int = 512) -> Tensor:
    """The filtered rank of each fact's tail and head among all entities: float64 [N, 2], the best 1.

    Other facts of any split are left out of the ranking (Bordes et al., section 4.2, "filtered"). Entities as near as
    the answer share the mean of the ranks that they stand on, so that vectors which are all alike gain nothing.
    """
    tails, heads = _known(graph)
    vectors, everybody = model.entities.weight, np.arange(len(graph.entities))
    ranked = torch.empty(len(facts), 2, dtype=torch.float64)
    with torch.no_grad():
        for first in range(0, len(facts), at_once):
            part = facts[first : first + at_once]
            h, r, t = torch.from_numpy(part).to(vectors.device).unbind(-1)  # (Q,) each
            for side, (places, answers, known) in enumerate(
                ((model.tails(h, r), t, tails), (model.heads(t, r), h, heads))
            ):
                distances = model.distances(places, vectors)  # (Q, E)
                own = distances.gather(1, answers[:, None])  # (Q, 1)
                distances.masked_fill_(torch.from_numpy(known.among(part, everybody)).to(own.device), torch.inf)
                nearer = (distances < own).sum(1)
                alike = (distances == own).sum(1)  # the answer itself is left out with the other facts
                ranked[first : first + at_once, side] = (1 + nearer + alike / 2).double().cpu()
    return ranked


def link_prediction(ranks: Tensor) -> dict[str, float]:
    """Mean reciprocal rank, mean rank and Hits at 1, 3, 10 of ranks of any shape."""
    scores = {"mrr": float((1 / ranks).mean()), "mean_rank": float(ranks.mean())}
    return scores | {f"hits_{n}": float((ranks <= n).double().mean()) for n in (1, 3, 10)}


@dataclass(frozen=True)
class Predicted:
    """How well the test facts of a relation are predicted."""

    relation: int
    n_facts: int
    mrr: float
    hits_10: float
    both_ways: float
    """Share of the facts whose two entities stand the other way round in a fact to learn from."""


def by_relation(graph: KnowledgeGraph, ranks: Tensor) -> list[Predicted]:
    """Link prediction of each relation that has test facts, the one of most facts first.

    :param ranks: of their tails and heads, [N, 2].
    """
    known = set(map(tuple, graph.facts["train"].tolist()))
    test = graph.facts["test"]
    predicted = []
    for relation, n_facts in Counter(test[:, 1].tolist()).most_common():
        its = test[:, 1] == relation
        scores = link_prediction(ranks[torch.from_numpy(its)])
        turned = [(tail, relation, head) in known for head, _, tail in test[its].tolist()]
        predicted.append(Predicted(relation, n_facts, scores["mrr"], scores["hits_10"], sum(turned) / n_facts))
    return predicted


@lru_cache(maxsize=1)  # of one graph, whose facts are ranked part by part
def _known(graph: KnowledgeGraph) -> tuple[_TrueEnds, _TrueEnds]:
    """The facts of all splits by their tails, and by their heads."""
    facts = np.concatenate(list(graph.facts.values()))
    return _TrueEnds(graph, facts, 2), _TrueEnds(graph, facts, 0)


def entity_vectors(folder: Path) -> Tensor:
    """The entities' vectors in the folder of a `vectors` artifact: float32 [E, D]."""
    vectors: Tensor = load_file(str(folder / "vectors" / "model.safetensors"))["entities"]
    return vectors


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
    unit = F.normalize(vectors, dim=-1)
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
