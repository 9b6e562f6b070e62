"""Stage `vectors`: a knowledge graph to vectors of its entities and relations, by a job that resumes after a crash."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.base.settings import recorded
from gptcore.knowledge.config import TransEConfig
from tasks.jobs.launch import run_job
from tasks.jobs.placement import processes_and_threads
from tasks.stages.stage import CHECKPOINTS, JOB_OPTIONS, build
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store
from tasks.tracking.observer import JobObserver
from tasks.tracking.provenance import run_tags
from tasks.tracking.tracker import Tracker, read_metrics

VERSION = 1
EXPERIMENT = "gptmill/knowledge"


@task(name="vectors", task_run_name="vectors of graph {graph.short}", **JOB_OPTIONS)
def learn_vectors(store: Store, graph: Artifact, config: TransEConfig) -> Artifact:
    """Learn TransE's vectors of a graph; see :mod:`gptcore.training.vectors`.

    The artifact has vectors/model.safetensors and metrics.jsonl; its counts hold link prediction on the held-out facts:
    "test/mrr", "test/hits_10" and so on.
    """
    recipe = Recipe("vectors", VERSION, {"transe": recorded(config)}, {"graph": graph})
    _, threads = processes_and_threads(1)
    tags = run_tags(kind="vectors", store_digest=recipe.digest, data_digest=graph.digest)
    with Tracker().open(EXPERIMENT, f"vectors {recipe.digest[:8]}", recipe.digest, tags, dict(recipe.config)) as run:

        def produce(workspace: Path) -> dict[str, Any]:
            job = {
                **recipe.config,
                "graph": str(store.local(graph)),
                "workspace": str(workspace),
                "threads": threads,
            }
            mirror = partial(store.sync_partial, recipe, workspace)
            observer = JobObserver("vectors", run, "vectors-progress", mirror, unit="facts")
            found = run_job(
                "gptcore.training.vectors", job, workspace, on_metrics=observer, on_waiting=observer.waiting
            )
            return {**found, "threads": threads}

        built = build(store, recipe, produce, "vectors", _made, transient=CHECKPOINTS)
        if not run.finished:
            run.log_metrics(read_metrics(store.local(built.artifact, "metrics.jsonl")))
            run.log_results(built.manifest["counts"])
    return built.artifact


def _made(counts: Mapping[str, Any]) -> str:
    split = next((split for split in ("test", "valid") if f"{split}/mrr" in counts), "")
    facts = f"{counts['steps']:,} updates"
    return f"{split} MRR {counts[f'{split}/mrr']:.3f}, {facts}" if split else facts
