"""The one record that crosses every boundary, and the recipe that gives it its name.

A digest must mean the same on every machine, in every Python version and whichever way a setting was typed, so
configurations are reduced to a canonical form before they are hashed: `1` and `1.0` are one value, tuples are lists,
keys are strings, and whatever JSON cannot name is an error here rather than a surprise later.
"""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import gptcore
from gptcore.errors import InputError
from gptcore.files import sha256_json

MANIFEST = "manifest.json"
_STAGE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Artifact:
    """A finished piece of work: what made it, its name, and where it lies."""

    stage: str
    digest: str
    """SHA-256 of its recipe, 64 hex digits."""
    url: str
    """Its folder, `<store>/<stage>/<digest>`: a local path or an fsspec URL."""

    @property
    def short(self) -> str:
        """The first 12 digits: what people read, and enough for `Store.resolve`."""
        return self.digest[:12]

    def to_json(self) -> dict[str, str]:
        """A plain dictionary; :meth:`from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Artifact:
        """The artifact that :meth:`to_json` wrote.

        :raises InputError: where a field is missing or is not what its name says.
        """
        try:
            artifact = cls(value["stage"], value["digest"], value["url"])
        except KeyError as missing:
            raise InputError(f"artifact: found no field {missing}, expected stage, digest and url") from None
        check_name(artifact.stage, artifact.digest)
        return artifact


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


def finite(value: Any) -> Any:
    """``value`` with None for each NaN or infinity: a diverged metric must not lose a manifest of hours of work."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def check_name(stage: object, digest: object) -> None:
    """Refuse a stage or digest that could name a place outside the store.

    :raises InputError: naming the part that is wrong.
    """
    if not isinstance(stage, str) or not _STAGE.fullmatch(stage):
        raise InputError(f"artifact stage: found {stage!r}, expected lower-case letters, digits, - and _")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise InputError(f"artifact digest: found {digest!r}, expected 64 hexadecimal digits")


def manifest_problem(manifest: Any, stage: str, digest: str) -> str | None:
    """Why ``manifest`` cannot be that of `<stage>/<digest>`, in words; None where it can.

    Shape, safe relative paths (a manifest from a shared bucket must not make us read or write elsewhere), and the
    recipe it states giving the digest it lies under.
    """
    try:
        found = recipe_digest(
            manifest["stage"],
            manifest["version"],
            manifest["config"],
            {role: item["digest"] for role, item in manifest["inputs"].items()},
        )
        if (manifest["stage"], found, manifest["digest"]) != (stage, digest, digest):
            return f"its recipe has the digest {found[:12]}, expected {digest[:12]}"
        for file in manifest["files"]:
            if not _is_safe(file["path"]):
                return f"it lists the path {file['path']!r}, expected a relative path inside the artifact"
            if not (isinstance(file["size"], int) and file["size"] >= 0 and _DIGEST.fullmatch(file["sha256"])):
                return f"its entry for {file['path']} has no size and SHA-256"
        if not isinstance(root := manifest.get("root", ""), str) or (root and not _is_safe(root)):
            return f"its root is {root!r}, expected a folder inside the artifact"
    except (KeyError, TypeError, AttributeError, InputError) as error:
        return f"it is not a manifest ({type(error).__name__}: {error})"
    return None


def _is_safe(path: Any) -> bool:
    if not isinstance(path, str) or not path or "\\" in path or "\0" in path or path == MANIFEST:
        return False
    parts = path.split("/")
    return PurePosixPath(path).parts == tuple(parts) and not any(part in ("", ".", "..") for part in parts)


@lru_cache(maxsize=1)
def code_version() -> dict[str, str | bool | None]:
    """The package's version, and the git commit where the code runs from a checkout (`dirty`: with local changes)."""
    root = Path(__file__).resolve().parents[1]
    version: dict[str, str | bool | None] = {"package": gptcore.__version__, "git": None, "dirty": None}
    if (root / ".git").exists():  # never the commit of some outer repository around an installed package
        try:
            version["git"] = _git(root, "rev-parse", "HEAD")
            version["dirty"] = bool(_git(root, "status", "--porcelain", "--untracked-files=no"))
        except (OSError, subprocess.SubprocessError):
            return {**version, "git": None, "dirty": None}  # no git program, or a broken checkout: the version stays
    return version


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout.strip()
