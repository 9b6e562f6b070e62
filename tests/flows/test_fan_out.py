"""What chains and fan-outs hand on to their stages, each a stand-in here: which, in which order, of what."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flows.trainings import chain, leaderboard
from flows.trainings.chain import Chain, books_to_shards
from flows.trainings.failures import Failures
from flows.trainings.grid import Arm
from flows.trainings.train import Policy
from gptcore.base.errors import InputError
from gptcore.config import Preset
from gptcore.nlu.own_task import Task
from gptcore.nlu.registry import task_spec
from tasks.report.score import Score
from tests.flows.test_trainings import BAD, BROKEN, ROWS, artifact, grid_of

PRESET: Any = SimpleNamespace(
    name="demo", corpus="clean", tokenizer="bpe", shards="shape", pretrain="updates", model="net"
)
STORE, RAW = cast(Any, "store"), cast(Any, "raw")
CORPUS, PARTS, WORDS = artifact("corpus", "1"), artifact("corpus-part", "2"), artifact("tokenizer", "3")


class Calls(list[tuple[Any, ...]]):
    """Stand-ins for a module's functions, whose calls are noted."""

    def __init__(self, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._module, self._patch = module, monkeypatch

    def stand_in(self, **results: Any) -> None:
        for name, result in results.items():

            def call(*given: Any, name: str = name, result: Any = result, **more: Any) -> Any:
                self.append((name, *given, *([more] if more else [])))
                return result(*given) if callable(result) else result

            self._patch.setattr(self._module, name, call)


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(chain, monkeypatch)


# --- chains


@pytest.mark.parametrize("one_split", [True, False])
def test_books_are_cleaned_one_by_one_where_a_tokenizer_is_given_and_enough_are_held_out(
    one_split: bool, stages: Calls
) -> None:
    stages.stand_in(clean_partitions=PARTS, is_one_split=one_split, clean_corpus=CORPUS, train_tokenizer=WORDS)
    given = books_to_shards(STORE, RAW, PRESET, "dask", WORDS)
    parts: list[Any] = [("clean_partitions", STORE, RAW, "clean", "dask"), ("is_one_split", STORE, PARTS)]
    whole: list[Any] = [("clean_corpus", STORE, RAW, "clean", "dask")]
    assert stages == parts + whole * one_split
    assert (given.corpus, given.tokenizer, given.config, given.dask, given.by_partition) == (
        *((CORPUS if one_split else PARTS), WORDS, "shape", "dask"),
        not one_split,
    )
    stages.clear()
    assert books_to_shards(STORE, RAW, PRESET, tokenizer=WORDS, by_partition=False).by_partition is False
    assert books_to_shards(STORE, RAW, PRESET, "dask").tokenizer == WORDS
    learnt: list[Any] = [*whole, ("train_tokenizer", STORE, CORPUS, "bpe", "dask")]
    assert stages == [("clean_corpus", STORE, RAW, "clean", ""), *learnt]


@pytest.mark.parametrize(("by_partition", "how"), [(True, "encode_partitions"), (False, "encode_shards")])
def test_books_are_encoded_as_they_were_cleaned(by_partition: bool, how: str, stages: Calls) -> None:
    stages.stand_in(encode_partitions="shards", encode_shards="shards", ngrams_beside="counts")
    books = chain.Books(STORE, CORPUS, WORDS, cast(Any, "shape"), "dask", by_partition, count_ngrams=True)
    assert cast(Any, books.ngrams) == "counts"
    assert stages == [(how, STORE, CORPUS, WORDS, "shape", "dask"), ("ngrams_beside", STORE, "shards", "dask", True)]


def chain_on(datasets: Any = ROWS, **given: Any) -> Chain:
    tasks = [Task(task_spec(name)) for name in ROWS]
    shards, model = artifact("shards", "4"), artifact("pretrain", "5")
    return Chain(
        STORE, cast(Preset, PRESET), "data", tasks, CORPUS, WORDS, dict(datasets), shards, None, model, {}, **given
    )


def test_a_chain_names_its_stages_and_takes_tasks_into_a_grid(stages: Calls) -> None:
    found = chain_on(alone=False)
    counts = artifact("ngrams", "6")
    assert found.stages == [CORPUS, WORDS, *ROWS.values(), found.shards, found.checkpoint]
    assert dataclasses.replace(found, ngrams=counts).stages[-2:] == [counts, found.checkpoint]
    stages.stand_in(grid_of=lambda *given: given[4])
    assert {*cast(Any, found.grid([], 3))} == {"rte", "mrpc", "cola"}
    assert {*cast(Any, found.grid([], 3, ["mrpc"]))} == {"mrpc"}
    assert stages[0] == ("grid_of", STORE, PRESET, "data", found.tasks, ROWS, [], 3, {"alone": False})


def test_another_network_of_a_chain_is_trained_on_its_shards(stages: Calls) -> None:
    stages.stand_in(PretrainRequest=lambda *given: given, trained_model="model")
    found = chain_on(nproc=2, sharded=True)
    assert cast(Any, found.pretrain(cast(Any, "net"), start=WORDS)) == "model"
    asked, trained = stages
    settings = {"nproc": 2, "sharded": True, "start": WORDS, "distillation": None, "mentions": None, "preset": "demo"}
    assert asked == ("PretrainRequest", STORE, found.shards, "net", "updates", None, settings)
    assert trained == ("trained_model", (STORE, found.shards, "net", "updates", None))
    stages.clear()
    found.pretrain(cast(Any, "net"), cast(Any, "others"))
    assert stages[0][4] == "others"


def test_forms_list_what_was_trained(stages: Calls) -> None:
    stages.stand_in(run_one="model", list_checkpoints=None)
    request: Any = SimpleNamespace(store=STORE)
    assert cast(Any, chain.trained_model(request)) == "model"
    assert stages == [("run_one", request), ("list_checkpoints", STORE)]


@pytest.mark.parametrize("whole", [True, False])
def test_a_task_with_broken_rows_ends_a_chain_or_is_left_out(whole: bool, stages: Calls) -> None:
    tasks = [Task(task_spec(name)) for name in ROWS]

    def baselines(_: object, datasets: str, spec: Any) -> None:
        assert datasets == "data"
        if spec.name == "mrpc":
            raise BAD

    stages.stand_in(chosen_tasks=tasks, score_baselines=baselines)
    family: Any = SimpleNamespace(require_form=lambda name, places: None)
    if whole:
        with pytest.raises(InputError, match="found 2 cells"):
            chain._readable(STORE, "data", ["x"], family)
    else:
        good, left_out = chain._readable(STORE, "data", ["x"], family, whole=False)
        assert ([task.name for task in good], left_out) == (["rte", "cola"], {"mrpc": BAD})
    assert stages[0] == ("chosen_tasks", ["x"], "data")


def test_a_model_is_named_by_its_size(stages: Calls) -> None:
    for weights, words in ((116_534_784, "0.12 G aaaaaa"), (12_345, "12345 aaaaaa")):
        stages.stand_in(n_parameters=weights)
        assert chain.named_by_size(STORE, artifact("pretrain", "a")) == words


# --- fan-outs


class Row:
    """The run of a suite, which is open while its scores are made."""

    def __init__(self, suite: Any) -> None:
        self.suite, self.run_id, self.url = suite, f"run of {suite}", f"page of {suite}"
        self.is_open = False


class Fan:
    """A fan-out of two arms on three tasks, whose stages are stand-ins; ``fails``: arm and task, with the exception."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = Calls(leaderboard, monkeypatch)
        self.fails: dict[tuple[str, str], Exception] = {}
        self.opened: list[Row] = []
        self.policy = Policy(False, 2, 2)
        arms = [Arm("plain", artifact("pretrain", "1")), Arm("scratch", artifact("pretrain", "1"))]
        grid = grid_of(arms, seeds=1, notes=("a note",))
        self.grid: Any = _Grid(grid, self)
        rows = {"baseline": "word counts"}
        stored = SimpleNamespace(submit=lambda _, __, spec: _Future(rows | {"task": spec.name}))
        monkeypatch.setattr(leaderboard, "score_baselines", stored)
        monkeypatch.setattr(leaderboard, "FORMS", {"a": SimpleNamespace(floors=("baseline", "constant"))})
        monkeypatch.setattr(leaderboard, "open_suite", self.open)
        monkeypatch.setattr(leaderboard, "Tracker", lambda: "tracker")
        monkeypatch.setattr(leaderboard.signals, "listen", lambda: None)
        self.calls.stand_in(
            suite_of=lambda grid, arm, data: arm.label,
            _zero_shot=lambda grid, arm: f"zero {arm.label}",
            _fingerprints={"rte": "1", "mrpc": "2", "cola": "3"},
            dataset_origin="origin",
            check_origin=None,
            run_all=self.trained,
            record_row=lambda run, row, *more: (run.suite, row),
            row_of=lambda suite, scores: (suite, tuple(scores)),
            _counting={},
            _floor=lambda label, data: label,
            _ngram_floor="n-grams",
            task_data=lambda store, dataset: dataset.digest[0],
            has_inputs=lambda run: run.suite == "baseline",
            log_inputs=None,
            show_experiments=None,
            compare_rows=None,
            notes_on=("noted",),
            board_of="board",
            show_suite=None,
            publish_table_of="table",
            artifact_page=lambda name: f"page of {name}",
        )

    @contextmanager
    def open(self, tracker: str, suite: Any) -> Iterator[Row]:
        assert tracker == "tracker"
        row = Row(suite)
        self.opened.append(row)
        row.is_open = True
        yield row
        row.is_open = False

    def trained(self, requests: list[Any], policy: Policy, stage: str) -> list[Any]:
        assert (policy, stage, [row.is_open for row in self.opened]) == (self.policy, "fine-tunes", [True, True])
        return [
            self.fails.get((request.arm, request.name), Score(request.name, 0, "dev", {}, notes=(request.suite_run,)))
            for request in requests
        ]

    def run(self) -> Any:
        return leaderboard.fine_tunes.fn(self.grid, self.policy)

    def called(self, name: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == name]


@dataclasses.dataclass(frozen=True)
class _Request:
    name: str
    arm: str
    suite_run: str = ""


class _Future:
    def __init__(self, found: Any) -> None:
        self._found, self._waited = found, False

    def wait(self) -> None:
        self._waited = True

    def result(self) -> Any:
        assert self._waited
        return self._found


class _Grid:
    """The grid with requests in place of trainings: one that others start from, and one a task and arm."""

    def __init__(self, grid: Any, fan: Fan) -> None:
        self._grid = grid
        self.store: Any = SimpleNamespace(manifest=lambda dataset: {"of": dataset.digest[0]})
        self.datasets_url = "data"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def starts(self) -> Iterator[tuple[int, Any]]:
        yield 1, _Request("mnli", "scratch")

    def trainings(self) -> Iterator[tuple[int, Any]]:
        for name in ROWS:
            for place, arm in enumerate(self.arms):
                yield place, _Request(name, arm.label)


@pytest.fixture
def fan(monkeypatch: pytest.MonkeyPatch) -> Fan:
    return Fan(monkeypatch)


def scores(arm: str, *names: str) -> tuple[Score, ...]:
    return tuple(Score(name, 0, "dev", {}, notes=(f"run of {arm}",)) for name in names)


def test_a_fan_out_fills_a_row_an_arm_then_the_floors(fan: Fan) -> None:
    found = fan.run()
    plain, scratch = (scores(arm, *ROWS) for arm in ("plain", "scratch"))
    floor = tuple("word counts" for _ in ROWS)
    recorded = fan.called("record_row")
    assert [(run.suite, row, *more) for run, row, *more in recorded] == [
        ("plain", ("plain", plain), "zero plain"),
        ("scratch", ("scratch", scratch), "zero scratch"),
        ("baseline", ("baseline", floor)),
    ]
    assert [row.suite for row in fan.opened] == ["plain", "scratch", "baseline"]
    assert not any(row.is_open for row in fan.opened)
    assert [row.suite for row, _ in fan.called("show_suite")] == ["plain", "scratch", "baseline"]
    assert fan.called("log_inputs") == [], "the baseline's are there"
    assert fan.called("check_origin") == [
        (suite, name, "origin", ("data", "tokenizer")) for name in ROWS for suite in ("plain", "scratch")
    ]
    ((_, rows, floors, notes),) = fan.called("board_of")
    assert (rows, floors) == (
        [("plain", ("plain", plain)), ("scratch", ("scratch", scratch))],
        ["baseline", "constant", "n-grams"],
    )
    assert notes == ("a note", "noted")
    assert (found.board, found.scores, found.page, found.table) == ("board", [*plain], "page of plain", "page of table")
    assert (found.failures, found.data) == ({}, {"rte": "1", "mrpc": "2", "cola": "3"})
    assert fan.called("_fingerprints") == [("data", [*ROWS])]


def test_a_fan_outs_failures_are_its_tasks_alone(fan: Fan) -> None:
    fan.fails = {("scratch", "mrpc"): BROKEN, ("plain", "cola"): BAD}
    found = fan.run()
    rows = [row for _, row, *_ in fan.called("record_row")]
    assert rows[:2] == [
        ("plain", scores("plain", "rte", "mrpc")),
        ("scratch", scores("scratch", "rte", "cola")),
    ]
    assert found.failures == {"cola": BAD, "mrpc": BROKEN}
    fan.fails = {(arm, name): BROKEN for arm in ("plain", "scratch") for name in ROWS} | {("plain", "rte"): BAD}
    fan.opened.clear()
    with pytest.raises(InputError, match="found 2 cells"):
        fan.run()


def test_tasks_of_ones_own_alone_have_no_fingerprints(fan: Fan) -> None:
    fan.grid.datasets_url = ""
    assert fan.run().data == {}
    assert fan.called("_fingerprints") == []


@pytest.mark.parametrize(("rates", "failed"), [((), False), ((1.0, 2.0), True)])
def test_rates_are_tried_first_and_what_is_missing_is_told_last(
    rates: tuple[float, ...], failed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(leaderboard, monkeypatch)
    arms = [Arm("plain", artifact("pretrain", "1"))]
    grid = grid_of(arms, seeds=1, origin="preset demo")
    board, failures = object(), {"cola": BROKEN} if failed else {}
    found = SimpleNamespace(board=board, failures=failures, scores=scores("plain", "rte", "mrpc"))
    options: list[dict[str, Any]] = []

    class Tunes:
        @staticmethod
        def with_options(**given: Any) -> Any:
            options.append(given)
            return lambda *asked: calls.append(("fine_tunes", *asked)) or found

    monkeypatch.setattr(leaderboard, "fine_tunes", Tunes)
    monkeypatch.setattr("flows.trainings.grid.Grid.starts", lambda _: iter([(0, "start")]))
    monkeypatch.setattr("flows.trainings.grid.Grid.trainings", lambda _: iter([(0, "cell")]))
    calls.stand_in(
        with_sources=lambda grid, left_out: grid,
        command_line=lambda short: f"gptmill finetune {short}",
        choose_rates=lambda grid, *_: (dataclasses.replace(grid, rates=rates), "tried"),
        policy_for=Policy(False, 3, 3),
        result_card="card",
        publish_result=None,
    )
    left_out: Failures = {"sst2": BAD}
    if failed:
        with pytest.raises(
            RuntimeError, match=r"^2 of the tasks failed, the others stand: sst2: .*; cola: ValueError"
        ) as told:
            leaderboard.score_tasks(grid, 4, {"More": "words"}, left_out, rates)
        assert cast(Any, told.value).board is board
    else:
        assert cast(Any, leaderboard.score_tasks(grid, 4, {"More": "words"}, None, rates)) is board
    assert left_out == {"sst2": BAD}, "its caller's own"
    assert [call[0] for call in calls] == [
        *("with_sources", "command_line"),
        *(["choose_rates"] * bool(rates)),
        *("policy_for", "fine_tunes", "result_card", "publish_result"),
    ]
    named = {call[0]: call[1:] for call in calls}
    assert named["policy_for"] == (["start", "cell"], 4)
    handed, policy = named["fine_tunes"]
    assert (handed.command, handed.rates, policy) == ("gptmill finetune 111111111111", rates, Policy(False, 3, 3))
    assert options[0]["flow_run_name"] == "fine-tunes: 3 tasks x plain"
    _, _, shown, checkpoint, configs, origin, of, sections = named["result_card"]
    assert (shown, checkpoint, {*configs}) == (
        {n: ROWS[n] for n in ("rte", "mrpc")},
        arms[0].checkpoint,
        {"rte", "mrpc"},
    )
    assert (origin, of) == ("preset demo", found)
    assert sections == ({"Rates tried": "tried"} if rates else {}) | {"More": "words"}
    assert named["publish_result"] == ("card",)


def test_the_leaderboard_of_all_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(leaderboard, monkeypatch)
    calls.stand_in(read_leaderboard="board", show_leaderboard=None)
    assert cast(Any, leaderboard.leaderboard.fn()) == "board"
    assert calls == [("read_leaderboard",), ("show_leaderboard", "board")]
