"""Stage `speed`: how fast a fine-tuned model answers on one core, as it is and as ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from tasks.jobs.launch import run_job
from tasks.stages.stage import JOB_OPTIONS, build
from tasks.store.artifact import Artifact, Recipe
from tasks.store.lineage import tokenizer_of
from tasks.store.store import Store

VERSION = 1


@task(name="speed", task_run_name="speed {model.short}", **JOB_OPTIONS)
def measure_speed(store: Store, model: Artifact, dataset: Artifact) -> dict[str, Any]:
    """Milliseconds a row, rows a second, bytes, memory (:mod:`gptcore.evaluation.speed`), as they were measured once.

    :param dataset: the encoded rows of the model's task.
    :raises InputError: a model that cannot be exported so.
    """
    recipe = Recipe("speed", VERSION, {}, {"model": model, "dataset": dataset})

    def produce(workspace: Path) -> dict[str, Any]:
        job = {
            "model": str(store.local(model, "model")),
            "tokenizer": str(store.local(tokenizer_of(store, model))),
            "dataset": str(store.local(dataset)),
            "workspace": str(workspace),
        }
        return run_job("gptcore.evaluation.speed", job, workspace, on_metrics=lambda records: None)

    found = build(store, recipe, produce, "speed", _made, model.short, "model", transient=("exported",)).manifest[
        "counts"
    ]
    return dict(found)


def _made(counts: Mapping[str, Any]) -> str:
    return f"{counts['torch']['milliseconds']:.2f} ms a row, as ONNX {counts['onnx']['milliseconds']:.2f}"
