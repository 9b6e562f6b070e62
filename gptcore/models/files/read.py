"""Reading any of the three kinds of model folder, by what is in it."""

from __future__ import annotations

from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.base.files import checked_object
from gptcore.config import NetworkConfig
from gptcore.models.files.folder import MODEL_TYPE, ModelFolder, read_own
from gptcore.models.files.hugging_face import model_types, read_hugging_face
from gptcore.models.files.release import read_release


def read_model(url: str) -> tuple[NetworkConfig, dict[str, Tensor]]:
    """The configuration of a model and its tensors by our names, from any fsspec URL of a folder.

    :raises InputError: naming the file, and what was expected of it.
    """
    config, tensors = _read(ModelFolder(url), url)
    if config.layers > len(tensors):
        raise InputError(f"{url}: {len(tensors)} tensors, expected those of {config.layers} blocks")
    return config, tensors


def _read(folder: ModelFolder, url: str) -> tuple[NetworkConfig, dict[str, Tensor]]:
    """The same, whether they fit together or not."""
    if folder.has("params_shapes.json"):
        return read_release(folder)
    if folder.has("config.json"):
        settings = folder.object("config.json")
        kind = settings.get("model_type")
        if kind == MODEL_TYPE:
            return read_own(folder, "config.json", settings)
        theirs = model_types()
        if kind in theirs:
            return read_hugging_face(folder, settings)
        known = " or ".join((MODEL_TYPE, *theirs))
        raise InputError(f"{folder.path('config.json')}: model_type = {kind!r}, expected {known}")
    if folder.has("state.json"):
        identity = folder.object("state.json", {"identity": dict})["identity"]
        where = folder.path("state.json")
        return read_own(
            folder, "state.json", checked_object(identity, where, "a JSON object", {"model": dict})["model"]
        )
    raise InputError(f"{url}: not a model folder; expected config.json, state.json or params_shapes.json in it")
