"""Sizes of model that are compared with each other: the decoder's shapes under a preset of the family gpt2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gptcore.config import Preset, preset_named
from gptcore.config.presets import preset_tables
from gptcore.families import FAMILIES, shape_settings

PROMPT_SETTINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = preset_tables()["prompting"]
"""What a preset's models need besides their size to answer from prompts."""


@dataclass(frozen=True)
class Size:
    """A decoder's shape under the name it has in tables."""

    name: str
    model: Mapping[str, int]
    """Settings of :class:`gptcore.config.ModelConfig`."""


def _size(n_layer: int, n_head: int, n_embd: int) -> Size:
    shape = {"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, "n_inner": 4 * n_embd}
    return Size(f"{n_layer} x {n_embd}", shape)


SIZES: dict[str, tuple[Size, ...]] = {
    **{preset: tuple(_size(*shape) for shape in shapes) for preset, shapes in preset_tables()["sizes"].items()},
    "paper": tuple(Size(name, shape_settings(name, "size")["model"]) for name in list(FAMILIES["gpt2"].shapes)[:3]),
}
"""Preset -> sizes, the smallest first. They see the same number of tokens each."""


def shape_given(overrides: Mapping[str, Any]) -> list[str]:
    """The settings of a user's that say what shape the network has, which would make all sizes one."""
    model = overrides.get("model", {})
    given = set(model) if isinstance(model, Mapping) else set()  # what is none is refused where settings are read
    shape = ["shape"] if "shape" in overrides else []
    return shape + [f"model.{name}" for name in sorted(given & SIZES["demo"][0].model.keys())]


def sized_preset(name: str, size: Size, *settings: Mapping[str, Any]) -> Preset:
    """A preset of the family gpt2 at one of its sizes, with settings on top, the later over the earlier.

    :raises InputError: an unknown setting, or a value that does not fit.
    """
    merged: dict[str, Any] = {"model": size.model}
    for change in settings:
        for section, values in change.items():
            merged[section] = {**merged.get(section, {}), **values} if isinstance(values, Mapping) else values
    return preset_named(name, {**merged, "family": "gpt2"})
