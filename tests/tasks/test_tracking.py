"""MLflow holds what happened, once, whoever was killed on the way."""

from __future__ import annotations

import math
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException
from prefect import flow

from gptcore.errors import InputError
from tasks.jobs.launch import JobInterrupted
from tasks.tracking import patience
from tasks.tracking.tracker import JOB_KEY, Run, Tracker, _Hurry, flatten, read_metrics

ROOT = Path(__file__).resolve().parents[2]


FIRST_USE = """
import logging; logging.basicConfig(level=logging.INFO)
from tasks.tracking.tracker import Tracker
Tracker().client.search_experiments()
logging.getLogger('mine').info('still heard')
"""


@pytest.fixture(scope="module")
def first_use(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, subprocess.CompletedProcess[str]]]:
    """One state folder for this file, as creating MLflow's tables takes seconds, and the process that created them."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPTMILL_HOME", str(folder))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        command = [sys.executable, "-c", FIRST_USE]
        yield folder, subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)


@pytest.fixture(scope="module")
def home(first_use: tuple[Path, Any]) -> Path:
    return first_use[0]


@pytest.fixture
def tracker(home: Path) -> Tracker:
    return Tracker()


@pytest.fixture
def experiment() -> str:
    return f"test-{uuid.uuid4().hex}"


def opened(tracker: Tracker, experiment: str, key: str = "key", **more: Any) -> Run:
    return tracker.open(experiment, "a name", key, more.pop("tags", {}), more.pop("params", {}), **more)


def records(*steps: int, **metrics: float) -> list[dict[str, Any]]:
    return [{"step": step, "time": 1000.0 + step, "metrics": metrics or {"loss": 1.0 / (step + 1)}} for step in steps]


def state(tracker: Tracker, run: Run) -> Any:
    return tracker.client.get_run(run.run_id)


def curve(tracker: Tracker, run: Run, name: str = "loss") -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in tracker.client.get_metric_history(run.run_id, name)]


def test_a_run_from_start_to_end(tracker: Tracker, experiment: str, home: Path, tmp_path: Path) -> None:
    settings = {"model": {"n_layer": 12}, "lr": 1e-3, "none": None}
    with opened(tracker, experiment, tags={"task": "mrpc"}, params=settings) as run:
        assert state(tracker, run).info.status == "RUNNING"
        run.log_metrics(records(0, 1, 2))
        run.log_results({"dev/score": 0.5, "rows": 10, "device": "cpu", "mfu": None, "diverged": math.nan})
        (tmp_path / "card.md").write_text("# card")
        run.log_artifact(tmp_path / "card.md")
    found = state(tracker, run)
    assert found.info.status == "FINISHED"
    assert found.data.params == {"model.n_layer": "12", "lr": "0.001", "none": "None"}
    assert found.data.metrics == {"loss": pytest.approx(1 / 3), "dev/score": 0.5, "rows": 10.0}
    assert found.data.tags["task"] == "mrpc"
    assert found.data.tags[JOB_KEY] == "key"
    assert curve(tracker, run) == [(0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3))]
    assert (home / "mlflow.db").is_file()
    assert len(list((home / "mlflow-artifacts").rglob("card.md"))) == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError, "FAILED"),
        (JobInterrupted, "KILLED"),
        (KeyboardInterrupt, "KILLED"),
        (SystemExit, "KILLED"),
    ],
)
def test_no_run_is_left_running(tracker: Tracker, experiment: str, error: type[BaseException], status: str) -> None:
    with pytest.raises(error), opened(tracker, experiment) as run:
        raise error
    assert state(tracker, run).info.status == status


def test_a_run_is_reopened_and_its_curve_goes_on(tracker: Tracker, experiment: str) -> None:
    first = opened(tracker, experiment)
    first.log_metrics(records(0, 1, 2))
    first.finish("FAILED")
    with opened(tracker, experiment) as second:
        assert (second.run_id, second.finished) == (first.run_id, False)
        assert state(tracker, second).info.status == "RUNNING"
        second.log_metrics(records(1, 2, 3))  # goes on from the checkpoint of step 0
        second.log_metrics(records(0, 1, 2, 3))  # and the stage reports the whole curve at the end
    assert [step for step, _ in curve(tracker, second)] == [0, 1, 2, 3]
    assert opened(tracker, experiment).finished


def test_a_look_at_a_finished_run_leaves_its_end_time(tracker: Tracker, experiment: str) -> None:
    with opened(tracker, experiment) as run:
        pass
    before = state(tracker, run).info.end_time
    time.sleep(0.01)
    with opened(tracker, experiment) as again:
        assert again.finished
    assert state(tracker, run).info.end_time == before


def test_results_do_not_bend_a_curve(tracker: Tracker, experiment: str) -> None:
    with opened(tracker, experiment) as run:
        run.log_metrics(records(10, 20))
        run.log_results({"loss": 9.0})
    assert state(tracker, run).data.metrics == {"loss": 9.0}
    assert [step for step, _ in curve(tracker, run)] == [10, 20, 20]


def test_more_than_mlflow_takes_at_once(tracker: Tracker, experiment: str) -> None:
    settings = {f"setting{number}": "x" * 7000 for number in range(130)}
    tags = {f"tag{number}": "y" * 9000 for number in range(130)}
    with opened(tracker, experiment, params=settings, tags=tags) as run:
        run.log_metrics(records(*range(2500)))
        run.set_tags(tags)
    found = state(tracker, run)
    assert len([key for key in found.data.params if key.startswith("setting")]) == 130
    assert len([key for key in found.data.tags if key.startswith("tag")]) == 130
    assert len(curve(tracker, run)) == 2500


def test_what_is_no_finite_number_is_left_out(tracker: Tracker, experiment: str) -> None:
    with opened(tracker, experiment) as run:
        run.log_metrics(records(0, loss=math.nan, grad=math.inf) + records(1, loss=2.0))
    assert state(tracker, run).data.metrics == {"loss": 2.0}


def test_metrics_wait_while_mlflow_is_away(
    tracker: Tracker, experiment: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tracker, experiment) as run:
        with monkeypatch.context() as patch:
            patch.setattr(tracker.client, "log_batch", lambda *_, **__: (_ for _ in ()).throw(MlflowException("away")))
            run.log_metrics(records(0, 1))
        assert "2 metrics wait for MLflow" in caplog.text
        assert curve(tracker, run) == []
        run.log_metrics(records(2))
        assert [step for step, _ in curve(tracker, run)] == [0, 1, 2]


def test_of_several_runs_of_one_job_the_newest_goes_on(tracker: Tracker, experiment: str) -> None:
    number = tracker.experiment(experiment)
    made = [tracker.client.create_run(number, start_time=start, tags={JOB_KEY: "key"}) for start in (1000, 3000, 2000)]
    runs = [run.info.run_id for run in made]
    run = opened(tracker, experiment)
    assert run.run_id == runs[1]
    statuses = [tracker.client.get_run(run_id).info.status for run_id in runs]
    assert statuses == ["KILLED", "RUNNING", "KILLED"]
    run.finish()


def test_children_and_search(tracker: Tracker, experiment: str) -> None:
    assert tracker.search(experiment, {}) == []
    with opened(tracker, experiment, "suite", tags={"kind": "suite"}) as suite:
        for seed in range(3):
            with opened(tracker, experiment, f"seed {seed}", tags={"kind": "child"}, parent=suite.run_id):
                pass
    found = tracker.search(experiment, {"kind": "child"})
    assert len(found) == 3
    assert {run.data.tags["mlflow.parentRunId"] for run in found} == {suite.run_id}
    assert suite.metrics() == {}
    assert suite.tags()["kind"] == "suite"


def test_a_page_in_the_ui(home: Path) -> None:
    run = Run(Tracker(), "abc", "7", finished=False, fresh=True)
    assert run.url == "http://127.0.0.1:5000/#/experiments/7/runs/abc?workflowType=machine_learning"
    served = Run(Tracker("https://mlflow.example:8443/"), "abc", "7", finished=False, fresh=True)
    assert served.url == "https://mlflow.example:8443/#/experiments/7/runs/abc?workflowType=machine_learning"


def test_the_address_of_the_tracker(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Tracker().uri == f"sqlite:///{home}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    assert Tracker().uri == "http://127.0.0.1:1"


class _Server(ThreadingHTTPServer):
    """As much of an MLflow server as a search for experiments needs; ``broken`` answers are errors first."""

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
    monkeypatch.setattr("tasks.tracking.patience._AGAIN_SECONDS", 0.05)
    monkeypatch.setattr("gptcore.reach._PAUSE", 0.0)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


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
    server: list[_Server] = []
    threading.Timer(1.0, lambda: server.append(_Server(port))).start()
    assert flow(_names)(Tracker(url)) == ["found"]
    server[0].shutdown()
    server[0].server_close()
    assert f"MLflow at {url} is away, waiting for it: MLflow at {url}: does not answer" in caplog.text


@pytest.mark.usefixtures("prefect_server", "home", "quick")
def test_a_flow_waits_for_a_server_whose_database_is_away() -> None:
    server = _Server()
    tracker = Tracker(f"http://127.0.0.1:{server.server_port}")
    assert _names(tracker) == ["found"]
    server.broken = 3
    with pytest.raises(MlflowException, match="500"):
        _names(tracker)
    server.broken = 3
    assert flow(_names)(tracker) == ["found"]
    assert server.broken < 0
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("prefect_server", "home", "quick")
def test_a_process_that_ends_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.tracking.patience.jobs_are_stopped", lambda: True)
    with pytest.raises(JobInterrupted, match="was not waited for"):
        flow(_names)(Tracker("http://127.0.0.1:1"))


@pytest.mark.usefixtures("prefect_server", "home", "quick")
def test_an_outage_is_waited_for_once_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tasks.tracking.patience._AWAY_SECONDS", 0.3)
    tracker = Tracker("http://127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(ConnectionError, match=r"was away for 0 minutes: .*does not answer"):
            flow(_names)(tracker)
    assert caplog.text.count("waiting for it") == 1
    assert patience._outages.pop(tracker.shown).since < time.monotonic() - 0.3


@pytest.mark.usefixtures("quick")
def test_many_threads_wait_for_one_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.tracking.patience.in_run", lambda: True)
    monkeypatch.setattr("tasks.tracking.patience.answers_at", lambda _: time.sleep(0.05))
    back = time.monotonic() + 0.5

    def call() -> bool:
        if time.monotonic() < back:
            raise patience.Away("away")
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(future.result() for future in [pool.submit(patience.patiently, call, "http://x") for _ in range(32)])
    assert "http://x" not in patience._outages


@pytest.mark.usefixtures("quick")
def test_a_server_that_comes_back_broken_gets_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Away for long and then without its database for a moment, as after a power cut."""
    monkeypatch.setattr("tasks.tracking.patience.in_run", lambda: True)
    monkeypatch.setattr("tasks.tracking.patience._BROKEN_SECONDS", 0.5)
    answers = iter([*[False] * 30, *[True] * 3])
    monkeypatch.setattr("tasks.tracking.patience.answers_at", lambda _: next(answers))
    errors = iter([True] * 33)

    def call() -> str:
        if next(errors, False):
            raise patience.Away("away")
        return "back"

    assert patience.patiently(call, "http://y") == "back"  # after 1.65 s, of which 0.15 s broken


