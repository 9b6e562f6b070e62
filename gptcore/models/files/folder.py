"""A model's folder at any fsspec URL, read with errors that name the file; our own kind of folder, and the release's.

Ours holds config.json ("model_type": "gptmill") and model.safetensors, or is a checkpoint, whose state.json says the
sizes.

The original release's holds params_shapes.json and params_0.npy .. params_9.npy: positions, tokens, then 12 arrays a
block, flat. Matrices have a leading 1, after the convolutions that the release has in the place of linear layers.
:meth:`gptcore.GPT.load` reads back bit for bit what is written here. Hugging Face's folders of decoders have the
release's names of a block's parts and, as it does, matrices as [n_in, n_out]; ours are torch's [n_out, n_in].
"""

from __future__ import annotations

import dataclasses
import io
import math
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from fsspec.implementations.local import LocalFileSystem
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save_file
from torch import Tensor

from gptcore.base.errors import InputError, require
from gptcore.base.files import checked_object, fsync_file, parse_json, write_json_atomic
from gptcore.base.filesystems import Folder
from gptcore.base.settings import optional, recorded
from gptcore.config import ModelConfig, NetworkConfig, network_config
from gptcore.families import recorded_family

Config = TypeVar("Config", bound=NetworkConfig, covariant=True)


class Exported(Protocol[Config]):
    """What folders are written from: a network, of which this room needs to know no more."""

    @property
    def config(self) -> Config:
        """The network's settings."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The network's tensors, by our names."""


class ModelFolder(Folder):
    """A folder that a model is read from."""

    def read(self, name: str) -> bytes:
        try:
            return bytes(self._files.cat_file(f"{self._path}/{name}"))
        except FileNotFoundError:
            raise InputError(f"{self.at(name)}: no such file") from None

    def json(self, name: str) -> Any:
        data = self.read(name)
        try:
            return parse_json(data)
        except ValueError as error:
            raise InputError(f"{self.at(name)}: not JSON ({error})") from None

    def object(self, name: str, fields: Mapping[str, type] | None = None) -> dict[str, Any]:
        return checked_object(self.json(name), self.at(name), "a JSON object", fields)

    def safetensors(self, name: str) -> dict[str, Tensor]:
        """Tensors by their names; those of a local file are mapped, so that they take no memory of their own."""
        try:
            if isinstance(self._files, LocalFileSystem) and self.has(name):
                with safe_open(f"{self._path}/{name}", framework="pt") as file:
                    return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # it is no dictionary
            return parse_safetensors(self.read(name))
        except (SafetensorError, KeyError, ValueError) as error:  # KeyError: a kind of number that torch lacks
            if isinstance(error, InputError):
                raise
            raise InputError(f"{self.at(name)}: not a safetensors file ({error})") from None

    def pickled(self, name: str) -> dict[str, Tensor]:
        """Tensors that torch.save wrote. Tensors alone are unpickled, so no file gets to run code."""
        try:
            loaded = torch.load(io.BytesIO(self.read(name)), map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, EOFError, KeyError, RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"{self.at(name)}: not a file of torch tensors alone ({reason})") from None
        if not isinstance(loaded, dict) or not all(
            isinstance(key, str) and isinstance(value, Tensor) for key, value in loaded.items()
        ):
            raise InputError(f"{self.at(name)}: found a {type(loaded).__name__}, expected tensors by name")
        for key, value in loaded.items():
            if value.layout != torch.strided or value.is_meta:
                raise InputError(f"{self.at(name)}: {key}: found no plain tensor (sparse, or without numbers)")
        return dict(loaded)

    def weights(self) -> dict[str, Tensor]:
        """All tensors of the files that :func:`weight_files` names.

        :raises InputError: a file is missing or damaged, or a shard lacks a tensor that the index says it holds.
        """
        first, *shards = weight_files(self)
        stored: dict[str, Tensor] = {}
        for name in shards or [first]:
            stored |= self.pickled(name) if name.endswith(".bin") else self.safetensors(name)
        if shards:
            for tensor, shard in _shards(self, first).items():
                require(tensor in stored, f"{self.at(shard)}: no tensor {tensor}, which {first} says it holds")
        return stored


