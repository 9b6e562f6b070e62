"""What a sweep chooses from: one axis a setting, or a group of settings, as its file says them, and its trials' draws.

Random search (Bergstra and Bengio 2012, "Random search for hyper-parameter optimization") on a Latin hypercube (McKay,
Beckman and Conover 1979): each axis is cut into as many equal parts as there are trials, and each part is drawn from
once, so that few trials cover every axis. Each axis has seeds of its own: another axis leaves its draws as they are.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gptcore.base.errors import InputError, require
from gptcore.base.seeds import derive_seed
from gptcore.base.settings import check_limits, checked, flatten, setting_field
from gptcore.config import Preset
from gptcore.config.training import require_learnt
from gptcore.families import FAMILIES
from gptcore.nlu.registry import task_spec

Value = int | float | str | bool
"""What a trial drew on an axis; of a group of settings its label."""
Draw = Mapping[str, Value]
"""Axis -> what a trial drew on it."""
Overrides = Mapping[str, Any]
"""Settings that differ, ``{section: {field: value}}``, as :func:`gptcore.config.preset_named` takes them."""
SECTIONS = ("tokenizer", "model", "pretrain", "finetune")
"""Sections that a trial may draw from. Another corpus has other held-out documents, so no numbers that compare."""
_OF_RANGE = ("low", "high", "scale")
_LABEL = re.compile(r"[\w .:-]{1,100}")
"""What MLflow takes as a part of a param's name."""
_COLUMNS = ("trial", "whole", "updates", "seconds")
"""Names that the results' table has already."""
_MOST = (1 << 63) - 1
_DRAWS = 1 << 63
_DIGITS = 3  # significant ones of a drawn number: finer is noise, and it is read and typed by people
_ATTEMPTS = 10_000


@dataclass(frozen=True)
class _Axis:
    """One setting, or a group of settings, that each trial draws."""

    name: str
    """Section and field, "pretrain.lr"; of a group of settings the name that the file gives it."""

    @property
    def fields(self) -> list[str]:
        """Dotted names of the settings that the axis decides."""
        return [self.name]

    @property
    def place(self) -> str:
        """The table of the file that has the axis."""
        return f"space.{self.name}"

    def overrides(self, value: Value) -> dict[str, Any]:
        """The settings that ``value`` stands for."""
        return nested(self.name, value)


@dataclass(frozen=True)
class Range(_Axis):
    """A number between two others, both included."""

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
            value = math.exp(math.log(self.low) + share * (math.log(high) - math.log(self.low)))
        else:
            value = self.low + share * (high - self.low)
        if self.whole:
            return min(max(math.floor(value), int(self.low)), int(self.high))
        digits = _DIGITS + max(0, round(math.log10(max(abs(self.low), abs(self.high)) / (self.high - self.low))))
        return min(max(float(f"{value:.{digits}g}"), self.low), self.high)


@dataclass(frozen=True)
class Choice(_Axis):
    """One of several values, all equally likely."""

    values: tuple[Value, ...]

    @property
    def size(self) -> float:
        """How many different values there are."""
        return len(self.values)

    def at(self, share: float) -> Value:
        """The value at ``share`` (0 to 1, 1 left out) of the list."""
        return self.values[min(int(share * len(self.values)), len(self.values) - 1)]


@dataclass(frozen=True)
class Together(Choice):
    """One of several groups of settings by its label."""

    groups: Mapping[str, Overrides]
    """Label -> the settings that are drawn together under it."""

    @property
    def fields(self) -> list[str]:
        return list(flatten(next(iter(self.groups.values()))))

    @property
    def place(self) -> str:
        return f"together.{self.name}"

    def overrides(self, value: Value) -> dict[str, Any]:
        return merged(self.groups[str(value)])


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
        fresh = next((values for values in itertools.chain([within], anywhere) if values not in drawn), None)
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
            under = below if isinstance(below, Mapping) else {}
            whole[name] = merged(under, value) if isinstance(value, Mapping) else value
    return whole


# --- What a file says of its axes ------------------------------------------------------------------------------------


def space_axes(space: Mapping[str, Any], base: Preset, where: str) -> Iterator[Axis]:
    """An axis for each field of [space.SECTION] and of [space.tasks.TASK].

    :param base: what the trials differ from: its family's own network says which settings of a model there are.
    """
    for section, fields in space.items():
        place = f"{where}: space.{section}"
        if section == "tasks" and isinstance(fields, Mapping):
            for task, own in fields.items():
                with named(place):
                    task_spec(task)
                for name, value in _table(own, f"{place}.{task}").items():
                    yield _axis(_field(base, "finetune", name, f"{place}.{task}"), value, f"tasks.{task}", where)
        else:
            require(section in SECTIONS, f"{place}: expected one of {', '.join([*SECTIONS, 'tasks'])}")
            for name, value in _table(fields, place).items():
                yield _axis(_field(base, section, name, place), value, section, where)


