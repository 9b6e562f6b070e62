"""The families of models, a file each, found by their names; nothing outside this room asks which one it serves.

A family is the file ``NAME.py`` in this folder with a :class:`Family` called ``FAMILY``. One of another package is an
entry point of the group ``gptmill.families`` that leads to its :class:`Family`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any

from gptcore.base.errors import InputError
from gptcore.families.family import Family, SettingsBySection

__all__ = [
    "DEFAULT",
    "FAMILIES",
    "Family",
    "SettingsBySection",
    "family_named",
    "family_settings",
    "offered",
    "recorded_family",
    "shape_settings",
    "students",
    "with_family",
]

DEFAULT = "gpt"
ENTRY_POINTS = "gptmill.families"


class _Families(Mapping[str, Family]):
    """Name -> family; the default first, then the others of this folder by name, then those of other packages."""

    @cached_property
    def _ours(self) -> dict[str, Family]:
        names = sorted(module.name for module in iter_modules(__path__) if module.name != "family")
        names.sort(key=lambda name: name != DEFAULT)
        found = [import_module(f"{__name__}.{name}").FAMILY for name in names]
        return {family.name: family for family in found}

    @cached_property
    def _theirs(self) -> dict[str, Family]:
        found = [point.load() for point in entry_points(group=ENTRY_POINTS)]
        return {family.name: family for family in found if family.name not in self._ours}

    def __getitem__(self, name: str) -> Family:
        return self._ours[name] if name in self._ours else self._theirs[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._ours
        yield from self._theirs

    def __len__(self) -> int:
        return len(self._ours) + len(self._theirs)


FAMILIES: Mapping[str, Family] = _Families()


def offered() -> list[str]:
    """The names that ``--family`` and the forms' drop-down offer: of what can be pre-trained here."""
    return [name for name, family in FAMILIES.items() if family.objective and not family.ablation]


def students() -> list[str]:
    """The names of the families that learn from a teacher."""
    return [name for name in offered() if FAMILIES[name].teacher]


def family_named(name: Any, where: str) -> Family:
    """The family of a recorded name.

    :param where: what holds the name, for the error message.
    :raises InputError: an unknown family.
    """
    if not isinstance(name, str) or name not in FAMILIES:
        raise InputError(f"{where}: family = {name!r:.60}; expected one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def family_settings(name: Any, preset: str, where: str) -> SettingsBySection:
    """What a family changes in a preset.

    :raises InputError: a family that is not offered.
    """
    if not isinstance(name, str) or name not in offered():
        raise InputError(f"{where}: family = {name!r:.60}; expected one of {', '.join(offered())}")
    ours, own = FAMILIES[name].settings, FAMILIES[name].presets.get(preset, {})
    return {section: {**ours.get(section, {}), **own.get(section, {})} for section in {**ours, **own}}


def shape_settings(shape: Any, where: str) -> SettingsBySection:
    """The settings of a network of a published size, of whichever family the size is, and of its fine-tuning.

    :raises InputError: an unknown size.
    """
    names: list[str] = []
    for family in map(FAMILIES.__getitem__, offered()):
        name = family.aliases.get(shape, shape) if isinstance(shape, str) else ""
        if name in family.shapes:
            finetuning = family.finetuning.get(name)
            return {"model": family.shapes[name], **({"finetune": finetuning} if finetuning else {})}
        names += [*family.shapes, *family.aliases]
    raise InputError(f"{where}: shape = {shape!r:.60}; expected one of {', '.join(names)}")


# --- What is recorded of a network ---


def recorded_family(model: Any, where: str = "model") -> Family:
    """The family of a network by its recorded settings.

    :raises InputError: an unknown family; names ``where`` the settings stand.
    """
    if not isinstance(model, Mapping):
        return FAMILIES[DEFAULT]  # and the reader of the settings says what is wrong with them
    return family_named(model.get("family", _before_families(model)), where)


def with_family(name: str, model: dict[str, Any]) -> dict[str, Any]:
    """A network's settings as they are recorded: with the family's name, unless they are of a kind with those that were
    recorded before families were, whose digests stay.
    """
    return model if _before_families(model) == name else {**model, "family": name}


def _before_families(model: Mapping[str, Any]) -> str:
    """What was recorded without a family: GPT-1, GPT-2 by its norms, or the LSTM of Table 5 by its units."""
    if "n_units" in model:
        return "lstm"
    return "gpt2" if model.get("norm_first") else "gpt"
