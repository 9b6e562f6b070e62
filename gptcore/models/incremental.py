"""Reading texts token by token: what the network made of the tokens before is kept, not computed again.

Legend: B batch, T new tokens, P tokens before them, S = P + T at most, W positions that a cache has room for, L layers,
D width, K width of the keys, V embedding rows.

A :class:`Reader` gives after each token the logits that the network's own forward pass gives for the text so far, for
several texts at once, each of its own length and as if it were alone. The Transformer keeps every layer's keys and
values, so that a token costs one position's work instead of S positions'.
Its positions come in before the first layer, or turn the keys, so a cached key belongs to its position for good: a text
that outgrows n_ctx cannot be moved along by one. Its newest half is encoded again from position 0, which costs one pass
every n_ctx / 2 tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gptcore.families import FAMILIES
from gptcore.models.context import Context
from gptcore.models.decoder import Decoder
from gptcore.models.network import LanguageModel
from gptcore.models.products import Packed, linear, packed


class Reader(ABC):
    """The way of ``batch`` texts through a network in eval mode, whose weights stay as they are meanwhile."""

    def __init__(self, model: LanguageModel, batch: int) -> None:
        self._batch = batch
        self._device = model.tokens.weight.device

    @torch.no_grad()
    def feed(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Read on by ids, one at least of each text, and predict what comes next: [B, V], on the model's device.

        Texts of different lengths are padded and share one pass. Where that would need more room than there is, what a
        text has more of than the shortest is read first, by itself.
        """
        longest = max(len(ids) for ids in texts)
        if not self._has_room(longest):
            shortest = min(len(ids) for ids in texts)
            for row, ids in enumerate(texts):
                if more := list(ids[: len(ids) - shortest]):
                    self._read([more], slice(row, row + 1))
            texts = [ids[len(ids) - shortest :] for ids in texts]
        states = self._read(texts, slice(0, self._batch))  # (B, T, D)
        ends = torch.tensor([len(ids) - 1 for ids in texts], device=states.device)
        return self.logits(states[torch.arange(len(texts), device=states.device), ends])

    @torch.no_grad()
    def states(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Read on by ids: what follows each of them is predicted from these states, [B, T, D], right-padded."""
        return self._read(texts, slice(0, self._batch))

    @abstractmethod
    def logits(self, states: Tensor) -> Tensor:
        """Scores of every row of the embedding, from states: [N, D] -> [N, V]."""

    @staticmethod
    @abstractmethod
    def position_bytes(model: Any) -> int:
        """Bytes that are kept of each position of a text."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """Positions that are kept of the longest text."""

    @abstractmethod
    def spread(self, rows: Sequence[int], room: int) -> Reader:
        """A reader of texts that begin with what this one has read of its texts ``rows``; this one stays as it is.

        :param rows: which of the texts, any of them several times.
        :param room: how many further ids each of the new texts may have; only what these need is copied.
        """

    @abstractmethod
    def _has_room(self, n_new: int) -> bool:
        """Whether every text can be padded to ``n_new`` further ids."""

    @abstractmethod
    def _read(self, texts: Sequence[Sequence[int]], rows: slice) -> Tensor:
        """Take in new ids of the texts ``rows``: their states, [b, T, D], right-padded; an empty text takes in none."""


def padded(texts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids of different lengths as one table [B, T], right-padded with 0, and their lengths [B], on the CPU."""
    lengths = [len(ids) for ids in texts]
    longest = max(lengths)
    table = [[*ids, *[0] * (longest - len(ids))] for ids in texts]
    return torch.tensor(table, device=device), torch.tensor(lengths)


def bytes_per_position(model: LanguageModel) -> int:
    """Bytes that a reader keeps of each position of a text."""
    size: int = FAMILIES[model.config.family].part("reader").position_bytes(model)
    return size


def open_reader(model: LanguageModel, batch: int = 1, kept: int = 0, width: int | None = None) -> Reader:
    """A reader at the beginning of ``batch`` texts.

    :param model: in eval mode.
    :param kept: of each text, so much of what is first read (as far as it goes) stays in sight when the text outgrows
        n_ctx, if it takes no more than half of that; a network that keeps one state has no such bound.
    :param width: positions that the reader has room for, of texts that are spread afterwards; None: n_ctx.
    """
    reader: Reader = FAMILIES[model.config.family].part("reader")(model, batch, kept, width)
    return reader


_FIRST_ROOM = 1024
"""Positions that a cache has room for at first; it grows with its texts, as those of some networks are 131,072."""


@dataclass
class Cache:
    """What a Transformer has read of B texts: the keys and values of each one's positions, with room for W of them."""

    keys: Tensor  # (L, B, W, K)
    values: Tensor  # (L, B, W, K)
    newest: Tensor  # (L, B, K): each text's last key, before any smearing
    lengths: Tensor  # (B,) int64, on the CPU

    @classmethod
    def empty(cls, model: Decoder, batch: int = 1, width: int | None = None) -> Cache:
        """Room for ``batch`` texts, on the model's device. Zeros: what is there already is multiplied by 0.

        :param width: positions of each text, padding included; None: n_ctx.
        """
        c, weight, K = model.config, model.tokens.weight, model.width_of_keys
        shape = (c.n_layer, batch, c.n_ctx if width is None else width, K)
        newest = weight.new_zeros(c.n_layer, batch, K)
        return cls(weight.new_zeros(shape), weight.new_zeros(shape), newest, torch.zeros(batch, dtype=torch.int64))

    def of(self, rows: slice) -> Cache:
        """A view of the cache of the texts ``rows``; what is read into it is read into this one."""
        return Cache(self.keys[:, rows], self.values[:, rows], self.newest[:, rows], self.lengths[rows])

    def spread(self, rows: Sequence[int], room: int) -> Cache:
        """A copy of the texts ``rows``, as far as they are read, with room for ``room`` further positions each."""
        chosen = torch.tensor(rows, dtype=torch.int64)
        lengths = self.lengths[chosen]
        read = int(lengths.max())

        def copied(tensor: Tensor) -> Tensor:  # (L, B, W, K) -> (L, len(rows), read + room, K)
            L, _, _, K = tensor.shape
            new = tensor.new_zeros(L, len(rows), read + room, K)
            new[:, :, :read] = tensor[:, :, :read].index_select(1, chosen.to(tensor.device))
            return new

        newest = self.newest.index_select(1, chosen.to(self.newest.device))
        return Cache(copied(self.keys), copied(self.values), newest, lengths)


class _NewTokens(NamedTuple):
    """Tokens that B texts go on with."""

    positions: Tensor  # (B, T)
    taken: Tensor  # (B,) int64: how many of them are no padding
    begun: Tensor  # (B, 1) bool: whether anything is read of a text before
    into: Tensor  # (B * T,): their rows of (B * W, K)
    end: int  # S


@dataclass(frozen=True, kw_only=True)
class _ReadOn(Context):
    """New tokens behind those that a block has read; it takes in theirs where it is asked for what is seen."""

    new: _NewTokens
    keys: Tensor  # (B, W, K)
    values: Tensor  # (B, W, K)
    newest: Tensor  # (B, K)

    def places(self, x: Tensor) -> Tensor:
        return self.new.positions

    def before(self, k: Tensor) -> Tensor:
        """The key before each new one, [B, T, K]; ``newest`` is moved on to each text's last key."""
        first = torch.where(self.new.begun, self.newest, k[:, 0])  # (B, K)
        last = k[torch.arange(len(k), device=k.device), (self.new.taken - 1).clamp(min=0)]  # (B, K)
        self.newest.copy_(torch.where(self.new.taken[:, None] > 0, last, self.newest))
        return torch.cat([first[:, None], k[:, :-1]], dim=1)

    def seen(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new keys and values into the cache, and give back all so far: [B, T, K] each -> [B, S, K] each."""
        for kept, made in ((self.keys, k), (self.values, v)):
            kept.view(-1, kept.shape[-1]).index_copy_(0, self.new.into, made.flatten(0, 1))
        return self.keys[:, : self.new.end], self.values[:, : self.new.end]


def step(model: Decoder, tokens: Tensor, cache: Cache, counts: Tensor | None = None) -> Tensor:
    """The states of new tokens, given those in the cache, which takes them in: ids [B, T] -> [B, T, D].

    Equal to the last T states of the model's own pass over all tokens of each text.

    :param model: in eval mode.
    :param counts: [B], on the CPU: how many of the T ids each text has, the others being padding behind them, whose
        states mean nothing and which is not taken in; None: all of them.
    :raises ValueError: if a text exceeds n_ctx, or with its padding the cache's width.
    """
    B, T = tokens.shape
    device, width, n_ctx = tokens.device, cache.keys.shape[2], model.config.n_ctx
    counts = torch.full((B,), T) if counts is None else counts
    end = int(cache.lengths.max()) + T
    model.require_room(int((cache.lengths + counts).max()))
    if end > width:
        raise ValueError(f"{end} positions do not fit a cache of {width}")
    positions = (cache.lengths[:, None] + torch.arange(T)).to(device)  # (B, T)
    x = model.embedded(tokens, model.tokens.weight, positions.clamp(max=n_ctx - 1))  # only padding stands beyond n_ctx
    mask = None
    if B * T > 1:
        unseen = torch.arange(end, device=device) > positions[:, :, None]  # (B, T, S)
        mask = torch.zeros_like(unseen, dtype=x.dtype).masked_fill_(unseen, float("-inf"))[:, None]  # for all heads
    new = _NewTokens(
        positions,
        counts.to(device),
        (cache.lengths > 0).to(device)[:, None],
        (positions + width * torch.arange(B, device=device)[:, None]).view(-1),
        end,
    )
    for block, keys, values, newest in zip(model.blocks, cache.keys, cache.values, cache.newest, strict=True):
        x = block(x, _ReadOn(visible=mask, causal=False, new=new, keys=keys, values=values, newest=newest))
    cache.lengths += counts
    states: Tensor = model.norm(x)
    return states


class TransformerReader(Reader):
    """Reads with a :class:`Cache`; a text longer than n_ctx goes on from its newest half, behind what is kept."""

    def __init__(self, model: Decoder, batch: int, kept: int = 0, width: int | None = None) -> None:
        super().__init__(model, batch)
        self._kept = kept
        self._heads: list[list[int]] = [[] for _ in range(batch)]
        self._model = model
        self._room = model.config.n_ctx if width is None else width
        self._cache = Cache.empty(model, batch, min(self._room, _FIRST_ROOM))
        self._fast = packed(model, batch)
        self._words = model.words(model.tokens.weight)  # (V, D)
        self._table = Packed.of(self._words, batch)
        self._windows: list[list[int]] = [[] for _ in range(batch)]  # the tokens in the cache

    def feed(self, texts: Sequence[Sequence[int]]) -> Tensor:
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

    def spread(self, rows: Sequence[int], room: int) -> TransformerReader:
        other = TransformerReader(self._model, 0, self._kept, 0)
        other._batch = len(rows)  # a few steps do not earn the packing of all weights
        other._heads, other._windows = ([list(own[row]) for row in rows] for own in (self._heads, self._windows))
        longest = max(len(self._windows[row]) for row in rows)
        beyond = longest + room > self._model.config.n_ctx  # then a text may be read anew from its newest half
        other._cache = self._cache.spread(rows, max(room, self._model.config.n_ctx - longest) if beyond else room)
        other._room = other._cache.keys.shape[2]
        return other

    @staticmethod
    def position_bytes(model: Decoder) -> int:
        return 2 * model.config.n_layer * model.width_of_keys * model.tokens.weight.element_size()

    @property
    def longest(self) -> int:
        return int(self._cache.lengths.max())

    def logits(self, states: Tensor) -> Tensor:
        return linear(states, self._words, None, self._table)

    def _has_room(self, n_new: int) -> bool:
        return int(self._cache.lengths.max()) + n_new <= self._room

    def _read(self, texts: Sequence[Sequence[int]], rows: slice) -> Tensor:
        tokens, counts = padded(texts, self._device)
        end = int(self._cache.lengths.max()) + tokens.shape[1]
        if self._cache.keys.shape[2] < end <= self._room:
            longest = int(self._cache.lengths.max())
            self._cache = self._cache.spread(range(self._batch), min(2 * end, self._room) - longest)
        return step(self._fast, tokens, self._cache.of(rows), counts)
