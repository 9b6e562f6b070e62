"""Suites in MLflow: one run a row of the leaderboard, one metric a column, its fine-tunes as child runs.

A suite is checkpoint x code x data x settings: runs that differ in any of these never share a row.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from gptcore.files import sha256_json
from gptcore.nlu.registry import COLUMNS, REGISTRY
from tasks.artifact import canonical
from tasks.leaderboard import Kind, Leaderboard, Row, published_rows
from tasks.manifest import code_version
from tasks.score import Score
from tasks.tracking import Run, Tracker

EXPERIMENT = "gptmill/leaderboard"
_VERSION = 1  # of what a suite's digest covers


@dataclass(frozen=True)
class Suite:
    """What the cells of one row have in common."""

    label: str
    kind: Kind
    identity: Mapping[str, Any]
    """Checkpoint (or shape), data digest, stage versions, settings."""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the identity."""
        return sha256_json(canonical({"version": _VERSION, "label": self.label, **self.identity}))

    @property
    def name(self) -> str:
        """How the row is called: short enough for a table, with the start of the digest to tell two apart."""
        return f"{self.label} {self.digest[:6]}"


def open_suite(tracker: Tracker, suite: Suite) -> Run:
    """The suite's MLflow run, created or reopened."""
    commit = str(code_version()["git"] or "")
    tags = {"kind": suite.kind, "suite": suite.digest, "git_commit": commit, **suite.tags}
    return tracker.open(EXPERIMENT, suite.name, suite.digest, tags, suite.identity)


def row_of(suite: Suite, scores: Iterable[Score]) -> Row:
    """The row of a suite: for each column the median over seeds, and which splits the numbers are on."""
    cells: dict[str, list[float]] = {}
    by_task: dict[str, int] = {}
    splits = set()
    for score in scores:
        splits.add(score.split)
        by_task[score.task] = by_task.get(score.task, 0) + 1
        for column, percent in score.percent.items():
            cells.setdefault(column, []).append(percent)
    medians = {column: statistics.median(values) for column, values in cells.items()}
    return Row(suite.name, suite.kind, "/".join(sorted(splits)), medians, min(by_task.values()), suite.digest)


def record_row(run: Run, row: Row) -> Row:
    """Put a row's cells on the suite's run, beside those that earlier runs of the same suite left there.

    :return: the whole row. Its average over the twelve tasks is logged once it has them all.
    """
    percent = {**run.metrics(COLUMNS), **row.percent}
    whole = dataclasses.replace(row, percent=percent)
    average = whole.average(list(REGISTRY))
    run.log_results({**percent, **({"average": average} if average is not None else {})})
    run.set_tags({"split": row.split, "seeds": str(row.seeds)})
    return whole


def record_published(tracker: Tracker) -> None:
    """Put the paper's rows beside ours; those that are there already stay as they are."""
    there = {run.info.run_name for run in tracker.search(EXPERIMENT, {"kind": "published"})}
    for row in published_rows():
        if row.name in there:
            continue
        key = sha256_json({"published": row.name, "percent": row.percent})
        with tracker.open(EXPERIMENT, row.name, key, {"kind": "published"}, {}) as run:
            record_row(run, row)


def read_leaderboard(tracker: Tracker | None = None) -> Leaderboard:
    """All suites that MLflow holds, newest first, baselines, and the published rows."""
    tracker = tracker or Tracker()
    rows = []
    for kind in ("ours", "baseline"):
        for run in tracker.search(EXPERIMENT, {"kind": kind}):
            percent = {name: value for name, value in run.data.metrics.items() if name in COLUMNS}
            tags = run.data.tags
            if percent:
                seeds, split = int(tags.get("seeds", "1")), tags.get("split", "dev")
                rows.append(
                    Row(
                        run.info.run_name,
                        "ours" if kind == "ours" else "baseline",
                        split,
                        percent,
                        seeds,
                        tags["suite"],
                    )
                )
    return Leaderboard((*rows, *published_rows()))


def show_leaderboard(board: Leaderboard) -> None:
    """The leaderboard on the Prefect run's Artifacts page, as a table to sort and as Markdown with its notes."""
    table = [
        {
            "suite": row.name,
            "kind": row.kind,
            "split": row.split,
            "seeds": row.seeds,
            "average": _cell(row.average(board.tasks)),
        }
        | {column: _cell(row.percent.get(column)) for column in COLUMNS}
        for row in board.rows
    ]
    create_table_artifact(
        table=table, key="leaderboard", description="Scores x 100; the published rows are test scores."
    )
    create_markdown_artifact(board.render("markdown"), key="leaderboard-notes", description="The same with its notes")


def notes_on(scores: Sequence[Score]) -> tuple[str, ...]:
    """What a reader must know of the scores, each thing once."""
    test = sorted({score.task for score in scores if score.split == "test"})
    which = f"splits: test for {', '.join(test)}, dev for the other tasks; published rows: test" if test else ""
    return tuple(dict.fromkeys(note for note in (which, *(note for score in scores for note in score.notes)) if note))


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
