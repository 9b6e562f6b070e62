"""No worker for trainings: what is waited for, what fails, what is trained here, and what is said of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import FlowRunSort
from prefect.runtime import flow_run
from prefect.states import Completed, Pending, Running

from flows.cli import main as cli
from flows.trainings import dispatch, waiting
from flows.trainings.train import run_one
from flows.trainings.worker_policy import NoWorker, worker_policy
from gptcore.base.errors import InputError
from tasks.stages.training import Estimate, JobObserver
from tasks.store.store import Store
from tasks.tracking.logs import Underway
from tests.flows.toy_training import Toy, ToyPretraining

A_MINUTE = Estimate(60.0, "6e+11 operations")
DAYS = Estimate(5e5, "1e+17 operations")


@pytest.mark.parametrize("text", ["wait 0.5", "wait", "fail", "here", "", " wait  3 "])
def test_what_the_variable_may_say(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTMILL_NO_WORKER", text)
    policy = worker_policy()
    assert policy.choice == (text.split() or [""])[0]
    assert policy.hours == {"wait 0.5": 0.5, " wait  3 ": 3.0}.get(text, 24.0)


@pytest.mark.parametrize("text", ["Wait", "wait -1", "wait nan", "wait inf", "wait 1 2", "fail 3", "train"])
def test_another_word_is_one_line(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTMILL_NO_WORKER", text)
    with pytest.raises(InputError, match=r"^GPTMILL_NO_WORKER: found '.*', expected wait, wait HOURS, fail, here"):
        worker_policy()


def test_a_wrong_word_ends_a_command_before_any_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("GPTMILL_NO_WORKER", "soon")
    assert cli.main(["pipeline", "--preset", "demo", "--store", str(tmp_path / "store")]) == 2
    assert "GPTMILL_NO_WORKER: found 'soon'" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


class Orchestrator:
    """A flow that wants one artifact, on a server whose workers come and go as the test says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = Store(str(folder / "store"))
        self.request = ToyPretraining(self.store, folder.name, self._train, "pretrain 1a2b")
        self.recipe = self.request.recipe
        self.here = 0
        self.online = False
        self.looks = 0
        self.on_look: Callable[[Any], object] = lambda _: None
        """What happens while it waits; gets the number of the look."""
        monkeypatch.setattr(dispatch, "_POLL_SECONDS", 0.01)
        monkeypatch.setattr(dispatch, "worker_online", lambda _: self.online)
        monkeypatch.setattr(waiting, "_LOOK_SECONDS", 0.0)
        monkeypatch.setattr(waiting, "_board", waiting._Board())
        monkeypatch.setattr(waiting, "worker_online", self._look)
        self.takes(A_MINUTE, monkeypatch)

    def takes(self, time: Estimate, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (dispatch, waiting):
            monkeypatch.setattr(module, "estimate", lambda *_: time)

    def _train(self, request: Toy) -> None:
        self.here += 1
        request.store.build(request.recipe, lambda _: {})

    def _look(self, _: str) -> bool:
        self.looks += 1
        self.on_look(self.looks)
        return self.online

    def run(self) -> Any:

        @flow(name="orchestrates")
        def wants() -> Any:
            return run_one(self.request)

        return wants()

    @property
    def child(self) -> Any:
        """The training's own run, if one was made."""
        with get_client(sync_client=True) as client:
            runs = client.read_flow_runs(sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=50)
        return next((run for run in runs if run.parameters.get("store") == self.store.url), None)

    def work(self) -> None:
        """What a worker does with the run."""
        self.store.build(self.recipe, lambda _: {})
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(self.child.id, Completed(), force=True)


@pytest.fixture
def orchestrator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deployed: None) -> Orchestrator:
    monkeypatch.delenv("GPTMILL_NO_WORKER", raising=False)
    return Orchestrator(tmp_path, monkeypatch)


def test_a_short_training_is_done_here_and_said(orchestrator: Orchestrator, caplog: pytest.LogCaptureFixture) -> None:
    assert orchestrator.run() is not None
    assert (orchestrator.here, orchestrator.child) == (1, None)
    assert "trainings run in this process: no worker is online in the work pool training" in caplog.text
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    assert "they take a minute or less (estimate: 6e+11 operations)" in caplog.text


