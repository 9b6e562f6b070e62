"""Stage `speed`: a fine-tuned model is timed on one core, as it is and as ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import task

from tasks.jobs.launch import run_job
from tasks.stages.stage import JOB_OPTIONS, build, recipe_of
from tasks.stages.table import STAGES
from tasks.store.artifact import Artifact
from tasks.store.lineage import tokenizer_of
from tasks.store.store import Store


@task(name="speed", task_run_name="speed {model.short}", **JOB_OPTIONS)
def measure_speed(store: Store, model: Artifact, dataset: Artifact) -> dict[str, Any]:
    """Milliseconds a row, rows a second, bytes and memory, as they were measured once
    (:mod:`gptcore.papers.students.speed`).

    :param dataset: the encoded rows of the model's task.
    :raises InputError: a model that cannot be exported so.
    """
    recipe = recipe_of("speed", {}, {"model": model, "dataset": dataset})

    def produce(workspace: Path) -> dict[str, Any]:
        job = {
            "model": str(store.local(model, "model")),
            "tokenizer": str(store.local(tokenizer_of(store, model))),
            "dataset": str(store.local(dataset)),
            "workspace": str(workspace),
        }
        return run_job(STAGES["speed"].job, job, workspace, on_metrics=lambda records: None)

    timed = "{torch[milliseconds]:.2f} ms a row, as ONNX {onnx[milliseconds]:.2f}"
    return build(store, recipe, produce, "speed", timed.format_map, model.short, "model", ("exported",)).counts
