"""Settings as frozen dataclasses: what each may be, how they are read from files and recorded in digests."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from gptcore.base.errors import InputError, nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Settings = TypeVar("Settings", bound="DataclassInstance")
"""A frozen dataclass of settings."""
LARGEST_SIZE = (1 << 24) - 1  # of a network; the bytes of a tensor with two such sides still fit 63 bits


def setting(
    default: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    among: Sequence[str] = (),
    off: Any = None,
    **metadata: Any,
) -> Any:
    """A field of settings that says what its value has to be, wherever it is not None; :class:`Checked` sees to it.

    :param least: the value is this number or more; ``above``: it is more than this one.
    :param most: the value is this number or less; ``below``: it is less than this one.
    :param among: the value is one of these words.
    :param off: the value by which a settings file, which has no None, says None; it is what settings mean that were
        recorded without the field, so None is not recorded, whatever the default is.
    :param metadata: what else is known of the field.
    """
    limits = {"least": least, "above": above, "most": most, "below": below, "among": among, "off": off}
    metadata |= {name: limit for name, limit in limits.items() if limit is not None}
    return dataclasses.field(default=default, metadata=metadata)


size = partial(setting, least=1, most=LARGEST_SIZE)
"""A :func:`setting` that counts what a network has of something, one at least."""
share = partial(setting, least=0, below=1)
"""A :func:`setting` that is a share, less than the whole."""


def derived(default: Any) -> Any:
    """A field of settings that follows from others: it is recorded, and no user can set it."""
    return dataclasses.field(default=default, metadata={"derived": True})


class Checked:
    """What all settings with limits have in common: they are refused where a value is none that its field may have.

    A dataclass below this one that gives a field another default leaves the field's limits as they are.
    """

    section: ClassVar[str]
    """What messages call these settings."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        above: Mapping[str, dataclasses.Field[Any]] = getattr(cls, "__dataclass_fields__", {})
        for name, default in [*vars(cls).items()]:
            if name in above and not isinstance(default, dataclasses.Field):
                setattr(cls, name, dataclasses.field(default=default, metadata=above[name].metadata))

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # every class below is a dataclass
            value = getattr(self, field.name)
            if value is not None and value == field.metadata.get("off"):
                object.__setattr__(self, field.name, None)
            else:
                check_limits(value, field, f"{self.section}.{field.name}")


def check_limits(value: Any, field: dataclasses.Field[Any], place: str) -> None:
    """Check a setting's value against the limits of its field; None, and the value that stands for it, have no limits.

    :raises InputError: it is beyond the field's limits, or none of the words that the field takes.
    """
    off = str(field.type).endswith("None") if value is None else value == field.metadata.get("off")
    if not off and (expected := _expected(value, field.metadata)):
        raise InputError(f"{place} = {value!r:.60}: expected {expected}")


def _expected(value: Any, limits: Mapping[str, Any]) -> str | None:
    """What the value of a field should have been, in words; None where it is that."""
    if among := limits.get("among"):
        return None if value in among else f"one of {', '.join(among)}"
    least, above, most, below = (limits.get(name) for name in ("least", "above", "most", "below"))
    low = least is None or value >= least, above is None or value > above
    high = most is None or value <= most, below is None or value < below
    if all(low + high):
        return None
    if least is not None and most is not None:
        return f"{_number(least)} to {_number(most)}"
    words = f"{_number(least)} or more" if above is None else f"more than {_number(above)}"
    if most is not None:
        return f"{words}, and {_number(most)} or less"
    if below is not None and below < math.inf:
        return f"{words}, and less than {_number(below)}"
    return words if isinstance(value, int) or math.isfinite(value) else f"a finite number, {words}"


def _number(value: Any) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def recorded(config: Any) -> dict[str, Any]:
    """The settings as JSON values, for digests and checkpoints; what is off, and off by default, is left out.

    So a new optional setting leaves the digest of everything that was made before it as it was, and so does one that
    has a default and can be ``off``, where it is. Settings that were recorded otherwise before they had their name say
    so in a method ``as_recorded``.
    """
    values = ((f, getattr(config, f.name)) for f in dataclasses.fields(config))
    kept = {
        f.name: value for f, value in values if not (optional(f) and value is (False if f.default is False else None))
    }
    as_recorded = getattr(config, "as_recorded", None)
    return as_recorded(kept) if as_recorded else kept


def flatten(settings: Mapping[str, Any], joint: str = ".") -> dict[str, Any]:
    """Nested settings, each under the names that lead to it: ``{"pretrain.lr": 1e-3, "tasks.rte.epochs": 3}``."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}{joint}{inner}": item for inner, item in flatten(value, joint).items()}
        else:
            flat[str(name)] = value
    return flat


def optional(setting: dataclasses.Field[Any]) -> bool:
    """Whether settings may be recorded without a field: it is off then."""
    return setting.default is None or setting.default is False or "off" in setting.metadata


def off_settings(kind: type[Any]) -> dict[str, None]:
    """The settings of a kind that are None where they are not recorded, as those who read records begin with."""
    return {f.name: None for f in dataclasses.fields(kind) if "off" in f.metadata}


def replace_settings(config: Settings, values: Any, where: str) -> Settings:
    """``dataclasses.replace`` that checks names and types, and takes 1 for a float field that is asked for.

    :param where: "file: section", which messages begin with.
    :raises InputError: an unknown field, a value of the wrong type, or one that the settings themselves refuse.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{where} = {values!r}; expected a table of settings")
    fields = {name: setting_field(type(config), name, where) for name in values}
    typed = {name: checked(value, str(fields[name].type), f"{where}.{name}") for name, value in values.items()}
    try:
        return dataclasses.replace(config, **typed)
    except InputError as error:  # of values that do not fit each other, or make no sense
        source, _, section = where.rpartition(": ")
        if not source:
            raise
        # what settings say of themselves, under the name that their section has in a file: tasks.rte, not finetune
        message = re.sub(r"^\w+(?=\.\w+ = )", lambda _: section, str(error))
        raise InputError(f"{source}: {message}") from None


def setting_field(kind: type[Any], name: str, where: str, owner: str = "") -> dataclasses.Field[Any]:
    """The field of settings that has a name: its annotation is ``float`` or ``int | None``, its metadata the limits.

    :param owner: " of BERT", where the message says whose settings these are.
    :raises InputError: no such field.
    """
    fields = {f.name: f for f in dataclasses.fields(kind) if not f.metadata.get("derived")}
    if name not in fields:
        raise InputError(f"{where}.{name} is not a setting{owner}; {nearest(name, fields)}")
    return fields[name]


def checked(value: Any, annotation: str, where: str) -> Any:
    """``value`` if it fits the annotation ``int``, ``float``, ``bool`` or ``str``, or a table of such values
    (``Mapping[str, float]``), each with ``| None`` or without."""
    accepted: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}
    kind, _, optional = annotation.partition(" | ")
    if value is None and optional == "None":
        return None
    if kind.startswith("Mapping"):
        if not isinstance(value, Mapping):
            raise InputError(f"{where} = {value!r:.60}; expected a table")
        of = kind.removesuffix("]").rpartition(" ")[2]
        return {str(name): checked(item, of, f"{where}.{name!r}") for name, item in value.items()} or None
    fits = isinstance(value, accepted[kind]) and (kind == "bool" or not isinstance(value, bool))
    if fits and kind == "float":
        fits = abs(value) <= 1e308  # so no NaN, and no integer beyond what a float takes
    if not fits:
        raise InputError(f"{where} = {value!r:.60}; expected {kind}{' up to 1e308' if kind == 'float' else ''}")
    return float(value) if kind == "float" else value
