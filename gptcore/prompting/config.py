"""Sizes of the models that are compared when answers come from prompts: what a preset's own settings change to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gptcore.config import Preset, preset_named
from gptcore.families import SHAPES, shape_settings


@dataclass(frozen=True)
class Size:
    """A network and what else it needs, over the settings of a preset of the family gpt2."""

    name: str
    settings: Mapping[str, Mapping[str, Any]]


def _size(n_layer: int, n_head: int, n_embd: int, more: Mapping[str, Mapping[str, Any]] | None = None) -> Size:
    settings = dict(more or {})
    shape = {"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, "n_inner": 4 * n_embd}
    return Size(f"{n_layer} x {n_embd}", {**settings, "model": {**settings.get("model", {}), **shape}})


# Examples need room: more positions than the demo's tasks do. Pages of the generated web are short, so that a window
# holds some of them whole.
_DEMO = {
    "model": {"n_ctx": 256},
    "pretrain": {"batch_size": 8, "steps": 2400, "warmup_steps": 100, "eval_every": 600, "checkpoint_every": 600},
}

SIZES: dict[str, tuple[Size, ...]] = {
    "demo": tuple(_size(*shape, _DEMO) for shape in ((2, 2, 32), (2, 4, 64), (4, 4, 128))),
    "small": tuple(_size(*shape) for shape in ((2, 2, 64), (3, 4, 128), (4, 4, 256))),
    "paper": tuple(Size(name, shape_settings(name, "size")) for name in list(SHAPES)[:3]),
}
"""Preset -> sizes, the smallest first. They see the same number of tokens each."""


def sized_preset(name: str, size: Size, overrides: Mapping[str, Any]) -> Preset:
    """A preset of the family gpt2 at one of its sizes, with a user's settings on top.

    :raises InputError: an unknown setting, or a value that does not fit.
    """
    both = {
        section: {**size.settings.get(section, {}), **values} if isinstance(values, Mapping) else values
        for section, values in {**size.settings, **overrides}.items()
    }
    return preset_named(name, {**both, "family": "gpt2"})
