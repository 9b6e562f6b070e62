"""Stage `kagnet`: answers to questions from their text and a knowledge graph, by a job that resumes after a crash."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.base.settings import recorded
from gptcore.knowledge.config import KagNETConfig
from tasks.jobs.launch import run_job
from tasks.jobs.placement import processes_and_threads
from tasks.stages.stage import CHECKPOINTS, JOB_OPTIONS, build
from tasks.stages.graph import EXPERIMENT
from tasks.store.artifact import Artifact, Recipe
from tasks.store.lineage import model_files
from tasks.store.store import Store
from tasks.tracking.observer import JobObserver
from tasks.tracking.provenance import run_tags
from tasks.tracking.tracker import Tracker, read_metrics

VERSION = 1


@task(name="kagnet", task_run_name="kagnet on {grounded.short}", **JOB_OPTIONS)
def train_kagnet(
    store: Store, grounded: Artifact, vectors: Artifact, model: Artifact, config: KagNETConfig
) -> Artifact:
    """Train KagNET over a fine-tuned model's vectors of the texts; see :mod:`gptcore.training.kagnet`.

    The artifact has kagnet/model.safetensors and for each split but train SPLIT.jsonl with scores and weights; its
    counts hold "SPLIT/score" with the graph, its standard error, and "SPLIT/text_score" of the fine-tuned model alone.

    :param model: fine-tuned on the task whose questions were grounded.
    """
    inputs = {"grounded": grounded, "vectors": vectors, "model": model}
    recipe = Recipe("kagnet", VERSION, {"kagnet": recorded(config)}, inputs)
    _, threads = processes_and_threads(1)
    tags = run_tags(kind="kagnet", store_digest=recipe.digest, data_digest=grounded.digest)
    with Tracker().open(EXPERIMENT, f"kagnet {recipe.digest[:8]}", recipe.digest, tags, dict(recipe.config)) as run:

        def produce(workspace: Path) -> dict[str, Any]:
            _, words = model_files(model)
            job = {
                **recipe.config,
                "grounded": str(store.local(grounded)),
                "model": str(store.local(model, "model")),
                "tokenizer": str(words),
                "vectors": str(store.local(vectors)),
                "workspace": str(workspace),
                "threads": threads,
            }
            mirror = partial(store.sync_partial, recipe, workspace)
            observer = JobObserver("kagnet", run, "kagnet-progress", mirror, unit="questions")
            module = "gptcore.training.kagnet"
            found = run_job(module, job, workspace, on_metrics=observer, on_waiting=observer.waiting)
            return {**found, "threads": threads}

        texts = (f"texts-{split}.safetensors" for split in store.manifest(grounded)["counts"]["splits"])
        scratch = (*CHECKPOINTS, *texts)
        built = build(store, recipe, produce, "kagnet", _made, f"seed {config.seed}", transient=scratch)
        if not run.finished:
            run.log_metrics(read_metrics(store.local(built.artifact, "metrics.jsonl")))
            run.log_results(built.manifest["counts"])
    return built.artifact


def _made(counts: Mapping[str, Any]) -> str:
    return f"dev {100 * counts['dev/score']:.1f}, the text alone {100 * counts['dev/text_score']:.1f}"
