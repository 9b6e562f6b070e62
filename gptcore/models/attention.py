"""Attention, of which decoders and encoders are made: what each position takes from those that it sees.

Legend of the shape comments: B batch, T positions, S positions that are seen, D width, H heads, Q width of the queries,
which is D but where heads have a width of their own, K width of the keys, which is Q but where several heads share one.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.config.network import TransformerConfig
from gptcore.models.context import IN_ORDER, Context, rows_at
from gptcore.models.cpu import causal_mask, cpu_attention, dropout, is_faster, keeps_weights, visible_mask
from gptcore.models.products import Linear

_SLOWEST = 10_000
"""Positions in which the slowest pairs of numbers turn by nearly 1, where the fastest do in one (Su et al. 2021)."""


class Attention(nn.Module):
    """Multi-headed self-attention, masked unless its context says otherwise.

    :param rotary: whether queries and keys are turned by their positions.
    :param n_head_keys: heads of keys and values, each of which several heads of queries share; None: each has its own.
    :param bias: whether the products have one; ``output_bias``: whether the last one has; None: as the first.
    :param width: of a head; None: all heads together are as wide as the states.
    :param theta: positions in which the slowest pairs of a head's numbers turn by nearly 1, as Llama's release computes
        their rates; None: 10,000, as GPT's of this package do.
    """

    def __init__(
        self,
        config: TransformerConfig,
        rotary: bool = False,
        n_head_keys: int | None = None,
        bias: bool = True,
        *,
        output_bias: bool | None = None,
        width: int | None = None,
        theta: float | None = None,
    ) -> None:
        super().__init__()
        D = config.n_embd
        self.n_head = config.n_head
        self.n_head_keys = config.n_head if n_head_keys is None else n_head_keys
        self.width = D // self.n_head if width is None else width
        self.width_of_queries = self.n_head * self.width
        self.width_of_keys = self.n_head_keys * self.width
        self.theta = theta
        self.attn_pdrop = config.attn_pdrop
        self.resid_pdrop = config.resid_pdrop
        self.rotary = rotary
        self.qkv = Linear(D, self.width_of_queries + 2 * self.width_of_keys, bias)
        self.qkv.matrices = (self.width_of_queries, self.width_of_keys, self.width_of_keys)
        self.projection = Linear(self.width_of_queries, D, bias if output_bias is None else output_bias)

    def forward(self, x: Tensor, context: Context = IN_ORDER) -> Tensor:
        """[B, T, D] -> [B, T, D], or what the N positions that the context asks for get, [B, N, D]."""
        qkv = self.qkv(x)
        q, k, v = self._split(qkv)
        q, k = self._placed(q, k, context)
        rate = self.attn_pdrop if self.training else 0.0
        if self._has_own_kernel(qkv, rate, context):
            if not self._is_plain:
                qkv = torch.cat([q, self._widened(k), self._widened(v)], dim=-1)
            mixed = cpu_attention(qkv, self.n_head, rate, _mask(qkv, context))
        else:
            k, v = context.seen(k, v)
            q, k, v = self._heads(rows_at(q, context.at)), self._heads(k), self._heads(v)
            visible, is_causal = context.visible, context.causal and context.visible is None
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, is_causal=is_causal, dropout_p=rate)
            mixed = mixed.transpose(1, 2).flatten(2)
        return dropout(self.projection(mixed), self.resid_pdrop, self.training)

    def scores(self, x: Tensor) -> Tensor:
        """How much each position asks for each, before the softmax and the mask: [B, T, D] -> [B, H, T, T]."""
        n = self.width_of_queries + self.width_of_keys  # the rows of the values are not multiplied
        bias = None if self.qkv.bias is None else self.qkv.bias[:n]
        q, k, _ = self._split(F.linear(x, self.qkv.weight[:n], bias))
        q, k = map(self._heads, self._placed(q, k, IN_ORDER))
        scores: Tensor = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        return scores

    @property
    def _is_plain(self) -> bool:
        """Whether heads read what the first product gives, as it is."""
        return not self.rotary and self.n_head_keys == self.n_head

    def _has_own_kernel(self, qkv: Tensor, rate: float, context: Context) -> bool:
        """Whether :func:`cpu_attention` is to be taken rather than torch's kernel."""
        B, T, _ = qkv.shape
        masks_are_few = context.visible is None or not context.causal or keeps_weights(B, T, self.n_head)
        return context.at is None and masks_are_few and is_faster(qkv, rate, self.training)

    def _split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values: [B, T, Q + 2K] -> [B, T, Q], [B, T, K], [B, T, K]."""
        Q, n = self.width_of_queries, self.width_of_queries + self.width_of_keys
        return qkv[..., :Q], qkv[..., Q:n], qkv[..., n:]

    def _placed(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Queries and keys, [B, T, Q] and [B, T, K], as what stands before them and where they stand makes them."""
        if not self.rotary:
            return q, k
        places, rates = context.places(q), self._rates(q.device)
        return rotated(q, places, rates), rotated(k, places, rates)

    def _rates(self, device: torch.device) -> Tensor:
        """By how much each pair of a head's numbers turns from one position to the next: [D/H/2]."""
        if self.theta is None:
            return _SLOWEST ** -torch.linspace(0, 1, self.width // 2 + 1, device=device)[:-1]
        return 1.0 / self.theta ** (torch.arange(0, self.width, 2, device=device).float() / self.width)

    def _heads(self, x: Tensor) -> Tensor:
        """Queries, keys or values, head by head: [B, T, Q or K] -> [B, H, T, Q/H]."""
        x = self._widened(x)
        return x.view(*x.shape[:2], self.n_head, -1).transpose(1, 2)

    def _widened(self, x: Tensor) -> Tensor:
        """Keys or values for each head of queries: [B, T, K] -> [B, T, Q]."""
        shared = self.width_of_queries // x.shape[-1]
        if shared == 1:
            return x
        return x.view(*x.shape[:2], self.n_head_keys, -1).repeat_interleave(shared, dim=2).flatten(2)


class SmearedAttention(Attention):
    """Attention whose keys are each mixed with the one before it, in the share that its head has learnt.

    What followed an earlier token like this one is then found by one head alone, where otherwise two, in blocks one
    after the other, must have formed (Olsson et al. 2022, "In-context Learning and Induction Heads").
    """

    def __init__(self, config: TransformerConfig, rotary: bool = False) -> None:
        super().__init__(config, rotary)
        self.smear = nn.Parameter(torch.zeros(config.n_head))

    @property
    def _is_plain(self) -> bool:
        return False

    def _placed(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        share = torch.sigmoid(self.smear).repeat_interleave(k.shape[-1] // self.n_head)  # (D,)
        return super()._placed(q, torch.lerp(k, context.before(k), share.to(k.dtype)), context)


def rotated(x: Tensor, positions: Tensor, rates: Tensor) -> Tensor:
    """Queries or keys, [B, T, D], turned by their positions, [T] or [B, T]: -> the same.

    Each pair of a head's numbers turns by an angle that grows with the position, from pair to pair more slowly, so that
    the product of two of them depends on how far apart they are (Su et al. 2021, "RoFormer", section 3.2.2).

    :param rates: [D/H/2] by how much each pair of a head's numbers turns from one position to the next.
    """
    halves = x.reshape(*x.shape[:2], -1, 2, len(rates))  # (B, T, H, 2, D/H/2)
    angles = positions[..., None, None] * rates  # ([B,] T, 1, D/H/2)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = halves.unbind(-2)
    return torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-2).flatten(-3)


def _mask(qkv: Tensor, context: Context) -> Tensor | None:
    """What :func:`cpu_attention` adds to the scores."""
    if context.visible is not None:
        return visible_mask(context.visible, qkv.dtype)
    return causal_mask(qkv) if context.causal else None
