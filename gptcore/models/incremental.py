"""Reading texts token by token: what the network made of the tokens before is kept, not computed again.

Legend: B batch, T new tokens, P tokens before them, S = P + T at most, L layers, H heads, D width, V embedding rows.

A :class:`Reader` gives after each token the logits that the network's own forward pass gives for the text so far, for
several texts at once, each of its own length and as if it were alone. The Transformer keeps every layer's keys and
values, so that a token costs one position's work instead of S positions'.
Its positions are learned and come in before the first layer, so a cached key belongs to its position for good: a text
that outgrows n_ctx cannot be moved along by one. Its newest half is encoded again from position 0, which costs one pass
every n_ctx / 2 tokens. The LSTM keeps its state and has no such bound.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from gptcore.families import FAMILIES
from gptcore.models.language_model import LanguageModel
from gptcore.models.lstm import LSTM
from gptcore.models.packed import Products
from gptcore.models.transformer import GPT, Attention, Block, FeedForward


class Reader(ABC):
    """The way of ``batch`` texts through a network in eval mode, whose weights stay as they are meanwhile."""

    def __init__(self, model: LanguageModel, batch: int) -> None:
        self._batch = batch
        self._device = model.tokens.weight.device

    @torch.no_grad()
    def feed(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Read on by ids, one at least of each text, and predict what comes next: [B, V], on the model's device.

        What a text has more of than the shortest is read first, by itself.
        """
        shortest = min(len(ids) for ids in texts)
        for row, ids in enumerate(texts):
            if more := list(ids[: len(ids) - shortest]):
                self._read(torch.tensor([more], device=self._device), slice(row, row + 1))
        tokens = torch.tensor([list(ids[len(ids) - shortest :]) for ids in texts], device=self._device)  # (B, T)
        return self._logits(self._read(tokens, slice(0, self._batch)))

    @abstractmethod
    def copies(self, batch: int) -> Reader:
        """``batch`` texts that all begin with what this reader, of a single text, has read; it stays as it is."""

    @abstractmethod
    def _read(self, tokens: Tensor, rows: slice) -> Tensor:
        """Take in new tokens of the texts ``rows``, [b, T]: what the next is predicted from, [b, D]."""

    @abstractmethod
    def _logits(self, states: Tensor) -> Tensor:
        """[B, D] -> [B, V]."""


def open_reader(model: LanguageModel, batch: int = 1, kept: int = 0) -> Reader:
    """A reader at the beginning of ``batch`` texts.

    :param model: in eval mode.
    :param kept: of each text, so much of what is first read (as far as it goes) stays in sight when the text outgrows
        n_ctx, if it takes no more than half of that; the LSTM has no such bound.
    """
    reader: Reader = FAMILIES[model.config.family].part("reader")(model, batch, kept)
    return reader


@dataclass
class Cache:
    """What a Transformer has read of B texts: the keys and values of each one's positions, with room for n_ctx."""

    keys: Tensor  # (L, B, n_ctx, D)
    values: Tensor  # (L, B, n_ctx, D)
    lengths: Tensor  # (B,) int64, on the CPU

    @classmethod
    def empty(cls, model: GPT, batch: int = 1) -> Cache:
        """Room for ``batch`` texts, on the model's device. Zeros: what is there already is multiplied by 0."""
        c = model.config
        shape = (c.n_layer, batch, c.n_ctx, c.n_embd)
        weight = model.tokens.weight
        return cls(weight.new_zeros(shape), weight.new_zeros(shape), torch.zeros(batch, dtype=torch.int64))

    def of(self, rows: slice) -> Cache:
        """The same of some texts; what is read into it is read into this one."""
        return Cache(self.keys[:, rows], self.values[:, rows], self.lengths[rows])


def step(model: GPT, tokens: Tensor, cache: Cache, product: Products | None = None) -> Tensor:
    """The states of new tokens, given those in the cache, which takes them in: ids [B, T] -> [B, T, D].

    Equal to the last T states of the model's own pass over all tokens of each text in eval mode.

    :raises ValueError: if a text exceeds n_ctx.
    """
    product = product or Products()
    B, T = tokens.shape
    n_ctx = model.config.n_ctx
    end = int(cache.lengths.max()) + T
    if end > n_ctx:
        raise ValueError(f"a sequence of {end} tokens does not fit n_ctx = {n_ctx}")
    places = (cache.lengths[:, None] + torch.arange(T)).to(tokens.device)  # (B, T)
    x = F.embedding(tokens, model.tokens.weight) + F.embedding(places, model.positions.weight)  # (B, T, D)
    mask = None
    if B * T > 1:
        unseen = torch.arange(end, device=tokens.device) > places[:, :, None]  # (B, T, S)
        mask = torch.zeros_like(unseen, dtype=x.dtype).masked_fill_(unseen, float("-inf"))[:, None]  # for all heads
    into = (places + n_ctx * torch.arange(B, device=tokens.device)[:, None]).view(-1)  # rows of (B * n_ctx, D)
    for block, keys, values in zip(model.blocks, cache.keys, cache.values, strict=True):
        assert isinstance(block, Block)
        attend = partial(_attend, block.attention, keys, values, into, end, mask, product)
        x = block.joined(x, attend, partial(_feed, block.feed_forward, product))
    cache.lengths += T
    states: Tensor = model.norm(x)
    return states


