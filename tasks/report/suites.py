"""Suites in MLflow: one run a row of the leaderboard, one metric a column, its fine-tunes as child runs.

A suite is checkpoint x code x data x settings: runs that differ in any of these never share a row.

The rows as they were last read are kept beside MLflow's SQLite file until that changes: importing MLflow and opening
its database takes longer than anybody waits for a table. A file that says of which database it is, is believed; any
other one is written anew.

And what the experiments look like to somebody who opens them: views of scores, a description.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json, write_json_atomic
from gptcore.base.settings import flatten
from gptcore.config import FinetuneConfig
from gptcore.nlu.blimp import COLUMNS as ZERO_SHOT
from gptcore.nlu.metrics import GLUE
from gptcore.nlu.registry import COLUMNS, REGISTRY, columns_of
from tasks.report.differences import chosen_on_of, told_apart
from tasks.report.leaderboard import Leaderboard
from tasks.report.rows import Cell, Kind, Row, is_paper, label_of, published_rows, split_of
from tasks.report.score import HARNESS, Score, ZeroShot
from tasks.store.artifact import canonical
from tasks.store.state import SERVED, can_write, state_folder
from tasks.tracking.tracker import Run, Tracker
from tasks.tracking.views import LEADERBOARD, leaderboard_line

if TYPE_CHECKING:
    from mlflow.entities import Run as MlflowRun

EXPERIMENT = LEADERBOARD
PUBLISHED_EXPERIMENT = "gptmill/published"
PARTS = ("checkpoint", "tokenizer", "data", "code")
"""The parts of a suite's identity that every number of its row must share. Code: the versions of the stages, raised by
hand when their output changes. Not the git commit, or every change of a comment would start a new row; each cell keeps
the commits that made it, and a row of several says so."""
BESIDE = "beside"
"""Tag `kind` of the runs that stand among ours for comparison."""
_PAPER = "GPT-1, the paper"
COMMANDS = "commands"
"""Tag of a suite's run: the command lines that made its numbers, one a line."""
_VERSION = 1  # of what a suite's digest covers
_CELL = "cell."  # tags: what stands behind a column's number
_GLUE = "glue/"  # metrics: a task's part of GLUE's average
_ADDRESSES = 6000  # characters of a cell's: a tag of MLflow's holds 8,000
CERTAIN = "certain."
"""How the tags of a suite's run begin that hold :attr:`Row.certain`, a column each."""
_FILE_VERSION = 8  # of the file that keeps the rows
_SQLITE = "sqlite:///"


@dataclass(frozen=True)
class Suite:
    """What the cells of one row have in common."""

    label: str
    kind: Kind
    identity: Mapping[str, Any]
    """Checkpoint (or shape), data digest, stage versions, settings."""
    tags: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    """The command line that makes its numbers; no part of its identity."""

    @property
    def digest(self) -> str:
        """SHA-256 of the identity."""
        return sha256_json(canonical({"version": _VERSION, "label": self.label, **self.identity}))

    @property
    def name(self) -> str:
        """How the row is called: short enough for a table, with the start of the digest to tell two apart; and how
        epochs were chosen, where that is not the default."""
        chosen_on = chosen_on_of(flatten(self.identity))
        protocol = "" if chosen_on in ("", FinetuneConfig.select) else f", select {chosen_on}"
        return f"{self.label}{protocol} {self.digest[:6]}"


def open_suite(tracker: Tracker, suite: Suite) -> Run:
    """The suite's MLflow run, created or reopened."""
    from tasks.tracking.provenance import run_tags  # brings Prefect along: seconds, and who reads rows needs none

    tags = {**run_tags(kind=suite.kind, suite=suite.digest), **suite.tags}
    run = tracker.open(EXPERIMENT, suite.name, suite.digest, tags, suite.identity)
    if suite.command and suite.command not in (made_by := run.opened_tags.get(COMMANDS, "").splitlines()):
        run.set_tags({COMMANDS: "\n".join([*made_by, suite.command])})
    return run


def row_of(suite: Suite, scores: Iterable[Score]) -> Row:
    """The row of a suite: for each column the median over seeds, what stands behind it, and which split it is on.

    :raises InputError: a score was made from something else than the suite is of (:func:`check_origin`).
    """
    by_column: dict[str, list[Score]] = {}
    glue: dict[str, list[float]] = {}
    for score in scores:
        check_origin(suite, score.task, score.origin)
        for column in score.percent:
            by_column.setdefault(column, []).append(score)
        if score.glue is not None:
            glue.setdefault(score.task, []).append(score.glue)
    percent = {c: statistics.median(score.percent[c] for score in runs) for c, runs in by_column.items()}
    cells = {column: _cell(column, runs) for column, runs in by_column.items()}
    parts = {task: statistics.median(values) for task, values in glue.items()}
    return Row(
        suite.name,
        suite.kind,
        split_of(cells),
        percent,
        cells,
        parts,
        suite.digest,
        data=suite.identity.get("data", {}),
        chosen_on=chosen_on_of(flatten(suite.identity)),
        checkpoint=suite.identity.get("checkpoint", ""),
    )


