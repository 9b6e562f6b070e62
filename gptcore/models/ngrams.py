"""A linear layer on the n-grams of a sequence's pieces: what its words alone tell, beside what a network makes of them.

n-grams are hashed, as fastText's are (Joulin et al. 2017, "Bag of Tricks for Efficient Text Classification"), and
weighted by tf-idf, each counted once: an embedding's row for each bucket. A sequence of two texts has those of each
apart, and is told how much of either the other has, by rarity: which of two texts' words are the same no sum over words
of both can tell.

B batch, C sequences an example, R = B*C, T positions, L lengths of n-grams, K outputs, F numbers that say how much two
texts share.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BUCKETS = 1 << 16
"""Of n-grams, wherever they stand."""
ROWS = 2 * BUCKETS + 1
"""Of the table: of each bucket an even one before the delimiter and the next one behind it; the last is padding."""
_FACTOR, _PRIME = 1_000_003, (1 << 31) - 1
_LEAST = 1e-9


class Grams(NamedTuple):
    """The n-grams of some sequences as rows of the table, those of each length ascending: [R, L, T] each."""

    rows: Tensor
    first: Tensor
    """Whether it is the first of equal ones, and no padding."""
    shared: Tensor
    """Whether it is the last of equal ones before the delimiter that stand behind it, too."""


class NGrams(nn.Module):
    """Logits of sequences by their n-grams; nothing of it is learnt by gradient descent with the network's weights.

    :param longest: pieces of the longest n-grams; all shorter ones count, too.
    :param n_outputs: K.
    :param delimiter: id of the token that stands between two texts; -1: there is none.
    """

    weight: Tensor
    shared: Tensor
    bias: Tensor
    rarity: Tensor
    known: Tensor
    delimiter: Tensor

    def __init__(self, longest: int, n_outputs: int, delimiter: int = -1) -> None:
        super().__init__()
        self.longest = longest
        self.register_buffer("weight", torch.zeros(ROWS, n_outputs))
        self.register_buffer("shared", torch.zeros(2 * longest + 2, n_outputs))
        self.register_buffer("bias", torch.zeros(n_outputs))
        self.register_buffer("rarity", torch.zeros(BUCKETS + 1))
        self.register_buffer("known", torch.zeros(ROWS, dtype=torch.bool))
        self.register_buffer("delimiter", torch.tensor(delimiter))

    def grams(self, tokens: Tensor, ends: Tensor) -> Grams:
        """Those of sequences [B, C, T] up to their last positions [B, C]."""
        width, last = tokens.shape[2], ends.flatten()[:, None]  # (R, 1)
        text = F.pad(tokens.flatten(0, 1), (0, self.longest - 1))  # (R, T + L - 1)
        at = torch.arange(text.shape[1], device=tokens.device)
        behind = ((text == self.delimiter) & (at <= last)).long().cumsum(dim=1).clamp(max=1)
        code, found = text[:, :width], []
        for n in range(self.longest):
            if n:
                code = (code * _FACTOR + text[:, n : n + width] + 1) % _PRIME
            row = code % BUCKETS * 2 + behind[:, n : n + width]
            found.append(torch.where(at[n : n + width] <= last, row, ROWS - 1))
        rows = torch.stack(found, dim=1).sort(dim=2).values
        first = F.pad(rows[..., 1:] != rows[..., :-1], (1, 0), value=True) & (rows < ROWS - 1)
        shared = F.pad((rows[..., 1:] == rows[..., :-1] + 1) & (rows[..., :-1] % 2 == 0), (0, 1))
        return Grams(rows, first, shared)

    def shares(self, grams: Grams) -> Tensor:
        """How much each counts: as it is rare, once a text, whose squares' sum is 1, and what is not known nothing;
        [R, L, T].
        """
        found = self.rarity[grams.rows // 2] * (grams.first & self.known[grams.rows])
        second = grams.rows % 2 == 1
        norms = [torch.linalg.vector_norm(found * side, dim=(1, 2), keepdim=True) for side in (~second, second)]
        return found / torch.where(second, norms[1], norms[0]).clamp_min(_LEAST)

    def common(self, grams: Grams) -> Tensor:
        """How much of either text's n-grams the other has, by rarity, for each length, and the logarithms of how many
        pieces each has: [R, F].
        """
        rarity, second = self.rarity[grams.rows // 2], grams.rows % 2 == 1
        both = (rarity * grams.shared).sum(dim=2)  # (R, L)
        sides = [(rarity * (grams.first & side)).sum(dim=2).clamp_min(_LEAST) for side in (~second, second)]
        real = grams.rows[:, 0] < ROWS - 1  # (R, T)
        sizes = [(real & side[:, 0]).sum(dim=1, keepdim=True).to(both.dtype).log1p() for side in (~second, second)]
        return torch.cat([both / side for side in sides] + sizes, dim=1)

    def forward(self, tokens: Tensor, ends: Tensor) -> Tensor:
        """Logits [B, C, K]; see :meth:`grams`."""
        grams = self.grams(tokens, ends)
        rows, shares = grams.rows.flatten(1), self.shares(grams).flatten(1)  # (R, L*T)
        words = F.embedding_bag(rows, self.weight, per_sample_weights=shares, mode="sum")
        return (words + self.common(grams) @ self.shared + self.bias).view(*ends.shape, -1)

    def weighted(self, weight: float) -> Self:
        """The same, whose logits are ``weight`` times as high."""
        self.weight, self.shared, self.bias = (weight * part for part in (self.weight, self.shared, self.bias))
        return self
