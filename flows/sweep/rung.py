"""One rung of a sweep: the trials that are left, through the pipeline's own stages, side by side where there is room.

Every trial is trained and scored by the tasks that a pipeline has, so the store knows what was trained before.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.trainings.books import Books
from flows.trainings.train import train_all
from gptcore.config import TokenizerConfig
from gptcore.evaluation.bits import bits_per_byte
from gptcore.sweep.plan import BITS, LOSS, SCORE, Plan, Rung, Trial, fewer_rows, shortened
from tasks.report.sweep import Outcome
from tasks.stages.finetune import FinetuneRequest
from tasks.stages.pretrain import PretrainRequest
from tasks.store.artifact import Artifact
from tasks.store.counts import DatasetCounts, FinetuneCounts, PretrainCounts, ShardsCounts
from tasks.store.store import Store
from tasks.tracking.views import SWEEPS


@dataclass(frozen=True)
class Text:
    """Books and rows as one vocabulary encodes them."""

    datasets: Mapping[str, Artifact]
    """Task -> its encoded rows."""
    books: Books | None = None
    """None where no trial pre-trains."""


@dataclass(frozen=True)
class TrialInputs:
    """What the trials of a sweep stand on."""

    store: Store
    plan: Plan
    texts: Mapping[TokenizerConfig, Text]
    checkpoint: Artifact | None = None
    """The model that all of them fine-tune; None: each pre-trains its own."""
    held_out_bytes: int = 0
    """UTF-8 bytes of the held-out documents, where the objective asks for them."""
    nproc: int = 0
    jobs: int = 0

    @property
    def by_rows(self) -> bool:
        """Whether a rung is a share of the training rows: of pre-training where trials differ in that."""
        return self.checkpoint is not None or not self.plan.pretrains

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks that trials fine-tune; none where the objective is a loss."""
        return list(next(iter(self.texts.values())).datasets)

    def text(self, trial: Trial) -> Text:
        """What a trial reads."""
        return self.texts[trial.preset.tokenizer]


def run_rung(
    inputs: TrialInputs, rung: Rung, trials: Sequence[Trial], runs: Mapping[int, str]
) -> dict[int, Outcome | Exception]:
    """Train and score each trial; one that fails has its exception, and the others go on.

    :param runs: trial -> its MLflow run's id on this rung.
    """
    models = _pretrained(inputs, rung, trials)
    pretrained = {number: model for number, model in models.items() if not isinstance(model, Exception)}
    scores = _fine_tuned(inputs, rung, [trial for trial in trials if trial.number in pretrained], pretrained, runs)
    found: dict[int, Outcome | Exception] = {}
    for trial in trials:
        model, tuned = models[trial.number], scores.get(trial.number, [])
        if isinstance(model, Exception):
            found[trial.number] = model
        elif isinstance(tuned, Exception):
            found[trial.number] = tuned
        else:
            found[trial.number] = _outcome(inputs, rung, trial, model, tuned)
    return found


def _pretrained(inputs: TrialInputs, rung: Rung, trials: Sequence[Trial]) -> dict[int, Artifact | Exception]:
    """Trial -> its pre-trained model."""
    if inputs.checkpoint is not None:
        return {trial.number: inputs.checkpoint for trial in trials}
    wanted: dict[int, PretrainRequest] = {}
    for trial in trials:
        books, preset = inputs.text(trial).books, trial.preset
        assert books is not None, "as trials pre-train"
        if not inputs.by_rows:
            preset = dataclasses.replace(preset, pretrain=shortened(preset.pretrain, rung.part))
        request, label = books.pretraining(preset, inputs.nproc or 1), f"pretrain trial {trial.number}"
        wanted[trial.number] = dataclasses.replace(request, label=label)
    words = f"rung {rung.number}: pre-train {len(trials)} trials"
    results = train_all(list(wanted.values()), inputs.jobs, words, f"rung-{rung.number}")
    return dict(zip(wanted, results, strict=True))


def _fine_tuned(
    inputs: TrialInputs, rung: Rung, trials: Sequence[Trial], models: Mapping[int, Artifact], runs: Mapping[int, str]
) -> dict[int, list[Artifact] | Exception]:
    """Trial -> its fine-tuned models, by task and seed; of one with a failure that."""
    plan, store = inputs.plan, inputs.store
    if plan.objective != SCORE or not trials:
        return {}
    calls: list[tuple[int, FinetuneRequest]] = []
    for task in inputs.tasks:
        for trial in trials:
            number, dataset = trial.number, inputs.text(trial).datasets[task]
            config = dataclasses.replace(trial.preset.finetune_for(task), from_task=None)  # nothing is trained first
            if inputs.by_rows:
                rows = DatasetCounts.of(store, dataset).splits["train"].rows
                config = fewer_rows(config, rung.part, rows)
            for seed in range(plan.seeds):
                seeded, cell = dataclasses.replace(config, seed=seed), (f"trial {number}", runs[number], SWEEPS)
                calls.append((number, FinetuneRequest(store, task, dataset, models[number], seeded, *cell)))
    words = f"rung {rung.number}: fine-tune {len(trials)} trials on {len(inputs.tasks)} tasks"
    results = train_all([call for _, call in calls], inputs.jobs, words, "fine-tunes")
    found: dict[int, list[Artifact] | Exception] = {}
    for (number, call), result in zip(calls, results, strict=True):
        before = found.setdefault(number, [])
        if isinstance(before, list):
            if isinstance(result, Exception):
                found[number] = result
            else:
                before.append(call.artifact)
    return found


def _outcome(
    inputs: TrialInputs, rung: Rung, trial: Trial, model: Artifact, tuned: list[Artifact]
) -> Outcome | Exception:
    """What a trial reached, read off its artifacts: no score of a test row is among it."""
    plan, store = inputs.plan, inputs.store
    trained = PretrainCounts.of(store, model)
    metrics = {LOSS: trained.figures[LOSS], "validation/perplexity": trained.validation_perplexity}
    if plan.objective == BITS:
        books = inputs.text(trial).books
        assert books is not None, "as trials pre-train"
        encoded, scored = ShardsCounts.of(store, books.shards), trained.validation_tokens
        tokens = encoded.splits["validation"].n_tokens
        metrics[BITS] = bits_per_byte(trained.figures[LOSS], scored, tokens, encoded.n_vocab, inputs.held_out_bytes)
    results = [FinetuneCounts.of(store, artifact) for artifact in tuned]
    if results:
        for task in inputs.tasks:
            own = [100 * result.figures[SCORE] for result in results if result.task == task]
            metrics[f"{task}/{SCORE}"] = statistics.fmean(own)
        metrics[SCORE] = statistics.fmean(metrics[f"{task}/{SCORE}"] for task in inputs.tasks)
    seconds = sum(result.wall_seconds for result in results)
    updates = sum(result.steps for result in results)
    if not inputs.by_rows:
        seconds, updates = seconds + trained.wall_seconds, trained.steps
    value = metrics[plan.objective]
    if not math.isfinite(value):
        return ArithmeticError(f"{plan.objective} = {value}")
    return Outcome(
        trial=trial.number,
        rung=rung.number,
        objective=value,
        updates=updates,
        seconds=seconds,
        metrics=metrics,
        checkpoint=model.digest,
    )
