"""What makes networks fast on a CPU: dropout and attention.

Legend: B batch, T positions of a sequence, D width, H heads, b of the B texts at a time.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

_LEVELS = 1 << 16  # a rate is honoured to 1 / 65536


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """Zero each element of ``x`` (any shape) with probability ``rate`` and scale the rest by 1 / (1 - rate).

    torch draws one Bernoulli sample an element, serially: on two CPU cores that alone costs as much as the matrix
    products of a small network. Here one 64-bit draw decides four elements (16 bits each), 3.4 times faster for a
    [2048, 1024] tensor (12.7 ms against 3.7 ms, forward). On a GPU torch's own fused kernel is used.

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


_SCORES = 1 << 22  # held at once; a layer that has no more of them keeps its weights, which is faster


def is_faster(qkv: Tensor, rate: float, training: bool) -> bool:
    """Whether :func:`cpu_attention` is to be taken rather than torch's kernel."""
    return training and qkv.device.type == "cpu" and (rate > 0 or qkv.dtype == torch.bfloat16)


def keeps_weights(B: int, T: int, n_head: int) -> bool:
    """Whether there are so few weights that they are kept.

    Where each position of each text has a mask of its own and they are not, torch's kernel is the faster one: 8 x 400
    tokens in bfloat16 take it 0.6 of the time (8 x 200: 1.4).
    """
    return B * n_head * T * T <= _SCORES


def cpu_attention(qkv: Tensor, n_head: int, rate: float, mask: Tensor | None) -> Tensor:
    """What scaled_dot_product_attention computes with ``attn_mask`` and ``dropout_p``: [B, T, 3D] -> [B, T, D].

    torch's CPU kernel knows no dropout, and in bfloat16 its backward pass takes half of an update (45 to 52 % at 24 x
    96 and 16 x 128 tokens, on a machine that multiplies bfloat16 natively). In float32 without dropout it is the faster
    one. Matrix products have neither fault, but autograd keeps the weights, the dropped weights and the mask of every
    layer: [B, H, T, T] three times, most of what an update of the paper's size holds beside the parameters. Here a
    layer keeps queries, keys and values and a byte an element for the dropout, and the weights of a few texts at a time
    are computed again on the way back, while they fit the cache; no bit differs, and 4 x 512 tokens of the paper's size
    take three quarters of the time.

    Draws from torch's default generator, [B, H, T, T] elements in their order, as dropout on the weights would.

    :param qkv: queries, keys and values side by side, each D = H heads one after the other.
    :param rate: of the dropout on the weights.
    :param mask: what is added to the scores, of :func:`causal_mask` or :func:`visible_mask`; None: nothing.
    """
    B, T, _ = qkv.shape
    if torch.compiler.is_compiling() and not rate:
        return _fusible_attention(qkv, n_head, mask)
    kept = kept_elements(torch.Size((B, n_head, T, T)), rate) if rate else None
    mixed: Tensor = _Attention.apply(qkv, n_head, kept, rate, mask)  # type: ignore[no-untyped-call]  # not annotated
    return mixed


def _fusible_attention(qkv: Tensor, n_head: int, mask: Tensor | None) -> Tensor:
    """:func:`cpu_attention` without dropout, spelled out for a compiler to fuse."""
    q, k, v = _heads(qkv, 3, n_head)
    scores = _scaled(q) @ k.transpose(-1, -2)
    weights = torch.softmax(scores if mask is None else scores + mask, dim=-1, dtype=torch.float32)
    mixed: Tensor = weights.to(v.dtype) @ v
    return mixed.transpose(1, 2).flatten(2)


def tanh_gelu(x: Tensor) -> Tensor:
    """The tanh form of GELU, 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3): [...] -> [...].

    On a CPU a sigmoid takes a fifth of the time of tanh's kernel, but is one function only where it is compiled.
    """
    if x.device.type != "cpu" or not torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return F.gelu(x, approximate="tanh")
    exact = x.float()
    twice = math.sqrt(8 / math.pi) * exact * (1 + 0.044715 * exact * exact)
    return (exact * torch.sigmoid(twice)).to(x.dtype)


