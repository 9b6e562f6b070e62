"""Self-attention for training on a CPU, spelled out, whose backward pass computes the weights again.

Legend: B batch, T positions, D width, H heads, b of the B texts at a time.

torch's CPU kernel of scaled_dot_product_attention knows no dropout, and in bfloat16 its backward pass takes half of an
update (45 to 52 % at 24 x 96 and 16 x 128 tokens, on a machine that multiplies bfloat16 natively). In float32 without
dropout it is the faster one. Matrix products have neither fault, but autograd keeps the weights, the dropped weights
and the mask of every layer: [B, H, T, T] three times, most of what an update of the paper's size holds beside the
parameters. Here a layer keeps queries, keys and values and a byte an element for the dropout, and the weights of a few
texts at a time are computed again on the way back, while they fit the cache; no bit differs, and 4 x 512 tokens of the
paper's size take three quarters of the time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gptcore.models.dropout import factors, kept_elements

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

    Draws from torch's default generator, [B, H, T, T] elements in their order, as dropout on the weights would.

    :param qkv: queries, keys and values side by side, each D = H heads one after the other.
    :param rate: of the dropout on the weights.
    :param mask: what is added to the scores, of :func:`causal_mask` or :func:`visible_mask`; None: nothing.
    """
    B, T, _ = qkv.shape
    kept = kept_elements(torch.Size((B, n_head, T, T)), rate) if rate else None
    mixed: Tensor = _Attention.apply(qkv, n_head, kept, rate, mask)  # type: ignore[no-untyped-call]  # not annotated
    return mixed


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
