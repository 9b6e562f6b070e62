"""Somebody sets the time, by hours: nothing waits for it, and no duration is made of it."""

from __future__ import annotations

import json

from tasks.store.store import Store
from tests.trials.chaos.fixture import LIMIT_SECONDS, Fixture, come_to, linger, part_of
from tests.trials.chaos.plan import LIFE, Moment
from tests.trials.chaos.shim import Switch
from tests.trials.scenarios import Trial

STAGES = LIFE[:-1]
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
    if not come_to(trial, process, moment.stage, job=False):
        return "never met", ["ended before the stage came"]
    linger(trial, moment.stage, moment.share * fixture.spans[moment.stage][0])
    switch.set(clock=3600 * hours)
    hit = part_of(trial)
    code = process.wait(LIMIT_SECONDS)
    faults = [f"exit code {code}"] if code else []
    return f"in {hit}: {hours:+} h", [*faults, *_impossible(trial), *fixture.faults(trial)]


def _impossible(trial: Trial) -> list[str]:
    """Durations longer than a trial may take, or below zero."""
    store, found = Store(trial.store), []
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
                found.append(f"{stage}: {wrong}")
    return found
