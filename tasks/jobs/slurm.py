"""Training jobs as jobs of Slurm: `sbatch` submits, `scontrol` tells how they are, `scancel` ends them.

Chosen by GPTMILL_JOBS="slurm --partition=gpu --gpus-per-node=8 --time=1-0": `slurm` and any options of sbatch. Three of
them describe a node. Of its GPUs a job asks for as many as it needs: one of one process for one, one of 16 for two
nodes of 8.

    --gpus-per-node=[TYPE:]N   a node has N GPUs, and a GPU trains one process
    --ntasks-per-node=N        on nodes without GPUs: so many processes a node (all on one)
    --cpus-per-task=N          a node has N cores, which a job gets by its share of the GPUs, else whole

What a node needs: this Python, this folder, and the store's workspace under the same paths (a shared file system); the
progress, the log and the result are read from there. A job goes by a name made from its workspace, so the same call
finds the job that an earlier, killed caller left behind and follows that one.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import math
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from gptcore.base.errors import InputError
from gptcore.machine.process import EXIT_FAILED, EXIT_INTERRUPTED, OUTCOME_VARIABLE
from tasks.jobs.command import job_command

log = logging.getLogger(__name__)

# A training job reads and writes files; keys of stores, servers and databases stay here. With sbatch's own default the
# whole environment would lie in the controller's state folder.
_SENT = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV"})
_SENT_PREFIXES = (
    *("SLURM_", "SBATCH_", "LC_", "PYTHON", "MALLOC_", "OMP_", "GOMP_", "MKL_"),
    *("CUDA_", "NCCL_", "GLOO_", "TORCH", "UCX_"),
)

_LEAVE_SECONDS = 120
"""Before a time limit, a job is told to go; and the last host of several has as long after the first one left. The
latter ends what waits for a lost peer, and not by --kill-on-bad-exit: that kills rank 0 over its checkpoint."""
_KILLED_SECONDS = (10.0, 60.0)  # for srun to tell Slurm that its processes are dead; for Slurm to clean up by itself
_ASK_SECONDS = (1.0, 30.0)  # least and most between two questions: one controller answers for the whole cluster
QUEUE = 16
"""Trainings of one process that a caller has waiting or running, where nobody asks for another number."""
_OTHERWISE = frozenset({"--gpus", "--gpus-per-task", "--gpus-per-socket", "--cpus-per-gpu"})
_ASK_SHARE = 0.05  # of a job's life so far, which is what its end can be noticed late by

_QUEUED = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
_STOPPED = frozenset({"CANCELLED", "TIMEOUT", "PREEMPTED", "DEADLINE"})
"""Told to go by Slurm or by a person: with its newest checkpoint, whether it came to write one then or not."""
_BROKEN = frozenset({"NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "REVOKED"})
_ENDED = frozenset({"COMPLETED", "FAILED"}) | _STOPPED | _BROKEN

_RENDEZVOUS = "RENDEZVOUS"
# The first node's address, which every task of a step knows; the port is below those that systems give out.
_RENDEZVOUS_IN_SHELL = '"$SLURM_LAUNCH_NODE_IPADDR:$((10000 + SLURM_JOB_ID % 20000))"'


class SlurmJob:
    """A job of Slurm, submitted here or found again by its name.

    :param options: of sbatch, as above.
    :raises InputError: there is no sbatch here; it does not know an option; or the cluster refuses the job.
    :raises RuntimeError: the controller does not answer.
    """

    def __init__(
        self, options: Sequence[str], module: str, workspace: Path, nproc: int, environment: Mapping[str, str]
    ) -> None:
        self.waiting, self.ending = "waiting in the queue", ""
        self._code: int | None = None
        self._asked = -math.inf
        workspace = workspace.absolute()
        self.outcome = workspace / ".outcome-slurm.json"  # one name: who takes a job over has to know it
        name = f"gptmill-{module.rpartition('.')[2]}-{hashlib.sha256(str(workspace).encode()).hexdigest()[:16]}"
        nodes, nproc, asked = _layout(options, nproc)
        if earlier := _find(name):
            self.id = earlier
            log.info("Slurm job %s (%s) is there already; it is followed", self.id, name)
        else:
            self.outcome.unlink(missing_ok=True)
            own = {key: value for key, value in os.environ.items() if key in _SENT or key.startswith(_SENT_PREFIXES)}
            sent = {**environment, **own, OUTCOME_VARIABLE: str(self.outcome)}
            script = _script(module, workspace, nodes, nproc, name)
            self.id = _submit(name, [*asked, f"--nodes={nodes}"], script, workspace, sent)
            log.info("Slurm job %s (%s) was submitted", self.id, name)
        self._born = time.monotonic()

    def poll(self) -> int | None:
        """The job's exit code, as :class:`tasks.jobs.placement.Running` has it; Slurm is asked now and then only."""
        least, most = _ASK_SECONDS
        now = time.monotonic()
        if self._code is None and now - self._asked >= min(most, max(least, _ASK_SHARE * (now - self._born))):
            self._ask()
            self._asked = now
        return self._code

    def stop(self, grace: float, hurry: threading.Event) -> None:
        """End the job, with a grace of our own for its checkpoint: the cluster's KillWait may be less, or more."""
        try:
            if self._code is None:
                self._ask()
            if self.waiting:
                self._cancel()
            else:
                self._cancel("--signal=TERM")  # to the processes, not to the srun before them, which would kill them
            self._wait(grace, hurry)
        finally:
            if self._code is None:
                self._cancel("--signal=KILL")
                self._wait(_KILLED_SECONDS[0], threading.Event())
                self._cancel()
                self._wait(_KILLED_SECONDS[1], threading.Event())
            if self._code is None:
                log.warning("Slurm job %s may still run: end it with scancel %s", self.id, self.id)

    def _wait(self, seconds: float, hurry: threading.Event) -> None:
        deadline = time.monotonic() + seconds
        while self._code is None and time.monotonic() < deadline and not hurry.wait(_ASK_SECONDS[0]):
            self._ask()

    def _cancel(self, *options: str) -> None:
        if self._code is None:
            done = _call(["scancel", *options, self.id])
            if done.returncode and "Invalid job id" not in done.stderr:  # that one has ended meanwhile
                log.warning("scancel %s: %s", self.id, done.stderr.strip())

    def _ask(self) -> None:
        """Ask the controller for the job's state."""
        done = _call(["scontrol", "show", "job", "--oneliner", self.id])
        if done.returncode:
            if "Invalid job id" not in done.stderr:
                log.warning("Slurm job %s: no news (%s); asking again", self.id, done.stderr.strip())
                return
            self._code, self.waiting = EXIT_FAILED, ""
            self.ending = f"ended as Slurm job {self.id}, which Slurm has forgotten"
            return
        fields: dict[str, str] = {}
        for word in done.stdout.split():
            key, _, value = word.partition("=")
            fields.setdefault(key, value)  # the first: a comment further on may hold anything
        state = fields["JobState"]
        reason = f" ({fields['Reason']})" if fields["Reason"] != "None" else ""  # none yet: it was just submitted
        self.waiting = f"waiting in the queue{reason}" if state in _QUEUED else ""
        if state in _ENDED:
            self._code = _exit_code(state, fields["ExitCode"])
            if state in _STOPPED | _BROKEN:
                self.ending = f"ended as Slurm job {self.id} with {state} on {fields['NodeList']}"


