"""`kill -9` of what a deployment's run depends on: its worker, Prefect's or MLflow's server, PostgreSQL.

The full stack runs once for all of these trials. Each gets a store of its own in the stack's bucket, with what comes
before the stage that is hit, and an MLflow without the runs of the trials before it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec

from flows.servers.credentials import MLFLOW, PREFECT, S3
from flows.servers.stack import s3
from gptcore.base.files import read_json, sha256_json
from tests.trials.chaos.fixture import JOBS, LIMIT_SECONDS, STAGES, Fixture, Moment, files, linger, part_of
from tests.trials.scenarios import TASKS, Trial, call, credentials_of

PORTS = {"prefect": 4650, "mlflow": 4651, "postgres": 4652, "s3": 4653}
VICTIMS = ("worker-cpu", "worker-training", "prefect", "mlflow", "postgres")
MET = ("corpus", "shards", "ngrams", "pretrain", "finetune", "report")
"""The parts of the life in which they are killed."""
_BEAT = 30  # seconds between two heartbeats of a run: Prefect's least
_POLL_SECONDS = 0.3
_DOWN_SECONDS = 8.0  # until somebody starts it again
_RUN_SECONDS = 900.0  # three heartbeats may have to be missed
UNDISTURBED = "undisturbed"
_ENDED = ("COMPLETED", "FAILED", "CANCELLED")


@dataclass
class StackTrial(Trial):
    """A deployment's run on the full stack; its folders on this machine are those of its own store."""

    stack: Path = Path()
    """The stack's state folder, and so its runs'."""

    @property
    def home(self) -> Path:
        return self.stack

    def stored(self, pattern: str) -> list[Path]:
        return list((self.home / "remote" / sha256_json(self.store)[:16]).glob(pattern))


