"""Arrays of files: Arrow's numbers as numpy's, nothing copied; those of a safetensors file whose names are known."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from gptcore.base.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_ARROW_TYPES = {
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "int32": np.int32,
    "int64": np.int64,
    "float": np.float32,
    "double": np.float64,
}


def numbers(array: pa.Array) -> NDArray[Any]:
    """A read-only view [N] of an Arrow array of numbers without a null.

    Arrow's own `to_numpy` imports pandas first, a fifth of a second's work in every job.

    :raises KeyError: the array holds something else.
    """
    assert not array.null_count, "a null is no number"
    values: NDArray[Any] = np.frombuffer(array.buffers()[1] or b"", _ARROW_TYPES[str(array.type)])
    return values[array.offset : array.offset + len(array)]


def read_arrays(path: Path, names: Collection[str], holds: str) -> dict[str, NDArray[Any]]:
    """The arrays of a local safetensors file.

    :param names: of all that it has to hold.
    :param holds: what that is, for messages.
    :raises InputError: no such file, no safetensors, or other names.
    """
    try:
        arrays: dict[str, NDArray[Any]] = load_file(str(path))
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot be read ({error}); expected {holds}") from None
    if arrays.keys() != set(names):
        raise InputError(f"{path}: found {', '.join(sorted(arrays))}; expected {holds}: {', '.join(names)}")
    return arrays