def _feed(feed_forward: FeedForward, product: Products, x: Tensor) -> Tensor:
    """The feed-forward network: [B, T, D] -> the same."""
    return product(feed_forward.projection, F.gelu(product(feed_forward.inner, x), approximate="tanh"))


def _attend(
    attention: Attention,
    keys: Tensor,
    values: Tensor,
    into: Tensor,
    end: int,
    mask: Tensor | None,
    product: Products,
    x: Tensor,
) -> Tensor:
    """Self-attention of new positions to themselves and to all before: [B, T, D] -> the same; ``keys`` are filled."""
    B, T, D = x.shape
    q, k, v = product(attention.qkv, x).view(B * T, 3, D).unbind(1)
    keys.view(-1, D).index_copy_(0, into, k)
    values.view(-1, D).index_copy_(0, into, v)
    heads = (t.reshape(B, -1, attention.n_head, D // attention.n_head) for t in (q, keys[:, :end], values[:, :end]))
    q, k, v = (t.transpose(1, 2) for t in heads)  # (B, H, T, D/H), (B, H, S, D/H) twice
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return product(attention.projection, mixed.transpose(1, 2).reshape(B, T, D))


class TransformerReader(Reader):
    """Reads with a :class:`Cache`; a text longer than n_ctx goes on from its newest half, behind what is kept."""

    def __init__(self, model: GPT, batch: int, kept: int = 0) -> None:
        super().__init__(model, batch)
        self._kept = kept
        self._heads: list[list[int]] = [[] for _ in range(batch)]
        self._model = model
        self._cache = Cache.empty(model, batch)
        self._product = Products(model, batch)
        self._windows: list[list[int]] = [[] for _ in range(batch)]  # the tokens in the cache

    def feed(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """See :class:`Reader`."""
        n_ctx = self._model.config.n_ctx
        new = list(texts)
        for row, ids in enumerate(texts):
            window = [*self._windows[row], *ids]
            if not self._windows[row] and len(head := list(ids[: self._kept])) <= n_ctx // 2:
                self._heads[row] = head
            if len(window) > n_ctx:
                head = self._heads[row]
                new[row] = window = [*head, *window[-max(1, (n_ctx - len(head)) // 2) :]]
                self._cache.lengths[row] = 0
            self._windows[row] = window
        return super().feed(new)

    def copies(self, batch: int) -> TransformerReader:
        """See :class:`Reader`."""
        other = TransformerReader(self._model, 0, self._kept)
        other._batch, other._product = batch, Products()  # a few steps do not earn the packing of all weights
        other._heads, other._windows = ([list(ids) for ids in own * batch] for own in (self._heads, self._windows))
        cache = self._cache
        other._cache = Cache(
            cache.keys.repeat(1, batch, 1, 1), cache.values.repeat(1, batch, 1, 1), cache.lengths.repeat(batch)
        )
        return other

    def _read(self, tokens: Tensor, rows: slice) -> Tensor:
        return step(self._model, tokens, self._cache.of(rows), self._product)[:, -1]

    def _logits(self, states: Tensor) -> Tensor:
        return self._product.with_weight(self._model.tokens.weight, states)


class LSTMReader(Reader):
    """Carries the recurrent states along."""

    def __init__(self, model: LSTM, batch: int, kept: int = 0) -> None:
        super().__init__(model, batch)
        self._model = model
        weight = model.tokens.weight
        self._hidden, self._cell = (weight.new_zeros(1, batch, model.config.n_units) for _ in range(2))

    def copies(self, batch: int) -> LSTMReader:
        """See :class:`Reader`."""
        other = LSTMReader(self._model, batch)
        other._hidden, other._cell = (state.repeat(1, batch, 1) for state in (self._hidden, self._cell))
        return other

    def _read(self, tokens: Tensor, rows: slice) -> Tensor:
        before = self._hidden[:, rows].contiguous(), self._cell[:, rows].contiguous()
        units, (self._hidden[:, rows], self._cell[:, rows]) = self._model.recurrent(self._model.tokens(tokens), before)
        projected: Tensor = self._model.projection(units[:, -1])  # (b, T, units) -> (b, D)
        return projected

    def _logits(self, states: Tensor) -> Tensor:
        return self._model.logits(states)
