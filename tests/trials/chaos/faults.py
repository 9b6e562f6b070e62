"""What is done to a command in the middle of its life, and what must hold afterwards.

`kill -9` of the command, of its jobs, of its own Prefect server, all over its life. Somebody sets the time, by hours:
nothing waits for it, and no duration is made of it. The disk is full: one clear line, nothing half-written is trusted,
and after that it goes on. A flipped bit, a file cut short: refused by its name or stepped over, never computed with.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tasks.store.store import Store
from tests.expected import expected
from tests.trials.chaos.fixture import (
    JOB_STAGES,
    JOBS,
    LIFE,
    LIMIT_SECONDS,
    Fixture,
    Moment,
    come_to,
    end_all,
    files,
    jobs_of,
    left_over,
    linger,
    part_of,
    unclear,
)
from tests.trials.scenarios import Trial

KILLED_IN = {"caller": LIFE, "job": JOB_STAGES, "own server": LIFE[1:-1]}
"""Victim -> the parts of the pipeline's life in which it is there to be killed."""
_ATTEMPTS = 4  # a machine that is busier or quicker than in the reference run: the moment may be over


def kill(fixture: Fixture, name: str, moment: Moment) -> tuple[str, list[str]]:
    """One trial: how it went in few words, and what did not hold."""
    share = moment.share
    for _ in range(_ATTEMPTS):
        trial = fixture.trial(name, moment.stage)
        process = trial.start()
        if come_to(trial, process, moment.stage, job=moment.victim == "job"):
            span = fixture.spans[f"job {moment.stage}" if moment.victim == "job" else moment.stage][0]
            linger(trial, moment.stage, share * span)
            if process.poll() is None and (victim := _victim(trial, process, moment)):
                os.kill(victim, signal.SIGKILL)
                return _aftermath(fixture, trial, process, moment)
        share /= 2
        end_all(trial)
        process.wait()
    return "never met", ["the victim was gone each time"]


def _aftermath(
    fixture: Fixture, trial: Trial, process: subprocess.Popen[bytes], moment: Moment
) -> tuple[str, list[str]]:
    hit = part_of(trial)
    code = process.wait(LIMIT_SECONDS)
    faults = []
    if moment.victim == "caller" and (left := left_over(trial)):
        faults.append(f"orphans: {left}")
    how = "went on by itself"
    if code:
        how = "same command again"
        if again := trial.start().wait(LIMIT_SECONDS):
            return f"in {hit}: {how}", [*faults, f"the same command ended with exit code {again}"]
    return f"in {hit}: {how}", [*faults, *fixture.faults(trial)]


def _victim(trial: Trial, process: subprocess.Popen[bytes], moment: Moment) -> int | None:
    if moment.victim == "caller":
        return process.pid
    if moment.victim == "job":
        jobs = jobs_of(trial)
    else:
        jobs = [pid for pid, words in trial.processes().items() if "-m flows.servers.temporary_server" in words]
    return jobs[moment.draw % len(jobs)] if jobs else None


_NEVER_MET = ("never met", ["ended before the stage came"])


def _arrived(fixture: Fixture, trial: Trial, process: subprocess.Popen[bytes], moment: Moment) -> bool:
    """Wait for a moment of a command's life; False where it ended before."""
    if not come_to(trial, process, moment.stage, job=False):
        return False
    linger(trial, moment.stage, moment.share * fixture.spans[moment.stage][0])
    return True


SOURCE = Path(__file__).with_name("faults.c")
_FORM = "qq"  # seconds that the clock is wrong by, whether the disk is full