def _field(base: Preset, section: str, name: str, place: str) -> dataclasses.Field[Any]:
    """The setting ``name`` of a section of the preset, as that section's class has it.

    :raises InputError: there is none, or the objective of the preset's family does not read it.
    """
    if section == "pretrain":
        require_learnt(name, base.family, f"{place}.{name}")
    owner = f" of {FAMILIES[base.family].title}" if section == "model" else ""
    return setting_field(type(getattr(base, section)), name, place, owner)


def _value(field: dataclasses.Field[Any], value: Any, place: str, ends_range: bool = False) -> Any:
    """A value that a setting may have, whatever the others are.

    :param ends_range: whether it ends a range of numbers, which may come up to what the setting has to be above.
    :raises InputError: it is of another type, beyond the setting's limits, or none that a file can say.
    """
    typed = checked(value, str(field.type), place)
    is_open = ends_range and isinstance(typed, float) and typed in map(field.metadata.get, ("above", "below"))
    if not is_open:
        check_limits(typed, field, place)
    check_storable({place: typed})
    return typed


def _axis(field: dataclasses.Field[Any], value: Any, section: str, where: str) -> Axis:
    """The axis of a setting, for which a file has ``{ low, high, scale }`` or a list of two or more values.

    :raises InputError: the axis is neither, or holds what the setting does not take.
    """
    annotation, name = str(field.type).partition(" | ")[0], f"{section}.{field.name}"
    place = f"{where}: space.{name}"
    if isinstance(value, list):
        values = tuple(_value(field, item, place) for item in value)
        many = len(set(values)) >= max(2, len(values))
        require(many, f"{place} = {value!r:.60}; expected two or more values, each once")
        return Choice(name, values)
    table = _table(value, place, "a list of values, or { low = ..., high = ... }")
    require(annotation in ("int", "float"), f"{place}: only numbers have a range; expected a list of values")
    for key in table:
        require(key in _OF_RANGE, f"{place}.{key} is no field of a range; expected {', '.join(_OF_RANGE)}")
    for key in ("low", "high"):
        require(key in table, f"{place}: found no {key}, expected one")
    low, high = (_value(field, table[end], f"{place}.{end}", ends_range=True) for end in ("low", "high"))
    scale = table.get("scale", "linear")
    require(scale in ("linear", "log"), f"{place}.scale = {scale!r:.60}; expected linear or log")
    ends = f"{place}: low = {low}, high = {high}; expected"
    require(math.isfinite(high - low), f"{ends} numbers that are less far apart")
    require(low < high and (scale != "log" or low > 0), f"{ends} low < high{', both above 0' * (scale == 'log')}")
    return Range(name, low, high, scale == "log", annotation == "int")


def together_axes(groups: Mapping[str, Any], base: Preset, where: str) -> Iterator[Axis]:
    """An axis for each [together.NAME].

    :param base: as that of :func:`space_axes`.
    """
    for name, labels in groups.items():
        place = f"{where}: together.{name}"
        plain = re.fullmatch(r"[A-Za-z0-9_-]{1,100}", name)
        require(plain, f"{place[:200]}: expected a name of letters, digits, _ and -, at most 100")
        require(name not in _COLUMNS, f"{place}: the table of results has a column of that name; expected another")
        many = name not in SECTIONS and len(_table(labels, place)) > 1
        require(many, f"{place}: expected two or more labels, each with settings, under a name of its own")
        for label, settings in labels.items():
            here = f"{place}.{label:.60}"
            plain = _LABEL.fullmatch(label)
            require(plain, f"{here}: expected a label of letters, digits, spaces, . : _ and -, at most 100")
            for section, fields in _table(settings, here).items():
                inner = f"{here}.{section}"
                require(section in SECTIONS, f"{inner}: expected one of {', '.join(SECTIONS)}")
                for field, value in _table(fields, inner).items():
                    _value(_field(base, section, field, inner), value, f"{inner}.{field}")
            first = flatten(next(iter(labels.values())))
            same = first and flatten(settings).keys() == first.keys()
            require(same, f"{here}: expected the same settings as under its first label, one at least")
        alike = any(flatten(a) == flatten(b) for a, b in itertools.combinations(labels.values(), 2))
        require(not alike, f"{place}: two labels have the same settings, expected other values under each")
        yield Together(name, tuple(labels), labels)


def check_storable(settings: Overrides) -> None:
    """:raises InputError: a value that the file with the winner's settings could not say, or could not be read with."""
    for name, value in flatten(settings).items():
        fits = isinstance(value, int | float | str)
        require(fits, f"{name} = {value!r:.60}; expected a number, true, false or text")
        if isinstance(value, int) and abs(value) > _MOST:
            raise InputError(f"{name} = {value!r:.60}...; expected less than 2^63")


def _table(value: Any, where: str, wanted: str = "a table of settings") -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where} = {value!r:.60}; expected {wanted}")
    return value


@contextmanager
def named(where: str) -> Iterator[None]:
    """Put ``where`` before an error that does not say it."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None
