"""Fan-outs without a training: which runs a grid has and in which order, which rate wins, what a failure costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flows.trainings import leaderboard, rates, train
from flows.trainings.failures import (
    Failures,
    SomeFailed,
    SomeInputsBad,
    each_apart,
    first_line,
    leave_out,
    raise_for,
    raise_if_all,
)
from flows.trainings.grid import Arm, Grid, recipe_in_words
from gptcore.base.errors import InputError
from gptcore.config import FinetuneConfig
from gptcore.nlu.own_task import Task
from gptcore.nlu.registry import task_spec
from tasks.report.score import Score
from tasks.stages.finetune import FinetuneRequest
from tasks.store.artifact import Artifact
from tasks.store.store import Store
from tasks.tracking.logs import Underway

BAD, BROKEN = InputError("rows.csv, line 3: found 2 cells"), ValueError("no such head\nand its log")


# --- failures


def test_a_failure_in_a_line() -> None:
    assert (first_line(BAD), first_line(BROKEN)) == ("rows.csv, line 3: found 2 cells", "ValueError: no such head")


def test_the_first_failure_is_raised_where_nothing_is_left_to_go_on_with() -> None:
    raise_if_all({}, [])
    raise_if_all({}, ["rte"])
    raise_if_all({"rte": BAD}, ["rte", "mrpc"])
    with pytest.raises(ValueError, match="no such head"):
        raise_if_all({"mrpc": BROKEN, "rte": BAD}, ["rte", "mrpc"])


def test_a_flow_ends_as_failed_and_names_each_task() -> None:
    board = cast(Any, object())
    raise_for({}, board)
    failures: Failures = {}
    leave_out(failures, "rte", BAD)
    with pytest.raises(SomeInputsBad) as bad:
        raise_for(failures, board)
    assert (str(bad.value), bad.value.board) == (
        "1 of the tasks failed, the others stand: rte: rows.csv, line 3: found 2 cells",
        board,
    )
    leave_out(failures, "mrpc", BROKEN)
    with pytest.raises(SomeFailed, match=r"^2 of the tasks failed, .*; mrpc: ValueError: no such head$"):
        raise_for(failures, board)


def test_tasks_are_made_each_apart() -> None:
    tasks = [Task(task_spec(name)) for name in ("rte", "mrpc")]

    def make(task: Task) -> str:
        if task.name == "rte":
            raise BAD
        return task.name.upper()

    assert each_apart(tasks, make) == ({"mrpc": "MRPC"}, {"rte": BAD})
    with pytest.raises(InputError, match="found 2 cells"):
        each_apart(tasks[:1], make)


# --- what a grid is made of


def artifact(stage: str, letter: str) -> Artifact:
    return Artifact(stage, letter * 64, f"store/{stage}/{letter}")


class Shelf:
    """A store that knows how many tokens each task's rows have; every checkpoint is a student's."""

    tokens: Mapping[str, int] = {"a": 10, "b": 30, "c": 20}
    url = "store"

    def manifest(self, found: Artifact) -> Any:
        splits = {"train": {"rows": 1, "tokens": self.tokens.get(found.digest[0], 0)}}
        return {"config": {"distil": {}}, "counts": {"splits": splits}}

    def find(self, *_: object) -> None:
        return None


ROWS = {"rte": artifact("dataset", "a"), "mrpc": artifact("dataset", "b"), "cola": artifact("dataset", "c")}
MNLI = artifact("dataset", "d")
SETTINGS = {name: FinetuneConfig(lr=1e-3) for name in (*ROWS, "mnli")}


def grid_of(arms: Sequence[Arm], **given: Any) -> Grid:
    whole = {"datasets": ROWS, "settings": SETTINGS, "seeds": 2, "sources": {"mnli": MNLI}, **given}
    tasks = [Task(task_spec(name)) for name in ROWS]
    return Grid(cast(Store, Shelf()), "", tasks, whole.pop("datasets"), arms, whole.pop("settings"), **whole)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(_: object, dataset: Artifact) -> Any:
        return SimpleNamespace(splits={"train": SimpleNamespace(tokens=Shelf.tokens[dataset.digest[0]])})

    monkeypatch.setattr("flows.trainings.grid.DatasetCounts", SimpleNamespace(of=of))
    monkeypatch.setattr(FinetuneRequest, "artifact", property(lambda self: artifact("finetune", "f")))


def runs(found: Iterator[tuple[int, FinetuneRequest]]) -> list[tuple[int, str, int]]:
    """Place, task and seed of each."""
    return [(place, request.name, request.config.seed) for place, request in found]


@pytest.mark.usefixtures("counted")
def test_the_longest_task_comes_first_and_what_waits_for_another_last() -> None:
    plain, scratch = (
        Arm("plain", artifact("pretrain", "1")),
        Arm("scratch", artifact("pretrain", "1"), {"pretrained": False}),
    )
    settings = {**SETTINGS, "mrpc": FinetuneConfig(lr=1e-3, from_task="mnli")}
    grid = grid_of([plain, scratch], settings=settings)
    assert runs(grid.starts()) == [(0, "mnli", 0)], "of random weights no other task's model is between"
    assert runs(grid.trainings()) == [
        *((1, "mrpc", 0), (1, "mrpc", 1)),
        *((0, "cola", 0), (0, "cola", 1), (1, "cola", 0), (1, "cola", 1)),
        *((0, "rte", 0), (0, "rte", 1), (1, "rte", 0), (1, "rte", 1)),
        *((0, "mrpc", 0), (0, "mrpc", 1)),
    ]
    found = {(place, request.name): request for place, request in grid.trainings()}
    assert found[0, "mrpc"].start == artifact("finetune", "f")
    assert (found[0, "rte"].start, found[0, "rte"].teacher, found[0, "rte"].dataset) == (None, None, ROWS["rte"])
    ((_, start),) = grid.starts()
    assert (start.dataset, start.config.from_task, start.arm) == (MNLI, None, "plain")
    by_registry = dataclasses.replace(grid, seeds=0)
    assert len(runs(by_registry.trainings())) == 2 * sum(task_spec(name).seeds for name in ROWS)


@pytest.mark.usefixtures("counted")
def test_a_student_learns_from_its_teachers_model_of_the_task_with_seed_0() -> None:
    teacher = Arm("teacher", artifact("pretrain", "1"))
    student = Arm("student", artifact("pretrain", "2"), teacher=teacher)
    settings = {**SETTINGS, "rte": FinetuneConfig(lr=1e-3, taught=True, lm_coef=0.0)}
    alone = grid_of([student], settings=settings)
    assert runs(alone.starts()) == [(0, "rte", 0)]
    ((_, first),) = alone.starts()
    assert (first.checkpoint, first.config.taught, first.arm) == (teacher.checkpoint, False, "teacher")
    both = grid_of([student, teacher], settings=settings, chosen={"rte": 5e-4})
    assert runs(both.starts()) == [(1, "rte", 0)], "in the teacher's own row"
    by_place = {(place, request.name): request for place, request in both.trainings()}
    assert by_place[0, "rte"].teacher == artifact("finetune", "f")
    assert by_place[0, "mrpc"].teacher is None
    assert by_place[1, "rte"].teacher is None
    assert {request.config.lr for request in by_place.values() if request.name == "rte"} == {5e-4}
    assert {request.config.lr for request in by_place.values() if request.name != "rte"} == {1e-3}
    ((_, first),) = grid_of([student], settings=settings, chosen={"rte": 5e-4}).starts()
    assert first.config.lr == 1e-3, "a teacher without a row keeps its settings' rate"


def test_what_goes_with_all_weights_of_the_checkpoint_alone() -> None:
    teacher = Arm("teacher", artifact("pretrain", "1"))
    starts, taught = FinetuneConfig(from_task="mnli"), FinetuneConfig(taught=True, lm_coef=0.0)

    def of(**changes: Any) -> tuple[str | None, bool]:
        arm = Arm("a", teacher.checkpoint, changes, teacher)
        return arm.settings(starts).from_task, arm.settings(taught).taught

    assert of() == ("mnli", True)
    assert of(n_transfer=3) == (None, True)
    assert of(pretrained=False) == (None, False)
    assert Arm("a", teacher.checkpoint).settings(taught).taught is False
    assert recipe_in_words([starts, FinetuneConfig(lr=1e-4, epochs=5)]) == (
        "lr 6.25e-05 or 0.0001, 3 or 5 epochs of batches of 32"
    )


# --- which rate wins


class Shown:
    """The run of the trials, which takes what is logged."""

    run_id = "7"

    def __init__(self) -> None:
        self.tags: dict[str, str] = {}
        self.results: dict[str, float] = {}

    def set_tags(self, tags: dict[str, str]) -> None:
        self.tags |= tags

    def log_results(self, results: dict[str, float]) -> None:
        self.results |= results


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> tuple[Shown, list[list[tuple[str, float]]]]:
    """What is shown, and each batch of trials: task and rate. A score is that of its task and rate; rte fails at 1."""
    shown, batches = Shown(), list[list[tuple[str, float]]]()
    scores = {("mrpc", 1.0): 71.26, ("mrpc", 2.0): 71.26, ("cola", 1.0): 10.0, ("cola", 2.0): 20.0, ("rte", 2.0): 5.0}

    @contextmanager
    def opened(*_: object) -> Iterator[Shown]:
        yield shown

    def all_of(run: Any, jobs: int, words: str, calls: Sequence[FinetuneRequest]) -> list[Any]:
        assert (run, jobs) == (shown, 3)
        batches.append([(call.name, call.config.lr) for call in calls])
        return [BROKEN if (call.name, call.config.lr) not in scores else call for call in calls]

    monkeypatch.setattr(rates, "_open", opened)
    monkeypatch.setattr(rates, "_train", all_of)
    monkeypatch.setattr(
        rates,
        "_score",
        lambda call, result: result if isinstance(result, Exception) else scores[call.name, call.config.lr],
    )
    monkeypatch.setattr(FinetuneRequest, "artifact", property(lambda self: artifact("finetune", "f")))
    monkeypatch.setattr(
        FinetuneRequest, "recipe", property(lambda self: SimpleNamespace(digest=f"{self.name} {self.config.lr}"))
    )
    return shown, batches


def test_each_task_has_its_best_rate_and_a_task_without_one_goes_no_further(
    trials: tuple[Shown, list[list[tuple[str, float]]]],
) -> None:
    shown, batches = trials
    left_out: Failures = {}
    settings = {**SETTINGS, "mrpc": FinetuneConfig(lr=1e-3, select=None)}
    grid = grid_of([Arm("plain", artifact("pretrain", "1"))], settings=settings)
    found, table = rates.choose_rates(grid, (1.0, 2.0), 3, left_out)
    assert batches == [[(name, rate) for name in ROWS for rate in (1.0, 2.0)]]
    assert dict(found.chosen) == {"rte": 2.0, "mrpc": 1.0, "cola": 2.0}, "the first of two that are level"
    assert (found.rates, left_out) == ((1.0, 2.0), {})
    assert found.notes == tuple(
        f"{name}: rate {rate} of 1, 2, by the score of seed 0 on {rows} rows"
        for name, rate, rows in (("rte", 2, "held-out"), ("mrpc", 1, "dev"), ("cola", 2, "held-out"))
    )
    assert shown.results == {"mrpc/1": 71.3, "mrpc/2": 71.3, "cola/1": 10.0, "cola/2": 20.0, "rte/2": 5.0}
    assert shown.tags == {"mlflow.note.content": table}
    found, _ = rates.choose_rates(dataclasses.replace(grid, rates=()), (1.0,), 3, left_out)
    assert ({*found.datasets}, left_out) == ({"mrpc", "cola"}, {"rte": BROKEN})
    assert {*found.sources} == {*ROWS, "mnli"}, "others may still start from its rows"
    with pytest.raises(ValueError, match="no such head"):
        rates.choose_rates(dataclasses.replace(grid, datasets={"rte": ROWS["rte"]}), (1.0,), 3, {})


def test_what_tasks_start_from_is_tried_and_trained_before_them(
    trials: tuple[Shown, list[list[tuple[str, float]]]],
) -> None:
    _, batches = trials
    settings = {**SETTINGS, "mrpc": FinetuneConfig(lr=1e-3, from_task="mnli", select="held-out")}
    grid = grid_of([Arm("plain", artifact("pretrain", "1"))], settings=settings)
    left_out: Failures = {}
    found, _ = rates.choose_rates(grid, (1.0, 2.0), 3, left_out)
    assert [[name for name, _ in batch] for batch in batches] == [["rte", "rte", "cola", "cola"], ["mnli"]]
    assert left_out == {"mrpc": BROKEN}, "what it was to start from has failed"
    assert {*found.chosen} == {"rte", "cola"}


# --- rows and their cells


def score(task: str, seed: int) -> Score:
    return Score(task, seed, "dev", {})


def test_a_task_with_a_failed_seed_has_no_score() -> None:
    failures: Failures = {"rte": BAD}
    results: list[tuple[str, Score | Exception]] = [
        ("rte", BROKEN),
        ("rte", score("rte", 1)),
        ("mrpc", score("mrpc", 0)),
        ("cola", score("cola", 0)),
        ("cola", BROKEN),
        ("cola", BAD),
    ]
    assert leaderboard._scores(results, failures) == [score("mrpc", 0)]
    assert failures == {"rte": BAD, "cola": BROKEN}, "the first of each"


def test_one_is_named_and_several_are_counted() -> None:
    assert [leaderboard._counted(names, "task") for names in (["rte"], ["rte", "mrpc"])] == ["rte", "2 tasks"]


def test_rows_of_other_tasks_are_encoded_once_and_broken_ones_cost_who_starts_from_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[str]()

    def encode(_: object, __: str, spec: Any, tokenizer: object) -> Artifact:
        assert tokenizer == "words"
        asked.append(spec.name)
        if spec.name == "snli":
            raise BAD
        return MNLI

    monkeypatch.setattr(leaderboard, "encode_dataset", encode)
    monkeypatch.setattr(leaderboard, "own_tokenizer", lambda *_: "words")
    from_task = {"rte": "mnli", "mrpc": "snli", "cola": "mnli"}
    settings = {name: FinetuneConfig(from_task=source) for name, source in from_task.items()}
    arms = [Arm("plain", artifact("pretrain", "1"))]
    left_out: Failures = {}
    found = leaderboard.with_sources(grid_of(arms, settings=settings, sources={}), left_out)
    assert asked == ["mnli", "snli"]
    assert (dict(found.sources), {*found.datasets}, left_out) == ({"mnli": MNLI}, {"rte", "cola"}, {"mrpc": BAD})
    settings = dict.fromkeys(ROWS, FinetuneConfig(from_task="snli"))
    with pytest.raises(InputError, match="found 2 cells"):
        leaderboard.with_sources(grid_of(arms, settings=settings, sources={}), {})


# --- progress


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (
            {"a": 0.0, "b": 10.0, "c": 10.0},
            [("0 of 3",), ("1 of 3",), ("0:06 left", "2 of 3"), ("0:00 left", "3 of 3")],
        ),
        ({"a": 10.0}, []),
        ({"a": 0.0, "b": 0.0}, [("0 of 2",), ("1 of 2",), ("2 of 2",)]),
    ],
)
def test_what_is_left_is_told_at_the_rate_of_what_has_ended(
    work: dict[str, float], told: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ends three seconds after the one before it."""
    clock, news, shown = [100.0], list[Underway](), list[tuple[float, str]]()

    def ended(futures: list[str]) -> Iterator[str]:
        for future in futures:
            clock[0] += 3
            yield future

    monkeypatch.setattr(train, "as_completed", ended)
    monkeypatch.setattr(train.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(train, "progress", lambda one, line=False: news.append(one))
    monkeypatch.setattr(train, "create_progress_artifact", lambda share, **_: shown.append((share, "begun")))
    monkeypatch.setattr(
        train, "update_progress_artifact", lambda _, percent, description: shown.append((percent, description))
    )
    train.show_progress(cast(Any, work), "fine-tunes")
    assert [one.parts for one in news] == told
    shares = {3: [0.0, 0.0, 50.0, 100.0], 1: [0.0, 100.0], 2: [0.0, 50.0, 100.0]}[len(work)]
    assert [percent for percent, _ in shown] == shares


def test_trainings_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here as many as there is room for; in the pool sixteen, or as many as are asked for."""
    rooms = list[tuple[int, int]]()

    class Request:
        def __init__(self, key: str) -> None:
            self.key = key

        def room(self, jobs: int, number: int) -> int:
            rooms.append((jobs, number))
            return 5

    requests = cast(Any, [Request("a"), Request("b"), Request("a")])
    for pool, jobs, policy in (
        (False, 0, train.Policy(False, 5, 5)),
        (False, 2, train.Policy(False, 5, 5)),
        (True, 0, train.Policy(True, 16, 5)),
        (True, 2, train.Policy(True, 2, 5)),
    ):
        monkeypatch.setattr(train, "dispatches_trainings", lambda _, pool=pool: pool)
        assert train.policy_for(requests, jobs) == policy
        assert rooms.pop() == (jobs, 2)
    assert train.policy_for([]) == train.Policy(True, 16, 1)
