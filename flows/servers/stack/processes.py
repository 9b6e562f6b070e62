"""One process of the stack: started in a group of its own, waited for until it answers, stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import psutil

from tasks.store.state import state_folder

_START_SECONDS = 180.0  # the first start of each server migrates a new database
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.2
_TAIL = 15  # lines of a log


class Process(TypedDict):
    """What tells one process from all others, also after its pid is used again."""

    pid: int
    created: float


@dataclass(frozen=True)
class Service:
    """What a process of the stack is, running or not."""

    name: str
    command: list[str]
    ready: Callable[[], bool]
    """Whether it does its work: asked as its clients ask, with their password."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables beside this process's own. Secrets go here, never into the command, which everybody may read."""


def start(service: Service, logs: Path) -> Process:
    """Start a service in its own process group; its output goes to a log file."""
    print(f"starting {service.name} ...", flush=True)
    with open(log_file(service, logs), "ab") as log:
        started = subprocess.Popen(
            service.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | service.environment,
        )
    return {"pid": started.pid, "created": psutil.Process(started.pid).create_time()}


def wait_until_ready(service: Service, process: Process, logs: Path) -> None:
    """
    :raises RuntimeError: the process ended, or does not answer in time; the message holds the end of its log.
    """
    deadline = time.monotonic() + _START_SECONDS
    while not service.ready():
        if not alive(process) or time.monotonic() > deadline:
            log = log_file(service, logs)
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL:])
            raise RuntimeError(f"{service.name} did not start; the end of {log}:\n{tail}")
        time.sleep(_POLL_SECONDS)


def stop(processes: Sequence[tuple[Process, signal.Signals]]) -> None:
    """End processes side by side: each one's signal to its group, SIGKILL to what is left of that after a while."""
    groups = [_group(process) for process, _ in processes]
    for process, number in processes:
        _signal(process, number)
    deadline = time.monotonic() + _STOP_SECONDS
    for (process, _), group in zip(processes, groups, strict=True):
        # Those of before as well: one that is ending loses its environment, by which it is told, before its sockets.
        while alive(process) or orphans(process) or any(_runs(one) for one in group):
            if time.monotonic() > deadline:
                _signal(process, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)


def alive(process: Process) -> bool:
    """Whether that very process runs: a pid that another program has got since is not ours to stop."""
    try:
        running = psutil.Process(process["pid"])
        return running.create_time() == process["created"] and _runs(running)
    except psutil.NoSuchProcess:
        return False


def orphans(process: Process) -> list[psutil.Process]:
    """What a process that has died has left of its group: a server's child that still holds the port, for one."""
    with contextlib.suppress(psutil.NoSuchProcess):
        leader = psutil.Process(process["pid"])
        if leader.create_time() != process["created"] or leader.status() != psutil.STATUS_ZOMBIE:
            return []  # it lives; or the number is another's, which it cannot be while a group has it
    return _group(process)


def log_file(service: Service, logs: Path) -> Path:
    return logs / f"{service.name}.log"


def _group(leader: Process) -> list[psutil.Process]:
    """What runs in a process's group, it among them."""
    return [one for pid in psutil.pids() if (one := _member(pid, leader))]


def _member(pid: int, leader: Process) -> psutil.Process | None:
    """That process if it runs in the leader's group, is not older than it, and belongs to this state folder."""
    try:
        if os.getpgid(pid) != leader["pid"]:
            return None
        member = psutil.Process(pid)
        if member.status() == psutil.STATUS_ZOMBIE or member.create_time() < leader["created"]:
            return None
        return member if member.environ().get("GPTMILL_HOME") == str(state_folder()) else None
    except (ProcessLookupError, psutil.NoSuchProcess, psutil.AccessDenied):  # it has ended, or is another user's
        return None


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(process: Process, number: signal.Signals) -> None:
    gone = contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess)  # by itself: that is what was wanted
    if alive(process):
        with gone:
            os.killpg(process["pid"], number)
    else:
        for one in orphans(process):
            with gone:
                one.send_signal(number)
