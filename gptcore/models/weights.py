"""Model folders: writing ours; reading ours, Hugging Face's "openai-gpt" and the original release's.

    ours          config.json ("model_type": "gptmill"), model.safetensors; a checkpoint has state.json instead
    Hugging Face  config.json ("model_type": "openai-gpt"), model.safetensors or the older pytorch_model.bin
    original      params_shapes.json, params_0.npy .. params_9.npy: positions, tokens, then 12 arrays a block, flat

The two foreign layouts keep matrices as [n_in, n_out]; ours are torch's [n_out, n_in].
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save_file
from torch import Tensor

from gptcore.config import LSTMConfig, ModelConfig, NetworkConfig, optional, recorded
from gptcore.errors import InputError
from gptcore.files import fsync_folder, write_json_atomic
from gptcore.models.language_model import LanguageModel
from gptcore.models.lstm import LSTM
from gptcore.models.transformer import GPT, LAYER_NORM_EPSILON

MODEL_TYPE = "gptmill"

BLOCK_PARTS = {
    # ours -> theirs, in the order of the original release's arrays; Hugging Face has the same names
    "attention.qkv.weight": "attn.c_attn.weight",
    "attention.qkv.bias": "attn.c_attn.bias",
    "attention.projection.weight": "attn.c_proj.weight",
    "attention.projection.bias": "attn.c_proj.bias",
    "norm_1.weight": "ln_1.weight",
    "norm_1.bias": "ln_1.bias",
    "feed_forward.inner.weight": "mlp.c_fc.weight",
    "feed_forward.inner.bias": "mlp.c_fc.bias",
    "feed_forward.projection.weight": "mlp.c_proj.weight",
    "feed_forward.projection.bias": "mlp.c_proj.bias",
    "norm_2.weight": "ln_2.weight",
    "norm_2.bias": "ln_2.bias",
}
RELEASED_HEADS = 12  # the released arrays do not say; section 4.1 does
RELEASED_FILES = 10


def save_model(model: LanguageModel, folder: Path) -> None:
    """Write config.json and model.safetensors; see :meth:`LanguageModel.save`."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors")
    write_json_atomic(folder / "config.json", {"model_type": MODEL_TYPE, **recorded(model.config)})
    fsync_folder(folder)


def load_model(url: str) -> LanguageModel:
    """Read a model, in eval mode on the CPU, from any of the three kinds of folder; see :meth:`GPT.load`."""
    folder = _Folder(url)
    config: NetworkConfig
    if folder.has("params_shapes.json"):
        config, tensors = _read_released(folder)
    elif folder.has("config.json"):
        settings = folder.json("config.json")
        kind = settings.get("model_type")
        if kind == MODEL_TYPE:
            config, tensors = _read_own(folder, "config.json", settings)
        elif kind == "openai-gpt":
            config, tensors = _read_hugging_face(folder, settings)
        else:
            raise InputError(
                f"{folder.path('config.json')}: model_type = {kind!r}, expected {MODEL_TYPE} or openai-gpt"
            )
    elif folder.has("state.json"):
        config, tensors = _read_own(folder, "state.json", folder.json("state.json")["identity"]["model"])
    else:
        raise InputError(f"{url}: not a model folder; expected config.json, state.json or params_shapes.json in it")
    return _fill(build_model(config), tensors, url)


def build_model(config: NetworkConfig, generator: torch.Generator | None = None) -> LanguageModel:
    """The network of a configuration, with weights drawn from ``generator``."""
    return LSTM(config, generator) if isinstance(config, LSTMConfig) else GPT(config, generator)


