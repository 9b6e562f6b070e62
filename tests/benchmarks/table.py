"""The table: a line a measurement, its peer, their ratio and the target."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

Work = Callable[[], float]
"""Does a piece of work; returns how much that was (tokens, bytes, rows)."""


@dataclass(frozen=True)
class Rate:
    """Units a second, over several turns."""

    turns: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.turns)

    @property
    def spread(self) -> float:
        """Half the way from the slowest to the fastest turn, as a share of the median."""
        return (max(self.turns) - min(self.turns)) / 2 / self.median


def in_turns(works: Mapping[str, Work], seconds: float, turns: int = 3) -> dict[str, Rate]:
    """Each work's rate, measured ``turns`` times for ``seconds`` (one call at least), one after the other."""
    measured: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(turns):
        for name, work in works.items():
            done, start = 0.0, time.perf_counter()
            while (spent := time.perf_counter() - start) < seconds or not done:
                done += work()
            measured[name].append(done / spent)
    return {name: Rate(tuple(rates)) for name, rates in measured.items()}


def beside(
    number: str,
    what: str,
    unit: str,
    seconds: float,
    ours: Work,
    *peers: tuple[Work, str, str],
    warm: int = 0,
    turns: int = 3,
) -> None:
    """Measure our work and its peers' in turns, and print a row for each peer.

    :param peers: the work of each, the target of ours beside it, and what it is, ``{}`` in that the seconds of warming.
    :param warm: calls of each work before any is measured: the first may compile, another one finds its memory.
    """
    works = {"ours": ours, **{words: work for work, _, words in peers}}
    started = time.perf_counter()
    for work in [work for work in works.values() for _ in range(warm)]:
        work()
    waited = time.perf_counter() - started
    measured = in_turns(works, seconds, turns)
    for _, target, words in peers:
        line(number, what, measured["ours"], measured[words], unit, target, words.format(f"{waited:.0f} s"))


def run_part(name: str, seconds: float) -> None:
    """Measure one part, in a folder that goes with it; torch, where the part has it, has all cores."""
    part = import_module(f"tests.benchmarks.{name}")
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as folder:
        part.run(seconds, Path(folder))


def heading() -> None:
    print("| # | what | ours | peer | ratio | target |", flush=True)
    print("|---|---|---:|---:|---:|---|", flush=True)


def line(number: str, what: str, ours: Rate, peer: Rate | None, unit: str, target: str, peer_is: str = "") -> None:
    """Print one row of the table."""
    theirs = f"{_rate(peer)} ({peer_is})" if peer else "-"
    ratio = f"{ours.median / peer.median:.2f}x" if peer else "-"
    print(f"| {number} | {what} | {_rate(ours, unit)} | {theirs} | {ratio} | {target} |", flush=True)


def _rate(rate: Rate, unit: str = "") -> str:
    """Median, unit, and the spread where there was more than one turn."""
    return " ".join([shown(rate.median), *filter(None, [unit]), *([f"±{rate.spread:.0%}"] if rate.turns[1:] else [])])


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
