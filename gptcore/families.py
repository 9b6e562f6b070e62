"""The families of models: what sets each apart, as settings. Nothing else knows which one it serves.

GPT-1 reads cleaned words and has its norms behind the sub-layers; GPT-2 reads the bytes of any text and has them
before, with one more after the last block (its paper, sections 2.2 and 2.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gptcore.errors import InputError

Settings = Mapping[str, Mapping[str, Any]]
"""{section: {field: value}}, over a preset's."""


@dataclass(frozen=True)
class Family:
    """A kind of network with its kind of text."""

    title: str
    reads: str
    """What its texts are to it."""
    settings: Settings = field(default_factory=dict)
    """What makes it one, under any preset."""
    presets: Mapping[str, Settings] = field(default_factory=dict)
    """Preset -> sizes and rates that are the family's own."""


FAMILIES = {
    "gpt": Family("GPT-1", "lower-case English"),
    "gpt2": Family(
        "GPT-2",
        "English",
        {"corpus": {"raw": True}, "tokenizer": {"byte_level": True}, "model": {"norm_first": True}},
        {"paper": {"tokenizer": {"n_merges": 50_000}, "model": {"n_ctx": 1024}}},
    ),
}

SHAPES = {
    "82M": (6, 12, 768),  # DistilGPT-2
    "117M": (12, 12, 768),
    "345M": (24, 16, 1024),
    "774M": (36, 20, 1280),
    "1558M": (48, 25, 1600),
}
"""Published size -> n_layer, n_head, n_embd (GPT-2's paper, Table 2)."""
_AS_PRINTED = {"762M": "774M", "1542M": "1558M"}  # the paper's counts of the two, less than those of the release


def family_settings(family: Any, preset: str, where: str) -> Settings:
    """What a family changes in a preset.

    :raises InputError: an unknown family.
    """
    if not isinstance(family, str) or family not in FAMILIES:
        raise InputError(f"{where}: family = {family!r:.60}; expected one of {', '.join(FAMILIES)}")
    ours, own = FAMILIES[family].settings, FAMILIES[family].presets.get(preset, {})
    return {section: {**ours.get(section, {}), **own.get(section, {})} for section in {**ours, **own}}


def shape_settings(shape: Any, where: str) -> Settings:
    """The decoder of a published size.

    :raises InputError: an unknown size.
    """
    name = _AS_PRINTED.get(shape, shape) if isinstance(shape, str) else ""
    if name not in SHAPES:
        raise InputError(f"{where}: shape = {shape!r:.60}; expected one of {', '.join([*SHAPES, *_AS_PRINTED])}")
    n_layer, n_head, n_embd = SHAPES[name]
    return {"model": {"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, "n_inner": 4 * n_embd}}


def family_of(model: Mapping[str, Any]) -> Family:
    """The family of a network by its recorded settings; the LSTM of Table 5 counts as GPT-1's."""
    return FAMILIES["gpt2" if model.get("norm_first") else "gpt"]


def named(what: str, model: Mapping[str, Any]) -> str:
    """``what``, behind the family's title where it is not the first one: "pre-trained", "GPT-2 pre-trained"."""
    family = family_of(model)
    return what if family is FAMILIES["gpt"] else f"{family.title} {what}"
