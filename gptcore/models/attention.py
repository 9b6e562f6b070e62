"""The decoder's attention: what each position takes from itself and from those before it.

Legend of the shape comments: B batch, T positions, N chosen ones, D width, H heads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.config import ModelConfig
from gptcore.models.cpu import Branches, causal_mask, cpu_attention, dropout, is_faster, keeps_weights, visible_mask
from gptcore.models.products import Linear

_SLOWEST = 10_000
"""Positions in which the slowest pairs of numbers turn by nearly 1, where the fastest do in one (Su et al. 2021)."""


class Attention(nn.Module):
    """Masked multi-headed self-attention: each position sees itself and the positions before it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.attn_pdrop = config.attn_pdrop
        self.resid_pdrop = config.resid_pdrop
        self.qkv = Linear(config.n_embd, 3 * config.n_embd)
        self.projection = Linear(config.n_embd, config.n_embd)
        self.smear = nn.Parameter(torch.zeros(config.n_head)) if config.smeared_keys else None
        self.rotary = config.rotary

    def forward(
        self, x: Tensor, visible: Tensor | None = None, at: Tensor | None = None, folded: Branches | None = None
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]; where ``visible``, [B, 1, T, T] bool, is given, it says what each position sees.

        With ``at`` [B, N], positions of each row: what these get, [B, N, D]; ``visible`` then is [B, 1, N, T].
        ``folded`` says where tokens stand that are not one after the other.
        """
        B, T, D = x.shape
        qkv = self.qkv(x)
        if self.smear is not None or self.rotary:
            q, k, v = torch.split(qkv, D, dim=-1)
            qkv = torch.cat([*self._placed(q, k, folded), v], dim=-1)
        rate = self.attn_pdrop if self.training else 0.0
        own_kernel = at is None and (visible is None or keeps_weights(B, T, self.n_head))
        if own_kernel and is_faster(qkv, rate, self.training):
            mask = causal_mask(qkv) if visible is None else visible_mask(visible, qkv.dtype)
            mixed = cpu_attention(qkv, self.n_head, rate, mask)
        else:
            q, k, v = qkv.view(B, T, 3, self.n_head, D // self.n_head).permute(2, 0, 3, 1, 4)  # each (B, H, T, D/H)
            if at is not None:
                q = q.gather(2, at[:, None, :, None].expand(-1, self.n_head, -1, q.shape[-1]))
            mixed = F.scaled_dot_product_attention(
                q, k, v, attn_mask=visible, is_causal=visible is None, dropout_p=rate
            )
            mixed = mixed.transpose(1, 2).reshape(B, -1, D)
        return dropout(self.projection(mixed), self.resid_pdrop, self.training)

    def scores(self, x: Tensor) -> Tensor:
        """How much each position asks for each, before the softmax and the mask: [B, T, D] -> [B, H, T, T]."""
        B, T, D = x.shape
        q, k = torch.split(F.linear(x, self.qkv.weight[: 2 * D], self.qkv.bias[: 2 * D]), D, dim=-1)
        q, k = self._placed(q, k, None)
        q, k = (part.view(B, T, self.n_head, D // self.n_head).transpose(1, 2) for part in (q, k))  # (B, H, T, D/H)
        found: Tensor = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        return found

    def _placed(self, q: Tensor, k: Tensor, folded: Branches | None) -> tuple[Tensor, Tensor]:
        """Queries and keys, [B, T, D] each, as what stands before them and where they stand makes them."""
        if self.smear is not None:
            k = self.smeared(k, _before(k, None if folded is None else folded.previous))
        if self.rotary:
            positions = torch.arange(q.shape[1], device=q.device) if folded is None else folded.positions
            q, k = self.rotated(q, positions), self.rotated(k, positions)
        return q, k

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys, [B, T, D], turned by their positions, [T] or [B, T]: -> the same.

        Each pair of a head's numbers turns by an angle that grows with the position, from pair to pair more slowly, so
        that the product of two of them depends on how far apart they are (Su et al. 2021, "RoFormer", section 3.2.2).
        """
        halves = x.view(*x.shape[:2], self.n_head, 2, -1)  # (B, T, H, 2, D/H/2)
        rates = _SLOWEST ** -torch.linspace(0, 1, halves.shape[-1] + 1, device=x.device)[:-1]
        angles = positions[..., None, None] * rates  # ([B,] T, 1, D/H/2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = halves.unbind(-2)
        return torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-2).flatten(-3)

    def smeared(self, k: Tensor, before: Tensor) -> Tensor:
        """Keys, each mixed with the one before it in the share that its head has learnt: [B, T, D] twice -> the same.

        What followed an earlier token like this one is then found by one head alone, where otherwise two, in blocks
        one after the other, must have formed (Olsson et al. 2022, "In-context Learning and Induction Heads").
        """
        assert self.smear is not None
        share = torch.sigmoid(self.smear).repeat_interleave(k.shape[-1] // self.n_head)  # (D,)
        return torch.lerp(k, before, share.to(k.dtype))


def _before(k: Tensor, previous: Tensor | None) -> Tensor:
    """The key before each one, of the first one itself: [B, T, D] -> [B, T, D]."""
    if previous is None:
        return torch.cat([k[:, :1], k[:, :-1]], dim=1)
    return rows_at(k, previous)


def rows_at(x: Tensor, at: Tensor) -> Tensor:
    """[B, T, D] at positions [B, N] -> [B, N, D]."""
    return x.gather(1, at[..., None].expand(-1, -1, x.shape[-1]))
