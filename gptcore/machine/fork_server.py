"""Jobs as forks of a process that has their imports behind it: a short fine-tune is half imports.

:func:`fork_job` asks that process for a job. There is one a process that asks, started by :func:`warm_up` or with the
second such job in a row of one environment; jobs do not wait for its imports, but are processes of their own until
then. It ends when another has taken its place and its jobs have ended, or with the process that asks: it learns either
from a closed socket, so that it does not matter which thread started it. Its own command is

    python -m gptcore.machine.fork_server NUMBER MODULE ...

NUMBER is that of a socket (SOCK_SEQPACKET), on which it says "ready" once all is imported. A message on it then is a
job: JSON with its module, its file and the file for its outcome, and two descriptors, of its log and of a socket. On
that the job says "pid N" when it leads a group of its own, and this process at its end "code N", as `subprocess.Popen`
has it; the socket's end before a pid says that there is no such job, and after one that both have been killed. When the
other end of NUMBER is closed this process ends, and its jobs as those of a killed parent do (gptcore.machine.process).

Nothing is computed before a fork: a job's threads, and what MKL chooses in its first calls, are its own. Its results
are those of `python -m MODULE FILE`, bit by bit.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from gptcore.machine import process

WARM_MODULES = ("gptcore.training.finetune", "gptcore.training.pretrain")
"""Jobs that are many and short, as fine-tunes are, and the trials of a sweep and the cells of a table: imported before
any fork."""
_PAPERS = "gptcore.papers."
"""What the names of papers' jobs begin with: these train, too, and import in the fork what little they have beside."""
_REQUEST_BYTES = 65_536  # the longest message
_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 10.0  # a fork takes milliseconds
_LOST = -9  # the exit code of a job whose end nobody could tell
_lock = threading.Lock()
_latest: Mapping[str, str] = {}  # the environment of the job before
_warm: _Warm | None = None


# --- The process that asks -------------------------------------------------------------------------------------------


def fork_job(
    module: str, job: Path, outcome: Path, log: BinaryIO, environment: Mapping[str, str]
) -> WarmProcess | None:
    """The job as a fork; None where it has to be a process of its own.

    That is: another kind of job, the first one of an environment (it may be the only one; what a library reads once
    cannot be changed), or a process that has not imported all yet, does not start or was killed.

    :param environment: all of the job's, but for its parent and its outcome.
    """
    global _latest  # one a process
    trains = module in WARM_MODULES or module.startswith(_PAPERS)
    if not trains or not sys.platform.startswith("linux"):
        return None
    again, _latest = environment == _latest, dict(environment)
    if again:
        warm_up(environment)
    with _lock:
        warm = _warm if _warm is not None and _warm.environment == environment and _warm.ready else None
    return warm.fork(module, job, outcome, log) if warm is not None else None


def warm_up(environment: Mapping[str, str]) -> None:
    """Start the process that forks jobs of an environment, unless it is there: several are to come."""
    global _warm  # noqa: PLW0603  # one a process
    with _lock:
        if _warm is None or _warm.environment != environment or _warm.process.poll() is not None:
            _warm = _Warm(environment)


class WarmProcess:
    """A forked job, with as much of `subprocess.Popen` as its follower uses."""

    def __init__(self, pid: int, answer: socket.socket, forked_by: _Warm) -> None:
        self.pid = pid
        self._forked_by = forked_by  # which ends, and its jobs with it, once nobody holds it
        self._answer = answer
        self._code: int | None = None

    def poll(self) -> int | None:
        """The job's exit code, minus the number of the signal that killed it, or None before its end."""
        if self._code is None:
            with contextlib.suppress(BlockingIOError):
                message = self._answer.recv(64)
                self._code = int(message.removeprefix(b"code ")) if message else _LOST
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """The job's exit code.

        :raises subprocess.TimeoutExpired: it runs after ``timeout`` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if timeout is not None and deadline is not None and time.monotonic() > deadline:
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
                [sys.executable, "-m", __name__, str(theirs.fileno()), *WARM_MODULES],
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


# --- The process that forks ------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Fork jobs until nobody is left to ask for one."""
    _show("gptmill", "warm")
    control = socket.socket(fileno=int(arguments[0]))
    for name in arguments[1:]:
        importlib.import_module(name)
    gc.freeze()  # else a job's first collection would write to every page that it shares
    control.send(b"ready")
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    answers: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        for source in (control, woken):
            selector.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    woken.recv(_REQUEST_BYTES)
                    _tell_ends(answers)
                    continue
                message, descriptors, _, _ = socket.recv_fds(control, _REQUEST_BYTES, 2)
                if not message:
                    return process.EXIT_DONE
                if len(descriptors) < 2:  # too many files are open here
                    for descriptor in descriptors:
                        os.close(descriptor)
                    continue
                log, answer = descriptors[0], socket.socket(fileno=descriptors[1])
                parent = os.getpid()
                try:
                    pid = os.fork()
                except OSError:  # no room for another process: who asked has to see to it
                    os.close(log)
                    answer.close()
                    continue
                if pid == 0:
                    for end in (control, woken, wake, *answers.values()):
                        end.close()
                    _work(json.loads(message), log, answer, parent)
                os.close(log)
                answers[pid] = answer


def _tell_ends(answers: dict[int, socket.socket]) -> None:
    """Exit codes of the jobs that have ended."""
    for pid in list(answers):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with answers.pop(pid) as answer, contextlib.suppress(ConnectionError):  # nobody follows it any more
                answer.send(f"code {os.waitstatus_to_exitcode(status)}".encode())


def _work(request: dict[str, Any], log: int, answer: socket.socket, parent: int) -> NoReturn:
    """The job, in the process that was forked for it: a group of its own, its log for what it prints.

    ``answer`` stays open to the job's end, by which who follows it knows that it is gone.
    """
    code = process.EXIT_FAILED
    try:
        os.setsid()
        answer.send(f"pid {os.getpid()}".encode())
        _show(request["module"], request["job"])
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.environ[process.PARENT_VARIABLE] = str(parent)
        os.environ[process.OUTCOME_VARIABLE] = request["outcome"]
        code = process.main(importlib.import_module(request["module"]).run, [request["job"]])
        sys.stdout.flush()
        sys.stderr.flush()
    except ConnectionError:  # who asked waits no longer
        os._exit(code)
    except BaseException:  # nothing may go on in a copy of the process that forks
        traceback.print_exc()
    os._exit(code)


def _show(*words: str) -> None:
    """What `ps` shows as this process' command line, as far as there is room where its first one stands.

    Else all jobs would look alike, and like the process that they come from.
    """
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    start, end = (int(fields[number - 3]) for number in (48, 49))  # proc(5): arg_start, arg_end
    if start:  # 0: hidden from this process
        line = "\0".join(words).encode()[: end - start - 1]
        ctypes.memmove(start, line.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
