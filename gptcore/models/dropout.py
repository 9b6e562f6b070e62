"""Dropout whose random bits are cheap on a CPU.

torch draws one Bernoulli sample an element, serially: on two CPU cores that alone costs as much as the matrix
products of a small network. Here one 64-bit draw decides four elements (16 bits each), 3.4 times faster for a
[2048, 1024] tensor (12.7 ms against 3.7 ms, forward). On a GPU torch's own fused kernel is used.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_LEVELS = 1 << 16  # a rate is honoured to 1 / 65536


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """Zero each element of ``x`` (any shape) with probability ``rate`` and scale the rest by 1 / (1 - rate).

    Draws from torch's default generator of the tensor's device, so the RNG state in a checkpoint covers it.
    """
    if not training or rate == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, rate)
    return x * keep_mask(x.shape, rate, x.dtype)


def keep_mask(shape: torch.Size, rate: float, dtype: torch.dtype) -> Tensor:
    """A CPU tensor of ``shape``: 0 with probability ``rate``, else 1 / (1 - rate)."""
    return factors(kept_elements(shape, rate), rate, dtype)


def kept_elements(shape: torch.Size, rate: float) -> Tensor:
    """An int8 CPU tensor of ``shape``: 0 with probability ``rate``, else 1 (bool takes five times as long to cast)."""
    count = shape.numel()
    draws = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)  # all 64 bits random
    level = round(rate * _LEVELS) - _LEVELS // 2  # int16 starts at -32768
    return (draws.view(torch.int16)[:count] >= level).view(torch.int8).view(shape)


def factors(kept: Tensor, rate: float, dtype: torch.dtype) -> Tensor:
    """What the elements of :func:`kept_elements` are multiplied by: 0, or 1 / (1 - rate)."""
    return kept.to(dtype).mul_(1.0 / (1.0 - rate))
