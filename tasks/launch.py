"""Training jobs in child processes: started in their own process group, followed, and never left behind.

The Prefect process never trains. A job writes metrics.jsonl, log.txt and result.json into its workspace and says with
its exit code how it ended (gptcore.training.process).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gptcore.errors import InputError
from gptcore.files import read_json, write_json_atomic

Records = list[dict[str, Any]]

EXIT_BAD_INPUT = 2  # as in gptcore.training.process, which this module does not import: it would bring torch along
EXIT_INTERRUPTED = 75
PARENT_VARIABLE = "GPTMILL_PARENT_PID"

_POLL_SECONDS = 0.1
_METRICS_SECONDS = 2.0  # between two looks at metrics.jsonl: MLflow gets batches, not single calls
_TAIL_LINES = 20


class JobFailed(RuntimeError):
    """A job ended badly; the message holds its exit code and the end of its log."""


class JobInterrupted(RuntimeError):
    """A job wrote a checkpoint and left, because it was told to; the same call resumes it."""


def run_job(
    module: str,
    job: Mapping[str, Any],
    workspace: Path,
    *,
    nproc: int = 1,
    on_metrics: Callable[[Records], None],
    timeout: float | None = None,
    grace: float = 60.0,
) -> dict[str, Any]:
    """Run ``python -m module JOB.json`` in ``workspace`` to its end and return its result.json.

    Whatever ends this call early (an exception, a cancelled Prefect run, Ctrl-C, ``timeout`` seconds) ends the job: SIGTERM to its
    group, so that it writes a checkpoint, and SIGKILL to what is left after ``grace`` seconds.

    :param nproc: training processes; more than one start through torch's elastic launcher.
    :param on_metrics: gets the new lines of metrics.jsonl, at most every 2 s.
    :raises InputError: the job refused its input; the message is the job's own.
    :raises JobInterrupted: somebody else sent it SIGTERM.
    :raises TimeoutError: after ``timeout`` seconds.
    :raises JobFailed: any other exit code.
    """
    workspace.mkdir(parents=True, exist_ok=True)
    write_json_atomic(workspace / "JOB.json", job)
    launcher = [] if nproc == 1 else ["gptcore.training.distributed", "--nproc", str(nproc)]
    command = [sys.executable, "-m", *launcher, module, str(workspace / "JOB.json")]
    metrics = MetricsTail(workspace / "metrics.jsonl")
    deadline = None if timeout is None else time.monotonic() + timeout
    with open(workspace / "log.txt", "ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, PARENT_VARIABLE: str(os.getpid()), "PYTHONUNBUFFERED": "1"},
        )
    try:
        looked = time.monotonic()
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
            now = time.monotonic()
            if now - looked >= _METRICS_SECONDS:
                looked = now
                _deliver(metrics, on_metrics)
            if deadline is not None and now > deadline:
                raise TimeoutError(f"{module} in {workspace} took more than {timeout:.0f} s")
    finally:
        stop_group(process, grace)
    _deliver(metrics, on_metrics)
    return _result(module, process.returncode, workspace)


def stop_group(process: subprocess.Popen[bytes], grace: float) -> None:
    """End a process group: nothing if it ended by itself, else SIGTERM, ``grace`` seconds, SIGKILL."""
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            pass  # it had its time; what follows does not ask
    _signal(process.pid, signal.SIGKILL)  # grandchildren that outlived their parent
    process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return  # nobody is left in the group: that is what was wanted


def _deliver(metrics: MetricsTail, on_metrics: Callable[[Records], None]) -> None:
    if records := metrics.read():
        on_metrics(records)


def _result(module: str, code: int, workspace: Path) -> dict[str, Any]:
    if code == 0:
        result: dict[str, Any] = read_json(workspace / "result.json")
        return result
    lines = (workspace / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    if code == EXIT_BAD_INPUT:
        raise InputError(next((line.removeprefix("error: ") for line in reversed(lines) if line), "the job gave no reason"))
    if code == EXIT_INTERRUPTED:
        raise JobInterrupted(f"{module} was told to stop and wrote a checkpoint into {workspace}")
    tail = "\n".join(lines[-_TAIL_LINES:])
    raise JobFailed(f"{module} ended with code {code}; the end of {workspace / 'log.txt'}:\n{tail}")


class MetricsTail:
    """Reads a growing metrics.jsonl from where it last stopped; a half-written last line waits for its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> Records:
        """The complete lines added since the last call. A resumed job may cut the file: then all is read again."""
        try:
            with open(self._path, "rb") as file:
                if self._path.stat().st_size < self._offset:
                    self._offset = 0
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.splitlines()]
