"""Jobs of this machine from a process that has their imports behind it (gptcore.machine.fork_server).

There is one a process, started with the second such job in a row of one environment; jobs do not wait for its imports,
but are processes of their own until then. It ends when another has taken its place and its jobs have ended, or with
this process: it learns either from a closed socket, so that it does not matter which thread started it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import psutil

WARM_MODULES = ("gptcore.training.finetune", "gptcore.training.pretrain", "gptcore.training.adapt")
"""Jobs that are many and short, as fine-tunes are, and the trials of a sweep and the cells of a table."""
_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 10.0  # a fork takes milliseconds
_LOST = -9  # the exit code of a job whose end nobody could tell
_lock = threading.Lock()
_latest: Mapping[str, str] = {}  # the environment of the job before
_warm: _Warm | None = None


class WarmProcess:
    """A forked job, with as much of `subprocess.Popen` as its follower uses."""

    def __init__(self, pid: int, answer: socket.socket, forked_by: _Warm) -> None:
        self.pid = pid
        self._forked_by = forked_by  # which ends, and its jobs with it, once nobody holds it
        self._process: psutil.Process | None = None
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended already
            self._process = psutil.Process(pid)
        self._answer = answer
        self._code: int | None = None

    def poll(self) -> int | None:
        """The job's exit code, minus the number of the signal that killed it, or None before its end."""
        if self._code is None:
            try:
                message = self._answer.recv(64, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            if message:
                self._code = int(message.removeprefix(b"code "))
            elif self._is_gone():  # who forked it was killed, and so was it
                self._code = _LOST
        return self._code

    def _is_gone(self) -> bool:
        try:
            process = self._process
            return not (process and process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    def wait(self, timeout: float | None = None) -> int:
        """The job's exit code.

        :raises subprocess.TimeoutExpired: it runs after ``timeout`` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                assert timeout is not None
                raise subprocess.TimeoutExpired("a forked job", timeout)
            time.sleep(_POLL_SECONDS)
        return code


class _Warm:
    """The process that forks, and our end of its socket."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gptcore.machine.fork_server", str(theirs.fileno()), *WARM_MODULES],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # what does not import says so as a process of its own
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=self.environment,
            )

        self._ready = False

    @property
    def ready(self) -> bool:
        """Whether it has imported all."""
        if not self._ready:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                self._ready = bool(self._control.recv(64, socket.MSG_DONTWAIT))
        return self._ready

    def fork(self, module: str, job: Path, outcome: Path, log: BinaryIO) -> WarmProcess | None:
        """A job; None if there is none, as the process has ended, cannot fork, or does not answer."""
        request = json.dumps({"module": module, "job": str(job), "outcome": str(outcome)}).encode()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                socket.send_fds(self._control, [request], [log.fileno(), theirs.fileno()])
            ours.settimeout(_ANSWER_SECONDS)
            message = ours.recv(64)
        except (ConnectionError, TimeoutError):
            message = b""
        if not message.startswith(b"pid "):
            ours.close()  # a job that is forked after all ends as it finds nobody there
            return None
        ours.setblocking(False)
        return WarmProcess(int(message.removeprefix(b"pid ")), ours, self)


def fork_job(
    module: str, job: Path, outcome: Path, log: BinaryIO, environment: Mapping[str, str]
) -> WarmProcess | None:
    """The job as a fork; None where it has to be a process of its own.

    That is: another kind of job, the first one of an environment (it may be the only one; what a library reads once
    cannot be changed), or a process that has not imported all yet, does not start or was killed.

    :param environment: all of the job's, but for its parent and its outcome.
    """
    global _latest, _warm  # noqa: PLW0603  # one a process
    if module not in WARM_MODULES or not sys.platform.startswith("linux"):
        return None
    with _lock:
        again, _latest = environment == _latest, dict(environment)
        if again and (_warm is None or _warm.environment != environment or _warm.process.poll() is not None):
            _warm = _Warm(environment)
        warm = _warm if _warm is not None and _warm.environment == environment and _warm.ready else None
    return warm.fork(module, job, outcome, log) if warm is not None else None
