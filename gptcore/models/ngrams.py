"""A linear layer on the n-grams of a sequence's pieces: what its words alone tell, beside what a network makes of them.

n-grams are hashed, as fastText's are (Joulin et al. 2017, "Bag of Tricks for Efficient Text Classification"), and
weighted by tf-idf, each counted once: an embedding's row for each bucket.

B batch, C sequences an example, T positions, N n-grams of a sequence, K outputs.
"""

from __future__ import annotations

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BUCKETS = 1 << 16
_FACTOR, _PRIME = 1_000_003, (1 << 31) - 1
_PADDING = BUCKETS
"""The bucket of n-grams that reach into padding, which weigh nothing."""


class NGrams(nn.Module):
    """Logits of sequences by their n-grams; nothing of it is learnt by gradient descent with the network's weights.

    :param longest: pieces of the longest n-grams; all shorter ones count, too.
    :param n_outputs: K.
    """

    weight: Tensor
    bias: Tensor
    rarity: Tensor

    def __init__(self, longest: int, n_outputs: int) -> None:
        super().__init__()
        self.longest = longest
        self.register_buffer("weight", torch.zeros(BUCKETS + 1, n_outputs))
        self.register_buffer("bias", torch.zeros(n_outputs))
        self.register_buffer("rarity", torch.zeros(BUCKETS + 1))

    def buckets(self, tokens: Tensor, ends: Tensor) -> Tensor:
        """Those of the n-grams of sequences [B, C, T] up to their last positions [B, C], ascending: [B*C, N]."""
        code, last = tokens.flatten(0, 1), ends.flatten()[:, None]  # (B*C, T), (B*C, 1)
        at = torch.arange(code.shape[1], device=tokens.device)  # (T,)
        found = []
        for n in range(self.longest):
            if n:
                code = (code[:, :-1] * _FACTOR + tokens.flatten(0, 1)[:, n:] + 1) % _PRIME
            found.append(torch.where(at[n:] <= last, code % BUCKETS, _PADDING))
        return torch.cat(found, dim=1).sort(dim=1).values

    def shares(self, buckets: Tensor) -> Tensor:
        """How much each n-gram [B*C, N] counts: as it is rare, once a sequence, whose squares' sum is 1."""
        repeated = F.pad(buckets[:, 1:] == buckets[:, :-1], (1, 0))
        found = self.rarity[buckets].masked_fill(repeated, 0.0)
        return F.normalize(found, dim=1)

    def forward(self, tokens: Tensor, ends: Tensor) -> Tensor:
        """Logits [B, C, K]; see :meth:`buckets`."""
        buckets = self.buckets(tokens, ends)
        found = F.embedding_bag(buckets, self.weight, per_sample_weights=self.shares(buckets), mode="sum") + self.bias
        return found.view(*ends.shape, -1)

    def weighted(self, weight: float) -> Self:
        """The same, whose logits are ``weight`` times as high."""
        self.weight, self.bias = weight * self.weight, weight * self.bias
        return self
