"""A linear layer on the words of a sequence and the n-grams of its pieces: what these alone tell, beside what a network
makes of them.

Both are hashed, as fastText's are (Joulin et al. 2017, "Bag of Tricks for Efficient Text Classification"), and weighted
by tf-idf, each counted once: an embedding's row for each bucket. A sequence of two texts has those of the first alone,
of the second alone and of both apart, and is told how much of either the other has, by rarity: which of two texts'
words are the same no sum over words of both can tell.

B batch, C sequences an example, R = B*C, T positions, K outputs; L kinds of grams: n-grams of each length, and words;
F numbers that say how much two texts share.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BUCKETS = 1 << 16
"""How many buckets n-grams are told apart by, wherever they stand."""
SIDES = 3
FIRST, SECOND, BOTH = range(SIDES)
"""Which texts have one: that before the delimiter alone, that behind it alone, both."""
ROWS = SIDES * BUCKETS + 1
"""How many rows the table has: one for each bucket and side; the last is padding."""
_FACTOR, _PRIME = 1_000_003, (1 << 31) - 1
_LEAST = 1e-9
_BEGINS, _ENDS = 1, 2  # as :mod:`gptcore.text.word_edges` has them; exported models take this file along as it is


class Grams(NamedTuple):
    """The grams of some sequences as rows of the table: [R, L, T] each."""

    rows: Tensor
    counted: Tensor
    """Whether it stands for all equal ones; the sides of those that do not are not told."""


class NGrams(nn.Module):
    """Logits of sequences by their n-grams; nothing of it is learnt by gradient descent with the network's weights.

    :param longest: pieces of the longest n-grams; all shorter ones count, too.
    :param n_outputs: K.
    :param edges: of each id 1 if it begins a word, 2 if it ends one, 3 for both, see :mod:`gptcore.text.word_edges`.
    :param delimiter: id of the token that stands between two texts; -1: there is none.
    """

    weight: Tensor
    shared: Tensor
    bias: Tensor
    rarity: Tensor
    known: Tensor
    edges: Tensor
    delimiter: Tensor

    def __init__(self, longest: int, n_outputs: int, edges: Tensor, delimiter: int = -1) -> None:
        super().__init__()
        self.longest = longest
        self.register_buffer("weight", torch.zeros(ROWS, n_outputs))
        self.register_buffer("shared", torch.zeros(2 * (longest + 1) + 2, n_outputs))
        self.register_buffer("bias", torch.zeros(n_outputs))
        self.register_buffer("rarity", torch.zeros(BUCKETS + 1))
        self.register_buffer("known", torch.zeros(ROWS, dtype=torch.bool))
        self.register_buffer("edges", edges)
        self.register_buffer("delimiter", torch.tensor(delimiter))

    def grams(self, tokens: Tensor, ends: Tensor) -> Grams:
        """The n-grams of sequences [B, C, T] up to their last positions [B, C]."""
        width, last = tokens.shape[2], ends.flatten()[:, None]  # (R, 1)
        text = F.pad(tokens.flatten(0, 1), (0, self.longest - 1))  # (R, T + L - 2)
        at = torch.arange(text.shape[1], device=tokens.device)
        behind = ((text == self.delimiter) & (at <= last)).long().cumsum(dim=1).clamp(max=1)
        code, kinds = text[:, :width], []
        for n in range(self.longest):
            if n:
                code = (code * _FACTOR + text[:, n : n + width] + 1) % _PRIME
            gram = code % BUCKETS * 2 + behind[:, n : n + width]  # so that those of a bucket are neighbours, sorted
            kinds.append(torch.where(at[n : n + width] <= last, gram, 2 * BUCKETS))
        kinds.append(self._words(text[:, :width], at[:width], last, behind[:, :width]))
        grams = torch.stack(kinds, dim=1).sort(dim=2).values
        second, changes = grams % 2, (grams[..., 1:] != grams[..., :-1]).long()
        # Of equal ones the last of the first text stands next to the first of the second.
        counted = torch.where(second == 0, F.pad(changes, (0, 1), value=1), F.pad(changes, (1, 0), value=1))
        meet = ((grams[..., 1:] == grams[..., :-1] + 1) & (second[..., :-1] == 0)).long()
        side = second + F.pad(meet, (0, 1)) * BOTH
        real = grams < 2 * BUCKETS
        rows = torch.where(real, grams // 2 * SIDES + side, ROWS - 1)
        return Grams(rows, (counted > F.pad(meet, (1, 0))) & real)

    def _words(self, tokens: Tensor, at: Tensor, last: Tensor, behind: Tensor) -> Tensor:
        """Bucket and text of each word of sequences [R, T], the first one first, as grams are: [R, T].

        A word's code is a sum over its pieces, in which each piece but the last one stands with the next.
        """
        edges, width = self.edges[tokens], tokens.shape[1]
        ends = (edges >= _ENDS) | (F.pad(edges[:, 1:], (0, 1)) % 2 == _BEGINS)
        ends = (ends & (at < last)) | (at == last)
        following = F.pad(tokens[:, 1:], (0, 1)) + 1
        codes = ((tokens + 1) * _FACTOR + torch.where(ends, 0, (tokens + 1) * following)) % _PRIME
        place = torch.where(ends, ends.long().cumsum(dim=1) - 1, width)
        sums = torch.zeros_like(F.pad(tokens, (0, 1))).scatter(1, place, codes.cumsum(dim=1) * 2 + behind)[:, :width]
        words = sums // 2 - F.pad(sums[:, :-1] // 2, (1, 0))
        return torch.where(at < ends.sum(dim=1, keepdim=True), words % BUCKETS * 2 + sums % 2, 2 * BUCKETS)

    def shares(self, grams: Grams) -> Tensor:
        """The weight of each gram, [R, L, T]: by its rarity, once a text, and 0 where it is unknown.

        The squares of each kind and side add up to 1.
        """
        weights = self.rarity[grams.rows // SIDES] * (grams.counted & self.known[grams.rows])
        side = grams.rows % SIDES
        squares = torch.stack([(weights.square() * (side == each)).sum(dim=2) for each in range(SIDES)], dim=2)
        return weights / squares.sqrt().gather(2, side).clamp_min(_LEAST)

    def common(self, grams: Grams) -> Tensor:
        """How much of either text's grams the other has, by rarity, for each kind, and the logarithms of how many
        different pieces each has: [R, F].
        """
        side = grams.rows % SIDES
        rarity = self.rarity[grams.rows // SIDES] * grams.counted
        both = (rarity * (side == BOTH)).sum(dim=2)  # (R, L)
        texts = [grams.counted & (side != other) for other in (SECOND, FIRST)]
        sizes = [text[:, 0].sum(dim=1, keepdim=True).to(both.dtype).log1p() for text in texts]
        return torch.cat([both / (rarity * text).sum(dim=2).clamp_min(_LEAST) for text in texts] + sizes, dim=1)

    def forward(self, tokens: Tensor, ends: Tensor) -> Tensor:
        """Logits [B, C, K]; see :meth:`grams`."""
        grams = self.grams(tokens, ends)
        rows, shares = grams.rows.flatten(1), self.shares(grams).flatten(1)  # (R, L*T)
        told = F.embedding_bag(rows, self.weight, per_sample_weights=shares, mode="sum")
        # No matrix product: autocast would round it to bfloat16, where logits are sums of what is large.
        shared = (self.common(grams)[..., None] * self.shared).sum(dim=1)
        return (told + shared + self.bias).view(*ends.shape, -1)

    def weighted(self, weight: float) -> NGrams:
        """Multiply the logits by ``weight``, in place; gives back itself."""
        self.weight, self.shared, self.bias = (weight * part for part in (self.weight, self.shared, self.bias))
        return self