def weight_files(folder: ModelFolder) -> list[str]:
    """Names of the files that hold a model's weights, in the order in which they are read: one file, or an index and
    the shards that it names. Where there is none, the name of the file that is expected.

    :raises InputError: an index that names no shards.
    """
    kinds = ("model.safetensors", "pytorch_model.bin")
    names = [f"{kind}{end}" for kind in kinds for end in ("", _INDEX)]
    name = next((name for name in names if folder.has(name)), kinds[0])
    return [name, *sorted({*_shards(folder, name).values()})] if name.endswith(_INDEX) else [name]


_INDEX = ".index.json"


def _shards(folder: ModelFolder, index: str) -> dict[str, str]:
    """Which shard holds each tensor, by an index."""
    shards: dict[str, Any] = folder.object(index, {"weight_map": dict})["weight_map"]
    kind = index.removesuffix(_INDEX).rpartition(".")[2]
    for name in shards.values() or [None]:
        if not isinstance(name, str) or "/" in name or not name.endswith(f".{kind}"):
            raise InputError(f"{folder.at(index)}: weight_map: found {name!r:.60}, expected names of .{kind} files")
    return shards


MODEL_TYPE = "gptmill"
_FINE_TUNED = ("gpt.", "encoder.")
"""What the names of a network's tensors begin with in a fine-tuned model."""