class Switch:
    """What the processes of one trial, started after this, can be made to suffer."""

    def __init__(self, trial: Trial, library: Path, disk: Iterable[Path] = ()) -> None:
        """
        :param library: the folder of the compiled library.
        :param disk: the folders that are the disk.
        """
        control = trial.folder / "control"
        control.write_bytes(struct.pack(_FORM, 0, 0))
        with open(control, "r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), struct.calcsize(_FORM))
        trial.more |= {"LD_PRELOAD": str(library / SOURCE.with_suffix(".so").name), "CHAOS_CONTROL": str(control)}
        trial.more["CHAOS_DISK"] = "".join(f":{folder}" for folder in disk)

    def set(self, *, clock: int = 0, full: bool = False) -> None:
        """From now on, in all processes of the trial.

        :param clock: seconds that the wall clock goes wrong by.
        :param full: whether the disk takes no new bytes.
        """
        self._mapped[:] = struct.pack(_FORM, clock, int(full))


CLOCK_STAGES = LIFE[:-1]
_MAX_HOURS = 12
_DURATIONS = ("wall_seconds", "train_seconds", "seconds")
_ETA = "eta_seconds"


def jump(fixture: Fixture, name: str, moment: Moment) -> tuple[str, list[str]]:
    """Set the clock forward or back (by the draw) at the moment and leave it so."""
    hours = 1 + moment.draw // 2 % _MAX_HOURS
    hours = hours if moment.draw % 2 else -hours
    trial = fixture.trial(name, moment.stage)
    switch = Switch(trial, fixture.root)
    process = trial.start()
    if not _arrived(fixture, trial, process, moment):
        return _NEVER_MET
    switch.set(clock=3600 * hours)
    hit = part_of(trial)
    code = process.wait(LIMIT_SECONDS)
    faults = [f"exit code {code}"] if code else []
    return f"in {hit}: {hours:+} h", [*faults, *_impossible(trial), *fixture.faults(trial)]


def _impossible(trial: Trial) -> list[str]:
    """Durations longer than a trial may take, or below zero."""
    store, wrong_ones = Store(trial.store), []
    for stage in ("corpus", "shards", "pretrain", "finetune"):
        for artifact in store.list(stage):
            manifest = store.manifest(artifact)
            shown = {"duration_seconds": manifest["duration_seconds"]}
            shown |= {name: value for name, value in manifest["counts"].items() if name in _DURATIONS}
            path = store.local(artifact) / "metrics.jsonl"
            lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
            etas = [record["metrics"][_ETA] for record in map(json.loads, lines) if _ETA in record["metrics"]]
            shown |= {f"longest {_ETA}": max(etas, default=0.0), f"shortest {_ETA}": min(etas, default=0.0)}
            if wrong := {name: value for name, value in shown.items() if not 0 <= value <= LIMIT_SECONDS}:
                wrong_ones.append(f"{stage}: {wrong}")
    return wrong_ones


DISK_STAGES = LIFE[1:-1]


def fill(fixture: Fixture, name: str, moment: Moment) -> tuple[str, list[str]]:
    """Fill the disk of the store, or (every other draw) that of the state folder too, and clear it later."""
    whole = moment.draw % 2 == 1
    trial = fixture.trial(name, moment.stage)
    switch = Switch(trial, fixture.root, [Path(trial.store), *([trial.home] if whole else [])])
    process = trial.start()
    if not _arrived(fixture, trial, process, moment):
        return _NEVER_MET
    switch.set(full=True)
    hit, before = part_of(trial), (trial.folder / "err.txt").stat().st_size
    code = process.wait(LIMIT_SECONDS)
    faults = unclear(trial, code, before) if code else []
    if code and not any(word in _last_line(trial) for word in ("space", "full")):
        faults.append(f"the last line does not say what is lacking: {_last_line(trial)}")
    if left := left_over(trial):
        faults.append(f"left running: {left}")
        end_all(trial)
    stored = files(trial)
    faults += [f"{file}: half-written" for file in stored if stored[file] != fixture.files.get(file)]
    switch.set(full=False)
    if again := trial.start().wait(LIMIT_SECONDS):
        return f"in {hit}", [*faults, f"the same command ended with exit code {again}"]
    how = f"in {hit}: {'exit code ' + str(code) if code else 'needed no more'}, {'all' if whole else 'store'}"
    return how, [*faults, *fixture.faults(trial)]


def _last_line(trial: Trial) -> str:
    return (trial.folder / "err.txt").read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2]


_CHECKPOINTS = ".work/pretrain/*/checkpoints/step-*"


@dataclass(frozen=True)
class Wound:
    """What is damaged, and who would read it next."""

    what: str
    pattern: str
    """Files of the store; one of them is drawn."""
    first: str
    """The stage that reads it: what comes before it is in the store."""
    cut: bool = False
    """Cut the file in half; else flip one bit of it."""


def wound_artifact(fixture: Fixture, name: str, wound: Wound, seed: str) -> tuple[str, list[str]]:
    """Damage a finished artifact: made again, or refused in one line that names it; deleted as told, all is well."""
    trial = fixture.trial(name, wound.first)
    victim = _damage(trial, wound, seed)
    code = trial.start().wait(LIMIT_SECONDS)
    if code == 0:
        return "made again", fixture.faults(trial)
    said = (trial.folder / "err.txt").read_text(encoding="utf-8", errors="replace").rstrip().splitlines()
    artifact = Path(*victim.parts[: victim.parts.index("store") + 3])
    faults = []
    if code != 2 or str(artifact) not in said[-1] or len([line for line in said if "gptmill:" in line]) != 1:
        faults.append(f"exit code {code}, and not one line that names {artifact}: {said[-8:]}")
    shutil.rmtree(artifact)
    if again := trial.start().wait(LIMIT_SECONDS):
        return "refused", [*faults, f"without it the same command ended with exit code {again}"]
    return "refused, deleted, made again", [*faults, *fixture.faults(trial)]


def wound_checkpoint(fixture: Fixture, name: str, wound: Wound, seed: str) -> tuple[str, list[str]]:
    """Kill a training that has two checkpoints and damage the newer one: it goes on from the older."""
    trial = fixture.trial(name, wound.first)
    process = trial.start()
    if not come_to(trial, process, wound.first, job=True, more=lambda: len(trial.stored(_CHECKPOINTS)) >= 2):
        return "never met", ["ended before its second checkpoint"]
    os.kill(process.pid, signal.SIGKILL)
    for pid, words in trial.processes().items():
        if any(job in words for job in JOBS):
            os.kill(pid, signal.SIGKILL)  # before it can write another one
    end_all(trial)
    process.wait()
    _damage(trial, wound, seed)
    if again := trial.start().wait(LIMIT_SECONDS):
        return "refused", [f"the same command ended with exit code {again}"]
    [log] = trial.stored("pretrain/*/log.txt")
    stepped = "is skipped" in log.read_text(encoding="utf-8")
    faults = [] if stepped else ["the log does not say that a checkpoint was skipped"]
    return "went on from the one before", [*faults, *fixture.faults(trial)]


def _damage(trial: Trial, wound: Wound, seed: str) -> Path:
    """Flip a bit, or cut, in the newest (by name) of the files that are meant."""
    draws = random.Random(f"{seed}/{wound.what}")
    victim = max(trial.stored(wound.pattern))
    data = bytearray(victim.read_bytes())
    if wound.cut:
        victim.write_bytes(data[: len(data) // 2])
    else:
        data[draws.randrange(len(data))] ^= 1 << draws.randrange(8)
        victim.write_bytes(data)
    return victim


_WOUNDED = {"damaged artifact": wound_artifact, "damaged checkpoint": wound_checkpoint}
"""Kind -> the trial: of finished artifacts, and of a training that was killed."""
WOUNDED = {kind: ([Wound(**row) for row in expected(__file__, kind)], run) for kind, run in _WOUNDED.items()}
"""Kind -> what is damaged, and the trial."""
