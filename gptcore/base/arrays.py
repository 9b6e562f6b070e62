"""Arrays in a safetensors file whose names are known."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from gptcore.base.errors import InputError


def read_arrays(path: Path, names: Collection[str], holds: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a local file.

    :param names: of all that it has to hold.
    :param holds: what that is, for messages.
    :raises InputError: no such file, no safetensors, or other names.
    """
    try:
        found: dict[str, npt.NDArray[Any]] = load_file(str(path))
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot be read ({error}); expected {holds}") from None
    if found.keys() != set(names):
        raise InputError(f"{path}: found {', '.join(sorted(found))}; expected {holds}: {', '.join(names)}")
    return found
