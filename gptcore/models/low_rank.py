"""LoRA (Hu et al. 2022, "LoRA: Low-Rank Adaptation of Large Language Models"): matrices that learn a product of two
thin ones, while they stay as they are themselves.

What is saved has the products added (section 4.1: no additional inference latency), so that nobody else knows of them.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.base.errors import require

_DOWN, _UP = "low_rank_down", "low_rank_up"
_SCALE = 2.0
"""What the product is multiplied by: alpha over the rank."""


def add_low_rank(network: nn.Module, rank: int, generator: torch.Generator | None = None) -> None:
    """Give every matrix that multiplies states a product of rank ``rank``, at first zero, and freeze all else.

    :param generator: where the thin matrices are drawn from; None: torch's default generator.
    :raises InputError: a rank that is no smaller than a matrix.
    """
    network.requires_grad_(False)
    experts = next((name for name, part in network.named_parameters() if ".experts." in name), "")
    require(not experts, f"finetune.lora_rank = {rank}: found {experts}, expected a network without experts")
    for name, part in list(network.named_modules()):
        if not _multiplies(part):
            continue
        n_out, n_in = _turned(part).shape
        least = min(n_out, n_in)
        require(rank < least, f"finetune.lora_rank = {rank}: expected less than {least}, the narrower side of {name}")
        down = torch.randn(rank, n_in, generator=generator) * n_in**-0.5
        part.register_parameter(_DOWN, nn.Parameter(down))
        part.register_parameter(_UP, nn.Parameter(torch.zeros(n_out, rank)))
        part.register_forward_hook(_with_product)


def merged(model: nn.Module) -> dict[str, Tensor]:
    """A model's tensors by their names, with the products of :func:`add_low_rank` added to the matrices."""
    tensors = model.state_dict()
    for name, part in model.named_modules():
        if hasattr(part, _DOWN):
            tensors.pop(f"{name}.{_DOWN}")
            product = _SCALE * tensors.pop(f"{name}.{_UP}") @ getattr(part, _DOWN).detach()
            weight: Any = part.weight
            tensors[f"{name}.weight"] = weight.detach() + (product if isinstance(part, nn.Linear) else product.t())
    return tensors


def _multiplies(part: nn.Module) -> bool:
    return isinstance(part, nn.Linear) or type(part).__name__ == "Conv1D"  # transformers' GPT-2 has its own


def _turned(part: Any) -> Tensor:
    """The matrix of a layer, [n_out, n_in]."""
    weight: Tensor = part.weight
    return weight if isinstance(part, nn.Linear) else weight.t()


def _with_product(part: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """What a layer gives, with the product's share: [..., n_in], [..., n_out] -> [..., n_out]."""
    thin = F.linear(given[0], getattr(part, _DOWN))  # (..., rank)
    return output + _SCALE * F.linear(thin, getattr(part, _UP))
