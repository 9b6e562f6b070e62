"""What a new number stands beside: the other suites that MLflow holds of the same task on the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from gptcore.nlu.registry import REGISTRY
from tasks.report.leaderboard import Row
from tasks.report.suites import EXPERIMENT, kept_row
from tasks.tracking.tracker import Tracker

_DEFAULT = "default"


@dataclass(frozen=True)
class Contender:
    """One suite's number on a task, this run's among them."""

    rank: int
    """1 is the best; equal scores share a rank."""
    row: Row
    """Cut to the task."""
    when: str
    """The day and minute (UTC) at which the suite's run was last written."""
    page: str
    """Address of the suite's MLflow run."""
    differences: tuple[str, ...]
    """Settings, checkpoint and code in which it differs from this run, as it has them; empty for this run itself."""


def contenders(tracker: Tracker, task: str, data: str, suite: str) -> list[Contender]:
    """Every suite of ours with a score on ``task``, best first.

    :param task: one of the twelve, or a user's own.
    :param data: fingerprint of the task's files; suites of other rows, or of another share of them, are left out.
    :param suite: digest of the suite that the others are told apart from.
    """
    runs = [
        (run, row)
        for run in tracker.search(EXPERIMENT, {"kind": "ours"}, {f"data.{task}": data} if task in REGISTRY else {})
        if task in (row := kept_row(run, "ours").only([task])).per_task
        and (task in REGISTRY or row.cells[task].own_data == data)
    ]
    scored = f"settings.{task}.max_eval_rows"  # a part of the rows is another measure
    drawn = next((run.data.params.get(scored) for run, row in runs if row.suite == suite), None)
    runs = [(run, row) for run, row in runs if run.data.params.get(scored) == drawn]
    mine = next((dict(run.data.params) for run, row in runs if row.suite == suite), {})
    scores = sorted((row.per_task[task] for _, row in runs), reverse=True)
    found = [
        Contender(
            rank=1 + scores.index(row.per_task[task]),
            row=row,
            when=_minute(run.info.end_time or run.info.start_time),
            page=tracker.page(run.info.experiment_id, run.info.run_id),
            differences=() if row.suite == suite else tuple(differences(run.data.params, mine, task)),
        )
        for run, row in runs
    ]
    return sorted(found, key=lambda item: (item.rank, item.row.suite != suite))


def differences(theirs: Mapping[str, str], mine: Mapping[str, str], task: str) -> Iterator[str]:
    """What of a suite's params decides the task's number and is not as in ``mine``: "lr 0.0005", "random weights"."""
    prefix = f"settings.{task}."
    if ("checkpoint" in theirs) != ("checkpoint" in mine):
        yield f"checkpoint {theirs['checkpoint'][:12]}" if "checkpoint" in theirs else "random weights"
    elif theirs.get("checkpoint") != mine.get("checkpoint"):
        yield f"checkpoint {theirs['checkpoint'][:12]}"
    elif "checkpoint" not in theirs:  # both from random weights: the shapes may differ
        yield from _changed(theirs, mine, "model.")
    if theirs.get("tokenizer") != mine.get("tokenizer"):
        yield f"tokenizer {theirs.get('tokenizer', '-')[:12]}"
    yield from _changed(theirs, mine, prefix)
    yield from (f"code of {words}" for words in _changed(theirs, mine, "code."))


def _changed(theirs: Mapping[str, str], mine: Mapping[str, str], prefix: str) -> Iterator[str]:
    names = sorted(name for name in {*theirs, *mine} if name.startswith(prefix))
    for name in names:
        if theirs.get(name) != mine.get(name):
            yield f"{name.removeprefix(prefix)} {theirs.get(name, _DEFAULT)}"


def _minute(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M}"
