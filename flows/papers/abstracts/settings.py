"""The settings that a form about abstracts asks for: those of its preset, with what its overrides change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gptcore.base.errors import InputError, nearest, require
from gptcore.base.settings import replace_settings
from gptcore.config import Preset, preset_named
from gptcore.papers.abstracts.config import PRESETS, AbstractsPreset, SamplingConfig

_ADAPTATION = ("adapt", "sampling", "star")
"""Sections of the settings that are about fine-tuning on abstracts; the others are the language model's."""


def chosen_abstracts(form: Any) -> tuple[Preset, AbstractsPreset]:
    """The language model's preset that a form asks for, and that of its fine-tuning on abstracts.

    :raises InputError: an unknown setting, or a value that does not fit.
    """
    own, overrides = PRESETS[form.preset], language_overrides(form.overrides)
    changes = {
        name: replace_settings(getattr(own, name), form.overrides.get(name, {}), f"overrides: {name}")
        for name in _ADAPTATION
    }
    if overrides.get("family", "gpt2") != "gpt2":
        raise InputError(f"overrides: family = {overrides['family']!r}; expected gpt2, whose vocabulary has the marks")
    return preset_named(form.preset, {**overrides, "family": "gpt2"}), dataclasses.replace(own, **changes)


def language_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Of the settings of a form of abstracts, those of the language model that it starts from."""
    return {name: values for name, values in overrides.items() if name not in _ADAPTATION}


def chosen_sampling(preset: str, overrides: dict[str, Any], seed: int | None) -> SamplingConfig:
    """How abstracts are drawn under a preset with overrides, of which the other sections do not matter here.

    :param seed: None: the settings' own.
    :raises InputError: an unknown preset or setting, or a value that does not fit.
    """
    require(preset in PRESETS, f"preset {preset!r} is not known; {nearest(preset, PRESETS)}")
    chosen = replace_settings(PRESETS[preset].sampling, overrides.get("sampling", {}), "overrides: sampling")
    return chosen if seed is None else dataclasses.replace(chosen, seed=seed)