def causal_mask(qkv: Tensor) -> Tensor:
    """Every position sees itself and those before it: -inf for the others, [1, 1, T, T]."""
    T = qkv.shape[1]
    return torch.full((1, 1, T, T), float("-inf"), dtype=qkv.dtype).triu_(1)


def visible_mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """What is seen: [B, 1, 1, T] by every position (of padding, none is), or [B, 1, T, T] by each -> the same shape,
    -inf for the rest.
    """
    return torch.zeros(visible.shape, dtype=dtype).masked_fill_(~visible, float("-inf"))


class _Attention(torch.autograd.Function):
    """Keeps ``qkv`` and the mask, and the weights only where they are few."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, n_head: int, kept: Tensor | None, rate: float, mask: Tensor | None) -> Tensor:
        heads = _heads(qkv, 3, n_head)
        mixed = qkv.new_empty(*qkv.shape[:2], qkv.shape[2] // 3)
        (out,) = _heads(mixed, 1, n_head)
        parts = _parts(*heads[0].shape[:3])
        for rows in parts:
            q, k, v = (part[rows] for part in heads)  # (b, H, T, D/H) each
            weights = _weights(_scaled(q), k, _of(mask, rows))
            out[rows] = (weights if kept is None else weights * factors(kept[rows], rate, weights.dtype)) @ v
        ctx.save_for_backward(qkv, kept, weights if len(parts) == 1 else None, mask)
        ctx.settings = n_head, rate
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        qkv, kept, saved, mask = ctx.saved_tensors
        n_head, rate = ctx.settings
        heads, (slopes,) = _heads(qkv, 3, n_head), _heads(gradient.contiguous(), 1, n_head)
        d_qkv = torch.empty_like(qkv)
        d_heads = _heads(d_qkv, 3, n_head)
        for rows in _parts(*heads[0].shape[:3]):
            q, k, v, slope = (part[rows] for part in (*heads, slopes))
            d_q, d_k, d_v = (part[rows] for part in d_heads)
            scaled = _scaled(q)
            weights = _weights(scaled, k, _of(mask, rows)) if saved is None else saved
            d_weights = slope @ v.transpose(-1, -2)  # (b, H, T, T)
            dropped = weights
            if kept is not None:
                keep = factors(kept[rows], rate, weights.dtype)
                dropped = weights * keep
                d_weights *= keep
            d_v.copy_(dropped.transpose(-1, -2) @ slope)
            d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)  # 0 where ``weights`` are
            # As autograd multiplies: another order in memory gives other bits under MKL on an AMD processor.
            turned = k.transpose(-1, -2).contiguous().transpose(-1, -2)
            torch.mul(d_scores @ turned, q.shape[-1] ** -0.5, out=d_q)
            d_k.copy_((scaled.transpose(-1, -2) @ d_scores).transpose(-1, -2))
        return d_qkv, None, None, None, None


def _heads(x: Tensor, count: int, n_head: int) -> tuple[Tensor, ...]:
    """Views of ``count`` tensors side by side: [B, T, count * D] -> [B, H, T, D/H] each."""
    B, T, width = x.shape
    return x.view(B, T, count, n_head, width // count // n_head).permute(2, 0, 3, 1, 4).unbind(0)


def _parts(B: int, H: int, T: int) -> list[slice]:
    """Texts taken together: as many as have ``_SCORES`` scores, one at least."""
    b = max(1, _SCORES // (H * T * T))
    return [slice(at, at + b) for at in range(0, B, b)]


def _of(mask: Tensor | None, rows: slice) -> Tensor | None:
    """The mask of these texts; one that all have in common is theirs, too."""
    return mask if mask is None or len(mask) == 1 else mask[rows]


def _scaled(q: Tensor) -> Tensor:
    scaled: Tensor = q * q.shape[-1] ** -0.5
    return scaled


def _weights(scaled: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """How much each position takes from each: [b, H, T, D/H] twice -> [b, H, T, T]."""
    scores = scaled @ k.transpose(-1, -2)
    if mask is not None:
        scores.add_(mask)
    return torch.softmax(scores, dim=-1, dtype=scores.dtype)