def write_own(config: NetworkConfig, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write config.json and model.safetensors into a local folder (made if absent)."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    save_file(kept, folder / "model.safetensors")
    fsync_file(folder / "model.safetensors")  # what is written later may say that it is whole
    named = {"model_type": MODEL_TYPE, "family": config.family}
    write_json_atomic(folder / "config.json", {**named, **recorded(config)})


def read_own(folder: ModelFolder, name: str, settings: Mapping[str, Any]) -> tuple[NetworkConfig, dict[str, Tensor]]:
    """Configuration and tensors; ``settings``: those of the file ``name``."""
    family = recorded_family(settings, folder.at(name))
    fields = [field for field in dataclasses.fields(family.part("config")) if not field.metadata.get("derived")]
    missing = [field.name for field in fields if field.name not in settings and not optional(field)]
    require(not missing, f"{folder.at(name)}: no {', '.join(missing)}")
    tensors = folder.safetensors("model.safetensors")
    # a fine-tuned model holds its network under a name of its own beside the classifier's head
    inner = {key.partition(".")[2]: value for key, value in tensors.items() if key.startswith(_FINE_TUNED)}
    known = {field.name: settings[field.name] for field in fields if field.name in settings}
    known["family"] = family.name
    return network_config(known, folder.at(name)), inner or tensors


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


def ours(
    tokens: Tensor,
    positions: Tensor,
    blocks: Mapping[tuple[int, str], Tensor],
    norm: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Our names for foreign tensors; matrices are turned from [n_in, n_out] into [n_out, n_in].

    :param norm: weight and bias of the norm after the last block, where there is one.
    """
    turned = {f"blocks.{n}.{name}": value.t() if value.ndim == 2 else value for (n, name), value in blocks.items()}
    last = {f"norm.{name}": value for name, value in (norm or {}).items()}
    return {"tokens.weight": tokens, "positions.weight": positions, **turned, **last}


def block_tensors(model: Exported[ModelConfig]) -> Iterator[tuple[int, str, Tensor]]:
    """(block, their name, tensor) in the release's order; matrices [n_in, n_out]."""
    state = model.state_dict()
    for n in range(model.config.n_layer):
        for ours, theirs in BLOCK_PARTS.items():
            value = state[f"blocks.{n}.{ours}"]
            yield n, theirs, value.t() if value.ndim == 2 else value


def check_attention(config: ModelConfig) -> None:
    """:raises InputError: keys that no layout of others can say."""
    for name in ("smeared_keys", "rotary"):
        require(not getattr(config, name), f"model.{name} = True, expected False: no layout of others holds such keys")


def check_original(config: ModelConfig) -> None:
    """:raises InputError: norms, keys or a feed-forward width that neither layout of GPT-1 can say."""
    check_attention(config)
    require(not config.norm_first, "model.norm_first = True, expected False: GPT-1's layouts hold no GPT-2")
    if config.n_inner != 4 * config.n_embd:
        raise InputError(f"model.n_inner = {config.n_inner}, expected 4 * model.n_embd = {4 * config.n_embd}")


RELEASED_HEADS = 12  # the released arrays do not say; section 4.1 does
RELEASED_FILES = 10


def read_release(folder: ModelFolder) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Configuration and tensors, by our names."""
    shapes = folder.json("params_shapes.json")
    where = folder.at("params_shapes.json")
    require(_are_shapes(shapes), f"{where}: expected a list of shapes, lists of 1 to 3 sizes, the first two of 2")
    flat = np.concatenate([_read_npy(folder, f"params_{n}.npy") for n in range(RELEASED_FILES)])
    sizes = [math.prod(shape) for shape in shapes]
    require(sum(sizes) == len(flat), f"{where}: shapes of {sum(sizes)} numbers, the params_*.npy hold {len(flat)}")
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
    return config, ours(tokens, positions, blocks)


def _are_shapes(shapes: Any) -> bool:
    """Whether it lists the shapes of positions, tokens and blocks."""
    return (
        isinstance(shapes, list)
        and len(shapes) > 1
        and all(isinstance(shape, list) and 1 <= len(shape) <= 3 for shape in shapes)
        and all(type(size) is int and 0 < size < 1 << 31 for shape in shapes for size in shape)
        and all(len(shape) == 2 for shape in shapes[:2])
    )


def _read_npy(folder: ModelFolder, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    try:
        array: np.ndarray[Any, np.dtype[Any]] = np.load(io.BytesIO(folder.read(name)), allow_pickle=False)
    except (ValueError, EOFError, SyntaxError, TypeError, MemoryError, TokenError) as error:
        raise InputError(f"{folder.at(name)}: not a numpy file ({error})") from None
    require(array.dtype.kind in "fiu", f"{folder.at(name)}: found an array of {array.dtype}, expected numbers")
    return array.reshape(-1)


def export_release(model: Exported[ModelConfig], folder: Path) -> None:
    """Write a folder in the layout of the original release, which its own code reads as its directory ``model``.

    Ten flat float32 arrays that together hold positions, tokens and the blocks in the order of params_shapes.json.

    :raises InputError: if the layout cannot tell the model's shape (12 heads and n_inner = 4 * n_embd go without
        saying), or the model is fine-tuned: the released code adds the special rows itself.
    """
    config = model.config
    if config.n_special:
        raise InputError(f"model.n_special = {config.n_special}, expected 0: the release holds pre-trained models only")
    if config.n_head != RELEASED_HEADS:
        raise InputError(f"model.n_head = {config.n_head}, expected {RELEASED_HEADS} as in the release")
    check_original(config)
    folder.mkdir(parents=True, exist_ok=True)
    blocks = (value[None] if value.ndim == 2 else value for _, _, value in block_tensors(model))
    state = model.state_dict()
    tensors = [state["positions.weight"], state["tokens.weight"], *blocks]
    arrays = [tensor.detach().cpu().numpy() for tensor in tensors]
    flat = np.concatenate([array.reshape(-1) for array in arrays])
    for number, piece in enumerate(np.array_split(flat, RELEASED_FILES)):
        np.save(folder / f"params_{number}.npy", piece)
    write_json_atomic(folder / "params_shapes.json", [list(array.shape) for array in arrays])
