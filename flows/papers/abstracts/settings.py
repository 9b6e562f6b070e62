"""The settings that a form about abstracts asks for: those of its preset, with what its overrides change."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from gptcore.base.errors import InputError, nearest, require
from gptcore.base.settings import replace_settings
from gptcore.config import Preset, preset_named
from gptcore.papers.abstracts.config import PRESETS, AbstractsPreset, AdaptConfig, SamplingConfig

_ADAPTATION = ("adapt", "sampling", "star")
"""Sections of the settings that are about fine-tuning on abstracts; the others are the language model's."""


def chosen_abstracts(preset: str, overrides: Mapping[str, Any]) -> tuple[Preset, AbstractsPreset]:
    """The language model's preset that a form asks for, and that of its fine-tuning on abstracts.

    :raises InputError: an unknown setting, or a value that does not fit.
    """
    own, language = PRESETS[preset], language_overrides(overrides)
    changes = {
        name: replace_settings(getattr(own, name), overrides.get(name, {}), f"overrides: {name}")
        for name in _ADAPTATION
    }
    if language.get("family", "gpt2") != "gpt2":
        raise InputError(f"overrides: family = {language['family']!r}; expected gpt2, whose vocabulary has the marks")
    return preset_named(preset, {**language, "family": "gpt2"}), dataclasses.replace(own, **changes)


def language_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The language model's settings among those of a form of abstracts."""
    return {name: values for name, values in overrides.items() if name not in _ADAPTATION}


def chosen_sampling(preset: str, overrides: dict[str, Any], seed: int | None) -> SamplingConfig:
    """How abstracts are drawn under a preset with overrides, of which the other sections do not matter here.

    :param seed: None: the settings' own.
    :raises InputError: an unknown preset or setting, or a value that does not fit.
    """
    require(preset in PRESETS, f"preset {preset!r} is not known; {nearest(preset, PRESETS)}")
    chosen = replace_settings(PRESETS[preset].sampling, overrides.get("sampling", {}), "overrides: sampling")
    return chosen if seed is None else dataclasses.replace(chosen, seed=seed)


def check_positions(section: str, configs: Iterable[AdaptConfig], n_ctx: int) -> None:
    """:raises InputError: blocks of more tokens than the model has positions; ``section``: where the settings are."""
    if (size := max(config.block_size for config in configs)) > n_ctx:
        raise InputError(f"{section}.block_size = {size}: expected {n_ctx} or less, the model's n_ctx")
