"""A model's folder at any fsspec URL, read with errors that name the file."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.base.files import checked_object, parse_json
from gptcore.base.filesystems import file_system


class ModelFolder:
    """A folder at any fsspec URL."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._fs, self._root = file_system(self._url)

    def path(self, name: str) -> str:
        return f"{self._url}/{name}"

    def has(self, name: str) -> bool:
        return bool(self._fs.isfile(f"{self._root}/{name}"))

    def read(self, name: str) -> bytes:
        try:
            return bytes(self._fs.cat_file(f"{self._root}/{name}"))
        except FileNotFoundError:
            raise InputError(f"{self.path(name)}: no such file") from None

    def json(self, name: str) -> Any:
        try:
            return parse_json(self.read(name))
        except InputError:
            raise
        except ValueError as error:
            raise InputError(f"{self.path(name)}: not JSON ({error})") from None

    def object(self, name: str, fields: Mapping[str, type] | None = None) -> dict[str, Any]:
        return checked_object(self.json(name), self.path(name), "a JSON object", fields)

    def safetensors(self, name: str) -> dict[str, Tensor]:
        try:
            return parse_safetensors(self.read(name))
        except (SafetensorError, KeyError, ValueError) as error:  # KeyError: a kind of number that torch lacks
            if isinstance(error, InputError):
                raise
            raise InputError(f"{self.path(name)}: not a safetensors file ({error})") from None

    def pickled(self, name: str) -> dict[str, Tensor]:
        """Tensors that torch.save wrote. Tensors alone are unpickled, so no file gets to run code."""
        try:
            found = torch.load(io.BytesIO(self.read(name)), map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, EOFError, KeyError, RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"{self.path(name)}: not a file of torch tensors alone ({reason})") from None
        if not isinstance(found, dict) or not all(
            isinstance(key, str) and isinstance(value, Tensor) for key, value in found.items()
        ):
            raise InputError(f"{self.path(name)}: found a {type(found).__name__}, expected tensors by name")
        for key, value in found.items():
            if value.layout != torch.strided or value.is_meta:
                raise InputError(f"{self.path(name)}: {key}: found no plain tensor (sparse, or without numbers)")
        return dict(found)
