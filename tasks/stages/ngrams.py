"""Stage `ngrams`: what counting alone predicts of the held-out documents, to stand beside the model's perplexity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.data.shards import Shards
from gptcore.evaluation.ngram import ngram_perplexity
from tasks.jobs.parallel import partition_map
from tasks.stages.shards import local_shards
from tasks.stages.stage import STAGE_OPTIONS, build
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store
from tasks.tracking.logs import Meter

VERSION = 1
SMALL = 8_000_000
"""Tokens that are counted before other processes have started."""
ORDERS = {"bigram": 2, "trigram": 3}
"""Name of a model -> its order."""


@task(name="ngrams", task_run_name="n-grams of shards {shards.short}", **STAGE_OPTIONS)
def measure_ngrams(store: Store, shards: Artifact, dask_address: str = "") -> Artifact:
    """Interpolated Kneser-Ney bigram and trigram, counted on the training documents, scored on the held-out ones.

    The manifest's counts hold, for each, ``perplexity``, ``nats`` (a token) and ``tokens`` (scored).
    """
    recipe = Recipe("ngrams", VERSION, {"orders": sorted(ORDERS.values())}, {"shards": shards})

    def produce(out: Path) -> dict[str, Any]:
        folder = local_shards(store, shards)
        train, validation = Shards(folder / "train"), Shards(folder / "validation")
        meter = Meter("n-grams", "M tokens", 1_000_000)
        with partition_map(dask_address, shared=out, small=train.n_tokens <= SMALL) as parallel:
            return {
                name: ngram_perplexity(train, validation, order, meter.counting(name, train.n_tokens), parallel)
                for name, order in ORDERS.items()
            }

    return build(store, recipe, produce, "n-grams", _made).artifact


def _made(counts: Mapping[str, Any]) -> str:
    return "held-out perplexity: " + ", ".join(f"{name} {counts[name]['perplexity']:.1f}" for name in ORDERS)
