"""Stage `finetune`: one task, one seed, from a checkpoint or from random weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.base.settings import recorded
from gptcore.config import FinetuneConfig, network_config
from gptcore.nlu.registry import recorded_task, task_settings
from tasks.jobs.launch import run_job
from tasks.report.card import Card, cost, from_task_note, synthetic_note
from tasks.report.entries import finetuned_entry, task_data
from tasks.report.figures import loss_curve
from tasks.report.model_card import write_finetuned_card
from tasks.report.score import Score, commit_of, finetune_origin, score_of
from tasks.report.suites import EXPERIMENT
from tasks.stages.shards import local_shards
from tasks.stages.stage import JOB_OPTIONS, build, publish_card
from tasks.store.artifact import Artifact, Recipe
from tasks.store.lineage import ancestor, model_folder, teacher_of
from tasks.store.store import Built, Store
from tasks.tracking.observer import JobObserver
from tasks.tracking.provenance import cross_links, has_inputs, log_inputs, run_tags
from tasks.tracking.registry import is_registered, register
from tasks.tracking.tracker import Run, Tracker, read_metrics, scratch_folder

VERSION = 1


@task(name="finetune", task_run_name="finetune {name} seed {config.seed}, {arm}", **JOB_OPTIONS)
def finetune_model(
    store: Store,
    name: str,
    dataset: Artifact,
    checkpoint: Artifact,
    config: FinetuneConfig,
    arm: str,
    suite_run: str,
    threads: int,
    experiment: str = EXPERIMENT,
    start: Artifact | None = None,
    teacher: Artifact | None = None,
) -> Score:
    """Fine-tune (section 3.2) in a child process; its MLflow run is a child of the suite's.

    From scratch only the checkpoint's shape is used, so a longer pre-training does not make those runs stale.

    :param name: the task's, which the dataset's manifest says, too: for the names of runs.
    :param arm: what the suite is called, for names and logs.
    :param suite_run: run id of the suite, the row of the leaderboard that this run is a cell of.
    :param threads: CPU threads of the job; no part of the digest.
    :param experiment: MLflow's, of the suite's run. Only the leaderboard's models are registered: those of a sweep's
        trials are made to be compared, and most of them to be forgotten.
    :param start: the checkpoint's model fine-tuned on another task (``from_task``), whose network is gone on with.
    :param teacher: the model fine-tuned on this task that a student learns from (``taught``).
    """
    spec = recorded_task(store.manifest(dataset)["config"])
    pretrained = store.manifest(checkpoint)
    shape = recorded(network_config(pretrained["config"]["model"]))
    settings = {**task_settings(spec), "finetune": recorded(config)}
    recipe = finetune_recipe(store, dataset, checkpoint, config, start, teacher)
    origin_note = from_task_note(settings["finetune"])
    tags = run_tags(
        suite_run=suite_run,
        task=name,
        seed=str(config.seed),
        checkpoint_digest=checkpoint.digest if config.pretrained else "",
        data_digest=dataset.digest,
        tokenizer_digest=pretrained["counts"]["tokenizer_digest"],
        **({"start_digest": start.digest} if start else {}),
        **({"teacher_digest": teacher.digest} if teacher else {}),
    )
    if origin_note:
        tags["mlflow.note.content"] = "\n\n".join([origin_note, tags.get("mlflow.note.content", "")]).strip()
    # The same fine-tune can be a cell of two suites (other tasks' settings differ): a run for each.
    key = f"{recipe.digest}/{suite_run}"
    run_name = f"{name} seed {config.seed}"
    item = f"{run_name}, {arm}"
    with Tracker().open(experiment, run_name, key, {"kind": "finetune", **tags}, settings, parent=suite_run) as run:
        if not has_inputs(run):
            log_inputs(run, [task_data(store, dataset)])

        def produce(workspace: Path) -> dict[str, Any]:
            job = {
                "task": name,
                "finetune": settings["finetune"],
                "model": str(model_folder(store, checkpoint, config.snapshot)) if config.pretrained else None,
                "model_config": None if config.pretrained else shape,
                "dataset": str(store.local(dataset)),
                "workspace": str(workspace),
                "threads": threads,
                **({"start": str(store.local(start, "model"))} if start else {}),
                **(_taught_by(store, checkpoint, teacher, config) if teacher else {}),
            }
            observer = JobObserver("fine-tunes", run, None, lambda: store.sync_partial(recipe, workspace), item)
            result = run_job(
                "gptcore.training.finetune", job, workspace, on_metrics=observer, on_waiting=observer.waiting
            )
            result = {**result, "threads": threads}
            write_finetuned_card(workspace / "model", spec, store.manifest(dataset)["counts"], settings, result)
            return result

        built = build(store, recipe, produce, "fine-tunes", _made, item, "run")
        if not run.finished:
            _report(store, built, run, dataset)
        if experiment == EXPERIMENT and not is_registered(run):
            suite = run.tracker.client.get_run(suite_run).data.tags.get("suite", "")
            register(run, finetuned_entry(store, built.artifact, dataset, suite))
    result, encoded = built.manifest["counts"], store.manifest(dataset)
    notes = _notes(name, encoded["counts"], result, config.seed, arm)
    if origin_note:
        notes = (f"{name}: {origin_note[0].lower()}{origin_note[1:-1]}", *notes)
    origin = finetune_origin(built.manifest, encoded)
    if spec.own:
        origin["own settings"] = sha256_json(recorded(dataclasses.replace(config, seed=0)))
    synthetic = encoded["counts"].get("synthetic", False)
    score = score_of(spec, config.seed, result, notes, origin, commit_of(built.manifest), synthetic)
    return dataclasses.replace(score, model=built.artifact.url, page=run.url)


def _made(counts: Mapping[str, Any]) -> str:
    return f"dev {100 * counts['dev/score']:.1f}"


def _taught_by(store: Store, checkpoint: Artifact, teacher: Artifact, config: FinetuneConfig) -> dict[str, Any]:
    """The job's teacher, what the student learns from its layers (as in its pre-training), and who replaces words."""
    found = {"teacher": str(store.local(teacher, "model")), "distil": store.manifest(checkpoint)["config"]["distil"]}
    source = teacher_of(store, checkpoint)
    if config.augmentation is None or source is None:
        return found
    shards = local_shards(store, ancestor(store, checkpoint, "shards"))
    return {**found, "proposer": str(store.local(source, "model")), "pieces": str(shards)}


