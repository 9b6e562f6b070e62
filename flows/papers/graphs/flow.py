"""Knowledge: a graph's facts, vectors learnt from them, and what these predict."""

from __future__ import annotations

from prefect import flow
from safetensors.torch import load_file
from torch import Tensor

from flows.forms.run_names import from_form
from flows.papers.graphs.forms import KnowledgeParameters
from flows.papers.graphs.graph import facts_of, learnt
from flows.servers import signals
from gptcore.papers.graphs.graph import SPLITS, KnowledgeGraph
from gptcore.papers.graphs.train_vectors import RANKS_FILE
from gptcore.papers.graphs.transe import GRAPHS, PUBLISHED, by_relation, chosen_entities, entity_vectors, nearest
from tasks.papers.graphs.counts import GraphCounts
from tasks.report.analysis import Analysis, publish_all
from tasks.report.card import cost
from tasks.report.rows import one_decimal
from tasks.store.artifact import Artifact
from tasks.store.counts import TrainingCounts
from tasks.store.store import Store

_SHOWN, _NEAR, _FACTS, _RELATIONS = 6, 5, 3, 12
_METRICS = ("mrr", "hits_1", "hits_3", "hits_10")


@flow(name="knowledge", flow_run_name=from_form, persist_result=False)
def knowledge(parameters: KnowledgeParameters) -> list[Analysis]:
    """A graph's counts, link prediction by TransE beside published scores, and the neighbours of some entities."""
    signals.listen()
    request = parameters.request
    store = request.store
    graph = facts_of(store, request.graph, request.columns)
    facts = KnowledgeGraph.load(store.local(graph))
    entities = chosen_entities(facts, parameters.entities, _SHOWN)  # before minutes are spent on the vectors
    vectors = learnt(store, request.graph, graph, request.transe)
    analyses = [_prediction(store, graph, vectors)]
    ranks = store.local(vectors) / "vectors" / RANKS_FILE
    if ranks.is_file():  # there are test facts, and the vectors are not of an earlier version
        analyses.append(_relations(store, graph, vectors, facts, load_file(str(ranks))["test"]))
    analyses.append(_neighbours(store, graph, vectors, facts, entities))
    return publish_all(analyses, parameters.out)


def _prediction(store: Store, graph: Artifact, vectors: Artifact) -> Analysis:
    """Held-out facts ranked among all entities, beside what others report of the same graph."""
    counts, result = GraphCounts.of(store, graph), TrainingCounts.of(store, vectors)
    config = store.manifest(vectors)["config"]["transe"]
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    for split in ("valid", "test"):
        if f"{split}/mrr" in result.figures:
            scores = [100 * result.figures[f"{split}/{name}"] for name in _METRICS]
            rank = f"{result.figures[f'{split}/mean_rank']:,.0f}"
            method = "RotatE" if config.get("rotation") else "TransE"
            name = f"{method}, {config.get('dim', 100)} numbers: {split}"
            body.append((name, "ours", *map(one_decimal, scores), rank))
            metrics |= {f"{split}/{name}": score for name, score in zip(_METRICS, scores, strict=True)}
    known = GRAPHS.get((counts.entities, counts.relations), "")
    for row in PUBLISHED.get(known, ()):
        printed = (row.mrr, row.hits_1, row.hits_3, row.hits_10)
        body.append((row.method, row.source, *map(one_decimal, printed), "-"))
    by_split = ", ".join(f"{counts.facts[split]:,} {split}" for split in SPLITS)
    notes = [
        *_synthetic(counts),
        f"{counts.entities:,} entities, {counts.relations:,} relations, facts: {by_split}"
        + (f"; {counts.false:,} rows that say they are false are left out" if counts.false else ""),
        "x 100: mean reciprocal rank, and how often the answer is among the first 1, 3, 10 of all entities; heads and "
        "tails, other true facts left out (filtered), the mean rank of those that are as near",
        f"learnt in {cost(result.wall_seconds, result.threads or 0, result.device, 1)}, "
        f"{result.tokens_per_second:,.0f} facts a second, {result.peak_memory_bytes / 1e9:.2f} GB at most",
    ]
    title = f"Knowledge graph {known or counts.name}: facts predicted"
    header = ("vectors", "whose", "MRR", "Hits@1", "Hits@3", "Hits@10", "mean rank")
    return Analysis("knowledge", title, header, body, {"vectors": vectors.digest}, metrics, notes)


def _relations(store: Store, graph: Artifact, vectors: Artifact, facts: KnowledgeGraph, ranks: Tensor) -> Analysis:
    """The test facts by their relations: which are predicted, and which go both ways."""
    predicted = by_relation(facts, ranks)
    body = [
        (
            facts.spoken(each.relation),
            f"{each.n_facts:,}",
            *(one_decimal(100 * value) for value in (each.mrr, each.hits_10, each.both_ways)),
        )
        for each in predicted[:_RELATIONS]
    ]
    notes = [
        *_synthetic(GraphCounts.of(store, graph)),
        *([f"of {len(predicted):,} relations those of most test facts"] if len(predicted) > len(body) else []),
        "known turned: of so many test facts the same one with head and tail exchanged is there to learn from. The "
        "step of a relation that goes both ways is nearly nothing, so that an entity is nearest to itself and the "
        "answer comes second: an MRR of 50 at best, which transe.rotation = true does not have",
    ]
    title = f"Knowledge graph {GraphCounts.of(store, graph).name}: facts predicted, by relation"
    header = ("relation", "test facts", "MRR", "Hits@10", "known turned, %")
    return Analysis("knowledge-relations", title, header, body, {"vectors": vectors.digest}, {}, notes)


def _neighbours(
    store: Store, graph: Artifact, vectors: Artifact, facts: KnowledgeGraph, entities: list[int]
) -> Analysis:
    """Some entities, what the graph says of them, and whose vectors are like theirs."""
    places = entity_vectors(store.local(vectors))
    train = facts.facts["train"]
    body = []
    for entity in entities:
        about = train[(train[:, 0] == entity) | (train[:, 2] == entity)]
        some = about[:_FACTS].tolist()
        said = [f"{facts.called(head)} {facts.spoken(kind)} {facts.called(tail)}" for head, kind, tail in some]
        near = ", ".join(facts.called(other) for other in nearest(places, entity, _NEAR))
        body.append((facts.called(entity), f"{len(about):,}", near, "; ".join(said)))
    notes = [*_synthetic(GraphCounts.of(store, graph)), "neighbours: by the cosine of their vectors, the nearest first"]
    title = f"Knowledge graph {GraphCounts.of(store, graph).name}: entities and their neighbours"
    identity = {"vectors": vectors.digest, "entities": [facts.entities[entity] for entity in entities]}
    header = ("entity", "facts", "neighbours", "some facts")
    return Analysis("knowledge-neighbours", title, header, body, identity, {}, notes, page=True)


def _synthetic(graph: GraphCounts) -> list[str]:
    said = "Synthetic data: the numbers are of gptmill's generated world, not of the real one."
    return [said] if graph.synthetic else []
