"""A sweep: trials drawn from a space of settings, halved rung by rung, each made of the pipeline's own stages."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from prefect import flow

from flows.forms.checks import chosen_tasks, datasets_folder
from flows.forms.choices import list_checkpoints
from flows.forms.parameters import SweepParameters
from flows.forms.references import pretrained_model
from flows.forms.run_names import from_form
from flows.servers import signals
from flows.sweep.rung import Text, TrialInputs, run_rung
from flows.trainings.books import books_and_datasets, books_to_shards
from flows.trainings.failures import first_line
from gptcore.config import TokenizerConfig
from gptcore.families import FAMILIES
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.own_task import Task
from gptcore.sweep.plan import BITS, SCORE, Plan, Rung, read_plan, survivors
from gptcore.text.sources import RawCorpus
from tasks.report.card import start_note, synthetic_note
from tasks.report.result_page import show_in_name
from tasks.report.sweep import (
    Outcome,
    SweepResult,
    number,
    open_sweep,
    open_trial,
    publish_sweep,
    record_trial,
    sweep_key,
)
from tasks.stages.corpus import held_out_bytes
from tasks.stages.dataset import encode_dataset
from tasks.stages.stage import VERSIONS
from tasks.store.artifact import Artifact
from tasks.store.lineage import own_tokenizer
from tasks.store.store import Store
from tasks.tracking.logs import Made, logger
from tasks.tracking.tracker import Run, Tracker, scratch_folder


@flow(name="sweep", flow_run_name=from_form, persist_result=False)
def sweep(parameters: SweepParameters) -> SweepResult:
    """Draw trials, train them on rung after rung, of which each keeps the best, and show all in one picture.

    Trials are compared on held-out documents or on dev rows, never on test rows.

    :raises InputError: bad input, before anything is trained.
    :raises Exception: of a rung on which every trial failed, the first one's.
    """
    signals.listen()
    plan = read_plan(parameters.sweep, "sweep", bool(parameters.checkpoint))
    inputs, identity, notes = _trial_inputs(parameters, plan)
    tracker = Tracker()
    with open_sweep(tracker, plan, identity) as run:
        outcomes: list[Outcome] = []
        ranked = [trial.number for trial in plan.trials]
        for rung in plan.rungs:
            found = _rung(tracker, run, inputs, sweep_key(identity), rung, ranked)
            outcomes += found
            objectives = {outcome.trial: outcome.objective for outcome in found}
            ranked = survivors(objectives, len(objectives), plan.lower_is_better)
            _tell(plan, rung, found, ranked)
        list_checkpoints(inputs.store)
        result = SweepResult(plan, outcomes, identity, notes)
        with scratch_folder() as folder:
            publish_sweep(tracker, run, result, folder)
    show_in_name(result.headline)
    return result


def _trial_inputs(parameters: SweepParameters, plan: Plan) -> tuple[TrialInputs, dict[str, Any], list[str]]:
    """Books and rows, encoded for every vocabulary that a trial drew; what a sweep follows from; what to know of it.

    All of it comes before the first training: a broken row costs seconds.
    """
    store = Store(parameters.store)
    code = {stage: VERSIONS[stage] for stage in ("pretrain", "finetune")}
    identity: dict[str, Any] = {"sweep": parameters.sweep, "code": code}
    kinds = dict.fromkeys(trial.preset.tokenizer for trial in plan.trials)
    texts: dict[TokenizerConfig, Text]
    if parameters.checkpoint:
        checkpoint = pretrained_model(store, parameters.checkpoint)
        datasets_url = datasets_folder(store, parameters.datasets, plan.tasks)
        tasks = chosen_tasks(plan.tasks, datasets_url)
        tokenizer = own_tokenizer(store, checkpoint)
        texts = dict.fromkeys(kinds, Text(_encoded(store, datasets_url, tasks, tokenizer)))
        inputs = TrialInputs(store, plan, texts, checkpoint, jobs=parameters.jobs)
        identity["checkpoint"] = checkpoint.digest
        notes = list(start_note(store.manifest(checkpoint)))
    else:
        corpus_url, datasets_url = parameters.corpus, parameters.datasets
        preset = plan.trials[0].preset  # of books and shards all trials have the same settings
        family = FAMILIES[preset.family]
        if not corpus_url or (plan.tasks and not datasets_url):
            corpus_url, datasets_url = books_and_datasets(store, corpus_url, datasets_url, family)
        raw = RawCorpus.at(corpus_url)
        tasks = chosen_tasks(plan.tasks, datasets_url) if plan.tasks else []
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
    seen = f"the dev rows of {', '.join(inputs.tasks)}" if plan.objective == SCORE else "the held-out documents"
    share = f"A rung is a share of {'training rows' if inputs.by_rows else 'pre-training'}, each with its own schedule."
    return inputs, identity, [*dict.fromkeys(notes), f"Selected on {seen}; no test row was read for it. {share}"]


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
        found = run_rung(inputs, rung, trials, {number: run.run_id for number, run in runs.items()})
        outcomes = [
            outcome if isinstance(outcome, Outcome) else Outcome(trial, rung.number, None, first_line(outcome))
            for trial, outcome in found.items()
        ]
        for outcome in outcomes:  # before their runs end: what has ended is complete
            record_trial(runs[outcome.trial], outcome)
    errors = {trial: error for trial, error in found.items() if isinstance(error, Exception)}
    for trial in errors:
        runs[trial].finish("FAILED")
    return outcomes, list(errors.values())


def _tell(plan: Plan, rung: Rung, found: list[Outcome], ranked: list[int]) -> None:
    """A line on the terminal and in the log: who failed, who goes on, what the best reached."""
    for outcome in found:
        if outcome.failure:
            logger().warning("trial %d failed on rung %d: %s", outcome.trial, outcome.rung, outcome.failure)
    best = next(outcome for outcome in found if outcome.trial == ranked[0])
    following = plan.rungs[rung.number : rung.number + 1]
    on = f"{min(following[0].trials, len(ranked))} of {len(found)} go on, " if following else ""
    words = f"{on}best is trial {best.trial}: {plan.objective} {number(best)}"
    news = Made(
        f"rung {rung.number}/{len(plan.rungs)}", words, sum(o.seconds for o in found), False, best.checkpoint[:12]
    )
    logger().info("%s: %s", news.stage, words, extra={"news": news})
