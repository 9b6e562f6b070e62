"""Fine-tunes side by side: every task x arm x seed, bounded by what the machine has, and their leaderboard.

The leaderboard of all that MLflow holds is a flow of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, cast

from prefect import flow, tags
from prefect.futures import PrefectFuture
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from flows.forms.readers import as_typed
from flows.forms.run_names import command_line
from flows.servers import signals
from flows.servers.pools import INTERNAL
from flows.trainings.failures import Failures, leave_out, raise_for, raise_if_all
from flows.trainings.grid import Arm, Grid, recipe_in_words
from flows.trainings.rates import choose_rates
from flows.trainings.train import Policy, policy_for, run_all
from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.config import FinetuneConfig
from gptcore.families import recorded_family
from gptcore.nlu.blimp import has_blimp
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.forms import FORMS, form_of
from gptcore.nlu.readers import available
from gptcore.nlu.registry import task_spec
from tasks.report.card import start_note
from tasks.report.entries import task_data
from tasks.report.experiments import show_experiments
from tasks.report.leaderboard import NGRAM_FLOOR, Leaderboard
from tasks.report.paired import compare_rows
from tasks.report.report import show_suite
from tasks.report.result_page import FineTuned, publish_result, publish_table_of, result_card, show_leaderboard
from tasks.report.score import Score, ZeroShot, dataset_origin, notes_on
from tasks.report.suites import Suite, board_of, check_origin, open_suite, read_leaderboard, record_row, row_of
from tasks.stages.dataset import encode_dataset, score_baselines, score_ngram_floor
from tasks.stages.evaluation import kept_blimp, kept_harness
from tasks.stages.stage import VERSIONS
from tasks.store.artifact import Artifact
from tasks.store.counts import ImportedCounts, WeightsCounts
from tasks.store.lineage import made_before, own_tokenizer
from tasks.tracking.logs import Made, logger
from tasks.tracking.provenance import artifact_page, has_inputs, log_inputs
from tasks.tracking.tracker import Tracker


def score_tasks(
    grid: Grid,
    jobs: int,
    sections: Mapping[str, str] | None = None,
    left_out: Failures | None = None,
    rates: Sequence[float] = (),
) -> Leaderboard:
    """Fine-tune every task in every arm, score the baselines, put all in one table, and show it on the caller's page.

    On a server with a worker in the pool `training` each fine-tune is a run of that pool, else a job of this process.

    :param jobs: fine-tunes side by side; 0: as many as the machine, or the pool, takes.
    :param sections: heading -> Markdown that the result's card shows, too.
    :param left_out: tasks that failed before they came here.
    :param rates: learning rates to try first: each task has the best one of seed 0 in the first arm.
    :raises InputError: before anything is trained, if a dataset is not what an arm's row is of.
    :raises SomeFailed: after all is done, told and shown: some tasks failed, or were left out.
    """
    left_out, sections = dict(left_out or {}), dict(sections or {})
    if any(arm.checkpoint.stage == "imported" for arm in grid.arms):  # whose recipe its user has not chosen
        grid = dataclasses.replace(grid, origin=f"{grid.origin}: {recipe_in_words(grid.settings.values())}")
    logger().info("settings: %s", grid.origin, extra={"news": Made("settings", grid.origin, 0, cached=True, digest="")})
    grid = dataclasses.replace(with_sources(grid, left_out), command=command_line(grid.arms[0].checkpoint.short))
    if rates:
        grid, tried = choose_rates(grid, rates, jobs, left_out)
        sections = {"Rates tried": tried, **sections}
    policy = policy_for([request for _, request in (*grid.starts(), *grid.trainings())], jobs)
    rows = _counted([arm.label for arm in grid.arms], "row")
    runner: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=policy.at_once)
    run = fine_tunes.with_options(
        task_runner=cast(TaskRunner[Any], runner),  # Prefect types it by its future
        flow_run_name=f"fine-tunes: {_counted(list(grid.datasets), 'task')} x {rows}",
    )
    with tags(INTERNAL):
        found: FineTuned = run(grid, policy)
    failures = {**left_out, **found.failures}
    scored = {score.task for score in found.scores}
    shown = {name: dataset for name, dataset in grid.datasets.items() if name in scored}
    if shown:
        arm = grid.arms[0]
        configs = {name: grid.config(arm, name) for name in shown}
        card = result_card(grid.store, grid.datasets_url, shown, arm.checkpoint, configs, grid.origin, found, sections)
        publish_result(card)  # on the calling flow's page, where its starter looks
    raise_for(failures, found.board)
    return found.board


@flow(name="fine-tunes", persist_result=False, validate_parameters=False)
def fine_tunes(grid: Grid, policy: Policy) -> FineTuned:
    """Fine-tune and test every arm on every task; :func:`score_tasks` chooses this flow's number of workers."""
    signals.listen()
    store, datasets, tracker = grid.store, grid.datasets, Tracker()
    data = _fingerprints(grid.datasets_url, list(datasets)) if grid.datasets_url else {}
    suites = [suite_of(grid, arm, data) for arm in grid.arms]
    zero_shot = [_zero_shot(grid, arm) for arm in grid.arms]
    for name, dataset in datasets.items():
        for suite in suites:  # now, not after hours of training
            check_origin(suite, name, dataset_origin(store.manifest(dataset)), ("data", "tokenizer"))
    with ExitStack() as stack:
        runs = [stack.enter_context(open_suite(tracker, suite)) for suite in suites]
        starts, cells = list(grid.starts()), list(grid.trainings())
        requests = [dataclasses.replace(request, suite_run=runs[arm].run_id) for arm, request in (*starts, *cells)]
        found = list(zip(cells, run_all(requests, policy, "fine-tunes")[len(starts) :], strict=True))
        failures: Failures = {}
        scores = []
        for arm in range(len(grid.arms)):
            own = [(request.name, result) for (place, request), result in found if place == arm]
            scores.append(_scores(own, failures))
        rows = [
            record_row(run, row_of(suite, reached), untrained)
            for suite, run, reached, untrained in zip(suites, runs, scores, zero_shot, strict=True)
        ]
        if not any(scores):
            raise_if_all(failures, list(datasets))
    measured = [score_baselines.submit(store, grid.datasets_url, grid.spec(name)) for name in datasets]
    counting = _counting(grid)
    alone = [
        score_ngram_floor.submit(store, datasets[name], grid.spec(name), grid.arms[0].checkpoint, config)
        for name, config in counting.items()
    ]
    inputs = [task_data(store, dataset) for dataset in datasets.values()]
    futures: list[PrefectFuture[Any]] = [*measured, *alone]
    for future in futures:  # before the first error is raised: one bad task does not waste the others' work
        future.wait()
    baselines = [future.result() for future in measured]
    labels = dict.fromkeys(label for form in FORMS.values() for label in form.floors)
    floors = [
        *((_floor(label, data), [each[label] for each in baselines if label in each]) for label in labels),
        (_ngram_floor(grid, data), [future.result() for future in alone]),
    ]
    for suite, reached in floors:
        if not reached:
            continue
        with open_suite(tracker, suite) as run:
            runs.append(run)
            if not has_inputs(run):
                log_inputs(run, inputs)
            record_row(run, row_of(suite, reached))
    compare_rows(tracker)
    show_experiments(tracker)
    notes = notes_on([score for arm in scores for score in arm])
    board = board_of(tracker, rows, [suite for suite, _ in floors], (*grid.notes, *notes))
    for run in runs:
        show_suite(run, board)
    table = artifact_page(publish_table_of(board, list(datasets)))
    return FineTuned(board, scores[0], data, runs[0].url, table, failures)


