"""The losses: L1 (language model) and L2 (task) of section 3, L3 = L2 + lambda * L1, and a task's with soft labels.

Legend: N rows (positions, flattened), S sequences, T positions, B examples, K classes or choices, D width of states, V
vocabulary rows. A target of -100 is no target. Losses are in nats.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gptcore.data.sampler import IGNORE_INDEX
from gptcore.models.network import aligned
from gptcore.models.products import product, product_dtype, slopes_of_weight

_CPU_ROWS = 512  # rows of logits held at once: measured fastest of 64..1024 at V = 8000, D = 256 on two cores
_GPU_ROWS = 8192
_CACHED_SCORES = 1 << 18  # of float32: a megabyte


def language_model_loss(logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """L1 (equation 1): the weighted sum of -log P(target) over all positions, computed in float32.

    :param logits: [..., V].
    :param targets: [...] int64, -100 where there is none.
    :param weights: [...] float32; None: the mean over all targets (0 if there is none).
    """
    flat = targets.reshape(-1)  # (N,)
    weights = mean_weights(flat) if weights is None else weights.reshape(-1)
    nats = F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]).float(), flat, ignore_index=IGNORE_INDEX, reduction="none"
    )
    return (nats * weights).sum()


def fused_language_model_loss(
    hidden: Tensor, table: Tensor, targets: Tensor, weights: Tensor | None = None, compiled: bool = False
) -> Tensor:
    """:func:`language_model_loss` of ``hidden @ table.T``, without ever holding all the logits.

    The product with the vocabulary is the costliest of a small network, and its logits the largest tensor of any.
    Here a few hundred rows at a time are turned into loss and gradients while they are in the cache: a quarter less
    time (2048 rows, V = 8000, D = 256, two CPU cores: 95 ms against 128 ms under bfloat16, 160 against 210 in float32)
    and memory that does not grow with the batch.

    :param hidden: [..., D]; the matrix products run in the autocast type, the softmax in float32.
    :param table: [V, D], the tied embedding.
    :param targets: [...] int64, -100 where there is none.
    :param weights: [...] float32; None: the mean over all targets.
    :param compiled: the softmax by torch.compile, as one kernel.
    """
    flat = targets.reshape(-1)
    weights = mean_weights(flat) if weights is None else weights.reshape(-1) * (flat != IGNORE_INDEX)
    if not torch.is_grad_enabled():  # the function below does not see that
        hidden, table = hidden.detach(), table.detach()
    loss: Tensor = _FusedCrossEntropy.apply(  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        hidden.reshape(-1, hidden.shape[-1]), table, flat, weights, compiled
    )
    return loss


def mean_weights(targets: Tensor) -> Tensor:
    """Weights that make the sum a mean over all targets: [...] -> [...] float32."""
    real = (targets != IGNORE_INDEX).float()
    return real / real.sum().clamp_(min=1.0)


def sequence_weights(targets: Tensor) -> Tensor:
    """Weights that make the sum a mean over sequences of the mean over a sequence's targets: [S, T] -> [S, T].

    Every sequence counts the same, however long it is (original code, fine-tuning).
    """
    real = (targets != IGNORE_INDEX).float()
    return real / real.sum(dim=-1, keepdim=True).clamp_(min=1.0) / targets.shape[0]


def task_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """L2 (equation 4): mean over examples of the cross-entropy, in float32.

    :param logits: [B, K].
    :param labels: [B] int64 class indices, or [B, K] float32 distributions (soft labels).
    """
    return F.cross_entropy(logits.float(), labels)


def weighted_task_loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """L2 of which an example has a share: the mean over examples of weight times cross-entropy, in float32.

    :param logits: [B, K].
    :param labels: [B] int64 class indices.
    :param weights: [B] float32, whose mean over all training rows is 1.
    """
    return (F.cross_entropy(logits.float(), labels, reduction="none") * weights).mean()


def label_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over examples and labels of the binary cross-entropy, in float32, where an example has any number.

    :param logits: [B, K].
    :param labels: [B, K] float32, the probability of each.
    """
    return F.binary_cross_entropy_with_logits(logits.float(), labels)


def span_loss(logits: Tensor, positions: Tensor) -> Tensor:
    """The mean of the start's and the end's cross-entropy over the positions (BERT's paper, section 4.2).

    :param logits: [B, T, 2], -inf where no answer can be.
    :param positions: [B, 2] int64.
    """
    return F.cross_entropy(logits.float().transpose(1, 2).flatten(0, 1), positions.flatten())


def tag_loss(logits: Tensor, tags: Tensor) -> Tensor:
    """The mean over tagged positions of the cross-entropy over tags (BERT's paper, section 5.3); 0 where none is.

    :param logits: [B, T, K].
    :param tags: [B, T] int64, -100 where there is none.
    """
    return language_model_loss(logits, tags)


# A student's losses on a task: the cross-entropy with its teacher's softmax (TinyBERT, equation 10), in float32.


