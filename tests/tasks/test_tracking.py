"""MLflow holds what happened, once, whoever was killed on the way."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException

from gptcore.base.errors import InputError
from gptcore.base.settings import flatten
from tasks.jobs.launch import JobInterrupted
from tasks.store.locks import SILENT_SECONDS
from tasks.store.state import state_folder
from tasks.tracking.owners import owner_name
from tasks.tracking.tracker import JOB_KEY, OWNER, Run, Tracker, read_metrics

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
    times = [point.timestamp for point in tracker.client.get_metric_history(run.run_id, "loss")]
    assert times == [1_000_000, 1_001_000, 1_002_000], "milliseconds"
    assert (home / "mlflow.db").is_file()
    assert len(list((home / "mlflow-artifacts").rglob("card.md"))) == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [(RuntimeError, "FAILED"), (JobInterrupted, "KILLED"), (KeyboardInterrupt, "KILLED"), (SystemExit, "KILLED")],
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


def test_results_that_are_there_are_not_logged_again(tracker: Tracker, experiment: str) -> None:
    with opened(tracker, experiment) as run:
        run.log_results({"score": 0.5, "loss": 1.0})
    with opened(tracker, experiment) as again:
        again.log_results({"score": 0.5, "loss": 2.0})
        time.sleep(0.002)  # of two points at one time MLflow takes the larger one for the newest
        again.log_results({"loss": 1.0})
    assert [value for _, value in curve(tracker, run, "score")] == [0.5]
    assert [value for _, value in curve(tracker, run)] == [1.0, 2.0, 1.0]
    assert state(tracker, run).data.metrics == {"score": 0.5, "loss": 1.0}


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
            patch.setattr(tracker.hasty, "log_batch", lambda *_, **__: (_ for _ in ()).throw(MlflowException("away")))
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
    metrics, tags = suite.metrics_and_tags()
    assert metrics == {}
    assert tags["kind"] == "suite"


def test_a_page_in_the_ui(home: Path) -> None:
    run = Run(Tracker(), "abc", "7", finished=False, fresh=True)
    assert run.url == "http://127.0.0.1:5000/#/experiments/7/runs/abc?workflowType=machine_learning"
    served = Run(Tracker("https://mlflow.example:8443/"), "abc", "7", finished=False, fresh=True)
    assert served.url == "https://mlflow.example:8443/#/experiments/7/runs/abc?workflowType=machine_learning"


def test_the_address_of_the_tracker(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Tracker().uri == f"sqlite:///{home}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    assert Tracker().uri == "http://127.0.0.1:1"


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


def test_a_run_of_another_host_is_left_running_while_its_owner_gives_signs_of_life(
    tracker: Tracker, experiment: str
) -> None:
    (ours,) = (state_folder() / "owners").glob(f"*/{owner_name(tracker.uri)}")
    owner = ours.with_name("node7-1-0123abcd@elsewhere")
    owner.touch()
    run = tracker.client.create_run(tracker.experiment(experiment), tags={OWNER: owner.name})
    assert tracker.reconcile() == 0
    silent = time.time() - 2 * SILENT_SECONDS
    os.utime(owner, (silent, silent))
    assert tracker.reconcile() == 1
    assert tracker.client.get_run(run.info.run_id).info.status == "KILLED"


def test_processes_and_threads_write_at_once(tracker: Tracker, experiment: str) -> None:
    """A fresh experiment may be used first by several at once: nobody may create it, or a job's run, twice."""
    processes = [subprocess.Popen([sys.executable, "-c", WRITER, experiment, str(n)], cwd=ROOT) for n in range(2)]

    def write(number: int) -> None:
        with opened(tracker, experiment, f"thread {number}") as run:
            for step in range(20):
                run.log_metrics(records(step))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))  # raises what one of them raised
    assert [process.wait(240) for process in processes] == [0, 0]
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
    assert flatten({"a": {"b": {"c": 1}, "d": [1]}, "e": {}}) == {"a.b.c": 1, "a.d": [1]}
    assert read_metrics(tmp_path / "absent") == []
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n')
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1}, {"step": 2}]
    (tmp_path / "metrics.jsonl").write_text('{"step": 3, "metrics": {"epoch": 1, "dev/score": 0.25}}\n')  # before 0.3
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 3, "metrics": {"epoch": 1, "validation/score": 25.0}}]


def test_an_address_is_said_without_its_password() -> None:
    tracker = Tracker("http://somebody:s3cret@127.0.0.1:9")
    assert tracker.ui == tracker.shown == "http://127.0.0.1:9"
    assert tracker.uri.count("s3cret") == 1  # MLflow itself needs it


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"no database at all " * 100)
    with pytest.raises(InputError, match=r"mlflow\.db: found b'no database at a', expected an SQLite"):
        _ = Tracker(f"sqlite:///{tmp_path / 'mlflow.db'}").client