def check_origin(suite: Suite, task: str, origin: Mapping[str, Any], parts: Sequence[str] = PARTS) -> None:
    """Refuse a number of other data, tokenizer, code or checkpoint than the row's other cells.

    :param origin: what the number was made from, or is about to be, under the names of ``parts``.
    :raises InputError: naming the row, the task and both digests.
    """
    for part in (part for part in parts if part in suite.identity):
        if part == "data" and task not in REGISTRY:
            continue  # an own task's column stands beside the row's identity; its cell says which rows it is of
        expected = suite.identity[part].get(task) if part == "data" else suite.identity[part]
        if (given := origin.get(part)) != expected:
            raise InputError(
                f"leaderboard row {suite.name}: {task}: made from the {part} {given}, expected {expected}; "
                "a row never mixes them"
            )


def _cell(column: str, runs: Sequence[Score]) -> Cell:
    scores = [run.percent[column] for run in runs]
    errors = [run.stderr[column] for run in runs if column in run.stderr]
    networks = [run.network[column] for run in runs if column in run.network]
    answers = tuple(run.answers for run in runs)
    return Cell(
        split="/".join(sorted({run.split for run in runs})),
        seeds=len(runs),
        low=min(scores),
        high=max(scores),
        stderr=statistics.median(errors) if errors else None,
        network=statistics.median(networks) if networks else None,
        collapsed=sum(run.collapsed for run in runs),
        commits=tuple(sorted({run.commit for run in runs if run.commit})),
        synthetic=any(run.synthetic for run in runs),
        own_metric=runs[0].own_metric,
        own_data=runs[0].origin.get("data", "") if runs[0].own_metric else "",
        own_settings=runs[0].origin.get("own settings", ""),
        deviation=statistics.stdev(scores) if len(scores) > 1 else 0.0,
        answers=answers if all(answers) and sum(map(len, answers)) < _ADDRESSES else (),
    )


def record_row(run: Run, row: Row, zero_shot: ZeroShot | None = None) -> Row:
    """Put a row's cells on the suite's run, beside those that earlier runs of the same suite left there.

    One metric a column, as the table prints it, and one tag a column for the exact score and what stands behind it, so
    that two flows that fill one row at the same time take nothing from each other. A number that rests on more seeds
    than ``row``'s stays in MLflow.

    :param zero_shot: of the checkpoint that the row starts from; it takes the place of what is there.
    :return: the whole row, with the numbers of ``row``. Its average over the twelve tasks is logged once it has all.
    :raises InputError: the run belongs to another suite.
    """
    if (there := run.opened_tags.get("suite", "")) != row.suite:
        raise InputError(f"leaderboard row {row.name}: its suite is {row.suite}, the run's is {there}")
    kept = row.only([task for task in row.per_task if not _rests_on_more(run, task, row)])
    parts = {f"{_GLUE}{task}": value for task, value in kept.glue_parts.items()}
    without_tuning = _printed(zero_shot.percent) if zero_shot else {}
    errors = {f"{column}/stderr": cell.stderr for column, cell in kept.cells.items()}
    run.log_results({**_printed(kept.percent), **parts, **without_tuning, **errors})
    if zero_shot and zero_shot.digest:
        run.set_tags({"zero_shot_digest": zero_shot.digest})
    exact = {name: {**dataclasses.asdict(cell), "percent": kept.percent[name]} for name, cell in kept.cells.items()}
    run.set_tags({f"{_CELL}{column}": json.dumps(cell) for column, cell in exact.items()})
    whole = _whole(row, *run.metrics_and_tags())
    totals = {"average": whole.average(list(REGISTRY)), "glue": whole.glue}
    run.log_results(_printed({name: value for name, value in totals.items() if value is not None}))
    collapsed = [f"{column} {cell.collapsed} of {cell.seeds}" for column, cell in whole.cells.items() if cell.collapsed]
    tags = {"split": whole.split, "seeds": whole.seeds, "git_commits": " ".join(whole.commits)}
    run.set_tags({**tags, "collapsed": ", ".join(collapsed)})
    cells = {**whole.cells, **row.cells}
    return dataclasses.replace(
        whole,
        percent={**whole.percent, **row.percent},
        cells=cells,
        glue_parts={**whole.glue_parts, **row.glue_parts},
        split=split_of(cells) or whole.split,
    )


