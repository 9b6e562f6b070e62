"""A tracking server that is away: who waits for it, for how long, and who does not."""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException
from prefect import flow
from sqlalchemy import sql

from gptcore.base.errors import InputError, unwritable
from tasks.jobs.launch import JobInterrupted
from tasks.store.state import state_folder
from tasks.tracking import retry
from tasks.tracking.retry import NoRetries
from tasks.tracking.tracker import Run, Tracker
from tests.tasks.test_tracking import first_use as first_use  # the fixtures
from tests.tasks.test_tracking import home as home
from tests.tasks.test_tracking import records
from tests.trials.scenarios import wait


class _Server(ThreadingHTTPServer):
    """The part of an MLflow server that a search for experiments needs; the first ``broken`` answers are errors."""

    broken = 0

    class _Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            assert isinstance(self.server, _Server)
            self.server.broken -= 1
            self.send_response(500 if self.server.broken >= 0 else 200)
            self.end_headers()
            self.wfile.write(b'{"experiments": [{"experiment_id": "7", "name": "found"}]}')

        do_GET = do_POST

        def log_message(self, *_: object) -> None: ...

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), self._Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.tracking.retry._AGAIN_SECONDS", 0.05)
    monkeypatch.setattr("gptcore.base.filesystems._PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server() as running:
        yield running
        running.shutdown()


@pytest.fixture
def tracker(server: _Server) -> Tracker:
    return Tracker(f"http://127.0.0.1:{server.server_port}")


def _names(tracker: Tracker) -> list[str]:
    return [experiment.name for experiment in tracker.client.search_experiments()]


@pytest.mark.usefixtures("prefect_server", "home", "quick")
def test_a_flow_waits_for_a_server_that_is_away_and_a_command_does_not(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with pytest.raises(InputError, match=f"{url}: does not answer"):
        _ = Tracker(url).client
    away = f"MLflow at {url} is away, waiting for it: MLflow at {url}: does not answer"
    server: list[_Server] = []

    def back_once_it_was_missed() -> None:
        wait(lambda: away in caplog.text, "a word of it", 60, pause=0.05)
        server.append(_Server(port))

    threading.Thread(target=back_once_it_was_missed).start()
    assert flow(_names)(Tracker(url)) == ["found"]
    server[0].shutdown()
    server[0].server_close()
    assert away in caplog.text


@pytest.mark.usefixtures("prefect_server", "home", "quick")
def test_a_flow_waits_for_a_server_whose_database_is_away(server: _Server, tracker: Tracker) -> None:
    assert _names(tracker) == ["found"]
    server.broken = 3
    with pytest.raises(MlflowException, match="500"):
        _names(tracker)
    server.broken = 3
    assert flow(_names)(tracker) == ["found"]
    assert server.broken < 0


@pytest.mark.usefixtures("prefect_server", "home", "quick")
def test_a_server_that_has_no_room_for_its_database_is_not_waited_for(
    server: _Server, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _names(tracker) == ["found"]
    server.broken = 3
    monkeypatch.setattr("tasks.tracking.retry.is_full", lambda _: True)
    with pytest.raises(OSError, match="No space left on device") as told:
        flow(_names)(tracker)
    assert (server.broken, unwritable(told.value)) == (2, ("no space left on the disk", str(state_folder())))


@pytest.mark.usefixtures("prefect_server", "home", "quick")
def test_a_process_that_ends_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.tracking.retry.jobs_are_stopped", lambda: True)
    with pytest.raises(JobInterrupted, match="was not waited for"):
        flow(_names)(Tracker("http://127.0.0.1:1"))


@pytest.mark.usefixtures("prefect_server", "home", "quick")
def test_an_outage_is_waited_for_once_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tasks.tracking.retry._UNREACHABLE_SECONDS", 0.3)
    tracker = Tracker("http://127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(ConnectionError, match=r"was away for 0 minutes: .*does not answer"):
            flow(_names)(tracker)
    assert caplog.text.count("waiting for it") == 1
    assert retry._outages.pop(tracker.shown).since < time.monotonic() - 0.3


@pytest.mark.usefixtures("quick")
def test_many_threads_wait_for_one_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.tracking.retry.in_run", lambda: True)
    monkeypatch.setattr("tasks.tracking.retry.answers_at", lambda _: time.sleep(0.05))
    back = time.monotonic() + 0.5

    def call() -> bool:
        if time.monotonic() < back:
            raise retry.Unreachable("away")
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(future.result() for future in [pool.submit(retry.retried, call, "http://x") for _ in range(32)])
    assert "http://x" not in retry._outages


@pytest.mark.usefixtures("quick")
def test_a_server_that_comes_back_broken_gets_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Away for long and then without its database for a moment, as after a power cut."""
    monkeypatch.setattr("tasks.tracking.retry.in_run", lambda: True)
    monkeypatch.setattr("tasks.tracking.retry._BROKEN_SECONDS", 0.5)
    answers = iter([*[False] * 30, *[True] * 3])
    monkeypatch.setattr("tasks.tracking.retry.answers_at", lambda _: next(answers))
    errors = iter([True] * 33)

    def call() -> str:
        if next(errors, False):
            raise retry.Unreachable("away")
        return "back"

    assert retry.retried(call, "http://y") == "back"  # after 1.65 s, of which 0.15 s broken


def test_threads_in_a_hurry_leave_the_settings_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_TIMEOUT", raising=False)
    first, second = NoRetries(), NoRetries()
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "0"
    second.__exit__()
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "3"
    assert "MLFLOW_HTTP_REQUEST_TIMEOUT" not in os.environ


@pytest.mark.usefixtures("prefect_server", "home", "quick")
def test_points_of_a_reopened_run_wait_too(server: _Server, tracker: Tracker, caplog: pytest.LogCaptureFixture) -> None:
    def work() -> Run:
        _ = tracker.client
        run = Run(tracker, "run", "7", finished=False, fresh=False)
        server.broken = 1_000_000
        run.log_metrics(records(0, 1, validation=1.0))
        return run

    start = time.monotonic()
    run = flow(work)()
    assert time.monotonic() - start < 10
    assert len(run._unsorted) == 2
    assert f"{sum(len(record['metrics']) for record in run._unsorted)} metrics wait for MLflow" in caplog.text


@pytest.mark.usefixtures("prefect_server", "home", "quick")
@pytest.mark.parametrize("told", [KeyboardInterrupt, JobInterrupted])
def test_who_is_told_to_end_does_not_wait(
    server: _Server, tracker: Tracker, told: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def work() -> None:
        _ = tracker.client
        with Run(tracker, "run", "7", finished=False, fresh=True):
            server.broken = 1_000_000
            raise told

    start = time.monotonic()
    with pytest.raises(told):
        flow(work)()
    assert time.monotonic() - start < 10
    assert "run run stays as it is" in caplog.text


@pytest.mark.usefixtures("prefect_server", "quick")
def test_a_flow_waits_for_a_database_that_somebody_holds_locked(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For longer than MLflow waits for SQLite, which is 20 s: no point, result or end of a run is lost."""
    monkeypatch.setattr(
        "mlflow.store.db.utils.sql", SimpleNamespace(text=lambda line: sql.text(line.replace("20000", "50")))
    )
    tracker = Tracker()
    hasty = tracker.open("locked", "a command's", "hasty", {}, {"lr": 1})

    def tracked() -> Run:
        with tracker.open("locked", "a flow's", "flow", {}, {"lr": 1}) as run:
            run.log_metrics(records(0, 1, loss=1.0))
            run.log_results({"score": 0.5})
        return run

    with closing(sqlite3.connect(home / "mlflow.db", isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(MlflowException, match="database is locked"):
            hasty.set_tags({"a": "b"})

        def let_go() -> None:
            wait(lambda: "is away, waiting for it" in caplog.text, "a word of it", 60, pause=0.05)
            other.execute("COMMIT")

        with ThreadPoolExecutor(1) as pool:
            gone = pool.submit(let_go)
            run = flow(tracked)()
            gone.result()
    found = tracker.hasty.get_run(run.run_id)
    assert (found.info.status, found.data.params, found.data.metrics["score"]) == ("FINISHED", {"lr": "1"}, 0.5)
    assert len(tracker.hasty.get_metric_history(run.run_id, "loss")) == 2
    hasty.finish()
