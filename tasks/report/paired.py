"""What the rows of the leaderboard differ in for certain: their answers to the same rows of data, in pairs.

A number of ours is compared with the best floor and with the best of ours. What is found stays with the row in MLflow,
so that whoever shows a leaderboard computes nothing, and is found anew only where one side has other answers.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.evaluation.comparison import LEVEL, average, compared, holm
from gptcore.nlu.registry import COLUMNS, TASK_OF_COLUMN, TaskSpec, recorded_task
from tasks.report.rows import Row
from tasks.report.suites import CERTAIN, EXPERIMENT, read_leaderboard
from tasks.store.artifact import Artifact
from tasks.store.lineage import home_of, located
from tasks.tracking.logs import logger
from tasks.tracking.tracker import Tracker

_REDRAWS = 2000  # Holm's correction can tell apart up to 50 rows by them
_ADDRESS = re.compile(r"(?P<url>.+/(?P<stage>[^/]+)/(?P<digest>[0-9a-f]{64}))/(?P<file>.+)")


def compare_rows(tracker: Tracker) -> None:
    """Compare our rows' answers, column by column, and keep what is found as :attr:`tasks.report.rows.Row.certain`.

    ``floor``: the probability of the difference to the best floor (:func:`gptcore.evaluation.comparison.compared`),
    ``best``: to the best of ours; ``level``: whether it is that, or not told apart from it, with Holm's correction over
    all rows that are compared with it. What cannot be compared, as answers are gone or to other rows, is left out.
    """
    board = read_leaderboard(tracker)
    runs = {run.data.tags["suite"]: run for run in tracker.search(EXPERIMENT, {"kind": "ours"})}
    for column in (*COLUMNS, *board.own_tasks, "average"):
        groups: dict[str, list[tuple[float, Row]]] = {}
        tasks = board.tasks if column == "average" else [TASK_OF_COLUMN.get(column, column)]
        for row in (row for row in board.rows if row.kind == "ours"):
            number = row.average(board.tasks) if column == "average" else row.percent.get(column)
            if number is not None:
                part = [runs[row.suite].data.params.get(f"settings.{task}.max_eval_rows") for task in tasks]
                groups.setdefault(str([board.data(row, column), part]), []).append((number, row))
        for group in groups.values():
            best = max(group, key=lambda each: each[0])[1]
            found = [(row, _beside(row, column, board.floor_of(row, column), best)) for _, row in group]
            apart = holm({row.suite: certain["best"] for row, certain in found if "best" in certain})
            for row, certain in found:
                if "best" in certain or (row is best and len(group) > 1):
                    certain["level"] = row is best or apart.get(row.suite, 0.0) >= LEVEL
                if certain != row.certain.get(column, {}):
                    tracker.client.set_tag(runs[row.suite].info.run_id, f"{CERTAIN}{column}", json.dumps(certain))


def _beside(row: Row, column: str, floor: Row | None, best: Row) -> dict[str, Any]:
    """The probabilities of a row's differences to others, and digests of the answers that they are of."""
    columns = {TASK_OF_COLUMN[c]: c for c in COLUMNS if c in row.cells} if column == "average" else {column: column}
    certain: dict[str, Any] = {}
    for name, other in {"floor": floor, "best": best}.items():
        pairs = [[each.cells[c].answers for each in (row, other)] for c in columns.values()] if other else []
        if other is row or not pairs or not all(map(all, pairs)):
            continue
        kept, of = row.certain.get(column, {}), sha256_json(pairs)[:12]
        try:
            certain[name] = kept[name] if kept.get(f"{name} of") == of else _probability(column, pairs)
            certain[f"{name} of"] = of
        except InputError as error:
            logger().info("%s and its %s are not compared on %s: %s", row.name, name, column, error)
    return certain


def _probability(column: str, pairs: list[list[tuple[str, ...]]]) -> float:
    differences, whole = [], column == "average"
    for pair in pairs:
        opened = [[_opened(address) for address in side] for side in pair]
        (task, _), (one, other) = opened[0][0], ([path for _, path in side] for side in opened)
        draws = whole or task.headline != "accuracy" or len(one) + len(other) > 2  # McNemar's test asks for none
        part = column if column in task.subsets else ""
        differences.append(compared(task, one, other, part, _REDRAWS if draws else 1))
    return average(differences).p if whole else differences[0].p


def _opened(address: str) -> tuple[TaskSpec, Path]:
    """The task of a file of answers, and the file itself, wherever its store is by now."""
    parts = _ADDRESS.fullmatch(address)
    assert parts, address
    artifact = located(Artifact(parts["stage"], parts["digest"], parts["url"]))
    home = home_of(artifact)
    return recorded_task(home.manifest(artifact)["config"]), home.local(artifact, parts["file"])
