"""Stages that score a finished model: `evaluation`, `speed`, `held-out` and `zero-shot`.

A fine-tuned model on one split of its task; how fast one answers on one core, as it is and as ONNX; a pre-trained one
on held-out text, also of an objective that it was not trained for; and section 5's heuristics on one state of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.config import PretrainConfig
from gptcore.evaluation.predict import evaluate
from gptcore.evaluation.zero_shot import sources_fingerprint, zero_shot
from gptcore.text.tokenizer import Tokenizer
from tasks.jobs.launch import run_job
from tasks.stages.shards import local_shards
from tasks.stages.stage import JOB_OPTIONS, STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact
from tasks.store.counts import DatasetCounts
from tasks.store.lineage import model_folder, tokenizer_of
from tasks.store.store import Store
from tasks.tracking.logs import Meter

Scores = dict[str, dict[str, Any]]
"""For each task "score", "metric", "chance", "rows" and what else it has; scores are fractions."""


@task(name="evaluation", task_run_name="evaluate {model.short} on {split}", **STAGE_OPTIONS)
def score_model(
    store: Store, model: Artifact, dataset: Artifact, split: str, max_rows: int | None = None
) -> dict[str, Any]:
    """The numbers of :func:`gptcore.evaluation.predict.evaluate`, predictions beside them in the artifact.

    :param dataset: the encoded dataset of the model's task.
    :param max_rows: at most so many rows, the same for every model; None: all.
    """
    settings = {"split": split, "max_rows": max_rows}
    recipe = recipe_of("evaluation", settings, {"model": model, "dataset": dataset})

    def produce(out: Path) -> dict[str, Any]:
        folder = store.local(model, "model")
        path = out / "predictions.jsonl"
        rows = DatasetCounts.of(store, dataset).splits[split].rows
        done = Meter("evaluation", "rows").counting(split, min(rows, max_rows or rows))
        return evaluate(folder, store.local(dataset), split, max_rows=max_rows, predictions=path, progress=done)

    item = f"{model.short} on {split}"
    counts: dict[str, Any] = build(store, recipe, produce, "evaluation", _scored, item, "score").manifest["counts"]
    return counts


def _scored(counts: Mapping[str, Any]) -> str:
    return f"{100 * counts['score']:.1f}"


@task(name="speed", task_run_name="speed {model.short}", **JOB_OPTIONS)
def measure_speed(store: Store, model: Artifact, dataset: Artifact) -> dict[str, Any]:
    """Milliseconds a row, rows a second, bytes, memory (:mod:`gptcore.evaluation.speed`), as they were measured once.

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
        return run_job("gptcore.evaluation.speed", job, workspace, on_metrics=lambda records: None)

    found = build(store, recipe, produce, "speed", _timed, model.short, "model", transient=("exported",)).manifest[
        "counts"
    ]
    return dict(found)


def _timed(counts: Mapping[str, Any]) -> str:
    return f"{counts['torch']['milliseconds']:.2f} ms a row, as ONNX {counts['onnx']['milliseconds']:.2f}"


@task(name="held-out", task_run_name="held-out {checkpoint.short}, pairs {pairs}", **STAGE_OPTIONS)
def score_pairs(store: Store, checkpoint: Artifact, shards: Artifact, pairs: str) -> dict[str, float]:
    """Scores of the hidden words and of the pairs of segments of held-out text, by the model's own heads.

    :param pairs: what the second segment is, one of :data:`gptcore.config.training.PAIRS`, whatever it was in training.
    """
    recipe = recipe_of("held-out", {"pairs": pairs}, {"checkpoint": checkpoint, "shards": shards})

    def produce(_: Path) -> dict[str, Any]:
        from gptcore.objectives.objective import score_held_out  # torch, where it is needed

        folder, config = store.local(checkpoint, "model"), PretrainConfig(pairs=pairs)
        return score_held_out(str(folder), local_shards(store, shards), config)

    item = f"{checkpoint.short}, pairs {pairs}"
    counts: dict[str, float] = build(store, recipe, produce, "held-out", _told, item, "score").manifest["counts"]
    return counts


def _told(counts: Mapping[str, Any]) -> str:
    told = f"words {100 * counts['word_accuracy']:.1f}"
    return f"{told}, pairs {100 * counts['pair_accuracy']:.1f}" if "pair_accuracy" in counts else told


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
    :param step: which of the models kept through pre-training (:func:`tasks.store.lineage.snapshots`); None: the
        final one.
    :raises InputError: for an unknown task, or missing or broken data.
    """
    settings = {"tasks": sorted(tasks), "max_rows": max_rows, "step": step}
    files = sources_fingerprint(datasets_url, tasks)
    recipe = recipe_of("zero-shot", settings, {"checkpoint": checkpoint, "files": files})

    def produce(out: Path) -> dict[str, Any]:
        tokenizer = Tokenizer.load(str(store.local(tokenizer_of(store, checkpoint))))
        folder, meter = model_folder(store, checkpoint, step), Meter("zero-shot", "sequences")
        return {"tasks": zero_shot(folder, tokenizer, datasets_url, tasks, max_rows, meter)}

    item = f"{checkpoint.short}, {'final' if step is None else f'update {step}'}"
    scores: Scores = build(store, recipe, produce, "zero-shot", _zero_shot, item, "model").manifest["counts"]["tasks"]
    return scores


def _zero_shot(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {100 * scores['score']:.1f}" for name, scores in counts["tasks"].items())
