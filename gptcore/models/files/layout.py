"""What the two foreign layouts have in common: the names of a block's parts, and matrices as [n_in, n_out].

Ours are torch's [n_out, n_in].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.config import ModelConfig


class Decoder(Protocol):
    """What a layout is written from: the Transformer, of which this room needs to know no more."""

    config: ModelConfig

    def state_dict(self) -> dict[str, Any]:
        """Its tensors, by our names."""


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


def block_tensors(model: Decoder) -> Iterator[tuple[int, str, Tensor]]:
    """(block, their name, tensor) in the release's order; matrices [n_in, n_out]."""
    state = model.state_dict()
    for n in range(model.config.n_layer):
        for ours, theirs in BLOCK_PARTS.items():
            value = state[f"blocks.{n}.{ours}"]
            yield n, theirs, value.t() if value.ndim == 2 else value


def check_attention(config: ModelConfig) -> None:
    """:raises InputError: keys that no layout of others can say."""
    if config.smeared_keys:
        raise InputError("model.smeared_keys = True, expected False: no layout of others holds such keys")


def check_original(config: ModelConfig) -> None:
    """:raises InputError: norms, keys or a feed-forward width that neither layout of GPT-1 can say."""
    check_attention(config)
    if config.norm_first:
        raise InputError("model.norm_first = True, expected False: GPT-1's layouts hold no GPT-2")
    if config.n_inner != 4 * config.n_embd:
        raise InputError(f"model.n_inner = {config.n_inner}, expected 4 * model.n_embd = {4 * config.n_embd}")