def finetune_recipe(
    store: Store,
    dataset: Artifact,
    checkpoint: Artifact,
    config: FinetuneConfig,
    start: Artifact | None = None,
    teacher: Artifact | None = None,
) -> Recipe:
    """What a fine-tune is made from; from scratch of the checkpoint only its shape.

    :param start: the model fine-tuned on ``config.from_task``.
    :param teacher: the model fine-tuned on the task that a student learns from.
    :raises InputError: one of them is missing.
    """
    if config.taught and (teacher is None or "distil" not in store.manifest(checkpoint)["config"]):
        raise InputError(f"finetune.taught = True: {checkpoint.short} has no teacher here; expected a student of one")
    if config.from_task is not None and start is None:
        raise InputError(f"finetune.from_task = {config.from_task!r}: expected none here, where none is trained first")
    spec = recorded_task(store.manifest(dataset)["config"])
    settings = {**task_settings(spec), "finetune": recorded(config)}
    if config.pretrained:
        inputs = {"dataset": dataset, "checkpoint": checkpoint, **({"start": start} if start else {})}
        inputs |= {"teacher": teacher} if teacher else {}
        return Recipe("finetune", VERSION, settings, inputs)
    shape = store.manifest(checkpoint)["config"]["model"]
    return Recipe("finetune", VERSION, {**settings, "model": recorded(network_config(shape))}, {"dataset": dataset})


def _report(store: Store, built: Built, run: Run, dataset: Artifact) -> None:
    """Numbers beside the paper's, curve and card, on both sides."""
    result, config = built.manifest["counts"], built.manifest["config"]
    spec = recorded_task(config)
    records = read_metrics(store.local(built.artifact, "metrics.jsonl"))
    scores = {key: value for key, value in result.items() if key.startswith(("dev/", "test/"))}
    results = {
        **{key: f"{100 * value:.1f}" for key, value in scores.items()},
        **{f"paper, {column} (test)": value for column, value in spec.paper.items() if value is not None},
        "best epoch": result["best_epoch"],
        "majority collapse": result["majority_collapse"],
        **{f"{split} rows": rows for split, rows in result["rows"].items()},
        "truncated rows": result["truncated"],
        "tokens/s": result["tokens_per_second"],
        "cost": cost(result["wall_seconds"], result["threads"], result["device"]),
    }
    with scratch_folder() as folder:
        beside = config["finetune"]["lm_coef"] != 0.0
        unit = "L3 = task + lambda x language model, nats" if beside else "task, nats"
        figure = loss_curve(records, folder / "loss.png", unit=unit)
        title = f"Fine-tuning {spec.name}, seed {result['seed']}"
        start = from_task_note(config["finetune"])
        notes = (*([start] if start else []), *synthetic_note(store.manifest(dataset)))
        card = Card(title, results, config, built.manifest, cross_links(run, built.artifact), figure, notes)
        publish_card(card, f"finetune-{spec.name}")
        (folder / "card.md").write_text(card.markdown(), encoding="utf-8")
        run.log_metrics(records)
        run.log_results({**result, **{key: 100 * value for key, value in scores.items()}})
        for path in (folder / "card.md", figure):
            if path is not None:
                run.log_artifact(path)
    run.set_tags({"model": built.artifact.url})


def _notes(name: str, dataset: dict[str, Any], result: dict[str, Any], seed: int, arm: str) -> tuple[str, ...]:
    """What sets a number apart from the published one: missing rows, a collapsed run, the dataset's own note."""
    public = not dataset.get("synthetic", False)  # generated rows have nothing in common with the published counts
    notes = [f"{name}: {dataset['note']}"] if dataset["note"] and public else []
    for split, counts in dataset["splits"].items():
        used = result["rows"].get(split, counts["rows"])
        if public and counts["published"] and used != counts["published"]:
            notes.append(f"{name}: {split} on {used:,} of {counts['published']:,} published rows")
    if result["majority_collapse"]:
        notes.append(f"{name} ({arm}, seed {seed}): every dev row got the same answer")
    return tuple(notes)
