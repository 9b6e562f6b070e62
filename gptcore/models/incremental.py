"""Reading a text token by token: what the network made of the tokens before is kept, not computed again.

Legend: B batch, T new tokens, P tokens before them, S = P + T, L layers, H heads, D width, V embedding rows.

A :class:`Reader` gives after each token the logits that the network's own forward pass gives for the text so far. The
Transformer keeps every layer's keys and values, so that a token costs one position's work instead of S positions'.
Its positions are learned and its states are normalised after each sub-layer, so a cached key belongs to its position
for good: a text that outgrows n_ctx cannot be moved along by one. Its newest half is encoded again from position 0,
which costs one pass every n_ctx / 2 tokens. The LSTM keeps its state and has no such bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from gptcore.models.language_model import LanguageModel
from gptcore.models.lstm import LSTM
from gptcore.models.transformer import GPT, Attention, Block


class Reader(Protocol):
    """One text's way through a network in eval mode."""

    def feed(self, ids: Sequence[int]) -> Tensor:
        """Read on by ``ids`` (one at least) and predict what comes next: logits [V], on the model's device."""


def open_reader(model: LanguageModel) -> Reader:
    """A reader at the beginning of a text.

    :param model: in eval mode.
    """
    if isinstance(model, GPT):
        return TransformerReader(model)
    assert isinstance(model, LSTM), f"no reader for {type(model).__name__}"
    return LSTMReader(model)


@dataclass
class Cache:
    """What a Transformer has read: the keys and values of ``length`` positions, with room for n_ctx."""

    keys: Tensor  # (L, B, H, n_ctx, D/H)
    values: Tensor  # (L, B, H, n_ctx, D/H)
    length: int = 0

    @classmethod
    def empty(cls, model: GPT, batch: int = 1) -> Cache:
        """Room for ``batch`` texts of equal length, on the model's device."""
        c = model.config
        shape = (c.n_layer, batch, c.n_head, c.n_ctx, c.n_embd // c.n_head)
        weight = model.tokens.weight
        return cls(weight.new_empty(shape), weight.new_empty(shape))


def step(model: GPT, tokens: Tensor, cache: Cache) -> Tensor:
    """The states of new tokens, given those in the cache, which takes them in: ids [B, T] -> [B, T, D].

    Equal to the last T states of the model's own pass over all S tokens in eval mode.

    :raises ValueError: if S exceeds n_ctx.
    """
    start, end = cache.length, cache.length + tokens.shape[1]
    if end > model.config.n_ctx:
        raise ValueError(f"a sequence of {end} tokens does not fit n_ctx = {model.config.n_ctx}")
    x = F.embedding(tokens, model.tokens.weight) + model.positions.weight[start:end]  # (B, T, D)
    for block, keys, values in zip(model.blocks, cache.keys, cache.values, strict=True):
        assert isinstance(block, Block)
        x = block.norm_1(x + _attend(block.attention, x, keys, values, start))
        x = block.norm_2(x + block.feed_forward(x))
    cache.length = end
    return x


def _attend(attention: Attention, x: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
    """Self-attention of new positions to themselves and to all before: [B, T, D] -> the same; ``keys`` are filled."""
    B, T, D = x.shape
    end = start + T
    q, k, v = attention.qkv(x).view(B, T, 3, attention.n_head, -1).permute(2, 0, 3, 1, 4)  # each (B, H, T, D/H)
    keys[:, :, start:end], values[:, :, start:end] = k, v
    seen = torch.ones(T, end, dtype=torch.bool, device=x.device).tril_(start)  # (T, S)
    mixed = F.scaled_dot_product_attention(q, keys[:, :, :end], values[:, :, :end], attn_mask=seen)
    projected: Tensor = attention.projection(mixed.transpose(1, 2).reshape(B, T, D))
    return projected


class TransformerReader:
    """Reads with a :class:`Cache`; a text longer than n_ctx goes on from its newest half."""

    def __init__(self, model: GPT) -> None:
        self._model = model
        self._cache = Cache.empty(model)
        self._window: list[int] = []  # the tokens in the cache

    @torch.no_grad()
    def feed(self, ids: Sequence[int]) -> Tensor:
        """See :class:`Reader`."""
        new = list(ids)
        self._window += new
        n_ctx = self._model.config.n_ctx
        if len(self._window) > n_ctx:
            new = self._window = self._window[-max(1, n_ctx // 2) :]
            self._cache.length = 0
        tokens = torch.tensor([new], device=self._model.tokens.weight.device)  # (1, T)
        return self._model.logits(step(self._model, tokens, self._cache)[0, -1])


class LSTMReader:
    """Carries the recurrent state along."""

    def __init__(self, model: LSTM) -> None:
        self._model = model
        self._state: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def feed(self, ids: Sequence[int]) -> Tensor:
        """See :class:`Reader`."""
        tokens = torch.tensor([list(ids)], device=self._model.tokens.weight.device)  # (1, T)
        units, self._state = self._model.recurrent(self._model.tokens(tokens), self._state)  # (1, T, units)
        return self._model.logits(self._model.projection(units[0, -1]))
