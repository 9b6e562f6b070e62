"""The disk is full, at any stage: one clear line, nothing half-written is trusted, and after that it goes on."""

from __future__ import annotations

from pathlib import Path

from tests.trials.chaos.fixture import (
    LIMIT_SECONDS,
    Fixture,
    come_to,
    end_all,
    files,
    left_over,
    linger,
    part_of,
    unclear,
)
from tests.trials.chaos.plan import LIFE, Moment
from tests.trials.chaos.shim import Switch
from tests.trials.scenarios import Trial

STAGES = LIFE[1:-1]


def fill(fixture: Fixture, name: str, moment: Moment) -> tuple[str, list[str]]:
    """Fill the disk of the store, or (every other draw) that of the state folder too, and clear it later."""
    whole = moment.draw % 2 == 1
    trial = fixture.trial(name, moment.stage)
    switch = Switch(trial, fixture.root, [Path(trial.store), *([trial.home] if whole else [])])
    process = trial.start()
    if not come_to(trial, process, moment.stage, job=False):
        return "never met", ["ended before the stage came"]
    linger(trial, moment.stage, moment.share * fixture.spans[moment.stage][0])
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
