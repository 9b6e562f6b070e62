"""The board and the pages of suites are of all that MLflow holds of them: calls in any order are one call."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.report.leaderboard import Leaderboard
from tasks.report.report import show_suite
from tasks.report.score import Score
from tasks.report.suites import EXPERIMENT, Suite, board_of, open_suite, record_row, row_of
from tasks.tracking.tracker import NOTE, Tracker

PAIRS = ("rte", "snli")
TASKS = (*PAIRS, "sst2", "mood")  # the last one is a user's own
BASELINES = ("best constant", "bag of words", "overlap")
ARMS = ("pre-trained", "from scratch")
CELLS = [(arm, task) for arm in ARMS for task in TASKS]
WORLDS = itertools.count()  # each set of calls has rows of its own, and so suites of its own


@st.composite
def calls_of(draw: st.DrawFn) -> list[list[tuple[str, str]]]:
    """All cells in any order, cut anywhere."""
    cells, calls = draw(st.permutations(CELLS)), [[]]
    for cell in cells:
        if calls[-1] and draw(st.booleans()):
            calls.append([])
        calls[-1].append(cell)
    return calls


def score(world: int, label: str, task: str, seeds: int = 1) -> list[Score]:
    percent = 30.0 + 7 * (BASELINES + ARMS).index(label) + 3 * TASKS.index(task)
    own = {"own_metric": "accuracy"} if task == "mood" else {}
    origin = {"data": f"{task} {world}"}
    return [
        Score(task, seed, "dev", {task: percent + seed}, {task: 1.5}, origin=origin, **own) for seed in range(seeds)
    ]


def suite(world: int, label: str) -> Suite:
    data = {task: f"{task} {world}" for task in TASKS if task != "mood"}
    return Suite(label, "ours" if label in ARMS else "baseline", {"data": data})


def call(tracker: Tracker, world: int, cells: Sequence[tuple[str, str]], seeds: int = 2) -> Leaderboard:
    """Fine-tune some tasks in some arms, as far as the board can tell."""
    arms = {arm: [task for other, task in cells if other == arm] for arm, _ in cells}
    tasks = list(dict.fromkeys(task for _, task in cells))
    floors = [suite(world, label) for label in BASELINES]
    with ExitStack() as stack:
        runs, rows = [], []
        for arm, names in arms.items():
            of, scores = suite(world, arm), [each for task in names for each in score(world, arm, task, seeds)]
            runs.append(stack.enter_context(open_suite(tracker, of)))
            rows.append(record_row(runs[-1], row_of(of, scores)))
        for of in floors:
            fitted = [
                each
                for task in tasks
                if of.label != "overlap" or task in PAIRS
                for each in score(world, of.label, task)
            ]
            if fitted:
                runs.append(stack.enter_context(open_suite(tracker, of)))
                record_row(runs[-1], row_of(of, fitted))
        board = board_of(tracker, rows, floors, ())
        for run in runs:
            show_suite(run, board)
    return board


def pages(tracker: Tracker, world: int) -> dict[str, object]:
    """Suite -> its page's words and numbers, without the digests of its rows."""
    found: dict[str, object] = {}
    for label in (*ARMS, *BASELINES):
        (run,) = tracker.search(EXPERIMENT, {"suite": suite(world, label).digest})
        described, kept = run.data.tags[NOTE], []
        if label in ARMS:
            with TemporaryDirectory() as folder:
                path = tracker.client.download_artifacts(run.info.run_id, "scores.csv", folder)
                kept = list(csv.reader(Path(path).read_text(encoding="utf-8").splitlines()))
        found[label] = [re.sub(r"\b([0-9a-f]{6}|[0-9a-f]{32})\b", "", text) for text in (described, *map(str, kept))]
    return found


@given(calls_of())
@settings(max_examples=5, deadline=None)
def test_calls_in_any_order_are_one_call(shared_tracker: Tracker, calls: list[list[tuple[str, str]]]) -> None:
    one, several = next(WORLDS), next(WORLDS)
    call(shared_tracker, one, CELLS)
    for cells in calls:
        call(shared_tracker, several, cells)
    assert pages(shared_tracker, several) == pages(shared_tracker, one)


def test_a_call_shows_the_floors_of_its_own_rows_alone(shared_tracker: Tracker) -> None:
    """Floors of other rows are another board's; those of tasks that no row here has would leave it without average."""
    here, elsewhere = next(WORLDS), next(WORLDS)
    call(shared_tracker, elsewhere, CELLS)
    call(shared_tracker, here, [("from scratch", task) for task in TASKS])
    board = call(shared_tracker, here, [("pre-trained", "rte")])
    assert board.tasks == ["rte"]
    (floor,) = board.floors
    assert (floor.percent, floor.floors) == ({"rte": 44.0}, {"rte": "overlap"})
    assert [row.suite for row in board.rows if row.kind == "baseline"] == [suite(here, b).digest for b in BASELINES]


def test_a_page_keeps_the_number_of_more_seeds(shared_tracker: Tracker) -> None:
    """MLflow keeps it, too: a look at one seed is no news of a median of several."""
    world = next(WORLDS)
    call(shared_tracker, world, CELLS, seeds=3)
    before = pages(shared_tracker, world)
    board = call(shared_tracker, world, [("pre-trained", "rte")], seeds=1)
    assert board.rows[0].cells["rte"].seeds == 1, "this call's own number, on its own card"
    assert pages(shared_tracker, world) == before
