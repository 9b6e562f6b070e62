"""Stage `mentions`: which entities of a graph the shards of a text speak of, with their vectors and names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.knowledge.entities import Entities, link_shards
from gptcore.knowledge.gazetteer import Gazetteer
from gptcore.knowledge.graph import KnowledgeGraph
from gptcore.knowledge.neighbours import entity_vectors
from gptcore.text.tokenizer import Tokenizer
from tasks.stages.shards import local_shards
from tasks.stages.stage import STAGE_OPTIONS, build
from tasks.store.artifact import Artifact, Recipe
from tasks.store.lineage import ancestor, own_tokenizer
from tasks.store.store import Store
from tasks.tracking.logs import Meter

VERSION = 1


@task(name="mentions", task_run_name="mentions in shards {shards.short}", **STAGE_OPTIONS)
def link_entities(store: Store, shards: Artifact, vectors: Artifact) -> Artifact:
    """Find the names of a graph's entities in shards; see :mod:`gptcore.knowledge.entities`.

    The manifest's counts hold the sizes of what a network takes over, and for each split what was found.

    :param vectors: of the graph's entities.
    :raises InputError: a graph without names, or a text that speaks of none of them.
    """
    recipe = Recipe("mentions", VERSION, {}, {"shards": shards, "vectors": vectors})

    def produce(out: Path) -> dict[str, Any]:
        tokenizer = Tokenizer.load(str(store.local(own_tokenizer(store, shards))))
        graph = KnowledgeGraph.load(store.local(ancestor(store, vectors, "graph")))
        gazetteer = Gazetteer.of(graph, tokenizer)
        entities = Entities(entity_vectors(store.local(vectors)).numpy(), gazetteer)
        tokens = sum(split["n_tokens"] for split in store.manifest(shards)["counts"]["splits"].values())
        done = Meter("mentions", "tokens").counting("link", tokens)
        found = link_shards(local_shards(store, shards), gazetteer, out, done)
        entities.save(out)
        return {**entities.sizes, "splits": found}

    return build(store, recipe, produce, "mentions", _made).artifact


def _made(counts: Mapping[str, Any]) -> str:
    train = counts["splits"]["train"]
    share = train["tokens"] / max(1, train["mentions"])
    return f"{train['mentions']:,} mentions of {train['entities']:,} entities, one in {share:,.0f} tokens"
