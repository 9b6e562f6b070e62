"""ModernBERT's network, of the encoder's parts.

Legend of the shape comments: B sequences, T positions, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from gptcore.models.attention import Attention
from gptcore.models.context import Context
from gptcore.models.cpu import dropout
from gptcore.models.encoder import Encoder
from gptcore.models.feed_forward import GatedFeedForward, activated
from gptcore.models.network import word_scores
from gptcore.models.products import Linear
from gptcore.papers.modernbert.config import ModernBertConfig


def norm(config: ModernBertConfig) -> nn.LayerNorm:
    """A norm, which has no bias."""
    return nn.LayerNorm(config.n_embd, eps=config.epsilon, bias=False)


class Embeddings(nn.Module):
    """Words, normalised: ids [B, T] -> [B, T, D]; segments are not told apart."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        self.pdrop = config.embd_pdrop
        self.words = nn.Embedding(config.n_vocab, config.n_embd)
        self.norm = norm(config)

    def forward(self, tokens: Tensor, segments: Tensor | None) -> Tensor:
        return dropout(self.norm(self.words(tokens)), self.pdrop, self.training)


class NearAttention(Attention):
    """Attention to the whole text or to what is near, by the number of its layer; its input is normalised and added."""

    def __init__(self, config: ModernBertConfig, number: int) -> None:
        is_near = number % config.global_every > 0
        super().__init__(config, True, bias=False, theta=config.local_theta if is_near else config.theta)
        self.reach = config.window // 2 if is_near else None
        self.norm = norm(config) if number else nn.Identity()

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:  # type: ignore[override]
        """[B, T, D] -> [B, T, D]; ``visible`` [B, 1, 1, T]: which positions are words; None: all."""
        if self.reach is not None and x.shape[1] > self.reach + 1:
            places = torch.arange(x.shape[1], device=x.device)
            apart = (places[:, None] - places).abs()
            near = (apart <= self.reach)[None, None]  # (1, 1, T, T)
            visible = near if visible is None else (near & visible) | (apart == 0)  # or padding would see nothing
        return x + super().forward(self.norm(x), Context(visible, causal=False))


class FeedForward(GatedFeedForward):
    """The gated network; its input is normalised and added."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__(config, config.activation)
        self.norm = norm(config)

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(self.norm(x))


class PredictionHead(nn.Module):
    """A layer and its norm: states [..., D] -> [..., D]."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.n_embd, config.n_embd, bias=False)
        self.norm = norm(config)

    def forward(self, states: Tensor) -> Tensor:
        hidden: Tensor = self.norm(activated(self.dense(states), "gelu"))
        return hidden


class WordBias(nn.Module):
    """Scores of every word: the product with the table of words, and a bias of each."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(config.n_vocab))

    def forward(self, states: Tensor, table: Tensor) -> Tensor:
        """States [..., D] and the table [V, D] -> [..., V]."""
        return word_scores(states, table, self.bias)


class ModernBert(Encoder):
    """The network, with the head that its configuration names."""

    config: ModernBertConfig

    def __init__(self, config: ModernBertConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.norm = norm(config)

    def _embeddings(self) -> nn.Module:
        return Embeddings(self.config)

    def _attention(self, number: int) -> nn.Module:
        return NearAttention(self.config, number)

    def _feed_forward(self) -> nn.Module:
        return FeedForward(self.config)

    def _pooler(self) -> nn.Module:
        return PredictionHead(self.config)

    def _word_head(self) -> nn.Module:
        return WordBias(self.config)

    def _walk(self, *given: Any) -> Iterator[tuple[Tensor, Any]]:
        for states, attention in super()._walk(*given):
            yield (self.norm(states) if attention is None else states), attention

    def summary(self, states: Tensor) -> Tensor:
        """What stands for a whole sequence, [B, D]: the first state behind the layer that words are told through."""
        first = states[:, 0]
        return first if self.pooler is None else self.pooler(first)

    def word_scores(self, states: Tensor) -> Tensor:
        return super().word_scores(self._there(self.pooler, "masked words")(states))

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """Parameters of the embeddings, of each layer, the last one with the last norm, and of the heads."""
        depths = super().parameters_by_depth()
        depths[self.config.n_layer] += self.norm.parameters()
        return depths
