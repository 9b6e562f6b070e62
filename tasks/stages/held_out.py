"""Stage `held-out`: a pre-trained model scored on held-out text, also of an objective that it was not trained for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.config import PretrainConfig
from tasks.stages.shards import local_shards
from tasks.stages.stage import STAGE_OPTIONS, build
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store

VERSION = 1


@task(name="held-out", task_run_name="held-out {checkpoint.short}, pairs {pairs}", **STAGE_OPTIONS)
def score_pairs(store: Store, checkpoint: Artifact, shards: Artifact, pairs: str) -> dict[str, float]:
    """Scores of the hidden words and of the pairs of segments of held-out text, by the model's own heads.

    :param pairs: what the second segment is, one of :data:`gptcore.config.limits.PAIRS`, whatever it was in training.
    """
    recipe = Recipe("held-out", VERSION, {"pairs": pairs}, {"checkpoint": checkpoint, "shards": shards})

    def produce(_: Path) -> dict[str, Any]:
        from gptcore.training.held_out import score_held_out  # torch, where it is needed

        folder, config = store.local(checkpoint, "model"), PretrainConfig(pairs=pairs)
        return score_held_out(str(folder), local_shards(store, shards), config)

    item = f"{checkpoint.short}, pairs {pairs}"
    counts: dict[str, float] = build(store, recipe, produce, "held-out", _made, item, "score").manifest["counts"]
    return counts


def _made(counts: Mapping[str, Any]) -> str:
    told = f"words {100 * counts['word_accuracy']:.1f}"
    return f"{told}, pairs {100 * counts['pair_accuracy']:.1f}" if "pair_accuracy" in counts else told
