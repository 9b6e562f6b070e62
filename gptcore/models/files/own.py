"""Our own model folders: config.json ("model_type": "gptmill"), model.safetensors, or a checkpoint's state.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.base.files import fsync_folder, write_json_atomic
from gptcore.base.settings import optional, recorded
from gptcore.config import NetworkConfig, network_config
from gptcore.families import recorded_family
from gptcore.models.files.folder import ModelFolder

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
    fsync_folder(folder)


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
