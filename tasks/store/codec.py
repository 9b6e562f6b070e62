"""Frozen dataclasses as JSON values, and back by the types of their fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from gptcore.base.settings import off_settings
from gptcore.config import NetworkConfig, network_config


@cache
def field_types(record: Any) -> dict[str, Any]:
    """The names of a dataclass' fields, and the type of each."""
    return get_type_hints(record)


def encoded(value: Any) -> Any:
    """A value as JSON takes it: a dataclass, and those that it holds, as an object of its fields."""
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def decoded(kind: Any, value: Any) -> Any:
    """A JSON value as a type says it: with the dataclasses that it consists of, alone, or by name or in a row.

    A network's settings are of the kind that their family has; a dataclass with a method ``parse`` reads itself. What
    versions before 0.3 wrote, each object's kind beside its fields, is read, too.
    """
    record: Any = next((each for each in (kind, *get_args(kind)) if dataclasses.is_dataclass(each)), None)
    if record is None or value is None:
        return value
    if get_origin(kind) is Mapping:
        return {name: decoded(record, item) for name, item in value.items()}
    if get_origin(kind) is Sequence:
        return [decoded(record, item) for item in value]
    if value.keys() == {"kind", "fields"}:
        value = value["fields"]
    if record is NetworkConfig:
        return network_config(value)
    if hasattr(record, "parse"):
        return record.parse(value)
    types = field_types(record)
    return record(**{**off_settings(record), **{name: decoded(types[name], item) for name, item in value.items()}})
