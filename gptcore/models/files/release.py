"""The original release's folders: params_shapes.json, params_0.npy .. params_9.npy.

Positions, tokens, then 12 arrays a block, flat. Matrices have a leading 1, after the convolutions that the release has
in the place of linear layers. :meth:`GPT.load` reads back bit for bit what is written here.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.base.files import fsync_folder, write_json_atomic
from gptcore.config import ModelConfig
from gptcore.models.files.folder import ModelFolder
from gptcore.models.files.layout import BLOCK_PARTS, Decoder, block_tensors, check_original, ours

RELEASED_HEADS = 12  # the released arrays do not say; section 4.1 does
RELEASED_FILES = 10


def read_release(folder: ModelFolder) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Configuration and tensors, by our names."""
    shapes = folder.json("params_shapes.json")
    where = folder.path("params_shapes.json")
    if not _are_shapes(shapes):
        raise InputError(f"{where}: expected a list of shapes, lists of 1 to 3 sizes, the first two of 2")
    flat = np.concatenate([_read_npy(folder, f"params_{n}.npy") for n in range(RELEASED_FILES)])
    sizes = [math.prod(shape) for shape in shapes]
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
        raise InputError(f"{folder.path(name)}: not a numpy file ({error})") from None
    if array.dtype.kind not in "fiu":
        raise InputError(f"{folder.path(name)}: found an array of {array.dtype}, expected numbers")
    return array.reshape(-1)


def export_release(model: Decoder, folder: Path) -> None:
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
    fsync_folder(folder)
