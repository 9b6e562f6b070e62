"""Stage `finetune`: one task, one seed, from a checkpoint or from random weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from prefect import Task, task

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.base.settings import recorded
from gptcore.config import FinetuneConfig
from gptcore.families import FAMILIES
from gptcore.nlu.metrics import needs_threshold
from gptcore.nlu.registry import REGISTRY, TaskSpec, recorded_task, task_settings
from gptcore.text.tokenizer import Tokenizer
from tasks.jobs.placement import slots, slots_and_threads
from tasks.report.card import cost, from_task_note, selection_note, start_note, synthetic_note, write_finetuned_card
from tasks.report.entries import finetuned_entry, task_data
from tasks.report.score import Score, commit_of, finetune_origin, score_of
from tasks.report.suites import EXPERIMENT
from tasks.stages.corpus import local_shards
from tasks.stages.stage import JOB_OPTIONS, build, recipe_of
from tasks.stages.training import Training, Work, follow_job, network_of, report
from tasks.store.artifact import Artifact, Recipe
from tasks.store.counts import DatasetCounts, FinetuneCounts, WeightsCounts
from tasks.store.lineage import ancestor, model_folder, own_tokenizer, teacher_of
from tasks.store.store import Built, Store
from tasks.tracking.provenance import has_inputs, log_inputs, run_tags
from tasks.tracking.registry import is_registered, register
from tasks.tracking.tracker import Run, Tracker


@dataclass(frozen=True)
class FinetuneRequest(Training[Score]):
    """A fine-tune (section 3.2) of one task with one seed; its MLflow run is a child of the suite's.

    From scratch only the checkpoint's shape is used, so a longer pre-training does not make those runs stale.

    :raises InputError: the network that it is to start from, or to learn from, is missing.
    """

    stage = "finetune"
    shown_as = "fine-tunes"

    name: str
    """The task's, which the dataset's manifest says, too: for the names of runs."""
    dataset: Artifact
    checkpoint: Artifact
    config: FinetuneConfig
    arm: str
    """What the suite is called, for names and logs."""
    suite_run: str = ""
    """Run id of the suite, the row of the leaderboard that this run is a cell of; empty: not open yet."""
    experiment: str = EXPERIMENT
    """MLflow's, of the suite's run. Only the leaderboard's models are registered: those of a sweep's trials are made to
    be compared, and most of them to be forgotten."""
    start: Artifact | None = None
    """The checkpoint's model fine-tuned on another task (``from_task``), whose network is gone on with."""
    teacher: Artifact | None = None
    """The model fine-tuned on this task that a student learns from (``taught``)."""

    def __post_init__(self) -> None:
        if self.config.taught and (self.teacher is None or "distil" not in self._pretrained["config"]):
            short = self.checkpoint.short
            raise InputError(f"finetune.taught = True: {short} has no teacher here; expected a student of one")
        if (source := self.config.from_task) is not None and self.start is None:
            raise InputError(f"finetune.from_task = {source!r}: expected none here, where none is trained first")

    @property
    def task(self) -> Task[..., Score]:
        return finetune_model

    @property
    def item(self) -> str:
        return f"{self.name} seed {self.config.seed}, {self.arm}"

    @property
    def title(self) -> str:
        return f"finetune {self.item}"

    @property
    def key(self) -> str:
        """The digest and the suite's run: the same fine-tune is a cell of two suites whose other tasks differ."""
        return f"{self.recipe.digest}/{self.suite_run}"

    @property
    def spec(self) -> TaskSpec:
        """What is known of the task."""
        return recorded_task(self.store.manifest(self.dataset)["config"])

    @property
    def _pretrained(self) -> Mapping[str, Any]:
        manifest: Mapping[str, Any] = self.store.manifest(self.checkpoint)
        return manifest

    @property
    def _shape(self) -> dict[str, Any]:
        return recorded(network_of(self.store, self.checkpoint))

    @property
    def settings(self) -> dict[str, Any]:
        """The task's and those of its fine-tuning, as they are kept."""
        return {**task_settings(self.spec), "finetune": recorded(self.config)}

    @property
    def _new_meanings(self) -> dict[str, str]:
        """What settings mean that meant something else in earlier versions, for the fine-tunes alone that have them."""
        meanings = {}
        if self.config.select:
            meanings["held_out"] = "groups of texts"
        if self.config.ngrams:
            meanings["grams"] = "words and runs of pieces, by side, calibrated; alone where they are ahead"
        if self.config.select and needs_threshold(self.spec):
            meanings["decision"] = "best for the metric, and epochs and n-grams with it"  # from a half on before
        return meanings

    @cached_property
    def recipe(self) -> Recipe:
        """What the model is made from, and found again by; from scratch the checkpoint's shape stands in its place."""
        settings = self.settings | self._new_meanings
        if not self.config.pretrained:
            return recipe_of("finetune", {**settings, "model": self._shape}, {"dataset": self.dataset})
        inputs = {"dataset": self.dataset, "checkpoint": self.checkpoint, "start": self.start, "teacher": self.teacher}
        return recipe_of("finetune", settings, {role: made for role, made in inputs.items() if made})

    @property
    def work(self) -> Work:
        store, config, model = self.store, self.config, network_of(self.store, self.checkpoint)
        told = float(FAMILIES[model.family].auxiliary_loss)  # without it the words' head is left behind
        train = DatasetCounts.of(store, self.dataset).splits["train"]
        rows = min(config.max_train_rows or train.rows, train.rows)
        epochs = (config.epochs + (config.layer_epochs or 0)) * (2 if config.select == "refit" else 1)
        n_tokens = epochs * train.tokens * rows / max(1, train.rows)
        beside = 0.0
        if config.taught and (teacher := teacher_of(store, self.checkpoint)) is not None:
            beside = network_of(store, teacher).flops_per_token(model.n_ctx, told) / 3
        each = model.flops_per_token(model.n_ctx, told) + beside
        return Work(each * n_tokens, epochs * rows / config.batch_size)

    def job(self, workspace: Path, threads: int) -> dict[str, Any]:
        store, config = self.store, self.config
        vocabulary = own_tokenizer(store, self.checkpoint) if config.ngrams else None
        return {
            "task": self.name,
            "finetune": recorded(config),
            "model": str(model_folder(store, self.checkpoint, config.snapshot)) if config.pretrained else None,
            "model_config": None if config.pretrained else self._shape,
            "dataset": str(store.local(self.dataset)),
            "workspace": str(workspace),
            "threads": threads,
            **({"start": str(store.local(self.start, "model"))} if self.start else {}),
            **(self._teaching(self.teacher) if self.teacher else {}),
            **({"word_edges": Tokenizer.load(str(store.local(vocabulary))).word_edges} if vocabulary else {}),
        }

    def _teaching(self, teacher: Artifact) -> dict[str, Any]:
        """The job's teacher, what its layers tell the student (as in its pre-training), and who replaces words."""
        store = self.store
        job = {"teacher": str(store.local(teacher, "model")), "distil": self._pretrained["config"]["distil"]}
        source = teacher_of(store, self.checkpoint)
        if self.config.augmentation is None or source is None:
            return job
        shards = local_shards(store, ancestor(store, self.checkpoint, "shards"))
        return {**job, "proposer": str(store.local(source, "model")), "pieces": str(shards)}

    def tags(self) -> dict[str, str]:
        """The tags of its MLflow run."""
        tags = run_tags(
            kind="finetune",
            suite_run=self.suite_run,
            task=self.name,
            seed=str(self.config.seed),
            checkpoint_digest=self.checkpoint.digest if self.config.pretrained else "",
            data_digest=self.dataset.digest,
            tokenizer_digest=WeightsCounts.parse(self._pretrained["counts"]).tokenizer_digest,
            **({"start_digest": self.start.digest} if self.start else {}),
            **({"teacher_digest": self.teacher.digest} if self.teacher else {}),
        )
        if note := from_task_note(recorded(self.config)):
            tags["mlflow.note.content"] = "\n\n".join([note, tags.get("mlflow.note.content", "")]).strip()
        return tags


