"""Jobs are followed to their end, whatever the end is, and nothing of them outlives it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from tasks.jobs import launch
from tasks.jobs.launch import JobDiverged, JobFailed, JobInterrupted, MetricsTail, Records, run_job, stop_jobs
from tests.expected import expected
from tests.trials.cancels import left_behind
from tests.trials.scenarios import ended, wait

ROOT = Path(__file__).resolve().parents[2]
FAKE = "tests.tasks.fake_job"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(launch, "_METRICS_SECONDS", 0.2)
    monkeypatch.setattr(launch, "_POLL_SECONDS", 0.02)
    yield
    launch._stopping.clear()


def run(
    workspace: Path, on_metrics: Callable[[Records], None] = lambda records: None, **options: Any
) -> dict[str, Any]:
    how = {key: options.pop(key) for key in ("timeout", "grace", "nproc", "on_waiting") if key in options}
    return run_job(FAKE, options, workspace, on_metrics=on_metrics, **how)


def gone(path: Path, seconds: float = 60.0) -> bool:
    """Whether the process whose number ``path`` holds ends within ``seconds``."""
    pid, deadline = int(path.read_text()), time.monotonic() + seconds
    while not ended(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return ended(pid)


def wait_for(path: Path) -> None:
    wait(lambda: path.exists() and path.read_text(), str(path), 120, pause=0.02)


def waits_for_the_job(workspace: Path) -> Callable[[Records], None]:
    """An observer that comes back once the job listens to signals, however long its start takes."""
    return lambda records: wait_for(workspace / "job.pid")


def in_thread(target: Callable[[], Any]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            target()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    return thread, errors


def test_a_job_that_ends_well(tmp_path: Path) -> None:
    got: Records = []
    assert run(tmp_path, got.extend, steps=5, say="hello") == {"steps": 5}
    assert [record["step"] for record in got] == [0, 1, 2, 3, 4]
    assert "hello" in (tmp_path / "log.txt").read_text()
    assert json.loads((tmp_path / "JOB.json").read_text()) == {"steps": 5, "say": "hello"}


def test_how_threads_wait_is_the_environments_where_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    theirs = launch._environment()
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert launch._environment().keys() - theirs.keys() == {"GOMP_SPINCOUNT"}


def test_jobs_from_before_and_after_an_import_of_scikit_learn_have_one_environment() -> None:
    """Baselines import it between two trainings, and only jobs of one environment can be forks."""
    code = (
        "import os; from tasks.jobs.launch import _environment; before = {**_environment(), **os.environ}; "
        "import sklearn; assert {**_environment(), **os.environ} == before, os.environ.keys() - before.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_metrics_come_while_the_job_runs_and_in_batches(tmp_path: Path) -> None:
    batches: list[int] = []
    started = time.monotonic()
    run(tmp_path, lambda records: batches.append(len(records)), steps=50, seconds=1.0)
    assert sum(batches) == 50
    assert len(batches) <= (time.monotonic() - started) / 0.2 + 1


ENDINGS = [(options, getattr(launch, kind), words) for options, kind, words in expected(__file__, "ENDINGS")]
"""What a job does, and how its end is told."""


@pytest.mark.parametrize(("options", "kind", "words"), ENDINGS)
def test_endings(tmp_path: Path, options: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        run(tmp_path, **options)


def test_the_log_of_an_error_is_this_attempts_and_short(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("an older attempt\n" * 5)
    say = "\n".join(f"line {number}" for number in range(5000)) + "\n10%\r50%\r100%"
    with pytest.raises(JobFailed) as caught:
        run(tmp_path, code=1, say=say)
    lines = str(caught.value).splitlines()
    assert "older" not in str(caught.value)
    assert (len(lines), lines[-1], lines[-2]) == (21, "100%", "line 4999")


def test_a_timeout_lets_the_job_save_first(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match=r"more than 0.6 s"):
        run(tmp_path, waits_for_the_job(tmp_path), seconds=60, timeout=0.6)
    assert (tmp_path / "checkpoint").read_text() == "saved"
    assert gone(tmp_path / "job.pid")


def test_a_job_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        run(tmp_path, waits_for_the_job(tmp_path), seconds=60, ignore_sigterm=True, timeout=1.0, grace=0.5)
    assert time.monotonic() - started < 10
    assert gone(tmp_path / "job.pid")


@pytest.mark.parametrize("options", [{"code": 0}, {"code": 1}, {"seconds": 60, "timeout": 1.0, "grace": 0.5}])
def test_grandchildren_do_not_outlive_the_job(tmp_path: Path, options: dict[str, Any]) -> None:
    try:
        run(tmp_path, waits_for_the_job(tmp_path), grandchild=True, **options)
    except (TimeoutError, JobFailed):
        assert options != {"code": 0}
    assert gone(tmp_path / "grandchild.pid")


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_exception_from_the_observer_ends_the_job(tmp_path: Path, kind: type[BaseException]) -> None:
    def breaks(records: Records) -> None:
        if records:  # which the job writes once it listens to signals
            raise kind("observer")

    with pytest.raises(kind, match="observer"):
        run(tmp_path, breaks, steps=1, seconds=60)
    assert (tmp_path / "checkpoint").exists()
    assert gone(tmp_path / "job.pid")


@pytest.mark.usefixtures("ctrl_c_raises")
def test_ctrl_c_ends_the_job(tmp_path: Path) -> None:
    def interrupt() -> None:
        wait_for(tmp_path / "job.pid")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, seconds=60)
    assert gone(tmp_path / "job.pid")


def test_an_exception_raised_into_the_following_thread_ends_the_job(tmp_path: Path) -> None:
    """The way in which Prefect cancels a task that runs in a worker thread."""

    class Cancelled(BaseException):
        pass

    thread, errors = in_thread(lambda: run(tmp_path, seconds=60))
    wait_for(tmp_path / "job.pid")
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Cancelled))
    thread.join(120)
    assert [type(error) for error in errors] == [Cancelled]
    assert (tmp_path / "checkpoint").read_text() == "saved"
    assert gone(tmp_path / "job.pid")


def test_no_job_is_left_behind_whenever_exceptions_are_raised_into_its_follower(tmp_path: Path) -> None:
    assert left_behind(tmp_path, 60) == 0


def test_stop_jobs_ends_the_jobs_of_all_threads(tmp_path: Path) -> None:
    threads = [in_thread(lambda folder=tmp_path / name: run(folder, seconds=60)) for name in "ab"]  # type: ignore[misc]
    for name in "ab":
        wait_for(tmp_path / name / "job.pid")
    stop_jobs()
    for thread, errors in threads:
        thread.join(120)
        assert [type(error) for error in errors] == [JobInterrupted]
    assert all(gone(tmp_path / name / "job.pid") and (tmp_path / name / "checkpoint").exists() for name in "ab")
    with pytest.raises(JobInterrupted, match="not started"):
        run(tmp_path / "late", seconds=60)
    assert not (tmp_path / "late" / "job.pid").exists()


@pytest.mark.parametrize(
    ("error", "stopped", "again"),
    [
        (JobFailed("it ran out of memory"), False, True),
        (JobInterrupted("somebody else's SIGTERM"), False, True),
        (JobInterrupted("Ctrl-C"), True, False),
        (JobDiverged("NaN"), False, False),
        (InputError("no such file"), False, False),
        (OSError(30, "Read-only file system", "/store/x"), False, False),
        (JobFailed("ended with code 1; the end of log.txt:\nOSError: [Errno 122] Disk quota exceeded"), False, False),
    ],
)
def test_only_what_a_retry_may_mend_is_tried_again(error: Exception, stopped: bool, again: bool) -> None:
    from tasks.stages.stage import retry_unless_input_error

    class Ended:
        def result(self) -> None:
            raise error

    if stopped:
        stop_jobs()
    assert retry_unless_input_error(None, SimpleNamespace(name="finetune rte"), Ended()) is again


FOLLOWER = """
import sys, threading, time
from pathlib import Path
from tasks.jobs.launch import run_job
job = {"seconds": 60, "faithful": sys.argv[3] == "main"}
nproc = int(sys.argv[4])
follow = lambda: run_job(sys.argv[2], job, Path(sys.argv[1]), nproc=nproc, on_metrics=lambda records: None)
if sys.argv[3] == "thread":
    threading.Thread(target=follow).start()
    while not (Path(sys.argv[1]) / "job.pid").exists():  # the job must listen for SIGTERM before it can heed it
        time.sleep(0.02)
    # and now the main thread ends, as it does after an exception
