"""Stage `evaluation`: a fine-tuned model scored on one split of its task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.evaluation.predict import evaluate
from tasks.stages.stage import STAGE_OPTIONS, build
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store
from tasks.tracking.logs import Meter

VERSION = 1


@task(name="evaluation", task_run_name="evaluate {model.short} on {split}", **STAGE_OPTIONS)
def score_model(
    store: Store, model: Artifact, dataset: Artifact, split: str, max_rows: int | None = None
) -> dict[str, Any]:
    """The numbers of :func:`gptcore.evaluation.predict.evaluate`, predictions beside them in the artifact.

    :param dataset: the encoded dataset of the model's task.
    :param max_rows: at most so many rows, the same for every model; None: all.
    """
    settings = {"split": split, "max_rows": max_rows}
    recipe = Recipe("evaluation", VERSION, settings, {"model": model, "dataset": dataset})

    def produce(out: Path) -> dict[str, Any]:
        folder = store.local(model, "model")
        path = out / "predictions.jsonl"
        rows = store.manifest(dataset)["counts"]["splits"][split]["rows"]
        done = Meter("evaluation", "rows").counting(split, min(rows, max_rows or rows))
        return evaluate(folder, store.local(dataset), split, max_rows=max_rows, predictions=path, progress=done)

    item = f"{model.short} on {split}"
    counts: dict[str, Any] = build(store, recipe, produce, "evaluation", _made, item, "score").manifest["counts"]
    return counts


def _made(counts: Mapping[str, Any]) -> str:
    return f"{100 * counts['score']:.1f}"