class _Folder:
    """A folder at any fsspec URL."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._fs, self._root = fsspec.core.url_to_fs(self._url)

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
            return json.loads(self.read(name))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{self.path(name)}: not JSON ({error})") from None

    def safetensors(self, name: str) -> dict[str, Tensor]:
        try:
            return parse_safetensors(self.read(name))
        except SafetensorError as error:
            raise InputError(f"{self.path(name)}: not a safetensors file ({error})") from None

    def pickled(self, name: str) -> dict[str, Tensor]:
        """Tensors that torch.save wrote. Tensors alone are unpickled, so no file gets to run code."""
        try:
            found = torch.load(io.BytesIO(self.read(name)), map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, EOFError, KeyError, RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"{self.path(name)}: not a file of torch tensors alone ({reason})") from None
        if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
            raise InputError(f"{self.path(name)}: found a {type(found).__name__}, expected tensors by name")
        return dict(found)


def _read_own(folder: _Folder, name: str, settings: Mapping[str, Any]) -> tuple[NetworkConfig, dict[str, Tensor]]:
    kind = LSTMConfig if "n_units" in settings else ModelConfig
    fields = dataclasses.fields(kind)
    missing = [field.name for field in fields if field.name not in settings and not optional(field)]
    if missing:
        raise InputError(f"{folder.path(name)}: no {', '.join(missing)}")
    tensors = folder.safetensors("model.safetensors")
    # a fine-tuned model holds its decoder under "gpt." beside the classifier's head
    inner = {key.removeprefix("gpt."): value for key, value in tensors.items() if key.startswith("gpt.")}
    known = {field.name: settings[field.name] for field in fields if field.name in settings}
    return kind(**known), inner or tensors


def _read_hugging_face(folder: _Folder, settings: Mapping[str, Any]) -> tuple[ModelConfig, dict[str, Tensor]]:
    expected = {"afn": "gelu", "layer_norm_epsilon": LAYER_NORM_EPSILON}
    for field, value in expected.items():
        if settings.get(field, value) != value:
            raise InputError(f"{folder.path('config.json')}: {field} = {settings[field]!r}, expected {value!r}")
    older = folder.has("pytorch_model.bin") and not folder.has("model.safetensors")
    name = "pytorch_model.bin" if older else "model.safetensors"
    stored = folder.pickled(name) if older else folder.safetensors(name)
    theirs = {key.removeprefix("transformer."): value for key, value in stored.items()}

    def part(key: str) -> Tensor:
        if key not in theirs:
            raise InputError(f"{folder.path(name)}: no tensor {key}")
        return theirs[key]

    tokens, n_special = part("tokens_embed.weight"), settings.get("n_special", 0)
    try:
        config = ModelConfig(
            # transformers counts special rows among vocab_size; its first versions put them after
            n_vocab=settings["vocab_size"] - (n_special if len(tokens) == settings["vocab_size"] else 0),
            n_special=n_special,
            n_ctx=settings["n_positions"],
            n_layer=settings["n_layer"],
            n_head=settings["n_head"],
            n_embd=settings["n_embd"],
            n_inner=4 * settings["n_embd"],
            embd_pdrop=settings.get("embd_pdrop", 0.1),
            attn_pdrop=settings.get("attn_pdrop", 0.1),
            resid_pdrop=settings.get("resid_pdrop", 0.1),
            init_std=settings.get("initializer_range", 0.02),
        )
    except KeyError as error:
        raise InputError(f"{folder.path('config.json')}: no {error.args[0]}") from None
    blocks = {(n, ours): part(f"h.{n}.{its}") for n in range(config.n_layer) for ours, its in BLOCK_PARTS.items()}
    return config, _ours(tokens, part("positions_embed.weight"), blocks)


def _read_released(folder: _Folder) -> tuple[ModelConfig, dict[str, Tensor]]:
    shapes = folder.json("params_shapes.json")
    flat = np.concatenate([_read_npy(folder, f"params_{n}.npy") for n in range(RELEASED_FILES)])
    sizes = [math.prod(shape) for shape in shapes]
    where = folder.path("params_shapes.json")
    if sum(sizes) != len(flat):
        raise InputError(f"{where}: shapes of {sum(sizes)} numbers, the params_*.npy hold {len(flat)}")
    n_layer, rest = divmod(len(shapes) - 2, len(BLOCK_PARTS))
    if rest or n_layer < 1:
        raise InputError(f"{where}: {len(shapes)} arrays, expected 2 and {len(BLOCK_PARTS)} for each block")
    parts = flat.astype(np.float32).copy()
    arrays = [
        torch.from_numpy(a).view(shape) for a, shape in zip(np.split(parts, np.cumsum(sizes)[:-1]), shapes, strict=True)
    ]
    positions, tokens, *rows = arrays
    names = [(n, ours) for n in range(n_layer) for ours in BLOCK_PARTS]
    config = ModelConfig(
        n_vocab=tokens.shape[0],
        n_ctx=positions.shape[0],
        n_layer=n_layer,
        n_head=RELEASED_HEADS,
        n_embd=tokens.shape[1],
        n_inner=4 * tokens.shape[1],
    )
    # convolution weights come as [1, n_in, n_out]
    blocks = {name: array.squeeze(0) if array.ndim == 3 else array for name, array in zip(names, rows, strict=True)}
    return config, _ours(tokens, positions, blocks)


def _read_npy(folder: _Folder, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    try:
        array: np.ndarray[Any, np.dtype[Any]] = np.load(io.BytesIO(folder.read(name)), allow_pickle=False)
    except ValueError as error:
        raise InputError(f"{folder.path(name)}: not a numpy file ({error})") from None
    return array.reshape(-1)


def _ours(tokens: Tensor, positions: Tensor, blocks: Mapping[tuple[int, str], Tensor]) -> dict[str, Tensor]:
    """Our names for foreign tensors; matrices are turned from [n_in, n_out] into [n_out, n_in]."""
    turned = {f"blocks.{n}.{name}": value.t() if value.ndim == 2 else value for (n, name), value in blocks.items()}
    return {"tokens.weight": tokens, "positions.weight": positions, **turned}


def _fill(model: LanguageModel, tensors: Mapping[str, Tensor], url: str) -> LanguageModel:
    """Copy ``tensors`` into ``model``. :raises InputError: if one is missing or of another shape."""
    for name, parameter in model.state_dict().items():
        if name not in tensors:
            raise InputError(f"{url}: no tensor {name}")
        if tensors[name].shape != parameter.shape:
            found, expected = list(tensors[name].shape), list(parameter.shape)
            raise InputError(f"{url}: {name} has the shape {found}, expected {expected}")
        parameter.copy_(tensors[name])
    return model.eval()
