"""Training jobs: started where they are to run (tasks.jobs.placement), followed, and never left behind.

The Prefect process never trains. A job writes metrics.jsonl, log.txt and result.json into its workspace and says with
its exit code how it ended (gptcore.machine.process). Whatever ends the caller ends the job: an exception in the thread
that follows it, at whichever moment, lets go of its lease, upon which its keeper ends it (tasks.jobs.keeper). If this
process is killed outright the kernel tells a child process (`die_with_parent`), while a cluster's job goes on until the
same call takes it over.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from gptcore.base.errors import InputError
from gptcore.base.files import read_json, require_room, write_json_atomic
from gptcore.machine import fork_server
from gptcore.machine.process import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_NON_FINITE
from tasks.jobs.devices import visible_gpus
from tasks.jobs.keeper import Keeper
from tasks.jobs.placement import on_cluster, start_job
from tasks.store.state import state_folder

log = logging.getLogger(__name__)
Records = list[dict[str, Any]]

_POLL_SECONDS = 0.1
_METRICS_SECONDS = 2.0  # between two looks at metrics.jsonl: MLflow gets batches, not single calls
_TAIL_LINES = 20
# OpenMP threads that spin while they wait take a core that others want; those that sleep at once wake up late. Here
# they spin some 0.1 ms first. An update on two cores, in ms: preset demo 137 (170 where they sleep at once), small 370
# (471), an LSTM 346 (473); beside another busy process 328 (262), 792 (714), 860 (670), as libgomp does it 1,190.
# glibc gives every large tensor back to the system when it is freed and faults its pages in again for the next one: 25
# updates of the preset small took 777,000 page faults and 18.8 s of CPU time, with its limits raised 400 and 15.8 s.
# The last two are what scikit-learn tells the environment of whoever imports it: jobs from before and after a baseline
# are to have the same, or the later ones could not be forks (gptcore.machine.fork_server).
_ENVIRONMENT = {
    "PYTHONUNBUFFERED": "1",
    "GOMP_SPINCOUNT": "5000",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),  # the highest that glibc takes
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "KMP_DUPLICATE_LIB_OK": "True",
    "KMP_INIT_AT_FORK": "FALSE",
}
_TAIL_BYTES = 65_536

_stopping = threading.Event()


class JobFailed(RuntimeError):
    """A job ended badly; the message holds its exit code and the end of its log."""


class JobDiverged(JobFailed):
    """The loss became infinite or NaN: a retry would only repeat it."""


class JobInterrupted(RuntimeError):
    """A job wrote a checkpoint and left, because it was told to; the same call resumes it."""


def stop_jobs() -> None:
    """End every job that this process follows, and refuse new ones: what a signal handler calls.

    Ctrl-C and Prefect's cancellation reach the main thread only; jobs followed by other threads would go on.
    Each of them raises :class:`JobInterrupted`.
    """
    _stopping.set()


@contextmanager
def jobs_of_threads() -> Iterator[None]:
    """A block in which this thread waits for threads that follow jobs: what ends it, such as Ctrl-C, ends them, too."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception):
            stop_jobs()
        raise


def jobs_are_stopped() -> bool:
    """Whether :func:`stop_jobs` was called: trying a job again would only be refused."""
    return _stopping.is_set()


def warm_up() -> None:
    """Begin to import what jobs need, of which several are to come: on a CPU they are forks."""
    if not visible_gpus() and not on_cluster():
        fork_server.warm_up({**_environment(), **os.environ})


def run_job(
    module: str,
    job: Mapping[str, Any],
    workspace: Path,
    *,
    nproc: int = 1,
    on_metrics: Callable[[Records], None],
    on_waiting: Callable[[str], None] = lambda why: None,
    timeout: float | None = None,
    grace: float = 60.0,
) -> dict[str, Any]:
    """Run ``python -m module JOB.json`` in ``workspace`` to its end and return its result.json.

    Whatever ends this call early (an exception, a cancelled Prefect run, Ctrl-C, ``timeout`` seconds) ends the job:
    SIGTERM, so that it writes a checkpoint, and SIGKILL to what is left after ``grace`` seconds.

    :param nproc: training processes; more than one start through torchrun, on a cluster on as many hosts as they need.
    :param on_metrics: gets each record of metrics.jsonl once, those of an earlier, interrupted attempt included, in
        batches every 2 s, of which those are empty that find nothing new. An exception from it ends the job.
    :param on_waiting: gets words about the queue that the job waits in, every 2 s.
    :param timeout: seconds, not counting the wait in a queue.
    :raises InputError: the job refused its input; the message is the job's own.
    :raises JobInterrupted: the job was told to stop, by :func:`stop_jobs` or by somebody else's SIGTERM.
    :raises JobDiverged: its loss became infinite or NaN.
    :raises JobFailed: any other exit code; :class:`OSError`: its disk is full.
    :raises TimeoutError: after ``timeout`` seconds.
    """
    if jobs_are_stopped():
        raise JobInterrupted(f"{module} was not started, as this process ends; the same call starts it")
    workspace.mkdir(parents=True, exist_ok=True)
    write_json_atomic(workspace / "JOB.json", job)
    output = workspace / "log.txt"
    earlier = output.stat().st_size if output.exists() else 0  # where this attempt's part of the log begins
    keeper = Keeper(partial(start_job, module, workspace, nproc, _environment()), grace)
    try:
        with keeper.lease:
            keeper.begin()
            _follow(keeper, module, MetricsTail(workspace / "metrics.jsonl"), on_metrics, on_waiting, timeout)
    finally:
        keeper.end()
    ended = keeper.ended()
    lines = _tail(output, earlier)
    last = lines[-1].removeprefix("error: ") if lines else "the job gave no reason"  # where it left no outcome
    left = ended.outcome if ended.code else None  # none counts that was mended
    ending = (left.code, left.reason) if left else (ended.code, last)
    return _result(module, ending, ended.how, workspace, lines)


