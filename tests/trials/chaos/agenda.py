"""Which trials there are: every kind of fault, how often, at which moments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tests.trials.chaos import faults, objects, servers
from tests.trials.chaos.fixture import Fixture
from tests.trials.chaos.plan import Moment, moments

_OF_FIFTY = {
    "caller": 15,
    "job": 12,
    "own server": 3,
    "worker-cpu": 3,
    "worker-gpu": 3,
    "prefect": 5,
    "mlflow": 4,
    "postgres": 5,
}
"""Who is killed how often, of 50 kills."""
_JUMPS = 6
_NETWORKS = 4
_PAIRS = 2


@dataclass(frozen=True)
class Planned:
    """A trial that waits for its turn."""

    kind: str
    name: str
    """Folder of its files."""
    what: str
    run: Callable[[], tuple[str, list[str]]]
    """How it went in few words, and what did not hold."""
    on_stack: bool = False
    """Whether it needs the full stack."""
    alone: bool = False
    """Whether it does something to the stack, and so comes one at a time."""


def agenda(fixture: Fixture, stack: servers.Stack, seed: str, count: int) -> list[Planned]:
    """Every trial, the first of every kind before the second of any: what goes wrong shows early."""
    planned = [
        *_kills(fixture, stack, seed, count),
        *_of_moments("disk full", seed, faults.DISK_STAGES, len(faults.DISK_STAGES), partial(faults.fill, fixture)),
        *_of_moments("clock jump", seed, faults.CLOCK_STAGES, _JUMPS, partial(faults.jump, fixture)),
        *_damage(fixture, seed),
        *_objects(fixture, seed),
    ]
    seen: Counter[str] = Counter()
    places = []
    for trial in planned:
        places.append(seen[trial.kind])
        seen[trial.kind] += 1
    return [trial for _, trial in sorted(zip(places, planned, strict=True), key=lambda pair: pair[0])]


def _kills(fixture: Fixture, stack: servers.Stack, seed: str, count: int) -> list[Planned]:
    counts = {victim: round(of * count / 50) for victim, of in _OF_FIFTY.items()}
    stages = {**faults.KILLED_IN, **dict.fromkeys(servers.VICTIMS, servers.MET)}
    what = "the pipeline as a deployment's run"
    first = partial(servers.undisturbed, fixture, stack)
    planned = [Planned("no fault, on the full stack", servers.UNDISTURBED, what, first, True, True)]
    for number, moment in enumerate(moments(seed, counts, stages)):
        name, kind = f"kill-{number:02d}", f"kill -9 of {moment.victim}"
        if moment.victim in servers.VICTIMS:
            run = partial(servers.kill, fixture, stack, name, moment)
            planned.append(Planned(kind, name, str(moment), run, True, True))
        else:
            planned.append(Planned(kind, name, str(moment), partial(faults.kill, fixture, name, moment)))
    return planned


def _of_moments(
    kind: str, seed: str, stages: Sequence[str], count: int, run: Callable[[str, Moment], tuple[str, list[str]]]
) -> list[Planned]:
    planned = []
    for number, moment in enumerate(moments(seed, {kind: count}, {kind: stages})):
        name = f"{kind.replace(' ', '-')}-{number:02d}"
        planned.append(Planned(kind, name, str(moment), partial(run, name, moment)))
    return planned


def _damage(fixture: Fixture, seed: str) -> list[Planned]:
    planned = []
    for kind, (wounds, run) in faults.WOUNDED.items():
        for number, wound in enumerate(wounds):
            name = f"{kind.replace(' ', '-')}-{number:02d}"
            planned.append(Planned(kind, name, wound.what, partial(run, fixture, name, wound, seed)))
    return planned


def _objects(fixture: Fixture, seed: str) -> list[Planned]:
    planned = []
    for number in range(_NETWORKS):
        name = f"network-{number:02d}"
        run = partial(objects.over_bad_network, fixture, name, f"{seed}/network/{number}")
        planned.append(Planned("flaky S3", name, "requests dropped, refused, cut, late", run, True))
    for number in range(_PAIRS):
        name = f"hosts-{number:02d}"
        run = partial(objects.from_two_hosts, fixture, name)
        planned.append(Planned("two hosts, one S3 store", name, "the same pipeline at the same time", run, True))
    return planned
