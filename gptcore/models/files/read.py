"""Reading any of the three kinds of model folder, by what is in it."""

from __future__ import annotations

from torch import Tensor

from gptcore.config import NetworkConfig
from gptcore.errors import InputError
from gptcore.models.files.folder import ModelFolder
from gptcore.models.files.hugging_face import read_hugging_face
from gptcore.models.files.own import MODEL_TYPE, read_own
from gptcore.models.files.release import read_release


def read_model(url: str) -> tuple[NetworkConfig, dict[str, Tensor]]:
    """The configuration of a model and its tensors by our names, from any fsspec URL of a folder.

    :raises InputError: naming the file, and what was expected of it.
    """
    folder = ModelFolder(url)
    if folder.has("params_shapes.json"):
        return read_release(folder)
    if folder.has("config.json"):
        settings = folder.json("config.json")
        kind = settings.get("model_type")
        if kind == MODEL_TYPE:
            return read_own(folder, "config.json", settings)
        if kind == "openai-gpt":
            return read_hugging_face(folder, settings)
        raise InputError(f"{folder.path('config.json')}: model_type = {kind!r}, expected {MODEL_TYPE} or openai-gpt")
    if folder.has("state.json"):
        return read_own(folder, "state.json", folder.json("state.json")["identity"]["model"])
    raise InputError(f"{url}: not a model folder; expected config.json, state.json or params_shapes.json in it")