@task(name="finetune", task_run_name="{request.title}", **JOB_OPTIONS)
def finetune_model(request: FinetuneRequest, beside: int = 0) -> Score:
    """Fine-tune in a child process, unless the store has the model.

    :param beside: trainings that go on at the same time, and share this machine's cores; 0: as many as a worker takes.
    """
    store, name, dataset, config, arm = request.store, request.name, request.dataset, request.config, request.arm
    spec, recipe, settings = request.spec, request.recipe, request.settings
    _, threads = slots_and_threads(beside or slots())
    run_name = f"{name} seed {config.seed}"
    where = (request.experiment, run_name, request.key, request.tags(), settings)
    with Tracker().open(*where, parent=request.suite_run) as run:
        if not has_inputs(run):
            log_inputs(run, [task_data(store, dataset)])

        def produce(workspace: Path) -> dict[str, Any]:
            job = request.job(workspace, threads)
            result = follow_job(store, recipe, job, run, request.shown_as, request.item, alone=not beside)
            origin = start_note(request._pretrained) if config.pretrained else ()
            rows = DatasetCounts.of(store, dataset)
            write_finetuned_card(workspace / "model", spec, rows, settings, result, origin)
            return result

        built = build(store, recipe, produce, request.shown_as, _made, request.item, "run")
        if not run.finished:
            _report(store, built, run, dataset)
        if request.experiment == EXPERIMENT and not is_registered(run):
            suite = run.tracker.client.get_run(request.suite_run).data.tags.get("suite", "")
            notes = start_note(request._pretrained) if config.pretrained else ()
            register(run, finetuned_entry(store, built.artifact, dataset, suite, notes))
    result, encoded = built.counts, store.manifest(dataset)
    rows = DatasetCounts.parse(encoded["counts"])
    counted = FinetuneCounts.parse(result)
    notes = _notes(name, rows, counted, arm, config.select == "refit")
    if origin_note := from_task_note(settings["finetune"]):
        notes = (f"{name}: {origin_note[0].lower()}{origin_note[1:-1]}", *notes)
    origin = finetune_origin(built.manifest, encoded)
    if spec.own:
        digest = sha256_json(recorded(dataclasses.replace(config, seed=0)))
        origin["own settings"] = f"{config.select} {digest}" if config.select else digest
    commit, answers = commit_of(built.manifest), f"{built.artifact.url}/predictions"
    score = score_of(spec, config.seed, result, notes, origin, commit, rows.synthetic, answers)
    selected = selection_note(settings["finetune"], counted.rows)
    return dataclasses.replace(score, selected=selected, model=built.artifact.url, page=run.url)


