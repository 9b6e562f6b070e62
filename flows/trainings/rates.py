"""The learning rate of each task, chosen among several by the score of seed 0 that chose its epoch.

That is the score on held-out training rows, so dev rows are scored by the chosen rate alone; on dev rows, as in BERT
(section 4.1), where the settings choose epochs on them.

A trial is a fine-tune as any other, so that the chosen one's is the row's own run of seed 0, and all are skipped the
next time. Their MLflow runs are among the sweeps': no row of the leaderboard, and not registered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from flows.forms.readers import as_typed
from flows.trainings.failures import Failures, first_line, leave_out, raise_if_all
from flows.trainings.grid import Arm, Grid
from flows.trainings.train import train_all
from gptcore.base.files import sha256_json
from gptcore.base.settings import recorded
from gptcore.config import FinetuneConfig
from tasks.report.score import Score
from tasks.report.table import grid
from tasks.stages.finetune import FinetuneRequest
from tasks.store.artifact import canonical
from tasks.store.counts import FinetuneCounts
from tasks.tracking.provenance import run_tags
from tasks.tracking.tracker import Run, Tracker
from tasks.tracking.views import SWEEPS

Tried = Mapping[float, float | Exception]
"""Rate -> the score x 100 that it led to, or what ended its trial."""


def choose_rates(grid: Grid, rates: Sequence[float], jobs: int, left_out: Failures) -> tuple[Grid, str]:
    """The grid with each task's best rate, which every arm and seed has then, and a table of what was tried.

    Trials are of the first arm and of seed 0. Tasks that others start from have their rates first, so that the others
    start from the model that the row has; a student's trials learn from the teacher's models with the settings' own
    rate, as its row does. Of equal scores the rate that comes first wins.

    :param jobs: see :func:`flows.trainings.leaderboard.score_tasks`.
    :param left_out: takes the tasks of which every trial failed.
    :raises Exception: the first failure, where no task is left.
    """
    arm = grid.arms[0]
    tried: dict[str, Tried] = {}
    with _open(grid, arm, rates) as run:
        sources = {name: grid.source_of(arm, name) for name in grid.datasets}
        teachers = {name: grid.teaching(arm, name) for name in grid.datasets if grid.config(arm, name).taught}
        grid = _made_first(grid, run, jobs, "whom students learn from", teachers, left_out)
        names = [name for name in grid.datasets if sources[name] is None]
        grid = _tried(grid, arm, rates, names, run, jobs, tried, left_out)
        starts = {name: grid.start(arm, source) for name in grid.datasets if (source := sources[name]) is not None}
        grid = _made_first(grid, run, jobs, "what tasks start from", starts, left_out)
        names = [name for name in starts if name in grid.datasets]
        grid = _tried(grid, arm, rates, names, run, jobs, tried, left_out)
        text = _as_table(rates, tried)
        run.set_tags({"mlflow.note.content": text})
        run.log_results(
            {
                f"{name}/{as_typed(rate)}": round(score, 1)
                for name, by_rate in tried.items()
                for rate, score in by_rate.items()
                if not isinstance(score, Exception)
            }
        )
    if not grid.datasets:
        raise_if_all(left_out, list(left_out))
    said = ", ".join(map(as_typed, rates))
    notes = [
        f"{name}: rate {as_typed(grid.chosen[name])} of {said}, by the score of seed 0 on "
        + ("held-out rows" if grid.settings[name].select else "dev rows")
        for name in grid.datasets
    ]
    return dataclasses.replace(grid, rates=tuple(rates), notes=(*grid.notes, *notes)), text


def _made_first(
    grid: Grid, run: Run, jobs: int, words: str, needed: Mapping[str, FinetuneRequest], left_out: Failures
) -> Grid:
    """The grid once the models are there that tasks' trials start or learn from; without those whose model failed.

    :param words: what these models are.
    :param needed: task -> the training of its model, which several may share.
    """
    if not needed:
        return grid
    calls = {training.recipe.digest: training for training in needed.values()}
    results = dict(zip(calls, _train(run, jobs, words, list(calls.values())), strict=True))
    for name, training in needed.items():
        if isinstance(result := results[training.recipe.digest], Exception):
            leave_out(left_out, name, result)
    return _without(grid, left_out)


def _tried(
    grid: Grid,
    arm: Arm,
    rates: Sequence[float],
    names: Sequence[str],
    run: Run,
    jobs: int,
    tried: dict[str, Tried],
    left_out: Failures,
) -> Grid:
    """The grid with the best rate of each of ``names``.

    :param tried: takes what each rate led to.
    """
    if not names:
        return grid
    calls = {
        (name, rate): grid.training(arm, name, dataclasses.replace(grid.config(arm, name), lr=rate))
        for name in names
        for rate in rates
    }
    words = f"{len(rates)} rates on {names[0] if len(names) == 1 else f'{len(names)} tasks'}"
    results = dict(zip(calls, _train(run, jobs, words, list(calls.values())), strict=True))
    chosen = dict(grid.chosen)
    for name in names:
        tried[name] = {rate: _score(calls[name, rate], results[name, rate]) for rate in rates}
        if (best := _best(tried[name])) is None:
            leave_out(left_out, name, next(error for error in tried[name].values() if isinstance(error, Exception)))
        else:
            chosen[name] = best
    return _without(dataclasses.replace(grid, chosen=chosen), left_out)


def _score(call: FinetuneRequest, result: object) -> float | Exception:
    """What a trial is judged by, read off its artifact: no score of a test row is asked for."""
    if isinstance(result, Exception):
        return result
    return FinetuneCounts.of(call.store, call.artifact).validation_score


def _best(tried: Tried) -> float | None:
    """The rate with the best score, the first of several; None where every trial failed."""
    scores = {rate: score for rate, score in tried.items() if not isinstance(score, Exception)}
    return max(scores, key=lambda rate: scores[rate], default=None)


def _without(grid: Grid, left_out: Failures) -> Grid:
    """The grid without the tasks that are left out, whose rows others may still start from."""
    datasets = {name: dataset for name, dataset in grid.datasets.items() if name not in left_out}
    return dataclasses.replace(grid, datasets=datasets, sources={**grid.datasets, **grid.sources})


def _train(run: Run, jobs: int, title: str, calls: Sequence[FinetuneRequest]) -> list[Score | Exception]:
    """What the trainings came to, as child runs of the trials' own run."""
    trials = [dataclasses.replace(call, suite_run=run.run_id, experiment=SWEEPS) for call in calls]
    return train_all(trials, jobs, f"fine-tune: {title}", "fine-tunes")


