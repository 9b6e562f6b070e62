"""What tells where an answer begins and ends beside an encoder's states: which words around it the question has, too.

From little text an encoder does not learn to compare two texts, and a few thousand questions do not teach it to. So
pieces of the passage that the question has as well are marked, each by how much it says, as exact matches and aligned
questions were in "Reading Wikipedia to Answer Open-Domain Questions" (Chen et al. 2017, section 3.2); what a word looks
like (:mod:`gptcore.nlu.word_features`) stands for its parts of speech and kinds of names. Windows of growing reach read
all of it ("Multi-Scale Context Aggregation by Dilated Convolutions", Yu and Koltun 2016), told what is asked for.

Legend of the shape comments: B sequences, T positions, F features, D width of the states.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.models.cpu import dropout
from gptcore.models.tagger import WordLooks

_PDROP = 0.2
_REACHES = (1, 2, 4, 8)
"""How far from a position its two neighbours in each window stand."""
_AROUND = (5, 11, 31)
"""Positions over which what is met is added up."""
_MARKS = 2 + len(_AROUND)


class SpanReader(nn.Module):
    """The scores of an answer's start and end at each position, from an encoder's states and the marked passage.

    :param width: D.
    :param n_outputs: 2, a start and an end.
    """

    def __init__(self, width: int, n_outputs: int) -> None:
        super().__init__()
        self.looks = WordLooks()
        self.tells = nn.Linear(width, 2)
        """How much a piece of the question tells where it is met again, and of what is asked for."""
        self.asks = nn.Linear(width, width)
        self.each = nn.Linear(width + self.looks.width + _MARKS, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in _REACHES)
        self.windows = nn.ModuleList(nn.Linear(3 * width, width) for _ in _REACHES)

    def forward(self, states: Tensor, tokens: Tensor, words: Tensor, layer: nn.Linear, pdrop: float) -> Tensor:
        """Scores of starts and ends [B, T, 2], -inf but in the passage and at the first position, of no answer.

        :param states: [B, T, D].
        :param tokens: [B, T] ids.
        :param words: [B, T, F] features of the word of each piece of the passage, else 0.
        :param layer: D -> 2.
        :param pdrop: dropout before it.
        """
        passage = words[..., 0] > 0
        question = passage.cumsum(1) == 0  # all before the passage: no piece of it is [CLS] or [SEP]
        tells = self.tells(states)
        same = (tokens[:, :, None] == tokens[:, None]) & passage[:, :, None] & question[:, None]  # (B, T, T)
        met = (same * torch.sigmoid(tells[:, None, :, 0])).amax(2)  # (B, T)
        around = [_spread(met, passage, reach) for reach in _AROUND]
        marks = torch.stack([same.any(2).to(met.dtype), met, *around], -1)
        shares = tells[..., 1].masked_fill(~question, -torch.inf).softmax(1)
        asked = torch.sigmoid(self.asks(shares[:, None] @ states))  # (B, 1, D)
        each = torch.cat([states, self.looks(words, states.dtype), marks], -1)
        x = torch.relu(self.each(dropout(each, _PDROP, self.training))) * (2 * asked)
        for norm, window, reach in zip(self.norms, self.windows, _REACHES, strict=True):
            padded = F.pad(norm(x) * passage[..., None], (0, 0, reach, reach))
            near = torch.cat([padded[:, at : at + x.shape[1]] for at in (0, reach, 2 * reach)], -1)
            x = x + dropout(torch.relu(window(near)), _PDROP, self.training)
        first = torch.zeros_like(passage)
        first[:, 0] = True
        scores: Tensor = layer(dropout(x, pdrop, self.training)).float()
        return scores.masked_fill(~(passage | first)[..., None], -torch.inf)


def _spread(met: Tensor, passage: Tensor, reach: int) -> Tensor:
    """[B, T] sums of what is met around each position of the passage, the nearest with the most weight."""
    for _ in range(2):
        met = F.avg_pool1d(met[:, None], reach, 1, reach // 2)[:, 0] * passage
    return met * math.sqrt(reach)