def record_harness(checkpoint: str, percent: Mapping[str, float]) -> None:
    """Put the harness' columns of a checkpoint on the rows of fine-tunes that start from it as it is.

    :param checkpoint: its digest.
    """
    tracker = Tracker()
    there = tracker.served or _state(tracker.uri) is not None  # a database is not made for this
    for run in tracker.search(EXPERIMENT, {"kind": "ours"}, {"checkpoint": checkpoint}) if there else ():
        if not any(name.endswith((".n_transfer", ".snapshot")) for name in run.data.params):
            for column, value in _printed(percent).items():
                tracker.client.log_metric(run.info.run_id, column, value)


def _rests_on_more(run: Run, task: str, row: Row) -> bool:
    """Whether MLflow holds a task's number of this suite from more seeds than ``row`` has."""
    cells = {column: row.cells[column] for column in columns_of(task) if column in row.cells}
    held = {column: json.loads(run.opened_tags.get(_CELL + column, "{}")) for column in cells}
    return any(
        held[column].get("seeds", 0) > cell.seeds
        and all(held[column].get(part, "") == getattr(cell, part) for part in ("own_data", "own_settings"))
        for column, cell in cells.items()
    )


def _printed(percent: Mapping[str, float]) -> dict[str, float]:
    """Scores to one decimal: MLflow's table has no format of its own, and its columns are narrow."""
    return {name: round(value, 1) for name, value in percent.items()}


def _whole(row: Row, metrics: Mapping[str, float], tags: Mapping[str, str]) -> Row:
    own = sorted({name.removeprefix(_CELL) for name in tags if name.startswith(_CELL)} - set(COLUMNS))
    columns = (*COLUMNS, *own)
    kept = {column: json.loads(tags[_CELL + column]) for column in columns if _CELL + column in tags}
    exact = {column: cell.pop("percent", metrics.get(column)) for column, cell in kept.items()}
    cells = _cells(kept)
    return dataclasses.replace(
        row,
        percent={c: v for c in columns if (v := exact.get(c, metrics.get(c))) is not None},
        cells=cells,
        glue_parts={task: metrics[_GLUE + task] for task in GLUE if _GLUE + task in metrics},
        zero_shot={name: value for name, value in metrics.items() if name in ZERO_SHOT or name.startswith(HARNESS)},
        split=split_of(cells) or row.split,
        certain={n.removeprefix(CERTAIN): json.loads(tag) for n, tag in tags.items() if n.startswith(CERTAIN)},
    )


def record_published(tracker: Tracker) -> None:
    """Put the paper's rows into an experiment of their own; one that is there as it is printed stays."""
    _keep_beside(tracker, PUBLISHED_EXPERIMENT, "published", {row.name: row for row in published_rows()})


def record_beside(tracker: Tracker, board: Leaderboard) -> None:
    """Put the paper's own row and the best floors among ours on MLflow's page, where they are compared; no board is
    read from these.
    """
    rows = (*board.floors, *filter(is_paper, board.rows))
    _keep_beside(tracker, EXPERIMENT, BESIDE, {_PAPER if is_paper(row) else row.name: row for row in rows})


def _keep_beside(tracker: Tracker, experiment: str, kind: str, rows: Mapping[str, Row]) -> None:
    """Keep rows that are no suite's under their names, and no other runs of a kind; cheap where nothing changed.

    One whose numbers or table are others now is made anew, as MLflow forgets no column.
    """
    there = {run.info.run_name: run for run in tracker.search(experiment, {"kind": kind})}
    for name, row in rows.items():
        average = row.average(list(REGISTRY))
        numbers = _printed({**row.percent, **row.zero_shot, **({} if average is None else {"average": average})})
        old = there.pop(name, None)
        if old and (old.data.metrics, old.data.tags.get("table", "")) == (numbers, row.source):
            continue
        if old:
            tracker.client.delete_run(old.info.run_id)
        tags = {"kind": kind, "split": row.split, "table": row.source}
        with tracker.open(experiment, name, sha256_json({kind: name}), tags, {}) as run:
            run.log_results(numbers)
    for old in there.values():  # of rows that are no more
        tracker.client.delete_run(old.info.run_id)


def kept_row(run: MlflowRun, kind: Kind) -> Row:
    """The row that a suite's MLflow run holds."""
    tags, params, of = run.data.tags, run.data.params, "data."
    row = Row(
        run.info.run_name,
        kind,
        tags.get("split", "dev"),
        {},
        suite=tags["suite"],
        data={name.removeprefix(of): value for name, value in params.items() if name.startswith(of)},
        chosen_on=chosen_on_of(params),
        checkpoint=params.get("checkpoint", ""),
    )
    return _whole(row, run.data.metrics, tags)


def written_at(run: MlflowRun) -> str:
    """The day and minute (UTC) at which a run was last written."""
    return f"{datetime.fromtimestamp((run.info.end_time or run.info.start_time) / 1000, UTC):%Y-%m-%d %H:%M}"