def processes_and_threads(options: Sequence[str], nproc: int) -> tuple[int, int]:
    """Processes of one training and the CPU threads of each, by a node's GPUs and cores, not by this machine's."""
    node = _node(options)
    processes = nproc or node.gpus or 1
    return processes, max(1, node.cores // (node.gpus or min(processes, node.tasks or processes)))


def slots_and_threads(options: Sequence[str], jobs: int) -> tuple[int, int]:
    """Trainings at a time and the CPU threads of each process; the cluster decides which of them run."""
    node = _node(options)
    return jobs or QUEUE, max(1, node.cores // (node.gpus or 1))


@dataclass(frozen=True)
class _Node:
    """What sbatch's options say that a node has; 0 where they say nothing."""

    gpus: int
    kind: str
    """The type of the GPUs with a colon behind it, as in `a100:`; empty where the options name no type."""
    tasks: int
    cores: int
    others: list[str]
    """The options that every job gets as they are."""


def _node(options: Sequence[str]) -> _Node:
    """:raises InputError: an option is not what sbatch takes, or says in another way what a node has."""
    parser = argparse.ArgumentParser(prog="GPTMILL_JOBS: slurm", add_help=False, allow_abbrev=False)
    parser.error = _refuse  # type: ignore[method-assign]  # it would print and end this process
    parser.add_argument("--gpus-per-node", default="")
    parser.add_argument("--ntasks-per-node", type=int, default=0)
    parser.add_argument("--cpus-per-task", "-c", type=int, default=0)
    known, others = parser.parse_known_args(options)
    for word in " ".join(others).replace("--gres ", "--gres=").split():
        if word.partition("=")[0] in _OTHERWISE or word.startswith(("-G", "--gres=gpu")):
            _refuse(f"{word}: expected --gpus-per-node=N and --cpus-per-task=N, which describe a node")
    kind, colon, gpus = known.gpus_per_node.rpartition(":")
    if gpus and not (gpus.isdecimal() and int(gpus)):
        _refuse(f"--gpus-per-node={known.gpus_per_node}: expected 1 or more, or a type and a number as in a100:8")
    for option, number in (("ntasks-per-node", known.ntasks_per_node), ("cpus-per-task", known.cpus_per_task)):
        if number < 0:
            _refuse(f"--{option}={number}: expected a number")
    return _Node(int(gpus or 0), kind + colon, known.ntasks_per_node, known.cpus_per_task, others)


def _layout(options: Sequence[str], nproc: int) -> tuple[int, int, list[str]]:
    """Nodes, processes on each, and the options to ask for them.

    :raises InputError: the processes do not spread evenly.
    """
    node = _node(options)
    room = node.gpus or node.tasks or nproc
    nodes = math.ceil(nproc / room)
    if nproc % nodes:
        _refuse(f"found {nproc} processes for nodes of {room}, expected a number that spreads evenly")
    each, cores = nproc // nodes, node.cores
    asked = []
    if node.gpus:
        asked.append(f"--gpus-per-node={node.kind}{each}")
        cores = cores and max(1, cores * each // node.gpus)  # the other GPUs' jobs need theirs
    if cores:
        asked.append(f"--cpus-per-task={cores}")
    return nodes, each, [*node.others, *asked]


def _refuse(message: str) -> NoReturn:
    raise InputError(f"GPTMILL_JOBS: slurm: {message}")


def _script(module: str, workspace: Path, nodes: int, nproc: int, name: str) -> str:
    """The batch script: one task a node, each of the same line."""
    command = job_command(module, workspace / "JOB.json", nproc, nnodes=str(nodes), rendezvous=_RENDEZVOUS, run_id=name)
    line = " ".join(_RENDEZVOUS_IN_SHELL if word == _RENDEZVOUS else shlex.quote(word) for word in command)
    options = f"--kill-on-bad-exit=0 --wait={_LEAVE_SECONDS}"
    # srun does not take this one over from sbatch (since Slurm 22.05)
    cores = "${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK}"
    return f"#!/bin/sh\nexec srun {options} {cores} sh -c {shlex.quote(f'exec {line}')}\n"


def _submit(name: str, options: list[str], script: str, workspace: Path, environment: Mapping[str, str]) -> str:
    """Hand the script to sbatch and return the job's id. Ours go last, so that they hold."""
    output = str(workspace / "log.txt").replace("%", "%%")
    ours = [f"--job-name={name}", f"--output={output}", "--open-mode=append", f"--chdir={Path.cwd()}"]
    ours += ["--ntasks-per-node=1", "--no-requeue", "--parsable"]  # a broken job is started again by its caller
    done = _call(["sbatch", f"--signal=TERM@{_LEAVE_SECONDS}", *options, *ours], script, environment)
    if done.returncode:
        reason = "; ".join(line.removeprefix("sbatch: ") for line in done.stderr.splitlines() if line.strip())
        if "Unable to contact" in reason or "timed out" in reason:
            raise RuntimeError(f"sbatch: {reason}")
        _refuse(f"sbatch says: {reason}")
    return done.stdout.strip().partition(";")[0]  # of several clusters, their name follows


def _find(name: str) -> str:
    """The id of this user's job of that name that waits or runs; empty if there is none."""
    done = _call(["squeue", "--me", "--noheader", "--format=%A", f"--name={name}"])
    if done.returncode:
        raise RuntimeError(f"squeue: {done.stderr.strip()}")
    return next(iter(done.stdout.split()), "")


def _exit_code(state: str, exit_code: str) -> int:
    """The code that a child process would have had. Slurm writes ``code:signal``; srun adds a signal to 128."""
    if state in _STOPPED:
        return EXIT_INTERRUPTED
    code, number = map(int, exit_code.split(":"))
    if number or code > 128:
        return -(number or code - 128)
    return code or (EXIT_FAILED if state in _BROKEN else 0)


def _call(
    command: list[str], stdin: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """:raises InputError: there is no such program here."""
    try:
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=environment)
    except FileNotFoundError:
        _refuse(f"found no {command[0]} on PATH; expected Slurm's client programs on this machine")