def _counting(grid: Grid) -> dict[str, FinetuneConfig]:
    """Task -> its settings in the first arm, of those that count words and n-grams beside the network."""
    configs = {name: grid.config(grid.arms[0], name) for name in grid.datasets}
    return {n: config for n, config in configs.items() if config.ngrams and not form_of(grid.spec(n)).places}


def _floor(label: str, data: Mapping[str, str]) -> Suite:
    return Suite(label, "baseline", {"data": data, "code": VERSIONS["baseline"]})


def _ngram_floor(grid: Grid, data: Mapping[str, str]) -> Suite:
    """The row of what the first arm's words and n-grams tell alone, by what they are learnt from and read as."""
    manifest = grid.store.manifest(grid.arms[0].checkpoint)
    network = manifest["config"]["model"]
    asked = ("ngrams", "select", "max_train_rows", "max_eval_rows")
    counted = {name: {each: recorded(grid.settings[name]).get(each) for each in asked} for name in data}
    tokenizer = WeightsCounts.parse(manifest["counts"]).tokenizer_digest
    reads = {"family": recorded_family(network).name, "n_ctx": network["n_ctx"]}
    identity = {"data": data, "code": VERSIONS["ngram-floor"], "tokenizer": tokenizer, "counted": counted}
    return Suite(NGRAM_FLOOR, "baseline", {**identity, "reads": reads})


