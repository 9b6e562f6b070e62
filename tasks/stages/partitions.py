"""Stages `corpus` and `shards` by partition: with a tokenizer that stays, a new book costs reading that book.

A partition is a source file. Its cleaned text (`corpus-part`) and its tokens (`shards-part`) are artifacts of their
own, whose digests follow from that file, the settings and the tokenizer alone; they are found in the store as long as
the file is what it was. The artifacts of the whole name their partitions and hold no text and no tokens: see
:mod:`gptcore.text.partition` for what happens to duplicates, :mod:`gptcore.data.encode` for the tokens.

Workers read sources and store by their addresses, so a cluster's need no file system in common with this process where
both are in an object store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from prefect import task

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json, write_json_atomic
from gptcore.base.filesystems import is_synthetic
from gptcore.base.settings import recorded
from gptcore.config import CorpusConfig, ShardConfig
from gptcore.data.encode import SPLITS, Piece, compose_shards, encode_partition, tokenizer_in
from gptcore.data.masking import PieceTable
from gptcore.data.shards import INDEX_FILE
from gptcore.evaluation.held_rows import rows_and_search
from gptcore.text.corpus import grouped, require_training_text
from gptcore.text.mixing import check_weights, weight_of
from gptcore.text.partition import DOCUMENTS, Partition, clean_partition, compose
from gptcore.text.sources import RawCorpus, Source, fingerprint, local_path
from tasks.jobs.parallel import partition_map
from tasks.stages.corpus import SHARDS_PART, as_before, corpus_made, publish_report, require_validation, shards_made
from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact, Recipe
from tasks.store.counts import CorpusCounts, TokenizerCounts
from tasks.store.state import FileDigests
from tasks.store.store import Store
from tasks.tracking.logs import Meter

CORPUS_PART = "corpus-part"
MOST = 20_000
"""Partitions: each is memory-mapped while a model is trained, and Linux gives a process 65,530 mappings."""
_AT_ONCE = 8  # questions to a store
_PARTS = "partitions.json"
_BUNDLE = 1 << 24  # bytes of cleaned text that are encoded by one job, so that small books share its costs

T = TypeVar("T")


@task(name="corpus", task_run_name="corpus by partition", **STAGE_OPTIONS)
def clean_partitions(store: Store, raw: RawCorpus, config: CorpusConfig, dask_address: str = "") -> Artifact:
    """The corpus of :func:`tasks.stages.corpus.clean_corpus`, every file of it cleaned once and kept by itself.

    Where all documents fall into one split (:func:`is_one_split`), nothing is divided.

    :raises InputError: too many sources, an unreadable one, or nothing left after filtering.
    """
    sources = raw.sources
    if len(sources) > MOST:
        raise InputError(
            f"corpus {raw.url}: {len(sources):,} files; by partition (--tokenizer) at most {MOST:,}, "
            "so pack small ones into .jsonl files that stay as they are"
        )
    check_weights(config.weights, (source.name for source in sources))
    with FileDigests() as digests:
        prints = fingerprint(sources, digests.sha256, config.encoding)
    settings = recorded(config)
    rows, search = rows_and_search(config.decontaminate)
    recipes = [recipe_of(CORPUS_PART, settings, {"source": sha256_json(source), **rows}) for source in prints]
    parts = [store.artifact(recipe.stage, recipe.digest) for recipe in recipes]
    former = _named([store.artifact(CORPUS_PART, replace(part, version=3).digest) for part in recipes])
    recipe = as_before(store, recipe_of("corpus", settings, _named(parts)), former)

    def produce(out: Path) -> dict[str, Any]:
        needed = dict(zip(sources, recipes, strict=True))
        missing = _missing(store, needed)
        jobs = [{source: needed[source] for source in group} for group in grouped(missing, lambda each: each.size)]
        done = Meter("corpus", "MB", 1_000_000).counting("clean", sum(source.size for source in missing))
        shared = _local_folder(store)
        reads = local_path(missing[0]) if missing else None
        with partition_map(dask_address, shared=shared, reads=reads, small=len(jobs) <= 1) as parallel:
            for job, _ in zip(jobs, parallel(partial(_clean, store, config, search), jobs), strict=True):
                done(sum(source.size for source in job))
        # Read several at once, parsed one after the other: numpy parses a header with ast.literal_eval, and that of
        # Python 3.11 fails where a garbage collection lets in another thread that does the same (SystemError).
        known = _each(lambda part: (store.manifest(part)["counts"], store.read(part, DOCUMENTS)), parts)
        cleaned = [Partition.read(counts, documents) for counts, documents in known]
        dropped, report = compose(cleaned, [source.name for source in sources], config)
        if not report["documents"]["kept"]:
            require_training_text(raw.url, report, config)
        listed = [
            {"source": source.name, "part": part.digest, "dropped": gone}
            for source, part, gone in zip(sources, parts, dropped, strict=True)
        ]
        write_json_atomic(out / _PARTS, listed)
        read = {"read": len(missing), "bytes_read": sum(source.size for source in missing)}
        return {
            **report,
            "synthetic": is_synthetic(raw.url),
            "files": raw.files,
            "partitions": {"all": len(parts), **read},
        }

    built = build(store, recipe, produce, "corpus", lambda counts: partitions_made({**counts, "files": raw.files}))
    publish_report(built, raw.url)
    return built.artifact


def is_one_split(store: Store, corpus: Artifact) -> bool:
    """Whether all documents of a corpus by partition fell into one split, as one or two books may.

    Then :func:`tasks.stages.corpus.clean_corpus`, which sees the whole, can hold out the end of one of them.
    """
    documents = CorpusCounts.of(store, corpus).documents
    return not (documents.train and documents.validation)


def partitions_of(store: Store, corpus: Artifact) -> list[Artifact]:
    """The partitions of a corpus, which hold its text; none where it holds that itself."""
    inputs = store.manifest(corpus)["inputs"].values()
    return [store.artifact(item["stage"], item["digest"]) for item in inputs if item.get("stage") == CORPUS_PART]


def partitions_made(counts: Mapping[str, Any]) -> str:
    """A corpus by partition in few words: what its build had to read."""
    parts = CorpusCounts.parse(counts).partitions
    assert parts is not None
    read = f"{parts.read:,} of {parts.all:,} files read ({parts.bytes_read:,} bytes)"
    return f"{corpus_made(counts)}, {read}"


@task(name="shards", task_run_name="shards by partition, of corpus {corpus.short}", **STAGE_OPTIONS)
def encode_partitions(
    store: Store, corpus: Artifact, tokenizer: Artifact, config: ShardConfig, dask_address: str = ""
) -> Artifact:
    """The shards of a corpus by partition, each partition encoded once.

    :param corpus: of :func:`clean_partitions`.
    :raises InputError: nothing was held out, or the store lost a partition.
    """
    listed = json.loads(store.read(corpus, _PARTS))
    counts = TokenizerCounts.of(store, tokenizer)
    digest, settings = counts.tokenizer_digest, recorded(config)
    texts = [store.artifact(CORPUS_PART, entry["part"]) for entry in listed]
    alone = recorded(replace(config, weights=None))  # which are of the whole
    recipes = [recipe_of(SHARDS_PART, alone, {"text": text, "tokenizer": digest}) for text in texts]
    parts = [store.artifact(recipe.stage, recipe.digest) for recipe in recipes]
    recipe = recipe_of("shards", settings, {"corpus": corpus, "tokenizer": tokenizer, **_named(parts)})

    def produce(out: Path) -> dict[str, Any]:
        made_of = dict(zip(texts, recipes, strict=True))
        missing = _missing(store, made_of)
        listings = _each(lambda part: store.manifest(part)["files"], missing)
        sizes = {part: sum(int(file["size"]) for file in files) for part, files in zip(missing, listings, strict=True)}
        jobs = [[made_of[text] for text in bundle] for bundle in grouped(missing, sizes.__getitem__, _BUNDLE)]
        encode = partial(_encode, store, tokenizer, digest, config)
        done = Meter("shards", "partitions").counting("encode", len(missing))
        with partition_map(dask_address, shared=_local_folder(store), small=len(jobs) <= 1) as parallel:
            for job, _ in zip(jobs, parallel(encode, jobs), strict=True):
                done(len(job))
        dropped = [frozenset(entry["dropped"]) for entry in listed]
        weights = [weight_of(entry["source"], config.weights or {}) for entry in listed]
        pieces = _each(partial(_piece, store), list(zip(parts, dropped, weights, strict=True)))
        if config.sentences:
            PieceTable.of(tokenizer_in(store.local(tokenizer), digest)).save(out)
        report = compose_shards(pieces, out, digest, counts.n_vocab)
        require_validation(report)
        weighed = {name: told for name, told in settings.items() if name == "weights"}
        return {**report, **weighed, "partitions": {"all": len(parts), "encoded": len(missing)}}

    return build(store, recipe, produce, "shards", shards_made).artifact


# --- what workers do --------------------------------------------------------------------------------------------------


def _clean(store: Store, config: CorpusConfig, search: Any, recipes: Mapping[Source, Recipe]) -> None:
    for source, recipe in recipes.items():
        store.build(recipe, partial(clean_partition, source, config=config, search=search))


def _encode(store: Store, tokenizer: Artifact, digest: str, config: ShardConfig, recipes: Sequence[Recipe]) -> None:
    words = tokenizer_in(store.local(tokenizer), digest)
    for recipe in recipes:
        text = recipe.inputs["text"]
        assert isinstance(text, Artifact)
        corpus = store.local(text)

        def produce(out: Path, corpus: Path = corpus) -> dict[str, Any]:
            indices = encode_partition(corpus, words, out, config)
            return {split: {name: indices[split][name] for name in ("n_tokens", "n_documents")} for split in SPLITS}

        store.build(recipe, produce)


# --- inside -----------------------------------------------------------------------------------------------------------


def _named(parts: Sequence[Artifact]) -> dict[str, Artifact]:
    return {f"part-{number:05d}": part for number, part in enumerate(parts)}


def _each(function: Callable[..., T], items: Sequence[Any]) -> list[T]:
    """``function`` of every item, several at once: most of the time goes by in waiting for a remote store."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(function, items))


def _missing(store: Store, needed: Mapping[T, Recipe]) -> list[T]:
    kept = _each(store.find, list(needed.values()))
    return [item for item, artifact in zip(needed, kept, strict=True) if artifact is None]


def _piece(store: Store, known: tuple[Artifact, frozenset[str], float]) -> Piece:
    part, dropped, weight = known
    indices = {split: json.loads(store.read(part, f"{split}/{INDEX_FILE}")) for split in SPLITS}
    # two folders up is where a store, and its copy on another machine, has all stages
    place = f"../../{part.stage}/{part.digest}"
    return Piece(place, indices, dropped, weight, store.local(part) if dropped or weight != 1 else None)


def _local_folder(store: Store) -> Path | None:
    """A local store's folder, which a cluster's workers must see."""
    return None if "://" in store.url or "::" in store.url else Path(store.url)
