"""The losses of a student that learns from a teacher ("DistilBERT", Sanh et al. 2019; "TinyBERT", Jiao et al. 2020).

Each is a sum over positions, of which each counts its weight.

Legend: N rows (positions, flattened), T positions, B examples, D width of states, E width of what is multiplied with
the vocabulary, H heads, V vocabulary rows. Losses are in nats.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from gptcore.models.products import product, product_dtype, slopes_of_weight
from gptcore.objectives.losses import FusedLoss

_CPU_ROWS = 128  # rows of two networks' scores held at once: measured fastest of 64..512 at V = 3000 on two cores
_GPU_ROWS = 4096


class WordScores(NamedTuple):
    """What the scores of every word are the product of, so that they need not all be held: hidden @ table.T + bias."""

    hidden: Tensor
    """[N, E]."""
    table: Tensor
    """[V, E]."""
    bias: Tensor | None = None
    """[V]; None: zeros."""


def fused_soft_target_loss(student: WordScores, teacher: WordScores, temperature: float, weight: Tensor) -> Tensor:
    """T^2 * KL(teacher || student) of softmaxes at a temperature T, in nats (DistilBERT, section 3).

    T^2 keeps the gradient's size ("Distilling the Knowledge in a Neural Network", Hinton et al. 2015, section 2). Never
    are all the logits of either network held at once. The matrix products run in the autocast type, the softmaxes in
    float32. No gradient goes to the teacher.

    :param weight: of each of N positions, or one number for all.
    """
    hidden, table, bias = student
    if not torch.is_grad_enabled():  # the function below does not see that
        hidden, table = hidden.detach(), table.detach()
        bias = None if bias is None else bias.detach()
    rows = weight.expand(len(hidden)) if weight.ndim == 0 else weight
    loss: Tensor = _FusedSoftTargets.apply(  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        hidden, table, bias, *(None if part is None else part.detach() for part in teacher), temperature, rows
    )
    return loss


def cosine_loss(student: Tensor, teacher: Tensor, weight: Tensor) -> Tensor:
    """1 - cos(student, teacher) of states [N, D] each, in float32 (DistilBERT, section 3, "L_cos")."""
    return ((1.0 - F.cosine_similarity(student.float(), teacher.float(), dim=-1)) * weight).sum()


def states_loss(student: Tensor, teacher: Tensor, weight: Tensor) -> Tensor:
    """Mean squared difference over the dimensions of states [N, D] each, in float32 (TinyBERT, equations 8 and 9)."""
    return ((student.float() - teacher.float()).square().mean(-1) * weight).sum()


def attention_loss(student: Tensor, teacher: Tensor, visible: Tensor, weight: Tensor) -> Tensor:
    """Mean squared difference of attention scores before the softmax, in float32 (TinyBERT, equation 7).

    Of each position over the heads and the positions that it sees. (The release takes scores of padding for 0 in both
    networks and has them in its mean, so that a short sequence beside a long one counts less.)

    :param student, teacher: [B, H, T, T].
    :param visible: which positions each one sees, bool, [B, 1, 1, T] or [1, 1, T, T].
    :param weight: [B, T], 0 for padding.
    """
    squares = (student.float() - teacher.float()).square().mean(1, keepdim=True)  # (B, 1, T, T)
    seen = visible.expand_as(squares)
    means = squares.masked_fill(~seen, 0.0).sum(-1) / seen.sum(-1)  # (B, 1, T)
    return (means.squeeze(1) * weight).sum()


class _FusedSoftTargets(FusedLoss):
    """Loss and gradients of soft targets, block of rows by block of rows."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        table: Tensor,
        bias: Tensor | None,
        its_hidden: Tensor,
        its_table: Tensor,
        its_bias: Tensor | None,
        temperature: float,
        weights: Tensor,
    ) -> Tensor:
        device, dtype = hidden.device.type, product_dtype(hidden)
        wants_gradient = any(ctx.needs_input_grad[:3])
        n_rows = _CPU_ROWS if device == "cpu" else _GPU_ROWS
        with torch.autocast(device, enabled=False):
            h, w, its_h, its_w = (part.to(dtype) for part in (hidden, table, its_hidden, its_table))
            total = torch.zeros((), dtype=torch.float32, device=hidden.device)
            d_hidden = torch.empty_like(h) if wants_gradient else None
            d_table = torch.zeros_like(table, dtype=torch.float32) if wants_gradient else None
            d_bias = torch.zeros(len(table), device=hidden.device) if wants_gradient else None
            for at in range(0, len(h), n_rows):
                rows = slice(at, at + n_rows)
                ours = _log_softmax(product(h[rows], w), bias, temperature)  # (n, V)
                theirs = _log_softmax(product(its_h[rows], its_w), its_bias, temperature)
                share = weights[rows, None]  # (n, 1)
                likely = theirs.exp()
                total += ((theirs.sub_(ours)).mul_(likely).sum(1, keepdim=True) * share).sum()
                if d_hidden is not None and d_table is not None and d_bias is not None:
                    slopes = ours.exp_().sub_(likely).mul_(share * temperature)  # (n, V), of the scores
                    d_bias += slopes.sum(0)
                    slopes = slopes.to(dtype)
                    d_hidden[rows] = product(slopes, w.t())
                    d_table += slopes_of_weight(slopes, h[rows])
        ctx.found = d_hidden, d_table, d_bias
        ctx.dtypes = hidden.dtype, table.dtype, None if bias is None else bias.dtype
        return total * temperature**2


def _log_softmax(scores: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    """[n, V] -> [n, V] float32 of its own memory."""
    scores = scores.float() if bias is None else scores + bias.float()
    return F.log_softmax(scores if temperature == 1 else scores / temperature, -1)