def _zero_shot(grid: Grid, arm: Arm) -> ZeroShot | None:
    """What the store knows of the one model that all fine-tunes of an arm start from; nothing is measured for it here.

    None where they start from random weights, from some of its blocks, or not all from the same one.
    """
    configs = [arm.settings(config) for config in grid.settings.values()]
    snapshot = {config.snapshot for config in configs}
    as_it_is = all(config.pretrained and config.n_transfer is None for config in configs)
    if not as_it_is or len(snapshot) != 1:
        return None
    step, found = snapshot.pop(), ZeroShot({})
    try:
        if grid.datasets_url and has_blimp(grid.datasets_url):
            found = kept_blimp(grid.store, arm.checkpoint, grid.datasets_url, step) or found
    except InputError as error:  # of files that no fine-tune reads
        logger().warning("no BLiMP on the leaderboard: %s", error)
    harness = kept_harness(grid.store, arm.checkpoint) if step is None else {}
    return dataclasses.replace(found, percent={**found.percent, **harness})


def _fingerprints(datasets_url: str, wanted: list[str]) -> dict[str, str]:
    """Task -> fingerprint of its files, of every task that is there; an unreadable one matters if it is wanted."""
    found = {}
    for name in available(datasets_url):
        try:
            found[name] = dataset_fingerprint(task_spec(name), datasets_url)
        except InputError:
            if name in wanted:
                raise
    return found


def with_sources(grid: Grid, left_out: Failures) -> Grid:
    """The grid with the rows of the tasks that others start from; without those whose source has broken rows.

    :param left_out: takes the tasks that go no further, with their reasons.
    :raises InputError: a task would start from itself or from none of the twelve; none is left.
    """
    sources: dict[str, Artifact] = {}
    datasets = dict(grid.datasets)
    for name in grid.datasets:
        for source in {grid.source_of(arm, name) for arm in grid.arms} - {None, *grid.datasets, *sources}:
            assert source is not None
            tokenizer = own_tokenizer(grid.store, grid.arms[0].checkpoint)
            try:
                sources[source] = encode_dataset(grid.store, grid.datasets_url, task_spec(source), tokenizer)
            except InputError as error:
                leave_out(left_out, name, error)
                del datasets[name]
    if not datasets:
        raise_if_all(left_out, list(left_out))
    return dataclasses.replace(grid, datasets=datasets, sources=sources)


def _scores(results: Sequence[tuple[str, Score | Exception]], failures: Failures) -> list[Score]:
    """One arm's scores; of a task with a failed seed none, for a number never rests on fewer runs than its row's.

    :param results: of each run its task and what it came to.
    :param failures: takes the first error of each task that failed.
    """
    failed = [(name, result) for name, result in results if isinstance(result, Exception)]
    for name, error in failed:
        failures.setdefault(name, error)
    return [score for name, score in results if not isinstance(score, Exception) and name not in dict(failed)]


def suite_of(grid: Grid, arm: Arm, data: Mapping[str, str]) -> Suite:
    """The row's identity covers every dataset that is there, so that runs of single tasks fill one row together.

    Where rates were tried the row is told apart by these, not by the chosen ones.

    :param data: task -> fingerprint of its files.
    """
    manifest = grid.store.manifest(arm.checkpoint)
    chosen = {name: recorded(arm.settings(grid.settings[name])) for name in data}
    for config in chosen.values():
        del config["seed"], config["pretrained"]  # a row is the median over seeds; the origin says the other
        if grid.rates:
            config["lr"] = f"best on {config.get('select', 'dev')} of {', '.join(map(as_typed, grid.rates))}"
    origin = {"checkpoint": arm.checkpoint.digest} if arm.pretrained else {"model": manifest["config"]["model"]}
    tokenizer = WeightsCounts.parse(manifest["counts"]).tokenizer_digest
    code = {stage: VERSIONS[stage] for stage in ("finetune", "dataset")}
    identity = {**origin, "tokenizer": tokenizer, "data": data, "code": code, "settings": chosen}
    tags = {"tokenizer_digest": tokenizer, "checkpoint_digest": arm.checkpoint.digest, "arm": arm.label}
    before = made_before(manifest) if arm.pretrained else {}
    tags |= {"settings_of": grid.origin, **{f"{role}_digest": digest for role, digest in before.items()}}
    imported = arm.checkpoint.stage == "imported"
    tags |= {"origin": " ".join(start_note(manifest))} if imported else {}
    name = ImportedCounts.parse(manifest["counts"]).name if imported else ""
    words = arm.label.replace("pre-trained", "imported")
    label = f"{name} {words}" if name else recorded_family(manifest["config"]["model"]).titled(arm.label)
    return Suite(label, "ours", identity, tags, grid.command)


def _counted(names: list[str], what: str) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} {what}s"


@flow(name="leaderboard", flow_run_name="leaderboard", persist_result=False)
def leaderboard() -> Leaderboard:
    """Every suite that MLflow knows, the baselines, and the paper's published rows."""
    board = read_leaderboard()
    show_leaderboard(board)
    return board