def _as_table(rates: Sequence[float], tried: Mapping[str, Tried]) -> str:
    """A row a task, a column a rate; the chosen one's score is in bold."""
    body = []
    for name, by_rate in tried.items():
        chosen = _best(by_rate)
        cells = [first_line(score) if isinstance(score, Exception) else f"{score:.1f}" for score in by_rate.values()]
        marked = (f"**{cell}**" if rate == chosen else cell for rate, cell in zip(by_rate, cells, strict=True))
        body.append((name, *marked, "-" if chosen is None else as_typed(chosen)))
    return grid(("score that chose the epoch, seed 0", *map(as_typed, rates), "chosen"), body)


def _open(grid: Grid, arm: Arm, rates: Sequence[float]) -> Run:
    def settings(config: FinetuneConfig) -> dict[str, object]:
        return {name: value for name, value in recorded(arm.settings(config)).items() if name != "lr"}

    identity = {
        "rates": list(rates),
        "arm": arm.label,
        "checkpoint": arm.checkpoint.digest,
        "data": {name: dataset.digest for name, dataset in grid.datasets.items()},
        "settings": {name: settings(grid.settings[name]) for name in grid.datasets},
    }
    key = sha256_json(canonical(identity))
    return Tracker().open(SWEEPS, f"rates {key[:6]}", key, run_tags(kind="rates"), identity)
