"""Where a training job runs: a child process here, or a job of Slurm where a cluster schedules.

One variable of the environment says which, GPTMILL_JOBS: it describes the machine that a worker runs on, so it is no
parameter of a flow. Unset: here. ``slurm`` and options of sbatch: see tasks.jobs.slurm.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import psutil

from gptcore.base.errors import InputError
from gptcore.machine.fork_server import WarmProcess, fork_job
from gptcore.machine.process import OUTCOME_VARIABLE, PARENT_VARIABLE
from tasks.jobs import slurm
from tasks.jobs.command import job_command
from tasks.jobs.devices import GpuLease, visible_gpus

PLACE_VARIABLE = "GPTMILL_JOBS"
_POLL_SECONDS = 0.05


class Running(Protocol):
    """A job that was started, wherever it is."""

    outcome: Path
    """Where it leaves its exit code and its reason (gptcore.machine.process)."""
    waiting: str
    """Why it does not run yet, in words; empty once it does."""
    ending: str
    """How it ended, where that is known better than its exit code tells; else empty."""

    def poll(self) -> int | None:
        """The job's exit code, minus the number of the signal that killed it, or None before its end."""

    def stop(self, grace: float, hurry: threading.Event) -> None:
        """End it: SIGTERM, ``grace`` seconds for its checkpoint, SIGKILL. Returns when nothing of it runs.

        :param hurry: it is set where there is no more time for that.
        """


class ChildProcess:
    """A process of this machine that leads a process group of its own and dies with this process.

    Where the machine has GPUs it waits, from :meth:`poll` to :meth:`poll`, until there is a free one for each training
    process, and sees no others.
    """

    ending = ""

    def __init__(self, module: str, workspace: Path, nproc: int, environment: Mapping[str, str]) -> None:
        # this attempt's: an orphan of an earlier one has its own
        self.outcome = workspace / f".outcome-{uuid.uuid4().hex}.json"
        self.waiting = "waiting for a GPU"
        self._module, self._job, self._nproc = module, workspace / "JOB.json", nproc
        self._environment, self._log = environment, workspace / "log.txt"
        self._gpus = GpuLease(nproc)
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None

    def _start_if_free(self) -> None:
        if not self._gpus.take():
            return
        self.waiting = ""
        gpus = self._gpus.environment()
        environment = {**self._environment, **os.environ, **gpus}
        given = {PARENT_VARIABLE: str(os.getpid()), OUTCOME_VARIABLE: str(self.outcome)}
        with open(self._log, "ab") as output:
            if self._nproc == 1 and not gpus:
                self._process = fork_job(self._module, self._job, self.outcome, output, environment)
            self._process = self._process or subprocess.Popen(
                job_command(self._module, self._job, self._nproc),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**environment, **given},
            )

    def poll(self) -> int | None:
        """Start the job once its GPUs are free; its exit code, as :class:`Running` has it."""
        if self._process is None:
            self._start_if_free()
            return None
        return self._process.poll()

    def stop(self, grace: float, hurry: threading.Event) -> None:
        """SIGTERM to the group if its leader runs, ``grace`` seconds, SIGKILL to whoever is left.

        The leader answers for the others' checkpoints: once it is gone nothing in its group is waited for. torchrun's
        workers are in no group of its, so they are looked for by their descent.
        """
        try:
            if self._process is not None:
                self._end(self._process, grace, hurry)
        finally:
            self._gpus.release()

    def _end(self, process: subprocess.Popen[bytes] | WarmProcess, grace: float, hurry: threading.Event) -> None:
        workers: list[psutil.Process] = []
        if process.poll() is None:
            _signal(process.pid, signal.SIGTERM)
            deadline = time.monotonic() + grace  # it had its time; what follows does not ask
            while process.poll() is None and time.monotonic() < deadline and not hurry.wait(_POLL_SECONDS):
                pass
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
                workers = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        _signal(process.pid, signal.SIGKILL)
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):  # it was in the group, or ended by itself
                worker.kill()
        process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # nobody is left in the group: that is what was wanted
        os.killpg(group, number)


def processes_and_threads(nproc: int, beside: int = 1) -> tuple[int, int]:
    """Processes of one training, and the CPU threads of each.

    :param nproc: what was asked for; 0: one a GPU of a machine that trains, one where it has none.
    :param beside: such trainings that go on at the same time; here they share the cores, on a cluster each has its own.
    :raises InputError: no such place.
    """
    if (options := _slurm()) is not None:
        return slurm.processes_and_threads(options, nproc)
    processes = nproc or len(visible_gpus()) or 1
    return processes, max(1, _cores() // (processes * beside))


def slots() -> int:
    """How many trainings a worker of this machine takes at the same time: a GPU is not shared by two.

    :raises InputError: no such place.
    """
    return slurm.QUEUE if _slurm() is not None else len(visible_gpus()) or 1


def on_cluster() -> bool:
    """Whether trainings are jobs of a cluster, whichever machine starts them.

    :raises InputError: no such place.
    """
    return _slurm() is not None


def slots_and_threads(jobs: int) -> tuple[int, int]:
    """How many trainings of one process go on at the same time, and the CPU threads of each.

    :param jobs: what was asked for; 0: one a GPU where there is one, else one a core.
    :raises InputError: no such place.
    """
    if (options := _slurm()) is not None:
        return slurm.slots_and_threads(options, jobs)
    slots = jobs or len(visible_gpus()) or _cores()
    return slots, max(1, _cores() // slots)


def start_job(module: str, workspace: Path, nproc: int, environment: Mapping[str, str]) -> Running:
    """Start ``python -m module workspace/JOB.json`` where :data:`PLACE_VARIABLE` says, output to workspace/log.txt.

    On a cluster a job of this workspace that still waits or runs is taken over instead: its caller was killed.

    :param environment: variables for the job; what the environment itself says goes first.
    :raises InputError: no such place; or the cluster refused the job for good.
    """
    if (options := _slurm()) is not None:
        return slurm.SlurmJob(options, module, workspace, nproc, environment)
    return ChildProcess(module, workspace, nproc, environment)


def _slurm() -> list[str] | None:
    """Options of sbatch; None where trainings are child processes."""
    words = shlex.split(os.environ.get(PLACE_VARIABLE, ""))
    if words and words[0] != "slurm":
        raise InputError(
            f"{PLACE_VARIABLE}: found {words[0]!r}, expected slurm and options of sbatch, or nothing (child processes)"
        )
    return words[1:] if words else None


def _cores() -> int:
    return os.cpu_count() or 1
