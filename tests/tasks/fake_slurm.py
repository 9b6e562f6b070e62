"""A stand-in for Slurm's client programs: `python fake_slurm.py PROGRAM STATE ARGUMENTS...`.

Words and exit codes are those of Slurm 22.05 as `python -m tests.trials.slurm` saw them. A job is a folder of STATE
with its batch script; a file `hold` in STATE keeps new jobs in the queue, a file `down` makes every program fail as it
does without a controller. Standard library only, and nothing of this package: it starts quickly without site-packages.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAMS = ("sbatch", "squeue", "scontrol", "scancel", "srun")
_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL")
_GONE = "Invalid job id specified"


def install(folder: Path) -> Path:
    """Write the programs into folder/bin, their state into folder/state; returns the latter."""
    (folder / "bin").mkdir(parents=True)
    (folder / "state").mkdir()
    for name in PROGRAMS:
        line = f'exec {sys.executable} -I -S {Path(__file__).absolute()} {name} {folder / "state"} "$@"'
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / "bin" / name).chmod(0o755)
    return folder / "state"


@contextlib.contextmanager
def locked(job: Path) -> Iterator[None]:
    """Nobody else reads or changes what is known of the job: its start and its pid are one step."""
    with open(job / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def set_state(job: Path, state: str, **fields: object) -> None:
    """What Slurm knows of a job from now on; an end stays the end."""
    with locked(job):
        _set_state(job, state, **fields)


def _set_state(job: Path, state: str, **fields: object) -> None:
    known = json.loads((job / "job.json").read_text()) if (job / "job.json").exists() else {}
    if known.get("state") in _ENDED:
        state = known["state"]
    (job / "new").write_text(json.dumps({**known, **fields, "state": state}))
    (job / "new").replace(job / "job.json")


def sbatch(state: Path, arguments: list[str]) -> int:
    options = dict(word.removeprefix("--").partition("=")[::2] for word in arguments)
    if options.get("partition", "main") != "main":
        return fail(
            f"sbatch: error: invalid partition specified: {options['partition']}\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified"
        )
    number = 1
    while True:
        job = state / str(number)
        with contextlib.suppress(FileExistsError):
            job.mkdir()
            break
        number += 1
    (job / "script").write_text(sys.stdin.read())
    (job / "environ.json").write_text(json.dumps(dict(os.environ)))
    waits = (state / "hold").exists()
    set_state(job, "PENDING" if waits else "RUNNING", options=options, exit_code="0:0")
    command = [sys.executable, "-I", "-S", __file__, "_run", str(state), str(number)]
    nowhere = subprocess.DEVNULL
    subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)
    print(number)
    return 0


def _run(state: Path, arguments: list[str]) -> int:
    """What slurmctld and slurmd do with a job."""
    job = state / arguments[0]
    while (state / "hold").exists():
        if not job.exists() or json.loads((job / "job.json").read_text())["state"] == "CANCELLED":
            return 0
        time.sleep(0.02)
    options = json.loads((job / "job.json").read_text())["options"]
    with open(options["output"], "ab") as output, locked(job):
        if json.loads((job / "job.json").read_text())["state"] == "CANCELLED":
            return 0
        process = subprocess.Popen(
            ["sh", str(job / "script")],
            cwd=options["chdir"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "SLURM_JOB_ID": arguments[0], "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1"},
            start_new_session=True,
        )
        _set_state(job, "RUNNING", pid=process.pid)
    code = process.wait()
    if code < 0:
        code = 128 - code  # as srun says it
    set_state(job, "FAILED" if code else "COMPLETED", exit_code=f"{code}:0")
    return 0


def squeue(state: Path, arguments: list[str]) -> int:
    name = next(word.removeprefix("--name=") for word in arguments if word.startswith("--name="))
    for job in sorted(state.glob("*/job.json")):
        known = json.loads(job.read_text())
        if known["options"]["job-name"] == name and known["state"] not in _ENDED:
            print(job.parent.name)
    return 0


def scontrol(state: Path, arguments: list[str]) -> int:
    job = state / arguments[-1] / "job.json"
    if not job.exists():
        return fail(f"slurm_load_jobs error: {_GONE}")
    known = json.loads(job.read_text())
    reason = {"PENDING": "Resources", "FAILED": "NonZeroExitCode", "NODE_FAIL": "NodeDown"}.get(known["state"], "None")
    nodes = "(null)" if known["state"] == "PENDING" else "n1"
    print(
        f"JobId={arguments[-1]} JobName={known['options']['job-name']} UserId=root(0) GroupId=root(0) MCS_label=N/A "
        f"Priority=4294901759 Nice=0 Account=(null) QOS=(null) JobState={known['state']} Reason={reason} "
        f"Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={known['exit_code']} RunTime=00:00:01 "
        f"TimeLimit=UNLIMITED TimeMin=N/A ReqNodeList=(null) ExcNodeList=(null) NodeList={nodes} BatchHost=n1 "
        f"Comment=JobState=COMPLETED Power= "
    )
    return 0


def scancel(state: Path, arguments: list[str]) -> int:
    job = state / arguments[-1]
    for _ in range(500):  # sbatch has said that a job runs, and it does not yet: Slurm would not lose the signal
        with locked(job):
            known = json.loads((job / "job.json").read_text())
            if known["state"] != "RUNNING" or "pid" in known:
                return _scancel(job, known, arguments)
        time.sleep(0.01)
    return fail(f"scancel: error: job {arguments[-1]} never started")


def _scancel(job: Path, known: dict[str, Any], arguments: list[str]) -> int:
    if known["state"] in _ENDED:
        return fail(f"scancel: error: Kill job error on job id {arguments[-1]}: {_GONE}")
    if "--signal=KILL" in arguments:
        number = signal.SIGKILL
    else:
        number = signal.SIGTERM
        if "--signal=TERM" not in arguments:
            _set_state(job, "CANCELLED", exit_code="0:15")
    if "pid" in known:
        os.killpg(known["pid"], number)
    return 0


def srun(_state: Path, arguments: list[str]) -> int:
    command = next(index for index, word in enumerate(arguments) if not word.startswith("-"))
    os.execvp(arguments[command], arguments[command:])


def fail(words: str) -> int:
    print(words, file=sys.stderr)
    return 1


def main(program: str, state: Path, arguments: list[str]) -> int:
    if (state / "down").exists() and program != "_run":
        what = "sbatch: error: Batch job submission failed" if program == "sbatch" else "slurm_load_jobs error"
        return fail(f"{what}: Unable to contact slurm controller (connect failure)")
    return int(globals()[program](state, arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