def test_threads_in_a_hurry_leave_the_settings_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_TIMEOUT", raising=False)
    first, second = _Hurry(), _Hurry()
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "0"
    second.__exit__()
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "3"
    assert "MLFLOW_HTTP_REQUEST_TIMEOUT" not in os.environ


@pytest.mark.usefixtures("prefect_server", "home", "quick")
def test_points_of_a_reopened_run_wait_too(caplog: pytest.LogCaptureFixture) -> None:
    server = _Server()
    tracker = Tracker(f"http://127.0.0.1:{server.server_port}")

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
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("prefect_server", "home", "quick")
@pytest.mark.parametrize("told", [KeyboardInterrupt, JobInterrupted])
def test_who_is_told_to_end_does_not_wait(told: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    server = _Server()
    tracker = Tracker(f"http://127.0.0.1:{server.server_port}")

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
    server.shutdown()
    server.server_close()


VICTIM = """
import sys, time
from tasks.tracking.tracker import Tracker
for key in "ab":
    run = Tracker().open(sys.argv[1], "victim", key, {}, {})
    run.log_metrics([{"step": step, "time": 1.0, "metrics": {"loss": 1.0}} for step in range(5)])
    print(run.run_id, flush=True)
time.sleep(60)
"""

WRITER = """
import sys
from tasks.tracking.tracker import Tracker
for number in range(4):
    with Tracker().open(sys.argv[1], "writer", f"shared {number}", {}, {"a": 1}) as run:
        run.log_metrics([{"step": s, "time": 1.0, "metrics": {f"m{sys.argv[2]}": float(s)}} for s in range(200)])
"""


def test_a_killed_process_leaves_no_run_running(tracker: Tracker, experiment: str) -> None:
    command = [sys.executable, "-c", VICTIM, experiment]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        ids = [victim.stdout.readline().strip() for _ in range(2)]
        assert tracker.reconcile() == 0  # it lives
        victim.kill()
    assert [tracker.client.get_run(run_id).info.status for run_id in ids] == ["RUNNING", "RUNNING"]
    with opened(tracker, experiment, "b") as again:
        assert again.run_id == ids[1]
        again.log_metrics(records(3, 4, 5))
        assert [tracker.client.get_run(run_id).info.status for run_id in ids] == ["KILLED", "RUNNING"]
    assert [step for step, _ in curve(tracker, again)] == [0, 1, 2, 3, 4, 5]
    assert tracker.reconcile() == 0


def test_processes_and_threads_write_at_once(tracker: Tracker, experiment: str) -> None:
    """Also the first use of a fresh experiment: nobody may create it, or a job's run, twice."""
    processes = [subprocess.Popen([sys.executable, "-c", WRITER, experiment, str(n)], cwd=ROOT) for n in range(2)]
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            with opened(tracker, experiment, f"thread {number}") as run:
                for step in range(20):
                    run.log_metrics(records(step))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait(240) for process in processes] == [0, 0]
    assert errors == []
    runs = tracker.search(experiment, {})
    assert sorted(run.data.tags[JOB_KEY] for run in runs) == sorted(
        [f"shared {number}" for number in range(4)] + [f"thread {number}" for number in range(4)]
    )
    assert {run.info.status for run in runs} == {"FINISHED"}
    for run in runs:
        if run.data.tags[JOB_KEY].startswith("shared"):
            assert run.data.metrics == {"m0": 199.0, "m1": 199.0}


