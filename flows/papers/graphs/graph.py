"""A knowledge graph, the vectors learnt from it, and the mentions of its entities in a text."""

from __future__ import annotations

from collections.abc import Sequence

from flows.forms.checks import is_address
from gptcore.papers.graphs.config import TransEConfig
from gptcore.papers.graphs.graph import COLUMNS
from tasks.papers.graphs.stages import learn_vectors, link_entities, links_of_corpus, read_knowledge
from tasks.stages.corpus import generate_world
from tasks.store.artifact import Artifact
from tasks.store.lineage import ancestor
from tasks.store.store import Store


def vectors_of(store: Store, graph: str, columns: Sequence[str], config: TransEConfig) -> tuple[Artifact, Artifact]:
    """A graph's facts and vectors, which are learnt where they are not there.

    :param graph: its folder, empty for the generated world's; or vectors of the store, which ``columns`` and ``config``
        have been decided for.
    """
    facts = facts_of(store, graph, columns)
    return facts, learnt(store, graph, facts, config)


def facts_of(store: Store, graph: str, columns: Sequence[str]) -> Artifact:
    """The facts of a graph, which is named as :func:`vectors_of` takes it."""
    if graph and not is_address(graph):
        return ancestor(store, store.resolve(graph, "vectors"), "graph")
    if not graph:
        from gptcore.papers.storyworld.knowledge import FOLDER  # a room that is wanted by nobody who has a graph

        graph = str(store.local(generate_world(store)) / "datasets" / FOLDER)
    return read_knowledge(store, graph, columns)


def learnt(store: Store, graph: str, facts: Artifact, config: TransEConfig) -> Artifact:
    """The vectors of a graph whose facts have been read; it is named as :func:`vectors_of` takes it."""
    if graph and not is_address(graph):
        return store.resolve(graph, "vectors")
    return learn_vectors(store, facts, config)


def mentioned(store: Store, graph: str, links: str, shards: Artifact) -> Artifact:
    """What puts a graph's entities beside words in a pre-training.

    :param links: a file that says what names in single documents mean; by default (empty) what the graph says.
    :raises InputError: see :func:`tasks.papers.graphs.stages.links_of_corpus`.
    """
    if links:  # a file that does not fit is refused before vectors are learnt
        links_of_corpus(store, shards, links)
    _, vectors = vectors_of(store, graph, COLUMNS, TransEConfig())
    return link_entities(store, shards, vectors, links)
