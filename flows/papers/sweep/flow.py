"""A sweep: trials drawn from a space of settings, halved rung by rung.

Every trial is trained and scored by the tasks that a pipeline has, side by side where there is room, so the store knows
what was trained before.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from prefect import flow

from flows.forms.checks import chosen_tasks
from flows.forms.choices import list_checkpoints
from flows.forms.run_names import from_form
from flows.papers.sweep.forms import SweepParameters, SweepRequest
from flows.servers import signals
from flows.trainings.chain import Books, books_and_datasets, books_to_shards
from flows.trainings.failures import first_line
from flows.trainings.train import train_all
from gptcore.config import TokenizerConfig
from gptcore.evaluation.bits import bits_per_byte
from gptcore.families import FAMILIES
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.own_task import Task
from gptcore.papers.sweep.plan import (
    BITS,
    LOSS,
    SCORE,
    SCORES,
    Plan,
    Rung,
    Trial,
    fewer_rows,
    shortened,
    survivors,
)
from gptcore.text.sources import RawCorpus
from tasks.papers.sweep.report import (
    Outcome,
    SweepResult,
    number,
    open_sweep,
    open_trial,
    publish_sweep,
    record_trial,
    sweep_key,
)
from tasks.report.card import start_note, synthetic_note
from tasks.report.result_page import show_in_name
from tasks.stages.corpus import held_out_bytes
from tasks.stages.dataset import encode_dataset
from tasks.stages.finetune import FinetuneRequest
from tasks.stages.pretrain import PretrainRequest
from tasks.stages.stage import VERSIONS
from tasks.store.artifact import Artifact
from tasks.store.counts import DatasetCounts, FinetuneCounts, PretrainCounts, ShardsCounts
from tasks.store.lineage import own_tokenizer
from tasks.store.store import Store
from tasks.tracking.logs import Made, logger
from tasks.tracking.tracker import Run, Tracker, scratch_folder
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
    reached: dict[int, Outcome | Exception] = {}
    for trial in trials:
        model, tuned = models[trial.number], scores.get(trial.number, [])
        if isinstance(model, Exception):
            reached[trial.number] = model
        elif isinstance(tuned, Exception):
            reached[trial.number] = tuned
        else:
            reached[trial.number] = _outcome(inputs, rung, trial, model, tuned)
    return reached


def _pretrained(inputs: TrialInputs, rung: Rung, trials: Sequence[Trial]) -> dict[int, Artifact | Exception]:
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
    if plan.objective not in SCORES or not trials:
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
    tuned: dict[int, list[Artifact] | Exception] = {}
    for (number, call), result in zip(calls, results, strict=True):
        before = tuned.setdefault(number, [])
        if isinstance(before, list):
            if isinstance(result, Exception):
                tuned[number] = result
            else:
                before.append(call.artifact)
    return tuned


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
            own = [each for each in results if each.task == task]
            scores = [each.validation_score if plan.objective == SCORE else each.scores[plan.objective] for each in own]
            metrics[f"{task}/{plan.objective}"] = statistics.fmean(scores)
        metrics[plan.objective] = statistics.fmean(metrics[f"{task}/{plan.objective}"] for task in inputs.tasks)
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


@flow(name="sweep", flow_run_name=from_form, persist_result=False)
def sweep(parameters: SweepParameters) -> SweepResult:
    """Draw trials, train them on rung after rung, of which each keeps the best, and show all in one picture.

    Trials are compared on held-out documents, on held-out training rows or on dev rows, never on test rows.

    :raises InputError: bad input, before anything is trained.
    :raises Exception: of a rung on which every trial failed, the first one's.
    """
    signals.listen()
    plan = parameters.request.plan
    inputs, identity, notes = _trial_inputs(parameters.request, parameters)
    tracker = Tracker()
    with open_sweep(tracker, plan, identity) as run:
        outcomes: list[Outcome] = []
        ranked = [trial.number for trial in plan.trials]
        for rung in plan.rungs:
            reached = _rung(tracker, run, inputs, sweep_key(identity), rung, ranked)
            outcomes += reached
            objectives = {outcome.trial: outcome.objective for outcome in reached}
            ranked = survivors(objectives, len(objectives), plan.lower_is_better)
            _tell(plan, rung, reached, ranked)
        list_checkpoints(inputs.store)
        result = SweepResult(plan, outcomes, identity, notes)
        with scratch_folder() as folder:
            publish_sweep(tracker, run, result, folder)
    show_in_name(result.headline)
    return result


def _trial_inputs(request: SweepRequest, parameters: SweepParameters) -> tuple[TrialInputs, dict[str, Any], list[str]]:
    """Books and rows, encoded for every vocabulary that a trial drew; what a sweep follows from; what to know of it.

    All of it comes before the first training: a broken row costs seconds.
    """
    store, plan, checkpoint, datasets_url = request.store, request.plan, request.checkpoint, request.datasets_url
    code = {stage: VERSIONS[stage] for stage in ("pretrain", "finetune")}
    identity: dict[str, Any] = {"sweep": request.table, "code": code}
    kinds = dict.fromkeys(trial.preset.tokenizer for trial in plan.trials)
    texts: dict[TokenizerConfig, Text]
    tasks: Sequence[Task] = request.tasks or ()
    if checkpoint is not None:
        tokenizer = own_tokenizer(store, checkpoint)
        texts = dict.fromkeys(kinds, Text(_encoded(store, datasets_url, tasks, tokenizer)))
        inputs = TrialInputs(store, plan, texts, checkpoint, jobs=parameters.jobs)
        identity["checkpoint"] = checkpoint.digest
        notes = list(start_note(store.manifest(checkpoint)))
    else:
        corpus_url = parameters.corpus
        preset = plan.trials[0].preset  # of books and shards all trials have the same settings
        family = FAMILIES[preset.family]
        if not corpus_url or (plan.tasks and not datasets_url):
            corpus_url, datasets_url = books_and_datasets(store, corpus_url, datasets_url, family)
        raw = RawCorpus.at(corpus_url, preset.corpus.text_field)
        if plan.tasks and not tasks:
            tasks = chosen_tasks(plan.tasks, datasets_url)
        texts = {}
        for config in kinds:
            own = dataclasses.replace(preset, tokenizer=config)
            books = books_to_shards(store, raw, own, parameters.dask)
            texts[config] = Text(_encoded(store, datasets_url, tasks, books.tokenizer), books)
        corpus = books.corpus  # of every vocabulary the same
        n_bytes = held_out_bytes(store, corpus) if plan.objective == BITS else 0
        inputs = TrialInputs(store, plan, texts, None, n_bytes, parameters.nproc, parameters.jobs)
        identity["corpus"] = corpus.digest
        notes = list(synthetic_note(store.manifest(corpus)))
    identity["data"] = {task.name: dataset_fingerprint(task.spec, datasets_url) for task in tasks}
    encoded = next(iter(texts.values())).datasets.values()
    notes += [note for dataset in encoded for note in synthetic_note(store.manifest(dataset))]
    rows = "rows that chose epochs" if plan.objective == SCORE else "dev rows"
    seen = f"the {rows} of {', '.join(inputs.tasks)}" if plan.objective in SCORES else "the held-out documents"
    share = f"A rung is a share of {'training rows' if inputs.by_rows else 'pre-training'}, each with its own schedule."
    selected = f"Selected on {seen}; no test row was read for it. {share}"
    return inputs, identity, [*request.notes, *dict.fromkeys(notes), selected]


def _encoded(store: Store, datasets_url: str, tasks: Sequence[Task], tokenizer: Artifact) -> dict[str, Artifact]:
    return {task.name: encode_dataset(store, datasets_url, task.spec, tokenizer) for task in tasks}


def _rung(tracker: Tracker, parent: Run, inputs: TrialInputs, key: str, rung: Rung, ranked: list[int]) -> list[Outcome]:
    """What the best trials so far reach on a rung; where all of these fail, those that come after them.

    :raises Exception: the first one's, where every trial failed.
    """
    outcomes: list[Outcome] = []
    errors: list[Exception] = []
    while len(errors) == len(outcomes) and ranked:
        numbers, ranked = (ranked[: rung.trials], ranked[rung.trials :]) if not outcomes else (ranked[:1], ranked[1:])
        tried, failures = _tried(tracker, parent, inputs, key, rung, numbers)
        outcomes += tried
        errors += failures
    if len(errors) == len(outcomes):
        raise errors[0]
    return outcomes


def _tried(
    tracker: Tracker, parent: Run, inputs: TrialInputs, key: str, rung: Rung, numbers: list[int]
) -> tuple[list[Outcome], list[Exception]]:
    """What each trial reached on a rung, also on their MLflow runs; the exceptions of those that failed."""
    plan = inputs.plan
    trials = [plan.trials[number - 1] for number in sorted(numbers)]
    with ExitStack() as stack:
        runs = {
            trial.number: stack.enter_context(open_trial(tracker, plan, key, parent.run_id, trial.number, rung.number))
            for trial in trials
        }
        reached = run_rung(inputs, rung, trials, {number: run.run_id for number, run in runs.items()})
        outcomes = [
            outcome if isinstance(outcome, Outcome) else Outcome(trial, rung.number, None, first_line(outcome))
            for trial, outcome in reached.items()
        ]
        for outcome in outcomes:  # before their runs end: what has ended is complete
            record_trial(runs[outcome.trial], outcome)
    errors = {trial: error for trial, error in reached.items() if isinstance(error, Exception)}
    for trial in errors:
        runs[trial].finish("FAILED")
    return outcomes, list(errors.values())


def _tell(plan: Plan, rung: Rung, outcomes: list[Outcome], ranked: list[int]) -> None:
    """A line on the terminal and in the log: who failed, who goes on, what the best reached."""
    for outcome in outcomes:
        if outcome.failure:
            logger().warning("trial %d failed on rung %d: %s", outcome.trial, outcome.rung, outcome.failure)
    best = next(outcome for outcome in outcomes if outcome.trial == ranked[0])
    following = plan.rungs[rung.number : rung.number + 1]
    on = f"{min(following[0].trials, len(ranked))} of {len(outcomes)} go on, " if following else ""
    words = f"{on}best is trial {best.trial}: {plan.objective} {number(best)}"
    news = Made(
        f"rung {rung.number}/{len(plan.rungs)}", words, sum(o.seconds for o in outcomes), False, best.checkpoint[:12]
    )
    logger().info("%s: %s", news.stage, words, extra={"news": news})