else:
    follow()
"""


def follower(workspace: Path, module: str, where: str, nproc: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", FOLLOWER, str(workspace), module, where, str(nproc)]
    return subprocess.Popen(command, cwd=ROOT)


def test_jobs_end_when_the_main_thread_is_gone(tmp_path: Path) -> None:
    """Otherwise Python would wait for the worker threads, and they for their jobs, for hours."""
    process = follower(tmp_path, FAKE, "thread", 1)
    assert process.wait(30) == 0
    assert (tmp_path / "checkpoint").exists()


WORLD = "tests.tasks.world_job"


@pytest.mark.parametrize(
    ("module", "nproc", "left"),
    [(FAKE, 1, {"job.pid": "checkpoint"}), (WORLD, 2, {"0.pid": "0.saved", "1.pid": "1.saved"})],
)
def test_a_job_ends_when_its_parent_is_killed(tmp_path: Path, module: str, nproc: int, left: dict[str, str]) -> None:
    process = follower(tmp_path, module, "main", nproc)
    for pid in left:
        wait_for(tmp_path / pid)
    process.kill()
    process.wait()
    assert all(gone(tmp_path / pid) and (tmp_path / saved).exists() for pid, saved in left.items())


# --- several processes, through torchrun


def in_a_world(workspace: Path, **options: Any) -> dict[str, Any]:
    how = {key: options.pop(key) for key in ("timeout", "grace") if key in options}
    return run_job(WORLD, options, workspace, nproc=2, on_metrics=lambda records: None, **how)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"refuses": "1", "seconds": 60}, InputError, "^batch_size = 1 is less than the 2 processes$"),
        ({"killed": "1"}, JobFailed, "(?s)ended with code 1.*Signal 9"),
    ],
)
def test_the_outcome_of_a_world_is_its_jobs_own(
    tmp_path: Path, options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    """torchrun's exit code is 1 for all of these."""
    with pytest.raises(kind, match=words):
        in_a_world(tmp_path, **options)
    assert all(gone(tmp_path / f"{rank}.pid") for rank in "01")
    assert not list(tmp_path.glob(".outcome*"))


