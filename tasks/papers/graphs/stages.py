"""Stages of a knowledge graph and of a network that answers with it.

`graph`, `vectors` and `mentions`: the graph's files are read strictly, as numbered facts. The vectors of its entities
and relations are learnt by a job that resumes after a crash. Mentions are its entities in the shards of a text, with
their vectors and names. `grounded` and `kagnet`: a task's questions laid over the graph, and a network that reads their
texts and the paths between their concepts, trained by such a job.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from prefect import task
from safetensors.numpy import load_file

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json, write_bytes_atomic
from gptcore.base.filesystems import file_fingerprint, is_synthetic
from gptcore.base.settings import recorded
from gptcore.data.masking import PieceTable
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.examples import Example
from gptcore.nlu.readers import labelled_splits, load_task
from gptcore.nlu.registry import TaskSpec
from gptcore.papers.graphs.config import GroundingConfig, KagNETConfig, TransEConfig
from gptcore.papers.graphs.entities import LONGEST, Entities, Gazetteer, link_shards, meant, read_links, spelled
from gptcore.papers.graphs.graph import SPLITS, KnowledgeGraph, graph_files, read_graph
from gptcore.papers.graphs.grounded import Concepts, Coverage, Grounded, Ways, ground, shares
from gptcore.text.parts import read_sources
from gptcore.text.tokenizer import Tokenizer
from tasks.jobs.parallel import partition_map
from tasks.jobs.placement import processes_and_threads
from tasks.papers.graphs.counts import GraphCounts, GroundedCounts, MentionsCounts
from tasks.stages.corpus import local_shards
from tasks.stages.partitions import partitions_of
from tasks.stages.stage import CHECKPOINTS, JOB_OPTIONS, STAGE_OPTIONS, build, recipe_of
from tasks.stages.training import follow_job
from tasks.store.artifact import Artifact, Recipe
from tasks.store.counts import ShardsCounts, TrainingCounts
from tasks.store.lineage import ancestor, model_files, own_tokenizer
from tasks.store.store import Store
from tasks.tracking.logs import Meter
from tasks.tracking.provenance import run_tags
from tasks.tracking.tracker import Tracker, read_metrics

EXPERIMENT = "gptmill/knowledge"


@task(name="graph", task_run_name="graph {url}", **STAGE_OPTIONS)
def read_knowledge(store: Store, url: str, columns: Sequence[str]) -> Artifact:
    """Read the facts of a folder, anywhere fsspec reaches.

    The manifest's counts hold "entities", "relations", "facts" (split -> how many), "labelled" entities, "false" rows,
    "name" of the folder, and whether it is "synthetic".

    :param columns: what the files' first three columns are.
    :raises InputError: missing or broken files.
    """
    files = {file.rpartition("/")[2]: file_fingerprint(file) for file in graph_files(url)}
    recipe = recipe_of("graph", {"columns": list(columns)}, {"files": sha256_json(files)})

    def produce(out: Path) -> dict[str, Any]:
        graph = read_graph(url, columns)
        graph.save(out)
        return {
            "name": url.rstrip("/").rpartition("/")[2],
            "entities": len(graph.entities),
            "relations": len(graph.relations),
            "facts": {split: len(graph.facts.get(split, ())) for split in SPLITS},
            "labelled": len(graph.labels),
            "false": graph.n_false,
            "synthetic": is_synthetic(url.rstrip("/").rpartition("/")[0]),  # the mark stands beside all its datasets
        }

    return build(store, recipe, produce, "graph", _facts).artifact


def _facts(counts: Mapping[str, Any]) -> str:
    graph = GraphCounts.parse(counts)
    facts = sum(graph.facts.values())
    return f"{facts:,} facts of {graph.entities:,} entities, {graph.relations:,} relations"


@task(name="vectors", task_run_name="vectors of graph {graph.short}", **JOB_OPTIONS)
def learn_vectors(store: Store, graph: Artifact, config: TransEConfig) -> Artifact:
    """Learn TransE's vectors of a graph; see :mod:`gptcore.papers.graphs.train_vectors`.

    The artifact has vectors/model.safetensors and metrics.jsonl; its counts hold link prediction on the held-out facts:
    "test/mrr", "test/hits_10" and so on.
    """
    recipe = recipe_of("vectors", {"transe": recorded(config)}, {"graph": graph})
    return build_by_job(store, recipe, graph, lambda: {"graph": store.local(graph)}, "facts", _ranked)


def build_by_job(
    store: Store,
    recipe: Recipe,
    data: Artifact,
    reads: Callable[[], Mapping[str, Path]],
    unit: str,
    made: Callable[[Mapping[str, Any]], str],
    item: str = "",
    transient: Collection[str] = (),
) -> Artifact:
    """The artifact of a recipe that the stage's job makes (:class:`tasks.stages.table.Stage`).

    :param data: what it learns from, for the tags of its MLflow run.
    :param reads: what the job reads, by its name there; asked for only where there is no artifact yet.
    :param unit: what the job's speed counts, in the plural; ``made`` and ``item`` as :func:`build` takes them.
    :param transient: names at the workspace's top, beside the checkpoints, that go with its mirror alone.
    """
    stage, (_, threads) = recipe.stage, processes_and_threads(1)
    tags = run_tags(kind=stage, store_digest=recipe.digest, data_digest=data.digest)
    with Tracker().open(EXPERIMENT, f"{stage} {recipe.digest[:8]}", recipe.digest, tags, dict(recipe.config)) as run:

        def produce(workspace: Path) -> dict[str, Any]:
            files = {name: str(path) for name, path in reads().items()}
            job = {**recipe.config, **files, "workspace": str(workspace), "threads": threads}
            return follow_job(store, recipe, job, run, stage, alone=True, unit=unit)

        built = build(store, recipe, produce, stage, made, item, transient=(*CHECKPOINTS, *transient))
        if not run.finished:
            run.log_metrics(read_metrics(store.local(built.artifact, "metrics.jsonl")))
            run.log_results({name: 100 * value if "score" in name else value for name, value in built.counts.items()})
    return built.artifact


def _ranked(counts: Mapping[str, Any]) -> str:
    learnt = TrainingCounts.parse(counts)
    split = next((split for split in ("test", "valid") if f"{split}/mrr" in learnt.figures), "")
    updates = f"{learnt.steps:,} updates"
    return f"{split} MRR {learnt.figures[f'{split}/mrr']:.3f}, {updates}" if split else updates


@task(name="mentions", task_run_name="mentions in shards {shards.short}", **STAGE_OPTIONS)
def link_entities(store: Store, shards: Artifact, vectors: Artifact, links: str = "") -> Artifact:
    """Find the names of a graph's entities in shards; see :mod:`gptcore.papers.graphs.entities`.

    The manifest's counts hold the sizes of what a network takes over, for each split what was found, and where links
    are given, of how many documents there are "links", and how many links apply nowhere ("links_unused").

    :param vectors: of the graph's entities.
    :param links: address of a file that says what names in single documents mean; see
        :func:`gptcore.papers.graphs.entities.read_links`.
    :raises InputError: a graph without names, a text that speaks of none of them, a broken file of links, or one of
        other documents.
    """
    inputs = {"shards": shards, "vectors": vectors}
    given = {"links": sha256_json(file_fingerprint(links))} if links else {}
    recipe = recipe_of("mentions", {}, {**inputs, **given})

    def produce(out: Path) -> dict[str, Any]:
        # brings torch, which a pipeline's own process needs not
        from gptcore.papers.graphs.transe import entity_vectors

        known = links_of_corpus(store, shards, links) if links else CorpusLinks({}, 0)
        tokenizer = Tokenizer.load(str(store.local(own_tokenizer(store, shards))))
        graph = KnowledgeGraph.load(store.local(ancestor(store, vectors, "graph")))
        gazetteer, table = Gazetteer.of(graph, tokenizer), PieceTable.of(tokenizer)
        entities = Entities(entity_vectors(store.local(vectors)).numpy(), gazetteer)
        tokens = sum(split.n_tokens for split in ShardsCounts.of(store, shards).splits.values())
        done = Meter("mentions", "tokens").counting("link", tokens)

        def own(document: str) -> Gazetteer | None:
            its = known.documents.get(document)
            return None if its is None else Gazetteer.linked(its, graph, tokenizer, table)

        splits = link_shards(local_shards(store, shards), gazetteer, out, done, own)
        entities.save(out)
        counts = {**entities.sizes, "splits": splits}
        return counts | {"links": len(known.documents), "links_unused": known.unused} if links else counts

    return build(store, recipe, produce, "mentions", _linked).artifact


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
    linked = {document: known[source] for document, source in sources.items() if source in known}
    if not linked:
        raise InputError(
            f"{links}: found links of {len(known):,} documents, the first {next(iter(known))!r:.60}, none of them a "
            f"file of the corpus; expected files such as {min(sources.values())!r:.60}"
        )
    tokenizer = Tokenizer.load(str(store.local(own_tokenizer(store, shards))))
    table = PieceTable.of(tokenizer)
    used = 0
    for document, own in linked.items():
        try:
            meant(own, tokenizer, table)
        except InputError as error:
            raise InputError(f"{links}, document {sources[document]}: {error}") from None
        used += sum(1 for _ in spelled(list(own), tokenizer, table))
    return CorpusLinks(linked, sum(map(len, known.values())) - used)


def _linked(counts: Mapping[str, Any]) -> str:
    counted = MentionsCounts.parse(counts)
    train = counted.splits["train"]
    share = train.tokens / max(1, train.mentions)
    linked = "" if counted.links is None else f"; {counted.links:,} documents have links of their own"
    if unused := counted.links_unused:
        linked += f" ({unused:,} more are of no document here, or no name in {LONGEST} pieces)"
    return f"{train.mentions:,} mentions of {train.entities:,} entities, one in {share:,.0f} tokens{linked}"


_BLOCK = 64  # questions that a process takes at a time
_SMALL = 2000
"""Questions that are grounded before other processes have started."""


@task(name="grounded", task_run_name="ground {spec.name} in graph {graph.short}", **STAGE_OPTIONS)
def ground_questions(
    store: Store, datasets_url: str, spec: TaskSpec, graph: Artifact, vectors: Artifact, config: GroundingConfig
) -> Artifact:
    """Find the concepts of questions and choices, and the paths between them.

    The artifact has for each split SPLIT.jsonl, the questions, and SPLIT.safetensors
    (:class:`gptcore.papers.graphs.grounded.Grounded`); its counts say how many have a concept and a path.

    :raises InputError: missing or broken data.
    """
    inputs: dict[str, Artifact | str] = {"graph": graph, "vectors": vectors}
    inputs["files"] = dataset_fingerprint(spec, datasets_url)
    recipe = recipe_of("grounded", {"task": spec.name, "grounding": recorded(config)}, inputs)

    def produce(out: Path) -> dict[str, Any]:
        counts: dict[str, Any] = {"task": spec.name, "splits": {}}
        splits = {split: load_task(spec.name, datasets_url, split) for split in labelled_splits(spec, datasets_url)}
        laid = partial(_ground, store.local(graph), store.local(vectors), config)
        meter = Meter("grounded", "questions")
        with partition_map(small=sum(map(len, splits.values())) <= _SMALL) as each:
            for split, examples in splits.items():
                blocks = [examples[first : first + _BLOCK] for first in range(0, len(examples), _BLOCK)]
                done, parts, coverage = meter.counting(split, len(examples)), [], Coverage()
                for block, (part, covered) in zip(blocks, each(laid, blocks), strict=True):
                    parts.append(part)
                    coverage.update(covered)
                    done(len(block))
                Grounded.joined(parts).save(out / f"{split}.safetensors")
                rows = [
                    {"fields": row.fields, "choices": row.choices, "label": row.label, "row": row.row, "id": row.id}
                    for row in examples
                ]
                text = "".join(json.dumps(row) + "\n" for row in rows)
                write_bytes_atomic(out / f"{split}.jsonl", text.encode())
                counts["splits"][split] = {"rows": len(examples), **shares(coverage)}
        return counts

    return build(store, recipe, produce, "grounded", _covered, spec.name).artifact


def _ground(
    graph: Path, vectors: Path, config: GroundingConfig, examples: Sequence[Example]
) -> tuple[Grounded, Coverage]:
    return ground(examples, *_opened(graph, vectors, config), config)


@lru_cache(maxsize=1)
def _opened(graph: Path, vectors: Path, config: GroundingConfig) -> tuple[Concepts, Ways]:
    """What a process needs to know of a graph, once."""
    facts = KnowledgeGraph.load(graph)
    learnt = load_file(str(vectors / "vectors" / "model.safetensors"))
    return Concepts(facts), Ways(facts, learnt["entities"], learnt["relations"], config.most_neighbours)


def _covered(counts: Mapping[str, Any]) -> str:
    dev = GroundedCounts.parse(counts).splits["dev"]
    return f"{dev.rows:,} dev questions, {100 * dev.right_with_path:.0f} % of right choices have a path"


@task(name="kagnet", task_run_name="kagnet on {grounded.short}", **JOB_OPTIONS)
def train_kagnet(
    store: Store, grounded: Artifact, vectors: Artifact, model: Artifact, config: KagNETConfig
) -> Artifact:
    """Train KagNET over a fine-tuned model's vectors of the texts; see :mod:`gptcore.papers.graphs.train_kagnet`.

    The artifact has kagnet/model.safetensors and for each split but train SPLIT.jsonl with scores and weights; its
    counts hold "SPLIT/score" with the graph, its standard error, and "SPLIT/text_score" of the fine-tuned model alone.

    :param model: fine-tuned on the task whose questions were grounded.
    """
    inputs = {"grounded": grounded, "vectors": vectors, "model": model}
    recipe = recipe_of("kagnet", {"kagnet": recorded(config)}, inputs)

    def reads() -> dict[str, Path]:
        folders = {"grounded": store.local(grounded), "vectors": store.local(vectors)}
        return {**folders, "model": store.local(model, "model"), "tokenizer": model_files(model)[1]}

    texts = [f"texts-{split}.safetensors" for split in GroundedCounts.of(store, grounded).splits]
    return build_by_job(store, recipe, grounded, reads, "questions", _answered, f"seed {config.seed}", texts)


def _answered(counts: Mapping[str, Any]) -> str:
    figures = TrainingCounts.parse(counts).figures
    return f"dev {100 * figures['dev/score']:.1f}, the text alone {100 * figures['dev/text_score']:.1f}"
