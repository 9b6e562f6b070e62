"""The one record that crosses every boundary, and the recipe that gives it its name.

A digest must mean the same on every machine, in every Python version and whichever way a setting was typed, so
configurations are reduced to a canonical form before they are hashed: `1` and `1.0` are one value, tuples are lists,
keys are strings, and whatever JSON cannot name is an error here rather than a surprise later.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json

_STAGE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Artifact:
    """A finished piece of work: what made it, its name, and where it lies."""

    stage: str
    digest: str
    """SHA-256 of its recipe, 64 hex digits."""
    url: str
    """The artifact's folder, `<store>/<stage>/<digest>`: a local path or an fsspec URL."""

    @property
    def short(self) -> str:
        """The first 12 digits: what people read, and enough for `Store.resolve`."""
        return self.digest[:12]


@dataclass(frozen=True)
class Recipe:
    """All that decides an artifact's content: equal recipes, equal digests, one artifact."""

    stage: str
    version: int
    """Raised by hand when the stage's code starts to give different output for the same settings."""
    config: Mapping[str, Any]
    inputs: Mapping[str, Artifact | str] = field(default_factory=dict)
    """By role: earlier artifacts, or bare digests of things that are no artifacts (a raw corpus' fingerprint)."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of stage, version, config and the inputs' digests.

        :raises InputError: where the config holds a value that JSON cannot name.
        """
        inputs = {role: item if isinstance(item, str) else item.digest for role, item in self.inputs.items()}
        return recipe_digest(self.stage, self.version, self.config, inputs)


def recipe_digest(stage: str, version: int, config: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """The digest of a recipe whose inputs are given as digests: also checks that a manifest is what it claims."""
    whole = {"stage": stage, "version": version, "config": dict(config), "inputs": dict(inputs)}
    return sha256_json(canonical(whole))


def canonical(value: Any, place: str = "") -> Any:
    """Reduce ``value`` to the one form that all its spellings share, made of dict, list, str, int, float, bool, None.

    :raises InputError: for NaN, infinity, keys that are not strings, text that is not Unicode, or any other type.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{place or 'value'}: found {value}, expected a finite number")
        return int(value) if value.is_integer() else float(value)
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise InputError(f"{place or 'value'}: found {value!r}, expected text that UTF-8 can write")
        return str(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InputError(f"{place or 'value'}: found the key {key!r}, expected text")
        return {key: canonical(item, f"{place}.{key}".lstrip(".")) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item, f"{place}[{index}]") for index, item in enumerate(value)]
    raise InputError(f"{place or 'value'}: found a {type(value).__name__}, expected a value that JSON can name")


def is_stage(text: str) -> bool:
    """Whether ``text`` is a name that a stage may have, as a store's folders of artifacts are called."""
    return _STAGE.fullmatch(text) is not None


def is_digest(text: str) -> bool:
    """Whether ``text`` is a whole digest, as folders of artifacts are called."""
    return _DIGEST.fullmatch(text) is not None


def check_name(stage: object, digest: object) -> None:
    """Refuse a stage or digest that could name a place outside the store.

    :raises InputError: naming the part that is wrong.
    """
    if not isinstance(stage, str) or not is_stage(stage):
        raise InputError(f"artifact stage: found {stage!r}, expected lower-case letters, digits, - and _")
    if not isinstance(digest, str) or not is_digest(digest):
        raise InputError(f"artifact digest: found {digest!r}, expected 64 hexadecimal digits")
