"""Where a stage says what it does: the log of its Prefect run, or a plain one.

A record is a line of text for every reader of logs. What a terminal can show better than as a line (a stage's result,
how far it is) is on the record a second time, as its attribute ``news``.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

PROGRESS = "gptmill.progress"
"""Logger of what is too much for a run's log: several records a second, for whoever draws them."""

_LINE_EVERY = 30.0  # seconds between two lines of a Meter in the run's log


@dataclass(frozen=True)
class Made:
    """A stage has its artifact: made now, or found in the store."""

    stage: str
    made: str | Mapping[str, int]
    """What it is, in few words; or amounts, which add up over the items of a stage."""
    seconds: float
    cached: bool
    digest: str
    item: str = ""
    """Which one of several, of a stage that runs once a task: "mnli"."""
    unit: str = "task"
    """What an item is."""


@dataclass(frozen=True)
class Underway:
    """How far a stage, or one item of it, is."""

    stage: str
    share: float
    """Done of the whole, 0 to 1."""
    parts: tuple[str, ...]
    """What else there is to tell, what matters most first: a narrow terminal drops the last ones."""
    item: str = ""
    waits: bool = False
    """Whether it has not begun, for the reason that the words say."""

    @property
    def words(self) -> str:
        """All that there is to tell."""
        return ", ".join(self.parts)


def logger() -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
    """The run's logger inside a Prefect run, a plain one outside (units, other schedulers)."""
    if not in_run():
        return logging.getLogger("gptmill")
    from prefect.logging import get_run_logger

    return get_run_logger()


def in_run() -> bool:
    """Whether this is done by a Prefect run."""
    if "prefect" not in sys.modules:  # then nothing here runs in one of its runs, and the import takes seconds
        return False
    from prefect.context import FlowRunContext, TaskRunContext

    return bool(FlowRunContext.get() or TaskRunContext.get())


def progress(news: Underway, line: bool = False) -> None:
    """Tell how far something is; with ``line`` also in the run's log, which takes no more than a few a minute."""
    log = logger() if line else logging.getLogger(PROGRESS)
    log.info("%s", f"{news.stage} {news.item}".strip() + f" {news.words}", extra={"news": news})


def rate(count: float) -> str:
    """A number of something a second in few characters: 850, 5.8k, 12k, 1.3M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.{1 if count < 10 * size else 0}f}{letter}"
    return f"{count:.0f}"


def duration(seconds: float) -> str:
    """``m:ss``, or ``h:mm:ss``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


class Meter:
    """A callback for a loop: shows how far a stage is, and how long the rest takes at its rate so far."""

    def __init__(self, stage: str, unit: str, scale: int = 1) -> None:
        self._stage, self._unit, self._scale = stage, unit, scale
        self._part = ""
        self._start = self._line = time.monotonic()

    def __call__(self, part: str, done: int, total: int) -> None:
        """``done`` of ``total``, of a part of the work: e.g. of one task's rows. ``scale`` of them are a unit."""
        now = time.monotonic()
        if part != self._part:
            self._part, self._start = part, now
        eta = [f"{duration((now - self._start) / done * (total - done))} left"] if done else []
        counted = f"{part} {done / self._scale:,.0f} of {total / self._scale:,.0f} {self._unit}"
        due = now - self._line >= _LINE_EVERY
        if due:
            self._line = now
        progress(Underway(self._stage, done / total if total else 1.0, (*eta, counted)), line=due)

    def counting(self, part: str, total: int) -> Callable[[int], None]:
        """A counter for a loop that reports how much it has done since its last report."""
        done = 0

        def more(count: int) -> None:
            nonlocal done
            done += count
            self(part, done, total)

        return more