def _made(counts: Mapping[str, Any]) -> str:
    return f"dev {FinetuneCounts.parse(counts).scores['dev/score']:.1f}"


def _report(store: Store, built: Built, run: Run, dataset: Artifact) -> None:
    result, config = built.counts, built.manifest["config"]
    spec = recorded_task(config)
    counted = FinetuneCounts.parse(result)
    scores = counted.scores
    scores |= {key: 100 * value for key, value in counted.figures.items() if key.startswith("network/")}
    results = {
        **{key: f"{value:.1f}" for key, value in scores.items()},
        **{f"paper, {column} (test)": value for column, value in spec.paper.items() if value is not None},
        "best epoch": counted.best_epoch,
        "majority collapse": counted.majority_collapse,
        **{f"{split} rows": rows for split, rows in counted.rows.items()},
        "truncated rows": counted.truncated,
        "tokens/s": counted.tokens_per_second,
        "cost": cost(counted.wall_seconds, counted.threads or 0, counted.device),
    }
    beside = config["finetune"]["lm_coef"] != 0.0
    unit = "L3 = task + lambda x language model, nats" if beside else "task, nats"
    start = from_task_note(config["finetune"])
    findings = DatasetCounts.of(store, dataset).findings if spec.own else ()
    selected = selection_note(config["finetune"], counted.rows)
    notes = (*([start] if start else []), selected, *synthetic_note(store.manifest(dataset)), *findings)
    measured = {key: value for key, value in result.items() if not key.startswith("validation/")} | scores
    title = f"Fine-tuning {spec.name}, seed {counted.seed}"
    report(store, built, run, f"finetune-{spec.name}", title, results, measured, notes, unit=unit)
    run.set_tags({"model": built.artifact.url})


def _notes(name: str, dataset: DatasetCounts, result: FinetuneCounts, arm: str, refit: bool) -> tuple[str, ...]:
    """What sets a number apart from the published one: missing rows, a collapsed run, the dataset's own note."""
    public = not dataset.synthetic  # generated rows have nothing in common with the published counts
    own = name not in REGISTRY
    notes = [f"{name}: {note}" for note in (dataset.note, *(dataset.findings if own else ())) if note and public]
    if own and (cut := result.truncated):
        rows, longest = sum(result.rows.values()), max(split.longest for split in dataset.splits.values())
        share = f"{cut:,} of {rows:,} rows ({cut / rows:.1%})"
        notes.append(
            f"{name}: {share} are cut, as they are longer than the model reads; the longest has {longest:,} tokens"
        )
    apart = "" if refit else "train"  # whose held-out rows are not counted with the others
    for split, counts in dataset.splits.items():
        used = result.rows.get(split, counts.rows) + (result.rows.get("validation", 0) if split == apart else 0)
        if public and counts.published and used != counts.published:
            notes.append(f"{name}: {split} on {used:,} of {counts.published:,} published rows")
    if result.majority_collapse:
        notes.append(f"{name} ({arm}, seed {result.seed}): every dev row got the same answer")
    elif result.at_chance:
        score = f"held-out rows have {result.validation_score:.1f}, no more than with one answer to all"
        notes.append(f"{name} ({arm}, seed {result.seed}): {score}; --rates tries other learning rates")
    return tuple(notes)