class Stack:
    """The full stack of this module's trials."""

    def __init__(self, root: Path) -> None:
        self._owner = Trial(root / "stack", root / "world", more={"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(_BEAT)})
        self._log = root / "stack.log"
        self.files: dict[str, str] = {}
        """What a store of the stack holds after an undisturbed run."""

    @property
    def home(self) -> Path:
        return self._owner.home

    @contextmanager
    def running(self) -> Iterator[Stack]:
        """Start it, and stop it after the ``with`` block; this process becomes its client."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.up()
        credentials = credentials_of(self.home)
        os.environ |= {name: credentials[name] for name in (*MLFLOW, *S3)}
        self._login = credentials[PREFECT[1]]
        try:
            yield self
        finally:
            self._command("down")

    def up(self) -> None:
        """Start what does not run."""
        self._command("up", "--full", *(f"--{name}-port={port}" for name, port in PORTS.items()))

    def _command(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "flows.cli", *arguments]
        env = self._owner.environment
        with open(self._log, "ab") as log:
            subprocess.run(command, env=env, stdout=log, stderr=log, check=True, timeout=LIMIT_SECONDS)

    def kill(self, victim: str) -> None:
        """A worker alone, whose runs have to notice; of a server all processes."""
        pid = read_json(self.home / "stack.json")["processes"][victim]["pid"]
        if victim.startswith("worker"):
            os.kill(pid, signal.SIGKILL)
        else:
            os.killpg(pid, signal.SIGKILL)

    def api(self, path: str, body: Any = None) -> Any:
        """Ask Prefect's server."""
        return call(f"http://{s3.HOST}:{PORTS['prefect']}/api/{path}", body, self._login)

    def start(self, trial: Trial) -> str:
        """A run of the deployment `pipeline`: its id."""
        overrides = tomllib.loads((trial.world / "settings.toml").read_text(encoding="utf-8"))
        form = {"preset": "demo", "store": trial.store, "tasks": list(TASKS), "seeds": 1, "overrides": overrides}
        form |= {"corpus": str(trial.world / "books"), "datasets": str(trial.world / "datasets")}
        deployment = self.api("deployments/name/pipeline/pipeline")["id"]
        run = self.api(f"deployments/{deployment}/create_flow_run", {"parameters": {"parameters": form}})
        return str(run["id"])

    def state(self, run: str) -> str:
        """How a run is, or that the server does not answer."""
        try:
            return str(self.api(f"flow_runs/{run}")["state_type"])
        except OSError:
            return "no answer"

    def processes(self) -> list[str]:
        """The command lines of what belongs to the stack and its runs."""
        return list(self._owner.processes().values())

    def unended(self) -> list[str]:
        """What Prefect calls running, or on its way there."""
        states = {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING", "PAUSED"]}}
        runs = self.api("flow_runs/filter", {"flow_runs": {"state": states}})
        return [f"Prefect: {run['name'][:40]!r} is {run['state_type']}" for run in runs]


def undisturbed(fixture: Fixture, stack: Stack) -> tuple[str, list[str]]:
    """The pipeline once without a fault: the stores of the other trials begin with parts of this one's.

    Fine-tunes are runs of their own there, one at a time on all cores instead of one on each, and sums over two threads
    round otherwise: their weights are not the reference's, but from here on always the same.
    """
    trial = _prepare(fixture, stack, UNDISTURBED, STAGES[0])
    state, starts = _end_of(stack, stack.start(trial))
    faults = [] if (state, starts) == ("COMPLETED", 1) else [f"the run is {state} after {starts} starts"]
    stack.files = files(trial)
    tuned = {name for name in fixture.files if name.startswith("finetune/") and name.endswith(".safetensors")}
    expected = {**fixture.files, **{name: stack.files.get(name, "") for name in tuned}}
    return "on the full stack", [*faults, *_after(stack), *fixture.differences(trial, expected)]


def kill(fixture: Fixture, stack: Stack, name: str, moment: Moment) -> tuple[str, list[str]]:
    """One trial: how it went in few words, and what did not hold."""
    trial = _prepare(fixture, stack, name, moment.stage)
    run = stack.start(trial)
    deadline = time.monotonic() + LIMIT_SECONDS
    while part_of(trial) != moment.stage and stack.state(run) not in _ENDED and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    linger(trial, moment.stage, moment.share * fixture.spans[moment.stage][0])
    hit = part_of(trial)
    stack.kill(moment.victim)
    time.sleep(_DOWN_SECONDS)
    stack.up()
    state, starts = _end_of(stack, run)
    faults = [] if state == "COMPLETED" else [f"the run is {state}"]
    how = f"in {hit}: {state.lower()} after {starts} start{'s' * (starts != 1)}"
    return how, [*faults, *_after(stack), *fixture.differences(trial, stack.files)]


def _end_of(stack: Stack, run: str) -> tuple[str, int]:
    """How a run has ended, and how often it was started."""
    deadline = time.monotonic() + _RUN_SECONDS
    while (state := stack.state(run)) not in _ENDED and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return state, int(stack.api(f"flow_runs/{run}")["run_count"])


def _prepare(fixture: Fixture, stack: Stack, name: str, first: str) -> Trial:
    """A trial whose store holds what comes before a stage, and an MLflow that knows nothing of it."""
    from mlflow import MlflowClient

    trial = StackTrial(fixture.root / name, fixture.world, f"s3://{s3.BUCKET}/{name}", stack=stack.home)
    trial.folder.mkdir(exist_ok=True)
    (trial.folder / "out.txt").touch()
    remote = fsspec.filesystem("s3")
    before = STAGES[: STAGES.index(first)] if first in STAGES else STAGES[:-1]
    for stage in before:
        remote.copy(f"{s3.BUCKET}/{UNDISTURBED}/{stage}", f"{s3.BUCKET}/{name}/{stage}", recursive=True)
    client = MlflowClient()
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id], max_results=1000):
            client.delete_run(run.info.run_id)
    return trial


def _after(stack: Stack) -> list[str]:
    """What is left running: jobs, and runs that a server calls so."""
    from mlflow import MlflowClient

    client = MlflowClient()
    every = [experiment.experiment_id for experiment in client.search_experiments()]
    left = client.search_runs(every, "attributes.status = 'RUNNING'")
    jobs = [words for words in stack.processes() if any(job in words for job in JOBS)]
    running = [f"MLflow: {run.info.run_name!r} is RUNNING" for run in left]
    return [*running, *stack.unended(), *([f"left running: {jobs}"] if jobs else [])]
