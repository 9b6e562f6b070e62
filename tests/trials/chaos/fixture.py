"""When what is killed, the undisturbed run that every trial is compared with, and what must hold after each trial."""

from __future__ import annotations

import csv
import io
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gptcore.base.files import read_json, write_json_atomic
from tasks.store.store import Store
from tests.expected import expected
from tests.tasks.stores import verify
from tests.trials.scenarios import TASKS, Trial, make_world, small

LIFE: tuple[str, ...] = tuple(expected(__file__, "LIFE"))
"""The pipeline's life, cut where the next stage begins to work: `ngrams` ends when `pretrain` has its workspace."""
JOB_STAGES = ("corpus", "shards", "pretrain", "finetune")
"""Where child processes work: the pool's workers, the two trainings."""


@dataclass(frozen=True)
class Moment:
    """One kill."""

    victim: str
    stage: str
    """Part of the pipeline's life, of :data:`LIFE`."""
    share: float
    """How much of that part is over, 0 to 1: of the reference run's time from its beginning to its end, or of the
    time in which a job works."""
    draw: int
    """Names one of several processes that may be meant."""

    def __str__(self) -> str:
        return f"{self.victim} at {self.share:.0%} of {self.stage}"


def moments(seed: str, counts: Mapping[str, int], stages: Mapping[str, Sequence[str]]) -> list[Moment]:
    """``counts[victim]`` moments for each victim, every stage hit as often as any other, give or take one.

    :param stages: victim -> the parts of the life in which it can be killed.
    """
    plan = []
    for victim, count in counts.items():
        draws = random.Random(f"{seed}/{victim}")
        left: list[str] = []
        for _ in range(count):
            if not left:
                left = draws.sample(list(stages[victim]), len(stages[victim]))
            plan.append(Moment(victim, left.pop(), draws.random(), draws.randrange(1 << 16)))
    return plan


SETTINGS = small(800, 40, eval_every=200, checkpoint_every=50)
"""Long enough to be killed inside each training, with checkpoints to go on from."""
STAGES = LIFE[1:-2]
JOBS = ("gptcore.training", "multiprocessing.spawn")
"""What a job's command line says."""
_TIMES = ("log.txt", "metrics.jsonl", "JOB.json", "result.json", "state.json", "manifest.json", "README.md")
"""Files of an artifact that hold times, paths or a process' words: everything else is equal from run to run."""
_ORPHAN_SECONDS = 20.0  # an orphaned job has 8 s for its checkpoint; the machine is busy
_POLL_SECONDS = 0.02
LIMIT_SECONDS = 600.0
"""No command of a trial takes longer; one that does is stuck."""


