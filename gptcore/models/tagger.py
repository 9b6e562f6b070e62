"""What tells the tags of words beside an encoder's states: the look of each, the words around it, their tags.

Pieces tell names badly: an uncased vocabulary has no capitals, and a small one cuts names into bits. So the state of a
word's first piece goes with the word's features (:mod:`gptcore.nlu.word_features`), a window of words is read at a time
("Natural Language Processing (Almost) from Scratch", Collobert et al. 2011), and a linear-chain conditional random
field over what comes of it scores the tags of a text together (Lafferty, McCallum and Pereira 2001; above networks:
Huang, Xu and Yu 2015, Lample et al. 2016).

Legend of the shape comments: B sequences, T positions, W words of the sequence that has most, F features, D width of
the states, K tags.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.models.context import rows_at
from gptcore.models.cpu import dropout
from gptcore.nlu.word_features import N_FEATURES, N_ROWS

_PDROP = 0.3  # of a feature: how a word is spelt has to tell what the word itself would, too
_WINDOW = 5


class WordLooks(nn.Module):
    """What words look like, as a vector each: the sum of their features' embeddings."""

    width = 64

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Embedding(N_ROWS, self.width)

    def forward(self, words: Tensor, dtype: torch.dtype) -> Tensor:
        """[B, W, F] features -> [B, W, :attr:`width`]."""
        kept = dropout(torch.ones_like(words, dtype=dtype), _PDROP, self.training)
        vectors: Tensor = (kept[..., None, :] @ self.features(words)).squeeze(-2)
        return vectors / math.sqrt(N_FEATURES)


class WordTagger(nn.Module):
    """A linear-chain conditional random field over windows of words' states and features.

    :param width: D.
    :param n_tags: K.
    """

    def __init__(self, width: int, n_tags: int) -> None:
        super().__init__()
        self.looks = WordLooks()
        self.window = nn.Linear(_WINDOW * (width + self.looks.width), width)
        self.follows = nn.Parameter(torch.zeros(n_tags, n_tags))
        """The score of a tag (row) with another behind it (column)."""
        self.first, self.last = nn.Parameter(torch.zeros(n_tags)), nn.Parameter(torch.zeros(n_tags))

    def forward(self, states: Tensor, tokens: Tensor, words: Tensor, layer: nn.Linear, pdrop: float) -> Tensor:
        """Scores of tags [B, T, K], of which those at the first pieces of words mean something.

        In training they are what :meth:`loss` reads. Else each is the score of the best tags of the whole text that
        have this one there, so that the highest of each word are together the best (Viterbi's).

        :param states: [B, T, D].
        :param tokens: [B, T] ids, not read: the states have them.
        :param words: [B, T, F] features where a word begins, else 0.
        :param layer: D -> K.
        :param pdrop: dropout before each of the two layers.
        """
        order, there = _packed(words[..., 0] > 0)
        look = self.looks(rows_at(words, order), states.dtype)
        each = torch.cat([rows_at(states, order), look], -1) * there[..., None]
        each = F.pad(dropout(each, pdrop, self.training), (0, 0, _WINDOW // 2, _WINDOW // 2))
        near = torch.cat([each[:, at : at + order.shape[1]] for at in range(_WINDOW)], -1)
        word_scores: Tensor = layer(dropout(torch.relu(self.window(near)), pdrop, self.training)).float()  # (B, W, K)
        if not self.training:
            word_scores = self._before(word_scores, there, torch.amax) + self._best_behind(word_scores, there)
        scores: Tensor = word_scores.new_zeros(*states.shape[:2], word_scores.shape[-1])
        return scores.scatter(1, order[..., None].expand_as(word_scores), word_scores)

    def loss(self, scores: Tensor, tags: Tensor) -> Tensor:
        """The mean over tagged words of the texts' negative log-likelihoods, in float32; 0 where none is tagged.

        :param scores: [B, T, K] of training.
        :param tags: [B, T] int64, -100 where there is none.
        """
        order, there = _packed(tags >= 0)
        each, right = rows_at(scores.float(), order), tags.gather(1, order).clamp(min=0)  # (B, W, K), (B, W)
        score = each.gather(2, right[..., None]).squeeze(-1)
        # look-ups, whose gradients are added in one order
        pairs = F.embedding(right[:, :-1] * len(self.first) + right[:, 1:], self.follows.view(-1, 1)).squeeze(-1)
        score = (score * there).sum(1) + (pairs * there[:, 1:]).sum(1)
        end = right.gather(1, (there.sum(1, keepdim=True) - 1).clamp(min=0))
        ends = torch.cat([self.first, self.last])[:, None]  # (2K, 1)
        score = score + F.embedding(torch.cat([right[:, :1], end + len(self.first)], 1), ends).sum((1, 2))
        all_paths = torch.logsumexp(self._before(each, there, torch.logsumexp)[:, -1] + self.last, 1)
        loss: Tensor = ((all_paths - score) * there[:, 0]).sum() / there.sum().clamp(min=1)
        return loss

    def _before(self, each: Tensor, there: Tensor, over: Callable[[Tensor, int], Tensor]) -> Tensor:
        """What the tags up to each word score, for each tag of its own: [B, W, K].

        :param each: [B, W, K] scores of words; ``there`` [B, W]: which are words, the first ones of each row.
        :param over: what the ways to a tag come to: the best of them, or the logarithm of their sum.
        """
        alphas = [self.first + each[:, 0]]
        for at in range(1, each.shape[1]):
            reached = over(alphas[-1][..., None] + self.follows, 1) + each[:, at]
            alphas.append(torch.where(there[:, at, None], reached, alphas[-1]))
        return torch.stack(alphas, 1)

    def _best_behind(self, each: Tensor, there: Tensor) -> Tensor:
        """What the best tags behind each word score, for each tag of its own: [B, W, K]; see :meth:`_before`."""
        betas = [self.last.expand_as(each[:, 0])]
        for at in range(each.shape[1] - 1, 0, -1):
            goes_on = torch.amax(self.follows + (each[:, at] + betas[-1])[:, None], 2)
            betas.append(torch.where(there[:, at, None], goes_on, betas[-1]))
        return torch.stack(betas[::-1], 1)


def _packed(words: Tensor) -> tuple[Tensor, Tensor]:
    """The positions [B, W] of words, those of each row first, and which of them are words: of [B, T] what are."""
    order = torch.argsort((~words).to(torch.int8), dim=1, stable=True)[:, : max(1, int(words.sum(1).max()))]
    return order, words.gather(1, order)