def test_a_long_one_waits_for_a_worker_and_says_which_command_brings_one(
    orchestrator: Orchestrator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    orchestrator.takes(DAYS, monkeypatch)
    orchestrator.on_look = lambda look: orchestrator.work() if look == 3 else None
    assert orchestrator.run() is not None
    assert orchestrator.here == 0
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == 1, "the next one comes after ten minutes, not at each look"
    (line,) = lines
    assert line.startswith("pretrain 1a2b: waiting up to 24 hours for a worker: no worker is online in the work pool")
    assert "start one: prefect worker start --pool training, or gptmill up" in line
    assert "here it would take some 6 days (estimate: 1e+17 operations)" in line
    with get_client(sync_client=True) as client:
        shown = client.request("POST", "/artifacts/latest/filter", json={}).json()
    (artifact,) = (each for each in shown if each["key"] == "waiting-for-training")
    assert artifact["data"] == 100.0, "the wait is over"


@pytest.mark.parametrize(("kind", "item"), [(ToyPretraining, ""), (Toy, "rte seed 0, demo")])
def test_a_training_that_a_worker_has_begun_is_shown_as_one_here(
    kind: type[Toy], item: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Underway] = []
    monkeypatch.setattr(waiting, "progress", told.append)
    monkeypatch.setattr(waiting, "_FOLLOW_SECONDS", 0.0)
    monkeypatch.setattr(kind, "item", item)
    wait = waiting.Wait(kind(Store(str(tmp_path)), "a"))
    steps = [{"step": 3, "time": 0.0, "metrics": {"progress": 0.25, "train/loss": 1.5, "eta_seconds": 61.0}}]

    @flow
    def trains() -> None:
        with get_client(sync_client=True) as client:
            for state in (Pending(), Running(), Running()):
                wait.look(client, cast(Any, SimpleNamespace(id=flow_run.id, state=state)))
                if state.is_running():
                    JobObserver("", cast(Any, SimpleNamespace(log_metrics=print)), "a-progress", lambda: None)(steps)

    trains()
    assert told == [
        Underway(
            kind.shown_as, 0.0, ("a worker of the work pool training took it and has not begun it",), item, waits=True
        ),
        Underway(kind.shown_as, 0.0, ("a worker of the work pool training trains it",), item),
        Underway(kind.shown_as, 0.25, ("1:01 left", "loss 1.500", "step 3"), item),
    ]


def test_fail_fails_at_once_with_the_time_that_here_would_take(
    orchestrator: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPTMILL_NO_WORKER", "fail")
    orchestrator.takes(DAYS, monkeypatch)
    with pytest.raises(NoWorker) as caught:
        orchestrator.run()
    assert str(caught.value) == (
        "pretrain 1a2b: no worker is online in the work pool training, and GPTMILL_NO_WORKER=fail; start one: prefect "
        "worker start --pool training, or gptmill up; here it would take some 6 days (estimate: 1e+17 operations)"
    )
    assert orchestrator.child is None


def test_here_is_here_however_long_it_takes(
    orchestrator: Orchestrator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GPTMILL_NO_WORKER", "here")
    orchestrator.takes(DAYS, monkeypatch)
    assert orchestrator.run() is not None
    assert orchestrator.here == 1
    assert "GPTMILL_NO_WORKER=here; they take some 6 days" in caplog.text


def test_what_is_in_the_store_needs_no_worker(orchestrator: Orchestrator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTMILL_NO_WORKER", "fail")
    orchestrator.store.build(orchestrator.recipe, lambda _: {})
    assert orchestrator.run() is not None


@pytest.mark.parametrize("text", ["", "wait"])
def test_a_server_without_our_deployment(
    text: str, orchestrator: Orchestrator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    orchestrator.takes(DAYS, monkeypatch)
    monkeypatch.setattr(dispatch, "_is_deployed", lambda _: False)
    monkeypatch.setenv("GPTMILL_NO_WORKER", text)
    if text:
        with pytest.raises(
            NoWorker, match=r"no deployment train/internal-training \(gptmill deploy\), and GPTMILL_NO_WORKER="
        ):
            orchestrator.run()
    else:
        assert orchestrator.run() is not None
        assert "no deployment train/internal-training (gptmill deploy)" in caplog.text
        (warning,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
        assert "some 6 days" in warning


@pytest.mark.parametrize("text", ["fail", "wait 0"])
def test_the_last_worker_goes_before_it_takes_the_run(
    text: str, orchestrator: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:

    def goes(look: int) -> None:
        orchestrator.online = look < 3

    monkeypatch.setenv("GPTMILL_NO_WORKER", text)
    orchestrator.online, orchestrator.on_look = True, goes
    with pytest.raises(NoWorker, match=r"^pretrain 1a2b: no worker .* in the work pool training.*a minute or less"):
        orchestrator.run()
    assert orchestrator.looks == 3
    assert orchestrator.child.state.is_cancelled()


def test_the_last_worker_goes_and_the_training_is_done_here(
    orchestrator: Orchestrator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GPTMILL_NO_WORKER", "here")
    orchestrator.online = True
    orchestrator.on_look = lambda look: setattr(orchestrator, "online", look < 3)
    assert orchestrator.run() is not None
    assert orchestrator.here == 1
    assert orchestrator.child.state.is_cancelled(), "no worker takes it later, too"
    assert "pretrain 1a2b runs in this process: no worker is online any more in the work pool training" in caplog.text


def test_the_last_worker_goes_and_another_comes(
    orchestrator: Orchestrator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def happens(look: int) -> None:
        orchestrator.online = look != 3
        if look == 5:
            orchestrator.work()

    orchestrator.takes(A_MINUTE, monkeypatch)
    orchestrator.online, orchestrator.on_look = True, happens
    assert orchestrator.run() is not None
    assert orchestrator.here == 0, "what a pool was given stays there"
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == 1
    assert re.fullmatch(
        r"pretrain 1a2b: waiting for 0:0\d, since \d\d:\d\d: no worker is online in the work pool training; "
        "start one: prefect worker start --pool training, or gptmill up",
        lines[0],
    )


def test_sixteen_that_wait_are_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    board = waiting._Board()
    shown: list[tuple[float, str]] = []
    clock = [1000.0]

    def show(percent: float, description: str) -> str:
        shown.append((percent, description))
        return "the artifact"

    monkeypatch.setattr(
        waiting, "create_progress_artifact", lambda percent, key, description: show(percent, description)
    )
    monkeypatch.setattr(waiting, "update_progress_artifact", lambda _, percent, description: show(percent, description))
    monkeypatch.setattr(waiting.time, "monotonic", lambda: clock[0])
    for number in range(16):
        board.put(f"finetune rte seed {number}", "none online", True)
    assert len(shown) == 1
    clock[0] += 601
    for number in range(16):
        board.put(f"finetune rte seed {number}", "none online", True)
    assert len(shown) == 2
    assert shown[1][1].startswith("finetune rte seed 0, finetune rte seed 1 and 14 more: waiting for 10:01, since ")
    for number in range(16):
        board.take_off(f"finetune rte seed {number}")
    assert shown[2:] == [(100.0, "finetune rte seed 15: waited 10:01")]
    board.put("finetune rte seed 3", "busy", False)
    clock[0] += 30
    board.put("finetune rte seed 3", "busy", False)
    assert len(shown) == 3, "a free worker takes some seconds"
    clock[0] += 31
    board.put("finetune rte seed 3", "busy", False)
    assert len(shown) == 4


def test_a_pool_without_workers_is_waited_for_once_not_by_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    board = waiting._Board()
    clock = [1000.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: clock[0])
    assert board.missed() == 0
    clock[0] += 86_400
    assert board.missed() == 86_400
    board.take_off("the first one gave up")
    assert board.missed() == 86_400, "the next batch has no day of its own"
    board.seen()
    assert board.missed() == 0