@dataclass
class Fixture:
    """What the trials share."""

    root: Path
    spans: dict[str, list[float]] = field(default_factory=dict)
    """Part of the life -> seconds it took; ``job STAGE`` -> seconds in which that stage's job worked."""
    board: str = ""
    files: dict[str, str] = field(default_factory=dict)
    """`<stage>/<digest>/<path>` -> SHA-256 of what must come out equal."""

    @property
    def world(self) -> Path:
        return self.root / "world"

    @property
    def reference(self) -> Trial:
        """The undisturbed run."""
        return Trial(self.root / "reference", self.world)

    def prepare(self) -> None:
        """Make the world, run the pipeline once undisturbed and remember how long each part took.

        A folder of an earlier call is used as it is, so that a single trial can be looked at again.
        """
        record = self.root / "reference.json"
        if not record.is_file():
            make_world(self.world, SETTINGS)
            self._migrate()
            shutil.rmtree(self.reference.folder, ignore_errors=True)
            shutil.copytree(self.root / "home", self.reference.home)
            spans = _watched(self.reference)
            made = {"spans": spans, "board": board(self.reference), "files": files(self.reference)}
            write_json_atomic(record, made)
        noted = read_json(record)
        self.spans, self.board, self.files = noted["spans"], noted["board"], noted["files"]

    def _migrate(self) -> None:
        """A state folder whose databases have their tables and no rows: the first start of all takes longest."""
        trial = Trial(self.root, self.world)
        program = (
            "from flows.servers import environment; environment.prepare()\n"
            "from flows.servers.temporary_server import ensure_server; ensure_server()\n"
            "from tasks.tracking.tracker import Tracker; Tracker().client"
        )
        subprocess.run([sys.executable, "-c", program], env=trial.environment, check=True, timeout=LIMIT_SECONDS)

    def trial(self, name: str, first: str = LIFE[0]) -> Trial:
        """A fresh trial whose store holds what comes before the stage ``first``."""
        trial = Trial(self.root / name, self.world)
        shutil.rmtree(trial.folder, ignore_errors=True)
        shutil.copytree(self.root / "home", trial.home)
        trial.begin_with(self.reference, STAGES[STAGES.index(first) :] if first in STAGES else _after(first))
        return trial

    def faults(self, trial: Trial) -> list[str]:
        """What does not hold after a trial has come to its end, in words; nothing where all is well."""
        left = left_over(trial)
        faults = [f"left running: {left}"] if left else []
        return [*faults, *self.differences(trial), *still_running(trial)]

    def differences(self, trial: Trial, expected: Mapping[str, str] | None = None) -> list[str]:
        """What has come out otherwise than in the undisturbed run, and what is half-made.

        :param expected: the files, where they are not the reference's.
        """
        faults, expected = [], self.files if expected is None else expected
        if (there := board(trial)) != self.board:
            faults.append(f"another leaderboard: {_first_difference(self.board, there)}")
        stored = files(trial)
        for name in sorted({*stored, *expected}):
            if stored.get(name) != expected.get(name):
                what = "missing" if name not in stored else "not the reference's" if name in expected else "too much"
                faults.append(f"{name}: {what}")
        if work := [str(path) for path in trial.stored(".work/*/*")]:
            faults.append(f"workspaces left: {work}")
        return faults


def _after(stage: str) -> Iterable[str]:
    """What a trial of a part of the life that is no stage begins without."""
    return STAGES if stage == "start-up" else ["finetune"]


