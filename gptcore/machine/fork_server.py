"""A process that has imported what jobs need, and forks one after another: a short fine-tune is half imports.

    python -m gptcore.machine.fork_server NUMBER MODULE ...

NUMBER is that of a socket (SOCK_SEQPACKET), on which it says "ready" once all is imported. A message on it then is a
job: JSON with its module, its file and the file for its outcome, and two descriptors, of its log and of a socket. On
that the job says "pid N" when it leads a group of its own, and this process at its end "code N", as `subprocess.Popen`
has it; the socket's end before a pid says that there is no such job. When the other end of NUMBER is closed this
process ends, and its jobs as those of a killed parent do (gptcore.machine.process).

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
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from gptcore.machine import process

REQUEST_BYTES = 65_536
"""The longest message."""


def main(arguments: list[str]) -> int:
    """Fork jobs until nobody is left to ask for one."""
    _show("gptmill", "warm")
    control = socket.socket(fileno=int(arguments[0]))
    modules = {name: importlib.import_module(name) for name in arguments[1:]}
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
                    woken.recv(REQUEST_BYTES)
                    _tell_ends(answers)
                    continue
                message, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES, 2)
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
                    _work(json.loads(message), modules, log, answer, parent)
                os.close(log)
                answers[pid] = answer


def _tell_ends(answers: dict[int, socket.socket]) -> None:
    """Exit codes of the jobs that have ended."""
    for pid in list(answers):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with answers.pop(pid) as answer, contextlib.suppress(ConnectionError):  # nobody follows it any more
                answer.send(f"code {os.waitstatus_to_exitcode(status)}".encode())


def _work(
    request: dict[str, Any], modules: dict[str, ModuleType], log: int, answer: socket.socket, parent: int
) -> NoReturn:
    """The job, in the process that was forked for it: a group of its own, its log for what it prints."""
    code = process.EXIT_FAILED
    try:
        os.setsid()
        with answer:
            answer.send(f"pid {os.getpid()}".encode())
        _show(request["module"], request["job"])
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.environ[process.PARENT_VARIABLE] = str(parent)
        os.environ[process.OUTCOME_VARIABLE] = request["outcome"]
        code = process.main(modules[request["module"]].run, [request["job"]])
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
