"""Which trials there are: every kind of fault, how often, at which moments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count as numbers

from tests.expected import expected
from tests.trials.chaos import faults, proxy, servers
from tests.trials.chaos.fixture import Fixture, moments

_OF_FIFTY: dict[str, int] = expected(__file__, "_OF_FIFTY")
"""Who is killed how often, of 50 kills."""
_JUMPS = 6
_NETWORKS = 4
_PAIRS = 2


Outcome = tuple[str, list[str]]
"""How a trial went in few words, and what did not hold."""


@dataclass(frozen=True)
class Planned:
    """A trial that waits for its turn."""

    kind: str
    name: str
    """Folder of its files."""
    what: str
    run: Callable[[], Outcome]
    on_stack: bool = False
    """Whether it needs the full stack."""
    alone: bool = False
    """Whether it does something to the stack, and so comes one at a time."""


def agenda(fixture: Fixture, stack: servers.Stack, seed: str, count: int) -> list[Planned]:
    """Every trial, the first of every kind before the second of any: what goes wrong shows early."""
    planned = _kills(fixture, stack, seed, count)
    for kind, run, stages, times in (
        ("disk full", faults.fill, faults.DISK_STAGES, len(faults.DISK_STAGES)),
        ("clock jump", faults.jump, faults.CLOCK_STAGES, _JUMPS),
    ):
        hit = moments(seed, {kind: times}, {kind: stages})
        planned += _each(kind, [(str(moment), partial(run, fixture, moment=moment)) for moment in hit])
    for kind, (wounds, wounded) in faults.WOUNDED.items():
        planned += _each(kind, [(wound.what, partial(wounded, fixture, wound=wound, seed=seed)) for wound in wounds])
    over = partial(proxy.over_bad_network, fixture)
    what = "requests dropped, refused, cut, late"
    flaky = [(what, partial(over, seed=f"{seed}/network/{number}")) for number in range(_NETWORKS)]
    planned += _each("flaky S3", flaky, "network", on_stack=True)
    both = ("the same pipeline at the same time", partial(proxy.from_two_hosts, fixture))
    planned += _each("two hosts, one S3 store", [both] * _PAIRS, "hosts", on_stack=True)
    turns: defaultdict[str, Iterator[int]] = defaultdict(numbers)
    return sorted(planned, key=lambda trial: next(turns[trial.kind]))


def _each(
    kind: str, trials: Iterable[tuple[str, Callable[[str], Outcome]]], folder: str = "", on_stack: bool = False
) -> list[Planned]:
    """The trials of a kind: what each does, in words, and how it is run in a folder of that name.

    :param folder: the beginning of the folders' names, where that is not the kind's.
    """
    called = f"{folder or kind.replace(' ', '-')}-{{:02d}}".format
    return [Planned(kind, called(n), what, partial(run, called(n)), on_stack) for n, (what, run) in enumerate(trials)]


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
