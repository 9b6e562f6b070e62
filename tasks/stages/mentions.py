"""Stage `mentions`: which entities of a graph the shards of a text speak of, with their vectors and names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.base.filesystems import file_fingerprint
from gptcore.data.piece_table import PieceTable
from gptcore.knowledge.entities import Entities, link_shards
from gptcore.knowledge.gazetteer import LONGEST, Gazetteer, meant, spelled
from gptcore.knowledge.graph import KnowledgeGraph
from gptcore.knowledge.links import read_links
from gptcore.knowledge.neighbours import entity_vectors
from gptcore.text.parts import read_sources
from gptcore.text.tokenizer import Tokenizer
from tasks.stages.partitions import partitions_of
from tasks.stages.shards import local_shards
from tasks.stages.stage import STAGE_OPTIONS, build
from tasks.store.artifact import Artifact, Recipe
from tasks.store.lineage import ancestor, own_tokenizer
from tasks.store.store import Store
from tasks.tracking.logs import Meter

VERSION = 1


@task(name="mentions", task_run_name="mentions in shards {shards.short}", **STAGE_OPTIONS)
def link_entities(store: Store, shards: Artifact, vectors: Artifact, links: str = "") -> Artifact:
    """Find the names of a graph's entities in shards; see :mod:`gptcore.knowledge.entities`.

    The manifest's counts hold the sizes of what a network takes over, for each split what was found, and where links
    are given, of how many documents there are "links", and how many links apply nowhere ("links_unused").

    :param vectors: of the graph's entities.
    :param links: address of a file that says what names in single documents mean; see :mod:`gptcore.knowledge.links`.
    :raises InputError: a graph without names, a text that speaks of none of them, a broken file of links, or one of
        other documents.
    """
    inputs = {"shards": shards, "vectors": vectors}
    given = {"links": sha256_json(file_fingerprint(links))} if links else {}
    recipe = Recipe("mentions", VERSION, {}, {**inputs, **given})

    def produce(out: Path) -> dict[str, Any]:
        known = links_of_corpus(store, shards, links) if links else CorpusLinks({}, 0)
        tokenizer = Tokenizer.load(str(store.local(own_tokenizer(store, shards))))
        graph = KnowledgeGraph.load(store.local(ancestor(store, vectors, "graph")))
        gazetteer, table = Gazetteer.of(graph, tokenizer), PieceTable.of(tokenizer)
        entities = Entities(entity_vectors(store.local(vectors)).numpy(), gazetteer)
        tokens = sum(split["n_tokens"] for split in store.manifest(shards)["counts"]["splits"].values())
        done = Meter("mentions", "tokens").counting("link", tokens)

        def own(document: str) -> Gazetteer | None:
            its = known.documents.get(document)
            return None if its is None else Gazetteer.linked(its, graph, tokenizer, table)

        found = link_shards(local_shards(store, shards), gazetteer, out, done, own)
        entities.save(out)
        counts = {**entities.sizes, "splits": found}
        return counts | {"links": len(known.documents), "links_unused": known.unused} if links else counts

    return build(store, recipe, produce, "mentions", _made).artifact


@dataclass(frozen=True)
class CorpusLinks:
    """What a file of links says of a corpus."""

    documents: Mapping[str, Mapping[str, str]]
    """Hash of each document that has links -> name -> entity."""
    unused: int
    """Links of other documents, and of names that the vocabulary does not spell in few pieces."""


def links_of_corpus(store: Store, shards: Artifact, links: str) -> CorpusLinks:
    """The links of the documents of the shards' corpus.

    :raises InputError: a broken file of links, none of its documents is one of the corpus, or names that are one in
        the shards' vocabulary have different entities in one document.
    """
    known, corpus = read_links(links), ancestor(store, shards, "corpus")
    sources: dict[str, str] = {}
    for part in (corpus, *partitions_of(store, corpus)):
        sources |= read_sources(store.local(part))
    found = {document: known[source] for document, source in sources.items() if source in known}
    if not found:
        raise InputError(
            f"{links}: found links of {len(known):,} documents, the first {next(iter(known))!r:.60}, none of them a "
            f"file of the corpus; expected files such as {min(sources.values())!r:.60}"
        )
    tokenizer = Tokenizer.load(str(store.local(own_tokenizer(store, shards))))
    table = PieceTable.of(tokenizer)
    used = 0
    for document, own in found.items():
        try:
            meant(own, tokenizer, table)
        except InputError as error:
            raise InputError(f"{links}, document {sources[document]}: {error}") from None
        used += sum(1 for _ in spelled(list(own), tokenizer, table))
    return CorpusLinks(found, sum(map(len, known.values())) - used)


def _made(counts: Mapping[str, Any]) -> str:
    train = counts["splits"]["train"]
    share = train["tokens"] / max(1, train["mentions"])
    linked = f"; {counts['links']:,} documents have links of their own" if "links" in counts else ""
    if unused := counts.get("links_unused"):
        linked += f" ({unused:,} more are of no document here, or no name in {LONGEST} pieces)"
    return f"{train['mentions']:,} mentions of {train['entities']:,} entities, one in {share:,.0f} tokens{linked}"
