"""A model's folder at any fsspec URL, read with errors that name the file; and our own kind of folder.

Ours holds config.json ("model_type": "gptmill") and model.safetensors, or is a checkpoint, whose state.json says the
sizes.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save_file
from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.base.files import checked_object, parse_json, write_json_atomic
from gptcore.base.filesystems import file_system
from gptcore.base.settings import optional, recorded
from gptcore.config import NetworkConfig, network_config
from gptcore.families import recorded_family

Config = TypeVar("Config", bound=NetworkConfig, covariant=True)


class Exported(Protocol[Config]):
    """What folders are written from: a network, of which this room needs to know no more."""

    @property
    def config(self) -> Config:
        """Its settings."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Its tensors, by our names."""


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


MODEL_TYPE = "gptmill"
_FINE_TUNED = ("gpt.", "encoder.")
"""What the names of a network's tensors begin with in a fine-tuned model."""


def write_own(config: NetworkConfig, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write config.json and model.safetensors into a local folder (made if absent)."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    save_file(kept, folder / "model.safetensors")
    named = {"model_type": MODEL_TYPE, "family": config.family}
    write_json_atomic(folder / "config.json", {**named, **recorded(config)})


def read_own(folder: ModelFolder, name: str, settings: Mapping[str, Any]) -> tuple[NetworkConfig, dict[str, Tensor]]:
    """Configuration and tensors; ``settings``: those of the file ``name``."""
    family = recorded_family(settings, folder.path(name))
    fields = [field for field in dataclasses.fields(family.part("config")) if not field.metadata.get("derived")]
    missing = [field.name for field in fields if field.name not in settings and not optional(field)]
    if missing:
        raise InputError(f"{folder.path(name)}: no {', '.join(missing)}")
    tensors = folder.safetensors("model.safetensors")
    # a fine-tuned model holds its network under a name of its own beside the classifier's head
    inner = {key.partition(".")[2]: value for key, value in tensors.items() if key.startswith(_FINE_TUNED)}
    known = {field.name: settings[field.name] for field in fields if field.name in settings}
    known["family"] = family.name
    return network_config(known, folder.path(name)), inner or tensors
