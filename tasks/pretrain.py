"""Stage `pretrain`: shards to a language model, trained by a child process that resumes after any crash."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.config import ModelConfig, PretrainConfig
from tasks.card import Card
from tasks.launch import run_job
from tasks.observer import JobObserver
from tasks.stage import JOB_OPTIONS, build, publish_card
from tasks.store import Artifact, Built, Recipe, Store
from tasks.tracking import Tracker, read_metrics, run_tags

VERSION = 1
EXPERIMENT = "gptmill/pretrain"


@task(name="pretrain", **JOB_OPTIONS)
def pretrain_model(
    store_url: str,
    shards: Artifact,
    model: ModelConfig,
    config: PretrainConfig,
    ngrams: Artifact | None = None,
    nproc: int = 1,
) -> Artifact:
    """Pre-train (section 3.1). The number of processes is not part of the digest: every global batch is the same.

    :param ngrams: n-gram perplexities of the same shards, shown beside the model's.
    :raises InputError: the shards do not fit the model.
    """
    store, tracker = Store(store_url), Tracker()
    counts = store.manifest(shards)["counts"]
    model = dataclasses.replace(model, n_vocab=counts["n_vocab"])
    recipe = Recipe(
        "pretrain", VERSION, {"model": dataclasses.asdict(model), "pretrain": dataclasses.asdict(config)}, {"shards": shards}
    )
    tags = run_tags(store=store_url, digest=recipe.digest, tokenizer=counts["tokenizer_digest"], data=shards.digest)
    threads = os.cpu_count() or 1

    with tracker.open(EXPERIMENT, f"pretrain {recipe.digest[:8]}", recipe.digest, tags, recipe.config) as run:

        def produce(workspace: Path) -> dict[str, Any]:
            job = {
                "model": dataclasses.asdict(model),
                "pretrain": dataclasses.asdict(config),
                "shards": str(store.local(shards)),
                "tokenizer_digest": counts["tokenizer_digest"],
                "workspace": str(workspace),
                "threads": threads,
            }
            observer = JobObserver("pretrain", run, key="pretrain-progress")
            result = run_job("gptcore.training.pretrain", job, workspace, nproc=nproc, on_metrics=observer)
            return {**result, "threads": threads, **_flat(store, ngrams)}

        built = build(store, recipe, produce, "pretrain")
        _report(store, built, run, recipe, ngrams)
    return built.artifact


def _flat(store: Store, ngrams: Artifact | None) -> dict[str, float]:
    if ngrams is None:
        return {}
    counts = store.manifest(ngrams)["counts"]
    return {f"{name}/perplexity": counts[name]["perplexity"] for name in ("bigram", "trigram")}
