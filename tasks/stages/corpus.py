"""Stages `storyworld`, `corpus` and `shards`: books to cleaned Arrow text, split by document, and that to token ids.

The books of the demo and the tests are generated, datasets beside them. The ids are memory-mapped Arrow files of
bounded size.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.base.settings import recorded
from gptcore.config import CorpusConfig, ShardConfig
from gptcore.data.encode import encode_corpus
from gptcore.text.corpus import build_corpus, read_corpus
from gptcore.text.sources import RawCorpus, fingerprint, local_path
from gptcore.text.tokenizer import Tokenizer
from tasks.jobs.parallel import partition_map
from tasks.report.card import amount, publish_table, shown
from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact
from tasks.store.counts import CorpusCounts, ShardsCounts
from tasks.store.lineage import home_of
from tasks.store.state import FileDigests
from tasks.store.store import Built, Store
from tasks.tracking.logs import Meter, logger

SEED = 42
"""Of the world that stands in for books, datasets and a graph that nobody gives."""


@task(name="storyworld", task_run_name="storyworld seed {seed}", **STAGE_OPTIONS)
def generate_world(store: Store, seed: int = SEED) -> Artifact:
    """Generate the world of ``seed`` in public file formats: `books/`, `datasets/<Folder>/...`, and others."""
    from gptcore.storyworld.write import generate

    recipe = recipe_of("storyworld", {"seed": seed}, {})

    def produce(out: Path) -> dict[str, Any]:
        for leftover in out.iterdir():  # of a killed run: the world is written in seconds, so from the start
            shutil.rmtree(leftover)
        return generate(out, seed)

    return build(store, recipe, produce, "storyworld", _made).artifact


def _made(counts: Mapping[str, Any]) -> str:
    return f"synthetic: {counts['books']} books, {counts['dataset_files']} files of datasets"


_SMALL_TO_CLEAN, _SMALL_TO_ENCODE = 1_000_000, 4_000_000
"""Bytes that this process is done with before others have started."""
SHARDS_PART = "shards-part"
"""Stage of the shards of one partition (:mod:`tasks.stages.partitions`)."""
_DOWNLOADS = 8  # at a time
_WARNED = 10  # documents left out


@task(name="corpus", task_run_name="corpus", **STAGE_OPTIONS)
def clean_corpus(store: Store, raw: RawCorpus, config: CorpusConfig, dask_address: str = "") -> Artifact:
    """Clean every document of a raw corpus (section 4.1: ftfy, standardised punctuation, spaCy tokenizer).

    The digest follows from the files' content, not from where they lie: changing one book changes it, moving the
    folder does not.

    :raises InputError: an unreadable source, or nothing left after filtering.
    """
    with FileDigests() as digests:
        sources = sha256_json(fingerprint(raw.sources, digests.sha256))
    recipe = recipe_of("corpus", recorded(config), {"sources": sources})

    def produce(out: Path) -> dict[str, Any]:
        small = sum(source.size for source in raw.sources) <= _SMALL_TO_CLEAN
        with partition_map(dask_address, shared=out, reads=local_path(raw.sources[0]), small=small) as parallel:
            return build_corpus(raw, out, config, map=parallel, progress=Meter("corpus", "MB", 1_000_000))

    built = build(store, recipe, produce, "corpus", corpus_made)
    publish_report(built, raw.url)
    return built.artifact


def held_out_bytes(store: Store, corpus: Artifact) -> int:
    """UTF-8 bytes of the cleaned held-out documents: what their tokens spell."""
    documents = read_corpus(store.local(corpus), "validation")
    return sum(len(text.encode()) for _, rows in documents for text in rows)


def corpus_made(counts: Mapping[str, Any]) -> str:
    """A corpus in few words."""
    corpus = CorpusCounts.parse(counts)
    documents = corpus.documents
    kept = f"{documents.train:,} train + {documents.validation:,} held out"
    return f"{documents.read:,} documents -> {kept}, {amount(corpus.words)} words"


def publish_report(built: Built, corpus_url: str) -> None:
    """The corpus' counts as a table on the run's page; what was left out, and a held-out end, in the log, too."""
    counts = CorpusCounts.parse(built.counts)
    if counts.divided:
        logger().warning(
            "no document fell into the validation split, so the end of one is held out: %s", counts.divided
        )
    for line in counts.left_out[:_WARNED]:
        logger().warning("left out: %s", line)
    if (more := len(counts.left_out) - _WARNED) > 0:
        logger().warning("left out: %d more documents, named in the corpus' report", more)
    table = [{"what": name, "count": shown(count)} for name, count in _flat(built.counts)]
    table += [{"what": "left out", "count": line} for line in counts.left_out]
    publish_table(table, "corpus-report", f"Corpus {built.artifact.short} from {corpus_url}")


def _flat(report: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested counts as rows: ``documents / dropped / duplicate``."""
    rows: list[tuple[str, Any]] = []
    for name, value in report.items():
        label = f"{prefix}{name.replace('_', ' ')}"
        if isinstance(value, dict):
            rows += _flat(value, f"{label} / ")
        elif not isinstance(value, list):
            rows.append((label, value))
    return rows


@task(name="shards", task_run_name="shards of corpus {corpus.short}", **STAGE_OPTIONS)
def encode_shards(
    store: Store, corpus: Artifact, tokenizer: Artifact, config: ShardConfig, dask_address: str = ""
) -> Artifact:
    """Encode both splits of the corpus; the folder carries the tokenizer's digest.

    :raises InputError: by chance (each document's own hash decides) nothing was held out.
    """
    recipe = recipe_of("shards", recorded(config), {"corpus": corpus, "tokenizer": tokenizer})

    def produce(out: Path) -> dict[str, Any]:
        loaded = Tokenizer.load(str(store.local(tokenizer)))
        folder = store.local(corpus)
        files = list(folder.glob("*/part-*.arrow"))
        done = Meter("shards", "files").counting("encode", len(files))
        small = sum(file.stat().st_size for file in files) <= _SMALL_TO_ENCODE
        with partition_map(dask_address, shared=out, small=small) as parallel:
            report = encode_corpus(folder, loaded, out, config, map=parallel, progress=done)
        require_validation(report)
        return report

    return build(store, recipe, produce, "shards", shards_made).artifact


def require_validation(report: Mapping[str, Any]) -> None:
    """:raises InputError: nothing was held out."""
    if not report["splits"]["validation"]["n_documents"]:
        read = report["splits"]["train"]["n_documents"]
        raise InputError(
            f"corpus: none of its {read} documents fell into the validation split, expected at least 1; "
            "add documents or raise corpus.validation_fraction"
        )


def local_shards(store: Store, shards: Artifact) -> Path:
    """A local folder with shards that can be read; those of partitions lie beside it, where its index looks."""
    parts = [item for item in store.manifest(shards)["inputs"].values() if item.get("stage") == SHARDS_PART]
    home = home_of(shards)
    with ThreadPoolExecutor(_DOWNLOADS) as pool:
        for _ in pool.map(lambda item: home.local(home.artifact(item["stage"], item["digest"])), parts):
            pass
    return store.local(shards)


def shards_made(counts: Mapping[str, Any]) -> str:
    splits = ShardsCounts.parse(counts).splits
    train, validation = (splits[name].n_tokens for name in ("train", "validation"))
    return f"{amount(train)} tokens to train on, {amount(validation)} held out"
