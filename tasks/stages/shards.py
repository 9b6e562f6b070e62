"""Stage `shards`: cleaned text to token ids, memory-mapped Arrow files of bounded size."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.config import ShardConfig
from gptcore.data.encode import encode_corpus
from gptcore.text.tokenizer import Tokenizer
from tasks.jobs.parallel import partition_map
from tasks.report.card import amount
from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact
from tasks.store.counts import ShardsCounts
from tasks.store.lineage import home_of
from tasks.store.store import Store
from tasks.tracking.logs import Meter

PART = "shards-part"
"""Stage of the shards of one partition (:mod:`tasks.stages.partitions`)."""
_SMALL = 4_000_000
"""Bytes that are encoded before other processes have started."""
_DOWNLOADS = 8  # at a time


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
        small = sum(file.stat().st_size for file in files) <= _SMALL
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
    parts = [item for item in store.manifest(shards)["inputs"].values() if item.get("stage") == PART]
    home = home_of(shards)
    with ThreadPoolExecutor(_DOWNLOADS) as pool:
        for _ in pool.map(lambda item: home.local(home.artifact(item["stage"], item["digest"])), parts):
            pass
    return store.local(shards)


def shards_made(counts: Mapping[str, Any]) -> str:
    splits = ShardsCounts.parse(counts).splits
    train, validation = (splits[name].n_tokens for name in ("train", "validation"))
    return f"{amount(train)} tokens to train on, {amount(validation)} held out"