def test_a_world_that_is_stopped_saves_first_and_one_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    heard, deaf = tmp_path / "heard", tmp_path / "deaf"
    threads = [
        in_thread(lambda: in_a_world(heard, seconds=60)),
        in_thread(lambda: in_a_world(deaf, seconds=60, deaf=True, grace=0.2)),
    ]
    pids = [folder / f"{rank}.pid" for folder in (heard, deaf) for rank in "01"]
    for pid in pids:
        wait_for(pid)
    stop_jobs()
    for thread, errors in threads:
        thread.join(120)
        assert [type(error) for error in errors] == [JobInterrupted]
    assert all(gone(pid) for pid in pids)
    assert sorted(path.name for path in heard.glob("*.saved")) == ["0.saved", "1.saved"]


# --- metrics.jsonl as it grows


def line(step: int, **metrics: float) -> str:
    return json.dumps({"step": step, "time": 0.0, "metrics": metrics or {"train/loss": 1.0}}) + "\n"


def steps(records: Records) -> list[int]:
    return [record["step"] for record in records]


def test_a_half_written_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    assert tail.read() == []
    path.write_text(line(1) + line(2)[:10])
    assert steps(tail.read()) == [1]
    assert steps(tail.read()) == []
    path.write_text(line(1) + line(2))
    assert steps(tail.read()) == [2]


def test_a_file_that_a_resumed_job_cut_is_read_again_without_repeats(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    path.write_text("".join(line(step) for step in range(6)))
    assert steps(tail.read()) == [0, 1, 2, 3, 4, 5]
    path.write_text("".join(line(step) for step in range(4)))  # cut to the checkpoint of step 3
    assert steps(tail.read()) == []
    longer = "".join(line(step) for step in range(4)) + "".join(line(step, other=2.0) for step in range(4, 9))
    path.write_text(longer)  # and grown past where the reader was before it looked again
    assert steps(tail.read()) == [4, 5, 6, 7, 8]


def test_a_line_that_is_no_record_is_skipped_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line(1).encode() + b"\0\0\0\n[]\n{}\n" + line(2).encode())
    assert steps(MetricsTail(path).read()) == [1, 2]
    assert caplog.text.count("expected one metrics record") == 3


@settings(max_examples=50)
@given(st.data())
def test_whatever_is_cut_and_however_it_is_read_each_record_comes_once(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Against the plain twin: the file as it stands at the end, read once."""
    path = tmp_path_factory.mktemp("tail") / "metrics.jsonl"
    whole = "".join(
        line(step, loss=float(step), **({"validation": 1.0} if step % 3 == 0 else {})) for step in range(12)
    )
    tail, got = MetricsTail(path), list[int]()
    for _ in range(data.draw(st.integers(1, 6))):
        path.write_text(whole[: data.draw(st.integers(0, len(whole)))])
        got += steps(tail.read())
    path.write_text(whole)
    got += steps(tail.read())
    assert got == list(range(12))
