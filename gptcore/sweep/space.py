"""What a sweep chooses from: one axis a setting, or a group of settings, and the draws of its trials.

Random search (Bergstra and Bengio 2012, "Random search for hyper-parameter optimization") on a Latin hypercube (McKay,
Beckman and Conover 1979): each axis is cut into as many equal parts as there are trials, and each part is drawn from
once, so that few trials cover every axis. Each axis has seeds of its own: another axis leaves its draws as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from gptcore.base.errors import InputError
from gptcore.base.seeds import derive_seed

Value = int | float | str | bool
"""What a trial drew on an axis; of a group of settings its label."""
Overrides = Mapping[str, Any]
"""Settings that differ, ``{section: {field: value}}``, as :func:`gptcore.config.preset_named` takes them."""
_DRAWS = 1 << 63
_DIGITS = 3  # significant ones of a drawn number: finer is noise, and it is read and typed by people
_ATTEMPTS = 10_000


@dataclass(frozen=True)
class Range:
    """A number between two others, both included."""

    name: str
    """Section and field: "pretrain.lr"."""
    low: float
    high: float
    log: bool = False
    """Whether equal ratios are equally likely, in place of equal differences."""
    whole: bool = False
    """Whether the setting is an integer."""

    @property
    def size(self) -> float:
        """How many different values there are."""
        return self.high - self.low + 1 if self.whole else math.inf

    def at(self, share: float) -> Value:
        """The value at ``share`` (0 to 1, 1 left out) of the way from low to high.

        A whole number stands for all up to the next one, so that the two ends are as likely as what lies between.
        """
        high = self.high + 1 if self.whole else self.high
        if self.log:
            found = math.exp(math.log(self.low) + share * (math.log(high) - math.log(self.low)))
        else:
            found = self.low + share * (high - self.low)
        if self.whole:
            return min(max(math.floor(found), int(self.low)), int(self.high))
        digits = _DIGITS + max(0, round(math.log10(max(abs(self.low), abs(self.high)) / (self.high - self.low))))
        return min(max(float(f"{found:.{digits}g}"), self.low), self.high)

    def overrides(self, value: Value) -> dict[str, Any]:
        """The settings that ``value`` stands for."""
        return nested(self.name, value)


@dataclass(frozen=True)
class Choice:
    """One of several values, all equally likely."""

    name: str
    """Section and field; of a group of settings the name that the file gives it."""
    values: tuple[Value, ...]
    groups: Mapping[str, Overrides] | None = None
    """Label -> the settings that go together under it; None: the values are those of one field."""

    @property
    def size(self) -> float:
        """How many different values there are."""
        return len(self.values)

    def at(self, share: float) -> Value:
        """The value at ``share`` (0 to 1) of the list."""
        return self.values[min(int(share * len(self.values)), len(self.values) - 1)]

    def overrides(self, value: Value) -> dict[str, Any]:
        """The settings that ``value`` stands for."""
        return nested(self.name, value) if self.groups is None else merged(self.groups[str(value)])


Axis = Range | Choice


def draw(axes: Sequence[Axis], trials: int, seed: int) -> list[dict[str, Value]]:
    """What each trial draws, axis -> value; no two trials draw the same.

    :raises InputError: the space has fewer different trials than that.
    """
    size = math.prod(axis.size for axis in axes)
    parts = {axis.name: _shuffled(trials, seed, axis.name) for axis in axes}
    drawn: list[dict[str, Value]] = []
    while len(drawn) < trials <= size:
        trial = len(drawn)
        within = {
            axis.name: axis.at((parts[axis.name][trial] + _share(seed, axis.name, trial)) / trials) for axis in axes
        }
        anywhere = (
            {axis.name: axis.at(_share(seed, axis.name, trial, attempt)) for axis in axes}
            for attempt in range(_ATTEMPTS)
        )
        fresh = next((values for values in chain([within], anywhere) if values not in drawn), None)
        if fresh is None:
            break
        drawn.append(fresh)
    if len(drawn) < trials:
        found = f"{size:.0f}" if size < trials else f"about {len(drawn)}"
        raise InputError(f"trials = {trials}; the space has {found} different ones")
    return drawn


def _shuffled(count: int, seed: int, axis: str) -> list[int]:
    """The numbers below ``count`` in an order of the axis' own."""
    return sorted(range(count), key=lambda number: derive_seed(seed, "sweep", axis, "order", number))


def _share(seed: int, axis: str, *which: int) -> float:
    """A draw in 0 .. 1, 1 left out."""
    return derive_seed(seed, "sweep", axis, *which) / _DRAWS


def nested(name: str, value: Any) -> dict[str, Any]:
    """``{"pretrain": {"lr": value}}`` for the dotted name "pretrain.lr"."""
    for part in reversed(name.split(".")):
        value = {part: value}
    return dict(value)


def merged(*layers: Overrides) -> dict[str, Any]:
    """Overrides on top of one another: the last one that names a field has it."""
    whole: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            below = whole.get(name)
            both = isinstance(value, Mapping) and isinstance(below, Mapping)
            whole[name] = merged(below or {}, value) if both or isinstance(value, Mapping) else value
    return whole


def fields_of(overrides: Overrides, prefix: str = "") -> dict[str, Any]:
    """Dotted names -> values: ``{"pretrain.lr": 1e-3, "tasks.rte.epochs": 3}``."""
    flat: dict[str, Any] = {}
    for name, value in overrides.items():
        flat |= fields_of(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat
