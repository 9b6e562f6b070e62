"""Training jobs on a cluster: started, followed, ended, and taken over, with stand-ins for Slurm's programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from gptcore.base.errors import InputError
from tasks.jobs import launch, placement, slurm
from tasks.jobs.launch import JobFailed, JobInterrupted, Records
from tasks.stages.training import JobObserver
from tasks.tracking.logs import PROGRESS, Underway
from tasks.tracking.tracker import Run
from tests.expected import expected
from tests.tasks import fake_slurm
from tests.tasks.test_launch import ENDINGS, FAKE, ROOT, gone, run, wait_for
from tests.trials.scenarios import wait


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The state folder of a cluster whose programs are on PATH."""
    state = fake_slurm.install(tmp_path / "slurm")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", f"{tmp_path / 'slurm' / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv(placement.PLACE_VARIABLE, "slurm")
    monkeypatch.setattr(launch, "_METRICS_SECONDS", 0.1)
    monkeypatch.setattr(launch, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(slurm, "_ASK_SECONDS", (0.1, 0.1))
    yield state
    launch._stopping.clear()
    for job in jobs(state):
        fake_slurm.scancel(state, [job["id"]])


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


def jobs(state: Path) -> list[dict[str, Any]]:
    return [{"id": path.parent.name, **json.loads(path.read_text())} for path in sorted(state.glob("*/job.json"))]


def meanwhile(path: Path, act: Callable[[], Any]) -> None:
    """Do something once ``path`` is there, as somebody else would."""

    def watch() -> None:
        wait_for(path)
        act()

    threading.Thread(target=watch).start()


def test_a_job_that_ends_well_and_takes_no_secret_along(
    cluster: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_PASSWORD", "GPTMILL_PARENT_PID"):
        monkeypatch.setenv(name, "planted")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    got: Records = []
    assert run(work, got.extend, steps=5, say="hello") == {"steps": 5}
    assert [record["step"] for record in got] == [0, 1, 2, 3, 4]
    assert "hello" in (work / "log.txt").read_text()
    (job,) = jobs(cluster)
    options = job["options"]
    assert options["job-name"].startswith("gptmill-fake_job-")
    assert (options["nodes"], options["ntasks-per-node"], options["open-mode"]) == ("1", "1", "append")
    environment = json.loads((cluster / "1" / "environ.json").read_text())
    assert environment["NCCL_DEBUG"] == "INFO"
    assert {"GOMP_SPINCOUNT", "MALLOC_TRIM_THRESHOLD_"} <= environment.keys()
    everything = "".join(path.read_text() for path in (cluster / "1").iterdir())
    assert "planted" not in everything


@pytest.mark.parametrize(("options", "kind", "words"), [ENDINGS[number] for number in (0, 2, 3, 6)])
def test_endings(cluster: Path, work: Path, options: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        run(work, **options)


def test_a_timeout_lets_the_job_save_first_and_does_not_count_the_queue(cluster: Path, work: Path) -> None:
    (cluster / "hold").touch()
    words: list[str] = []

    def waiting(why: str) -> None:
        words.append(why)
        if len(words) == 5:
            (cluster / "hold").unlink()

    with pytest.raises(TimeoutError, match=r"more than 0.4 s"):
        run(work, on_waiting=waiting, seconds=60, timeout=0.4)
    assert words[-1] == "waiting in the queue (Resources)"
    assert (work / "checkpoint").read_text() == "saved"
    assert jobs(cluster)[0]["exit_code"] == "75:0"


def test_the_progress_says_what_a_job_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", PROGRESS)
    observer = JobObserver("pretrain", cast(Run, None), None, lambda: None)
    observer.waiting("waiting in the queue (Resources)")
    (record,) = caplog.records
    assert record.getMessage() == "pretrain waiting in the queue (Resources)"
    assert vars(record)["news"] == Underway("pretrain", 0.0, ("waiting in the queue (Resources)",), waits=True)


def test_after_the_last_update_the_progress_speaks_of_the_evaluation(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ignored:
        def log_metrics(self, records: list[dict[str, Any]]) -> None: ...

    caplog.set_level("INFO", PROGRESS)
    observer = JobObserver("vectors", cast(Run, Ignored()), None, lambda: None, unit="facts")
    for step, share, eta in ((1, 0.5, 30), (2, 1.0, 0), (2, 1.0, 240)):
        told = {"progress": share, "eta_seconds": eta, "tokens_per_second": 1234.5}
        observer([{"step": step, "time": 0.0, "metrics": told}])
    words = [vars(record)["news"].words for record in caplog.records]
    assert words == [
        "0:30 left, step 1, 1.2k facts/s",
        "the last evaluation runs, step 2, 1.2k facts/s",
        "the last evaluation runs, 4:00 left, step 2, 1.2k facts/s",
    ]
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 5)
    observer([])  # the job says nothing new
    assert vars(caplog.records[-1])["news"].words == "the last evaluation runs, 3:55 left, step 2, 1.2k facts/s"


def test_a_job_that_ignores_sigterm_is_killed_after_the_grace(cluster: Path, work: Path) -> None:
    with pytest.raises(TimeoutError):
        run(work, seconds=60, ignore_sigterm=True, timeout=0.5, grace=0.2)
    assert gone(work / "job.pid", 1.0)
    assert jobs(cluster)[0]["state"] == "FAILED"


def test_a_job_that_still_waits_leaves_the_queue(cluster: Path, work: Path) -> None:
    (cluster / "hold").touch()

    def stop(why: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(work, on_waiting=stop)
    assert [job["state"] for job in jobs(cluster)] == ["CANCELLED"]


def test_scancel_by_somebody_else_is_an_interruption_and_the_same_call_goes_on(cluster: Path, work: Path) -> None:
    meanwhile(work / "job.pid", lambda: subprocess.run(["scancel", "1"], check=True))
    with pytest.raises(JobInterrupted):
        run(work, seconds=60)
    wait_for(work / "checkpoint")  # the cluster says so before the job has ended
    assert run(work) == {"steps": 0}
    assert [job["state"] for job in jobs(cluster)] == ["CANCELLED", "COMPLETED"]


def test_a_node_that_fails_is_worth_another_try(cluster: Path, work: Path) -> None:
    def fail() -> None:
        fake_slurm.set_state(cluster / "1", "NODE_FAIL")
        os.killpg(jobs(cluster)[0]["pid"], signal.SIGKILL)

    meanwhile(work / "job.pid", fail)
    with pytest.raises(JobFailed, match="Slurm job 1 with NODE_FAIL on n1"):
        run(work, seconds=60)


def test_a_controller_that_is_away_is_asked_again(cluster: Path, work: Path, caplog: pytest.LogCaptureFixture) -> None:
    def outage() -> None:
        (cluster / "down").touch()
        wait(lambda: "no news" in caplog.text, "a question without an answer", 60, pause=0.01)  # a busy machine's
        (cluster / "down").unlink()

    meanwhile(work / "job.pid", outage)
    assert run(work, seconds=0.2) == {"steps": 0}
    assert "no news (slurm_load_jobs error: Unable to contact" in caplog.text


def test_a_job_that_slurm_has_forgotten(cluster: Path, work: Path) -> None:
    meanwhile(work / "job.pid", lambda: (cluster / "1" / "job.json").rename(cluster / "1" / "forgotten"))
    with pytest.raises(JobFailed, match="job 1, which Slurm has forgotten"):
        run(work, seconds=0.5)


CALLER = """
import sys
from pathlib import Path
from tasks.jobs.launch import run_job
run_job(sys.argv[2], {"steps": 3, "seconds": float(sys.argv[3])}, Path(sys.argv[1]), on_metrics=lambda records: None)
"""


def test_a_job_whose_caller_was_killed_is_taken_over(cluster: Path, work: Path) -> None:
    caller = subprocess.Popen([sys.executable, "-c", CALLER, str(work), FAKE, "2"], cwd=ROOT)
    wait_for(work / "job.pid")
    caller.kill()
    caller.wait()
    assert not gone(work / "job.pid", 0.2)
    got: Records = []
    assert run(work, got.extend, steps=3, seconds=2) == {"steps": 3}
    assert [record["step"] for record in got] == [0, 1, 2]
    assert [job["state"] for job in jobs(cluster)] == ["COMPLETED"]


@pytest.mark.parametrize(("place", "words"), expected(__file__, "test_a_wrong_setting_is_named"))
def test_a_wrong_setting_is_named(
    cluster: Path, work: Path, place: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(placement.PLACE_VARIABLE, place)
    with pytest.raises(InputError, match=words):
        run(work)


def test_a_controller_that_cannot_be_reached_is_worth_another_try(cluster: Path, work: Path) -> None:
    (cluster / "down").touch()
    with pytest.raises(RuntimeError, match="Unable to contact slurm controller"):
        run(work)


def test_no_slurm_here(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(placement.PLACE_VARIABLE, "slurm")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="found no squeue on PATH"):
        run(work)


@pytest.mark.parametrize(
    ("options", "nproc", "nodes", "each", "asked"), expected(__file__, "test_processes_are_spread_over_nodes")
)
def test_processes_are_spread_over_nodes(
    options: list[str], nproc: int, nodes: int, each: int, asked: list[str]
) -> None:
    assert slurm._layout(options, nproc) == (nodes, each, asked)


@pytest.mark.parametrize(
    ("place", "training", "tuning"), expected(__file__, "test_a_node_counts_and_not_the_machine_that_asks")
)
def test_a_node_counts_and_not_the_machine_that_asks(
    place: str, training: list[int], tuning: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(placement.PLACE_VARIABLE, place)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    assert [*placement.processes_and_threads(0)] == training
    assert [*placement.slots_and_threads(0)] == tuning
    assert placement.slots_and_threads(3)[0] == 3


def test_threads_of_several_processes_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(placement.PLACE_VARIABLE, "slurm --ntasks-per-node=2 -c 6")
    assert placement.processes_and_threads(4) == (4, 3)


@pytest.mark.parametrize("options", expected(__file__, "test_a_node_that_cannot_be_is_refused"))
def test_a_node_that_cannot_be_is_refused(options: str) -> None:
    with pytest.raises(InputError, match="GPTMILL_JOBS: slurm: "):
        slurm._layout(options.split(), 1)


def test_processes_that_do_not_spread_evenly_are_refused() -> None:
    with pytest.raises(InputError, match="found 9 processes for nodes of 8"):
        slurm._layout(["--gpus-per-node=8"], 9)
