"""Settings as frozen dataclasses: how they are read from files and recorded in digests, whichever they are."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from gptcore.base.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Settings = TypeVar("Settings", bound="DataclassInstance")
"""A frozen dataclass of gptcore/config."""


def recorded(config: Any) -> dict[str, Any]:
    """The settings as JSON values, for digests and checkpoints; what is off, and off by default, is left out.

    So a new optional setting leaves the digest of everything that was made before it as it was. Settings that were
    recorded otherwise before they had their name say so in a method ``as_recorded``.
    """
    values = ((f, getattr(config, f.name)) for f in dataclasses.fields(config))
    kept = {f.name: value for f, value in values if not (optional(f) and value is f.default)}
    as_recorded = getattr(config, "as_recorded", None)
    return as_recorded(kept) if as_recorded else kept


def derived(default: Any) -> Any:
    """A field of settings that follows from others: it is recorded, and no user can set it."""
    return dataclasses.field(default=default, metadata={"derived": True})


def optional(setting: dataclasses.Field[Any]) -> bool:
    """Whether a setting is off unless somebody asks for it."""
    return setting.default is None or setting.default is False


def replace_settings(config: Settings, values: Any, where: str) -> Settings:
    """``dataclasses.replace`` that checks names and types, and takes 1 for a float field that is asked for.

    :param where: "file: section", which messages begin with.
    :raises InputError: an unknown field, a value of the wrong type, or one that the settings themselves refuse.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{where} = {values!r}; expected a table of settings")
    found = {name: checked_value(type(config), name, value, where) for name, value in values.items()}
    try:
        return dataclasses.replace(config, **found)
    except InputError as error:  # of values that do not fit each other, or make no sense
        source, _, section = where.rpartition(": ")
        raise InputError(f"{source}: {_in_section(section, str(error))}" if source else str(error)) from None


def _in_section(section: str, message: str) -> str:
    """What settings say of themselves, under the name that their section has in a file: tasks.rte, not finetune."""
    return re.sub(r"^\w+(?=\.\w+ = )", lambda _: section, message)


def checked_value(kind: type[Any], name: str, value: Any, where: str) -> Any:
    """``value`` as the field ``name`` of the settings ``kind`` takes it; whether it fits the others is not asked.

    :raises InputError: no such field, or a value of another type.
    """
    return checked(value, setting_type(kind, name, where), f"{where}.{name}")


def setting_type(kind: type[Any], name: str, where: str) -> str:
    """The annotation of a field of settings: ``float``, ``int | None``.

    :raises InputError: no such field.
    """
    fields = {f.name: str(f.type) for f in dataclasses.fields(kind) if not f.metadata.get("derived")}
    if name not in fields:
        raise InputError(f"{where}.{name} is not a setting; {nearest(name, fields)}")
    return fields[name]


def nearest(name: str, known: Iterable[str]) -> str:
    """What a message says behind an unknown name: the nearest that is known, and all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return (f"did you mean {near[0]}? " if near else "") + f"expected one of {', '.join(names)}"


def checked(value: Any, annotation: str, where: str) -> Any:
    """``value`` if it fits the annotation ``int``, ``float``, ``bool`` or ``str``, each with ``| None`` or without."""
    accepted: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}
    kind, _, optional = annotation.partition(" | ")
    if value is None and optional == "None":
        return None
    fits = isinstance(value, accepted[kind]) and (kind == "bool" or not isinstance(value, bool))
    if fits and kind == "float":
        fits = abs(value) <= 1e308  # so no NaN, and no integer beyond what a float takes
    if not fits:
        raise InputError(f"{where} = {value!r:.60}; expected {kind}{' up to 1e308' if kind == 'float' else ''}")
    return float(value) if kind == "float" else value
