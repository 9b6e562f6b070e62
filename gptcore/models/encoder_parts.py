"""The parts of the encoder: embeddings, attention, the feed-forward network, the heads of words and of replaced tokens.

Legend of the shape comments: B sequences, T positions, D width of the states, E width of the embeddings, H heads, N
chosen positions, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from gptcore.config import ENCODER_EPSILON, EncoderConfig
from gptcore.models import feed_forward
from gptcore.models.attention import Attention
from gptcore.models.context import Context
from gptcore.models.cpu import dropout
from gptcore.models.feed_forward import activated
from gptcore.models.network import word_scores
from gptcore.models.products import Linear


def norm(width: int, epsilon: float = ENCODER_EPSILON) -> nn.LayerNorm:
    """The norm of a sub-layer."""
    return nn.LayerNorm(width, eps=epsilon)


class Embeddings(nn.Module):
    """The sum of a word, its position and its segment, normalised: ids [B, T] -> [B, T, E]."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.width_of_words
        self.pdrop = config.embd_pdrop
        self.words = nn.Embedding(config.n_vocab, width)
        self.positions = None if config.sinusoidal else nn.Embedding(config.n_ctx, width)
        self.segments = nn.Embedding(config.n_segments, width) if config.n_segments else None
        self.norm = norm(width, config.epsilon)
        if config.sinusoidal:
            self.register_buffer("waves", sinusoids(config.n_ctx, width), persistent=False)

    def forward(self, tokens: Tensor, segments: Tensor | None) -> Tensor:
        """:param segments: [B, T] numbers of segments; None: all 0. Not read where the network knows none."""
        T = tokens.shape[1]
        positions = self.get_buffer("waves") if self.positions is None else self.positions.weight
        x = self.words(tokens)
        if self.segments is not None:
            alike = segments is None or self.segments.num_embeddings == 1
            x = x + (self.segments.weight[0] if alike else self.segments(segments))
        x = self.norm(x + positions[:T])
        return dropout(x, self.pdrop, self.training)


def sinusoids(n_positions: int, width: int) -> Tensor:
    """Sines at the even and cosines at the odd dimensions, of wavelengths from 2 pi to 10,000 * 2 pi: [T, E].

    ("Attention Is All You Need", section 3.5.)
    """
    places = torch.arange(n_positions, dtype=torch.float64)[:, None]  # (T, 1)
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
    waves = torch.empty(n_positions, width, dtype=torch.float64)
    waves[:, 0::2] = torch.sin(places * rates)
    waves[:, 1::2] = torch.cos(places * rates[: width // 2])
    return waves.float()


class SelfAttention(Attention):
    """Multi-headed attention of every position to every word, added to its input and normalised."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.norm = norm(config.n_embd, config.epsilon)

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:  # type: ignore[override]
        """[B, T, D] -> [B, T, D]; ``visible`` [B, 1, 1, T]: which positions are words; None: all."""
        output: Tensor = self.norm(x + super().forward(x, Context(visible, causal=False)))
        return output


class FeedForward(feed_forward.FeedForward):
    """The position-wise network, added to its input and normalised."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, config.activation)
        self.norm = norm(config.n_embd, config.epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        return self.narrowed(x, self.widened(x))

    def widened(self, x: Tensor) -> Tensor:
        """The inner layer, before its activation: [B, T, D] -> [B, T, I]."""
        inner: Tensor = self.inner(x)
        return inner

    def narrowed(self, x: Tensor, inner: Tensor) -> Tensor:
        """What the network gives: its input [B, T, D] and the inner layer [B, T, I] -> [B, T, D]."""
        output: Tensor = self.norm(x + self.projected(inner))
        return output


class WordHead(nn.Module):
    """Scores of every word: a layer, its norm, and the product with the word embeddings."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation = config.activation
        self.dense = Linear(config.n_embd, config.width_of_words)
        self.norm = norm(config.width_of_words, config.epsilon)
        self.bias = nn.Parameter(torch.zeros(config.n_vocab))

    def hidden(self, states: Tensor) -> Tensor:
        """What is multiplied with the word embeddings: states [..., D] -> [..., E]."""
        hidden: Tensor = self.norm(activated(self.dense(states), self.activation))
        return hidden

    def forward(self, states: Tensor, table: Tensor) -> Tensor:
        """States [..., D] and the word embeddings [V, E] -> [..., V]."""
        return word_scores(self.hidden(states), table, self.bias)


class ReplacedHead(nn.Module):
    """Whether each token was replaced: a layer and one number (ELECTRA, section 3.1)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation = config.activation
        self.dense = Linear(config.n_embd, config.n_embd)
        self.output = Linear(config.n_embd, 1)

    def forward(self, states: Tensor) -> Tensor:
        """States [B, T, D] -> logits [B, T]."""
        logits: Tensor = self.output(activated(self.dense(states), self.activation))
        return logits.squeeze(-1)