def soft_class_loss(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """The mean over examples of the cross-entropy with the teacher's probabilities.

    :param student, teacher: logits [B, K].
    :param labels: not read.
    """
    return task_loss(student, teacher.float().softmax(-1))


def soft_label_loss(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """The mean of each label's binary cross-entropy with the teacher's probability; see :func:`soft_class_loss`."""
    return label_loss(student, teacher.float().sigmoid())


def soft_span_loss(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """The mean over starts and ends of the cross-entropy with the teacher's probabilities of the positions.

    :param student, teacher: logits [B, T, 2], -inf where no answer can be.
    :param labels: not read.
    """
    ours, its = (logits.float().transpose(1, 2).flatten(0, 1) for logits in (student, teacher))  # (2B, T)
    nats = F.log_softmax(ours, -1).masked_fill(its == -torch.inf, 0.0)
    return -(its.softmax(-1) * nats).sum(-1).mean()


def soft_tag_loss(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """The mean over tagged positions of the cross-entropy with the teacher's probabilities; 0 where none is.

    :param student, teacher: logits [B, T, K].
    :param labels: which positions are tagged: [B, T], -100 elsewhere.
    """
    tagged = labels.flatten() >= 0
    ours, its = (logits.flatten(0, 1)[tagged] for logits in (student, teacher))
    if not len(ours):
        return language_model_loss(student, labels)  # 0, of a batch in which every word was cut off
    return soft_class_loss(ours, its, labels)


def combined_loss(task: Tensor, language_model: Tensor, lm_coef: float) -> Tensor:
    """L3 (equation 5): L2 + lambda * L1."""
    return task + lm_coef * language_model


# --- block of rows by block of rows


class FusedLoss(torch.autograd.Function):
    """A loss whose forward pass finds the gradients of its first inputs, too.

    They are ``ctx.found``, and the inputs' types ``ctx.dtypes``, None for one that is absent.
    """

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.found is None:
            raise RuntimeError("a second backward pass through the fused loss: the first one took its gradients")
        found, ctx.found = ctx.found, None
        slopes = [  # the table's is the largest tensor of a small network: scaled in place
            None if dtype is None else part.mul_(gradient).to(dtype)
            for part, dtype in zip(found, ctx.dtypes, strict=True)
        ]
        return (*slopes, *[None] * (len(ctx.needs_input_grad) - len(slopes)))


class _FusedCrossEntropy(FusedLoss):
    """Loss and gradients of softmax cross-entropy over ``hidden @ table.T``, block of rows by block of rows."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, table: Tensor, targets: Tensor, weights: Tensor, compiled: bool) -> Tensor:
        device, dtype = hidden.device.type, product_dtype(hidden)
        wants_gradient = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        n_rows = _CPU_ROWS if device == "cpu" else _GPU_ROWS
        softmax = _compiled_softmax() if compiled and wants_gradient else _softmax
        with torch.autocast(device, enabled=False):
            h, w = hidden.to(dtype), aligned(table.to(dtype))  # (N, D), (V or a few more, D)
            total = torch.zeros((), dtype=torch.float32, device=hidden.device)
            d_hidden = torch.empty_like(h) if wants_gradient else None
            d_table = torch.zeros_like(w, dtype=torch.float32) if wants_gradient else None
            for at in range(0, len(h), n_rows):
                rows = slice(at, at + n_rows)
                weight = weights[rows, None]  # (n, 1); 0 where there is no target
                target = targets[rows, None].clamp(min=0)  # (n, 1)
                scores = product(h[rows], w)  # (n, V or a few more, which stay 0)
                nats = softmax(scores[:, : len(table)], target, weight, wants_gradient)  # (n, 1)
                total += (nats * weight).sum()
                if d_hidden is not None and d_table is not None:  # the scores are their slopes now
                    d_hidden[rows] = product(scores, w.t())
                    d_table += slopes_of_weight(scores, h[rows])
        ctx.found = d_hidden, None if d_table is None else d_table[: len(table)]
        ctx.dtypes = hidden.dtype, table.dtype
        return total


def _softmax(scores: Tensor, target: Tensor, weight: Tensor, slopes: bool) -> Tensor:
    """Turn ``scores`` [N, V] into -log P(target), in float32: [N, 1]. Float32 ones are overwritten.

    A few rows at a time, which stay in the cache from the first of these passes to the last. (Not a single row: torch
    adds up one row in another order where it has several threads.)

    :param target, weight: [N, 1].
    :param slopes: whether ``scores`` become d loss / d scores = (P - 1 at the target) * weight.
    """
    n_blocks = math.ceil(scores.numel() / _CACHED_SCORES) if scores.device.type == "cpu" else 1
    n_blocks = max(1, min(n_blocks, len(scores) // 2))
    nats = torch.empty_like(weight)
    wanted = (scores, target, weight, nats)
    for rows, y, share, found in zip(*(whole.tensor_split(n_blocks) for whole in wanted), strict=True):
        x = rows.float()  # (n, V): the rows themselves where they are float32
        x.sub_(x.amax(dim=1, keepdim=True))
        picked = x.gather(1, y)  # (n, 1)
        sums = x.exp_().sum(dim=1, keepdim=True)  # (n, 1)
        found.copy_(sums.log() - picked)
        if slopes:
            x.scatter_add_(1, y, -sums)  # the difference is taken before any rounding
            torch.mul(x, share / sums, out=rows)
    return nats


@functools.cache
def _compiled_softmax() -> Callable[[Tensor, Tensor, Tensor, bool], Tensor]:
    """:func:`_softmax` with the slopes, in two passes over the scores in place of seven."""
    return torch.compile(_plain_softmax, dynamic=False)


def _plain_softmax(scores: Tensor, target: Tensor, weight: Tensor, slopes: bool) -> Tensor:
    """:func:`_softmax`, as a compiler fuses it."""
    x = scores.float()
    x = x - x.amax(dim=1, keepdim=True)
    powers = x.exp()
    sums = powers.sum(dim=1, keepdim=True)
    nats = sums.log() - x.gather(1, target)
    hit = torch.arange(x.shape[1], device=x.device) == target  # (n, V)
    scores.copy_(torch.where(hit, powers - sums, powers) * (weight / sums))
    return nats