def test_mlflow_says_nothing_and_leaves_other_loggers_alone(
    first_use: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    assert first_use[1].stdout == ""
    assert first_use[1].stderr.splitlines() == ["INFO:mine:still heard"]


def test_a_database_that_fails_is_no_page_on_the_terminal(tracker: Tracker, home: Path, tmp_path: Path) -> None:
    program = """
import sqlite3, sys
from tasks.tracking.tracker import Tracker
tracker = Tracker(f"sqlite:///{sys.argv[1]}")
_ = tracker.client
with sqlite3.connect(sys.argv[1]) as database:
    database.execute("alter table experiments rename to elsewhere")
try:
    tracker.experiment("new")
except Exception as error:
    print(type(error).__name__)
"""
    _ = tracker.client
    shutil.copy(home / "mlflow.db", tmp_path)
    command = [sys.executable, "-c", program, str(tmp_path / "mlflow.db")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("MlflowException\n", "")


def test_following_jobs_imports_nothing_heavy() -> None:
    modules = "tasks.tracking.tracker, tasks.store.store, tasks.jobs.launch, tasks.report.card"
    program = f"import sys, {modules}; print([name for name in sys.modules if name in sys.argv])"
    command = [sys.executable, "-c", program, "mlflow", "torch", "matplotlib", "prefect"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_small_helpers(tmp_path: Path) -> None:
    assert list(flatten({"a": {"b": {"c": 1}, "d": [1]}, "e": {}})) == [("a.b.c", 1), ("a.d", [1])]
    assert read_metrics(tmp_path / "absent") == []
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n')
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1}, {"step": 2}]


def test_an_address_is_said_without_its_password() -> None:
    tracker = Tracker("http://somebody:s3cret@127.0.0.1:9")
    assert tracker.ui == tracker.shown == "http://127.0.0.1:9"
    assert tracker.uri.count("s3cret") == 1  # MLflow itself needs it


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"no database at all " * 100)
    with pytest.raises(InputError, match=r"MLflow at sqlite:.*mlflow\.db: cannot be used"):
        _ = Tracker(f"sqlite:///{tmp_path / 'mlflow.db'}").client
