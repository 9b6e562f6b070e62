"""A linear layer on the n-grams of a sequence's pieces: what its words alone tell, beside what a network makes of them.

n-grams are hashed, as fastText's are (Joulin et al. 2017, "Bag of Tricks for Efficient Text Classification"), and
weighted by tf-idf, each counted once: an embedding's row for each bucket. A sequence of two texts has those of each
apart, and is told how much of either the other has, by rarity: which of two texts' words are the same no sum over words
of both can tell.

B batch, C sequences an example, R = B*C, T positions, M n-grams of a length, N n-grams of all lengths, K outputs, F
numbers that say how much two texts share.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """The n-grams of one length, as rows of the table, ascending: [R, M] each."""

    rows: Tensor
    first: Tensor
    """Whether it is the first of equal ones, and no padding."""
    shared: Tensor
    """Whether it is the last of equal ones before the delimiter that stand behind it, too."""


class NGrams(nn.Module):
    """Logits of sequences by their n-grams; nothing of it is learnt by gradient descent with the network's weights.

    :param longest: pieces of the longest n-grams; all shorter ones count, too.
    :param n_outputs: K.
    :param delimiter: id of the token that stands between two texts.
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

    def grams(self, tokens: Tensor, ends: Tensor) -> list[Grams]:
        """Those of sequences [B, C, T] up to their last positions [B, C], for each length."""
        code, last = tokens.flatten(0, 1), ends.flatten()[:, None]  # (R, T), (R, 1)
        real = torch.arange(code.shape[1], device=tokens.device) <= last  # (R, T)
        behind = ((code == self.delimiter) & real).long().cumsum(dim=1).clamp(max=1)  # (R, T)
        found = []
        for n in range(self.longest):
            if n:
                code = (code[:, :-1] * _FACTOR + tokens.flatten(0, 1)[:, n:] + 1) % _PRIME
            rows = torch.where(real[:, n:], code % BUCKETS * 2 + behind[:, n:], ROWS - 1).sort(dim=1).values  # (R, M)
            first = F.pad(rows[:, 1:] != rows[:, :-1], (1, 0), value=True) & (rows < ROWS - 1)
            shared = F.pad((rows[:, 1:] == rows[:, :-1] + 1) & (rows[:, :-1] % 2 == 0), (0, 1))
            found.append(Grams(rows, first, shared))
        return found

    def shares(self, grams: Sequence[Grams]) -> tuple[Tensor, Tensor]:
        """The rows of all n-grams, and how much each counts: as it is rare, once a text, whose squares' sum is 1, and
        what is not known nothing; [R, N] both.
        """
        rows, first, _ = (torch.cat(part, dim=1) for part in zip(*grams, strict=True))
        found = self.rarity[rows // 2] * (first & self.known[rows])  # (R, N)
        second = rows % 2 == 1
        norms = [torch.linalg.vector_norm(found * side, dim=1, keepdim=True) for side in (~second, second)]
        return rows, found / torch.where(second, norms[1], norms[0]).clamp_min(_LEAST)

    def common(self, grams: Sequence[Grams]) -> Tensor:
        """How much of either text's n-grams the other has, by rarity, for each length, and the logarithms of how many
        pieces each has: [R, F].
        """
        found = []
        for rows, first, shared in grams:
            rarity, second = self.rarity[rows // 2], rows % 2 == 1
            both = (rarity * shared).sum(dim=1)
            sides = [first & ~second, first & second]
            found += [both / (rarity * side).sum(dim=1).clamp_min(_LEAST) for side in sides]
        rows = grams[0].rows
        real = rows < ROWS - 1
        found += [(real & (rows % 2 == side)).sum(dim=1).to(found[0].dtype).log1p() for side in (0, 1)]
        return torch.stack(found, dim=1)

    def forward(self, tokens: Tensor, ends: Tensor) -> Tensor:
        """Logits [B, C, K]; see :meth:`grams`."""
        grams = self.grams(tokens, ends)
        rows, shares = self.shares(grams)
        words = F.embedding_bag(rows, self.weight, per_sample_weights=shares, mode="sum")
        return (words + self.common(grams) @ self.shared + self.bias).view(*ends.shape, -1)

    def weighted(self, weight: float) -> Self:
        """The same, whose logits are ``weight`` times as high."""
        self.weight, self.shared, self.bias = (weight * part for part in (self.weight, self.shared, self.bias))
        return self
