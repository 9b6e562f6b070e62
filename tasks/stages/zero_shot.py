"""Stage `zero-shot`: section 5's heuristics on one state of a pre-trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.evaluation.zero_shot import sources_fingerprint, zero_shot
from gptcore.text.tokenizer import Tokenizer
from tasks.stages.stage import STAGE_OPTIONS, build
from tasks.store.artifact import Artifact, Recipe
from tasks.store.lineage import model_folder, tokenizer_of
from tasks.store.store import Store
from tasks.tracking.logs import Meter

VERSION = 3
Scores = dict[str, dict[str, Any]]
"""For each task "score", "metric", "chance", "rows" and what else it has; scores are fractions."""


@task(name="zero-shot", task_run_name="zero-shot {checkpoint.short} step {step}", **STAGE_OPTIONS)
def score_zero_shot(
    store: Store,
    checkpoint: Artifact,
    datasets_url: str,
    tasks: Sequence[str],
    max_rows: int | None = None,
    step: int | None = None,
) -> Scores:
    """Score a pre-trained model without training it.

    :param tasks: of :data:`gptcore.evaluation.zero_shot.ZERO_SHOT_TASKS`.
    :param max_rows: at most so many rows a task; None: all.
    :param step: which of the models kept through pre-training (:func:`snapshots`); None: the final one.
    :raises InputError: for an unknown task, or missing or broken data.
    """
    settings = {"tasks": sorted(tasks), "max_rows": max_rows, "step": step}
    files = sources_fingerprint(datasets_url, tasks)
    recipe = Recipe("zero-shot", VERSION, settings, {"checkpoint": checkpoint, "files": files})

    def produce(out: Path) -> dict[str, Any]:
        tokenizer = Tokenizer.load(str(store.local(tokenizer_of(store, checkpoint))))
        folder, meter = model_folder(store, checkpoint, step), Meter("zero-shot", "sequences")
        return {"tasks": zero_shot(folder, tokenizer, datasets_url, tasks, max_rows, meter)}

    item = f"{checkpoint.short}, {'final' if step is None else f'update {step}'}"
    scores: Scores = build(store, recipe, produce, "zero-shot", _made, item, "model").manifest["counts"]["tasks"]
    return scores


def _made(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {100 * scores['score']:.1f}" for name, scores in counts["tasks"].items())