def board(trial: Trial) -> str:
    """The leaderboard as CSV, without the commit of the code that made it."""
    command = [sys.executable, "-m", "flows.cli", "leaderboard", "--format", "csv"]
    done = subprocess.run(
        command, check=False, env=trial.environment, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    if done.returncode:
        return f"exit code {done.returncode}: {done.stderr}"
    rows = [{**row, "commits": ""} for row in csv.DictReader(io.StringIO(done.stdout))]
    return "\n".join(",".join(row.values()) for row in rows)


def files(trial: Trial) -> dict[str, str]:
    """What the store holds and must come out equal: name -> SHA-256; every byte is checked against the manifests."""
    store, hashes = Store(trial.store), {}
    for stage in STAGES:
        for artifact in store.list(stage):
            verify(store, artifact)
            hashes[f"{stage}/{artifact.digest}"] = ""
            for file in store.manifest(artifact)["files"]:
                if not file["path"].endswith(_TIMES):
                    hashes[f"{stage}/{artifact.digest}/{file['path']}"] = file["sha256"]
    return hashes


def still_running(trial: Trial) -> list[str]:
    """Runs that MLflow or Prefect still call running, of databases in the trial's state folder."""
    running = []
    tables = (
        ("MLflow", "mlflow.db", "select name, status from runs where status = 'RUNNING'"),
        ("Prefect", "prefect/prefect.db", "select name, state_type from flow_run where state_type in ('RUNNING', "
         "'PENDING', 'CANCELLING')"),
    )  # fmt: skip
    for name, file, query in tables:
        path = trial.home / file
        if path.is_file():
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
                running += [f"{name}: {run[:40]!r} is {state}" for run, state in connection.execute(query)]
    return running


def left_over(trial: Trial) -> list[str]:
    """Processes of a trial that do not end by themselves within the time that an orphan has."""
    deadline = time.monotonic() + _ORPHAN_SECONDS
    while (left := trial.processes()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return [f"{pid} {words[-80:]}" for pid, words in left.items()]


def part_of(trial: Trial) -> str:
    """Where in its life a command is, by what its store's folders hold."""
    if len(trial.stored("finetune/*/manifest.json")) >= len(TASKS):
        return "exit" if b"pre-trained" in (trial.folder / "out.txt").read_bytes() else "report"
    begun = [stage for stage in STAGES if trial.stored(f".work/{stage}/*") or trial.stored(f"{stage}/*")]
    return begun[-1] if begun else LIFE[0]


def jobs_of(trial: Trial) -> list[int]:
    """Process ids of the jobs that work for a trial now."""
    return sorted(pid for pid, words in trial.processes().items() if any(job in words for job in JOBS))


def come_to(
    trial: Trial, process: subprocess.Popen[bytes], stage: str, job: bool, more: Callable[[], bool] = lambda: True
) -> bool:
    """Wait until a command is in a part of its life, and a job of it works there; False where it ended before.

    :param more: what must hold, too.
    """
    while process.poll() is None:
        if part_of(trial) == stage and (not job or jobs_of(trial)) and more():
            return True
        time.sleep(_POLL_SECONDS)
    return False


def linger(trial: Trial, stage: str, seconds: float) -> None:
    """Wait so long, or until that part of a trial's life is over: the machine may be quieter by now."""
    deadline = time.monotonic() + seconds
    while part_of(trial) == stage and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(_POLL_SECONDS, left))


def _watched(trial: Trial) -> dict[str, list[float]]:
    """Run a trial and say how long each part of its life took, and how long jobs worked in it."""
    begun: dict[str, float] = {LIFE[0]: time.monotonic()}
    worked: dict[str, list[float]] = {}
    process = trial.start()
    while process.poll() is None:
        part, now = part_of(trial), time.monotonic()
        begun.setdefault(part, now)
        if part in JOB_STAGES and jobs_of(trial):
            worked.setdefault(part, [now, now])[1] = now
        time.sleep(_POLL_SECONDS)
    if process.returncode:
        said = (trial.folder / "err.txt").read_text(errors="replace")[-2000:]
        sys.exit(f"tests.trials.chaos: the undisturbed run ended with exit code {process.returncode}:\n{said}")
    parts = sorted(begun, key=begun.__getitem__)
    ends = [*(begun[part] for part in parts[1:]), time.monotonic()]
    spans = {part: [end - begun[part]] for part, end in zip(parts, ends, strict=True)}
    return spans | {f"job {part}": [last - first] for part, (first, last) in worked.items()}


def _first_difference(expected: str, there: str) -> str:
    pairs = zip(expected.splitlines(), [*there.splitlines(), *[""] * expected.count("\n")], strict=False)
    return next((f"{b[:200]!r}, expected {a[:200]!r}" for a, b in pairs if a != b), "more lines")


def unclear(trial: Trial, code: int, start: int = 0) -> list[str]:
    """What is wrong with how a command says that it failed: expected is one line, the last, in gptmill's own name.

    :param start: where in its standard error the command's own words begin.
    """
    said = (trial.folder / "err.txt").read_bytes()[start:].decode(errors="replace").rstrip().splitlines()
    own = [line for line in said if line.startswith("gptmill:")]
    if own and said[-1] == own[-1] and "Traceback" not in "\n".join(said):
        return []
    return [f"exit code {code}, and no clear line at the end: {said[-8:]}"]


def end_all(trial: Trial) -> None:
    """Kill whatever a trial has left: the next one shall not pay for it."""
    for pid in trial.processes():
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            continue  # gone by itself
