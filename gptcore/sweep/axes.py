"""What a sweep's file says of its axes: ranges, lists and groups of settings, each value checked."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gptcore.base.errors import InputError
from gptcore.base.settings import checked_value, setting_type
from gptcore.config import FinetuneConfig, ModelConfig, PretrainConfig, TokenizerConfig
from gptcore.nlu.registry import task_spec
from gptcore.sweep.space import Axis, Choice, Overrides, Range, fields_of

KINDS = {"tokenizer": TokenizerConfig, "model": ModelConfig, "pretrain": PretrainConfig, "finetune": FinetuneConfig}
"""Sections that a trial may draw from. Another corpus has other held-out documents, so no numbers that compare."""
_LABEL = re.compile(r"[\w .:-]{1,100}")
"""What MLflow takes as a part of a param's name."""
_COLUMNS = ("trial", "whole", "updates", "seconds")
"""Names that the results' table has already."""
_MOST = (1 << 63) - 1


def space_axes(space: Mapping[str, Any], where: str) -> Iterator[Axis]:
    """An axis for each field of [space.SECTION] and of [space.tasks.TASK]."""
    for section, fields in space.items():
        place = f"{where}: space.{section}"
        if section == "tasks" and isinstance(fields, Mapping):
            for task, own in fields.items():
                with named(place):
                    task_spec(task)
                for name, value in _table(own, f"{place}.{task}").items():
                    yield _axis(FinetuneConfig, name, value, f"tasks.{task}", f"{place}.{task}")
        elif section in KINDS:
            for name, value in _table(fields, place).items():
                yield _axis(KINDS[section], name, value, section, place)
        else:
            raise InputError(f"{place}: expected one of {', '.join([*KINDS, 'tasks'])}")


def _axis(kind: type[Any], name: str, value: Any, section: str, where: str) -> Axis:
    """``{ low, high, scale }`` or a list of two or more values.

    :raises InputError: the axis is neither, or holds what the field does not take.
    """
    annotation = setting_type(kind, name, where).partition(" | ")[0]
    place = f"{where}.{name}"
    if isinstance(value, list):
        values = tuple(checked_value(kind, name, item, where) for item in value)
        for item in values:
            check_storable({place: item})
            _check_whole({place: item})
        if len(set(values)) < max(2, len(values)):
            raise InputError(f"{place} = {value!r:.60}; expected two or more values, each once")
        return Choice(f"{section}.{name}", values)
    table = _table(value, place, "a list of values, or { low = ..., high = ... }")
    if annotation not in ("int", "float"):
        raise InputError(f"{place}: only numbers have a range; expected a list of values")
    if unknown := [key for key in table if key not in ("low", "high", "scale")]:
        raise InputError(f"{place}.{unknown[0]} is no field of a range; expected low, high, scale")
    if missing := [key for key in ("low", "high") if key not in table]:
        raise InputError(f"{place}: found no {missing[0]}, expected one")
    low, high = (_bound(kind, name, table[end], f"{place}.{end}") for end in ("low", "high"))
    if annotation == "int":
        _check_whole({f"{place}.low": low, f"{place}.high": high})
    scale = table.get("scale", "linear")
    if scale not in ("linear", "log"):
        raise InputError(f"{place}.scale = {scale!r:.60}; expected linear or log")
    if not math.isfinite(high - low):
        raise InputError(f"{place}: low = {low}, high = {high}; expected numbers that are less far apart")
    if not low < high or (scale == "log" and low <= 0):
        more = ", both above 0" if scale == "log" else ""
        raise InputError(f"{place}: low = {low}, high = {high}; expected low < high{more}")
    return Range(f"{section}.{name}", low, high, scale == "log", annotation == "int")


def _bound(kind: type[Any], name: str, value: Any, place: str) -> Any:
    try:
        found = checked_value(kind, name, value, "")
    except InputError as error:
        raise InputError(f"{place} = {value!r:.60}; {str(error).rpartition('; ')[2]}") from None
    if found is None:
        raise InputError(f"{place}: found nothing, expected a number")
    return found


def together_axes(groups: Mapping[str, Any], where: str) -> Iterator[Axis]:
    """An axis for each [together.NAME]."""
    for name, labels in groups.items():
        place = f"{where}: together.{name}"
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", name):
            raise InputError(f"{place[:200]}: expected a name of letters, digits, _ and -, at most 100")
        if name in _COLUMNS:
            raise InputError(f"{place}: the table of results has a column of that name; expected another")
        if name in KINDS or not _table(labels, place) or len(labels) < 2:
            raise InputError(f"{place}: expected two or more labels, each with settings, under a name of its own")
        for label, settings in labels.items():
            here = f"{place}.{label:.60}"
            if not _LABEL.fullmatch(label):
                raise InputError(f"{here}: expected a label of letters, digits, spaces, . : _ and -, at most 100")
            for section, fields in _table(settings, here).items():
                if section not in KINDS:
                    raise InputError(f"{here}.{section}: expected one of {', '.join(KINDS)}")
                for field, value in _table(fields, f"{here}.{section}").items():
                    checked_value(KINDS[section], field, value, f"{here}.{section}")
            with named(here):
                check_storable(settings)
                _check_whole(fields_of(settings))
            first = fields_of(next(iter(labels.values())))
            if not first or fields_of(settings).keys() != first.keys():
                raise InputError(f"{here}: expected the same settings as under its first label, one at least")
        if any(fields_of(a) == fields_of(b) for a, b in itertools.combinations(labels.values(), 2)):
            raise InputError(f"{place}: two labels have the same settings, expected other values under each")
        yield Choice(name, tuple(labels), labels)


def check_storable(settings: Overrides) -> None:
    """:raises InputError: a value that the file with the winner's settings could not say."""
    for name, value in fields_of(settings).items():
        if not isinstance(value, int | float | str):
            raise InputError(f"{name} = {value!r:.60}; expected a number, true, false or text")


def _check_whole(values: Mapping[str, Any]) -> None:
    """:raises InputError: an integer that no setting can count to."""
    for name, value in values.items():
        if isinstance(value, int) and abs(value) > _MOST:
            raise InputError(f"{name} = {value!r:.20}...; expected less than 2^63")


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