def _environment() -> dict[str, str]:
    """The variables that a job is given; how its threads wait is left out where the environment says that itself."""
    said = "OMP_WAIT_POLICY" in os.environ
    given = {**_ENVIRONMENT, "TORCHINDUCTOR_CACHE_DIR": str(state_folder() / "compiled")}  # found by the jobs to come
    return {name: value for name, value in given.items() if not (said and name == "GOMP_SPINCOUNT")}


class MetricsTail:
    """Reads a growing metrics.jsonl from where it last stopped; a half-written last line waits for its end.

    A resumed job cuts the file back to its checkpoint and writes the same lines again. The last line read shows that;
    then all is read again, and what was handed out before is left out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._last = b""
        self._seen: set[tuple[int, tuple[str, ...]]] = set()

    def read(self) -> Records:
        """The complete records added since the last call. A line that is no record is skipped with a warning."""
        try:
            with open(self._path, "rb") as file:
                added = self._added(file)
        except FileNotFoundError:
            return []
        lines = added[: added.rfind(b"\n") + 1].splitlines(keepends=True)
        if lines:
            self._offset += sum(map(len, lines))
            self._last = lines[-1]
        return [record for line in lines if (record := self._parse(line)) is not None]

    def _added(self, file: BinaryIO) -> bytes:
        """The bytes behind the last line read; the whole file where that line is no longer in its place."""
        file.seek(self._offset - len(self._last))
        if file.read(len(self._last)) != self._last:
            self._offset, self._last = 0, b""
            file.seek(0)
        return file.read()

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        try:
            record: dict[str, Any] = json.loads(line)
            name = (int(record["step"]), tuple(sorted(record["metrics"].keys())))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            log.warning("%s: found %r, expected one metrics record; skipped", self._path, line[:80])
            return None
        if name in self._seen:
            return None
        self._seen.add(name)
        return record


def _follow(
    keeper: Keeper,
    module: str,
    metrics: MetricsTail,
    on_metrics: Callable[[Records], None],
    on_waiting: Callable[[str], None],
    timeout: float | None,
) -> None:
    """Hand out metrics until the job has ended, or raise what ends it."""
    start = looked = time.monotonic()
    while not keeper.wait(_POLL_SECONDS):  # short: an exception raised into this thread arrives between two of them
        now = time.monotonic()
        if keeper.waiting != "":
            start = now
        if timeout is not None and now - start > timeout:
            raise TimeoutError(f"{module} took more than {timeout:g} s; the same call goes on from its checkpoint")
        if jobs_are_stopped() or not threading.main_thread().is_alive():
            raise JobInterrupted(f"{module} was stopped with this process; the same call goes on from its checkpoint")
        if now - looked >= _METRICS_SECONDS:
            looked = now
            if keeper.waiting:
                on_waiting(keeper.waiting)
            else:
                on_metrics(metrics.read())
    on_metrics(metrics.read())


def _result(module: str, ending: tuple[int, str], how: str, workspace: Path, lines: list[str]) -> dict[str, Any]:
    """The result, or the exception that the exit code of ``ending`` stands for, with the reason beside it.

    :param how: it ended, if that is known better than the code tells.
    """
    code, reason = ending
    tail = f"the end of {workspace / 'log.txt'}:\n" + "\n".join(lines[-_TAIL_LINES:])
    if code == 0:
        try:
            result: dict[str, Any] = read_json(workspace / "result.json")
        except (FileNotFoundError, ValueError) as error:
            raise JobFailed(f"{module} ended with code 0 but left no result.json ({error}); {tail}") from None
        return result
    if code == EXIT_BAD_INPUT:
        raise InputError(reason)
    if code == EXIT_NON_FINITE:
        raise JobDiverged(f"{module}: {reason}")
    if code == EXIT_INTERRUPTED:
        raise JobInterrupted(f"{module} was told to stop; the same call goes on from its checkpoint in {workspace}")
    require_room(workspace)  # which its log had no room to say
    raise JobFailed(f"{module} {how or _ending(code)}; {tail}")


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    return f"was killed by {name}" + (" (perhaps the machine ran out of memory)" if name == "SIGKILL" else "")


def _tail(output: Path, start: int) -> list[str]:
    """The last lines of a log, of what was written after byte ``start``; of a redrawn line only its last state."""
    if not output.exists():
        return []  # a job that never left its queue
    with open(output, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(start, end - _TAIL_BYTES))
        text = file.read().decode("utf-8", errors="replace")
    return [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")[-200:] if line.strip()]