def read_leaderboard(tracker: Tracker | None = None) -> Leaderboard:
    """All suites that MLflow holds, newest first, baselines, and the published rows."""
    return Leaderboard((*read_rows(tracker or Tracker()), *published_rows()))


def read_rows(tracker: Tracker) -> list[Row]:
    """The rows of the leaderboard that MLflow alone knows: ours, newest first, then the baselines."""
    kinds: tuple[Kind, ...] = ("ours", "baseline")
    runs = [(run, kept_row(run, kind)) for kind in kinds for run in tracker.search(EXPERIMENT, {"kind": kind})]
    runs = [(run, row) for run, row in runs if row.percent]
    words = told_apart([(label_of(row), run.data.params) for run, row in runs])
    models: dict[str, list[str]] = {}
    for tuned in tracker.search(EXPERIMENT, {"kind": "finetune"}) if runs else ():
        if "model" in tuned.data.tags:
            models.setdefault(tuned.data.tags.get("suite_run", ""), []).append(tuned.data.tags["model"])
    return [
        dataclasses.replace(row, differs=text, models=tuple(models.get(run.info.run_id, ())))
        for (run, row), text in zip(runs, words, strict=True)
    ]


def board_of(tracker: Tracker, ours: Sequence[Row], baselines: Iterable[Suite], notes: Sequence[str]) -> Leaderboard:
    """Rows of ours, and on their tasks what MLflow holds of suites of baselines, whichever calls scored them."""
    tasks = [task for row in ours for task in row.per_task]
    kept = (kept_row(run, "ours") for run in tracker.search(EXPERIMENT, {"kind": "ours"}))
    certain = {row.suite: row.certain for row in kept}
    ours = [dataclasses.replace(row, certain=certain.get(row.suite, {})) for row in ours]
    runs = {run.data.tags["suite"]: run for run in reversed(tracker.search(EXPERIMENT, {"kind": "baseline"}))}
    rows = (kept_row(runs[suite.digest], "baseline").only(tasks) for suite in baselines if suite.digest in runs)
    return Leaderboard((*ours, *(row for row in rows if row.percent), *published_rows()), tuple(notes))


def our_rows(ask: bool) -> list[Row]:
    """The rows of our suites; none where MLflow has no database yet, which is not made for this.

    :param ask: whether MLflow is asked, where the rows that are kept are of an older state.
    """
    tracker = Tracker()
    state = _state(tracker.uri)
    if ask and (tracker.served or state is not None):
        rows: Sequence[Row] = kept_leaderboard(tracker)[0].rows
    else:
        rows, _ = _kept(state_folder() / "leaderboard.json", state) or ((), "")
    return [row for row in rows if row.kind == "ours"]


def kept_leaderboard(tracker: Tracker | None = None) -> tuple[Leaderboard, str]:
    """The board of :func:`tasks.report.suites.read_leaderboard` and the words that lead to its page.

    MLflow is not asked where its SQLite file is as it was.
    """
    tracker = tracker or Tracker()
    path, before = state_folder() / "leaderboard.json", _state(tracker.uri)
    kept = _kept(path, before)
    if kept is None:
        kept = read_rows(tracker), leaderboard_line(tracker)
        after = _state(tracker.uri)
        if after is not None and (before == after or before is None):  # nobody wrote meanwhile
            rows = [dataclasses.asdict(row) for row in kept[0]]
            if can_write(path.parent):
                write_json_atomic(path, {"of": after, "rows": rows, "page": kept[1]})
    return Leaderboard((*kept[0], *published_rows())), kept[1]


def _state(uri: str) -> Any | None:
    """What tells one state of the database from the next; None where it is no file of ours, or none yet."""
    served, _, file = os.environ.get(SERVED, "").partition(" ")
    database = Path(file if uri == served else uri.removeprefix(_SQLITE))
    if not (uri == served or uri.startswith(_SQLITE)) or not database.is_file():
        return None
    files = [file for file in (database, database.with_name(f"{database.name}-wal")) if file.is_file()]
    stats = [(file.name, file.stat()) for file in files]
    return [_FILE_VERSION, uri, [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]]


def _kept(path: Path, state: Any | None) -> tuple[list[Row], str] | None:
    """The rows and the words in the file; None where it is of another state, or none of ours."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if state is None or kept["of"] != state:
            return None
        rows = [Row(**{**row, "cells": _cells(row["cells"]), "models": tuple(row["models"])}) for row in kept["rows"]]
        return rows, str(kept["page"])
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _cells(kept: Mapping[str, Any]) -> dict[str, Cell]:
    lists = ("commits", "answers")
    return {c: Cell(**{**cell, **{name: tuple(cell.get(name, ())) for name in lists}}) for c, cell in kept.items()}
