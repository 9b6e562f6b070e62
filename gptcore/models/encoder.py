"""The Transformer encoder of BERT, with what ALBERT and ELECTRA change of it, and its heads.

Legend of the shape comments: B sequences, T positions, D width of the states, E width of the embeddings, H heads, N
chosen positions, V vocabulary.

BERT ("BERT: Pre-training of Deep Bidirectional Transformers", Devlin et al. 2019) is "Attention Is All You Need"'s
encoder: every word sees every other one, norms stand behind the sub-layers. ALBERT ("ALBERT: A Lite BERT", Lan et al.
2020) has narrower embeddings (section 3.1) and parameters that layers share. ELECTRA ("ELECTRA: Pre-training Text
Encoders as Discriminators", Clark et al. 2020) trains two encoders, of which the smaller one fills in words and the
other tells which tokens were replaced. What the papers leave open is the released codes': epsilon 1e-12, weights from a
normal distribution cut off at two deviations, the heads' layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Self, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.base.settings import Settings
from gptcore.config import EncoderConfig, PretrainConfig
from gptcore.models.encoder_parts import Embeddings, FeedForward, ReplacedHead, SelfAttention, WordHead
from gptcore.models.network import LayerStates, SentenceEncoder
from gptcore.text.tokenizer import Specials

_Head = TypeVar("_Head", bound=nn.Module)


class Encoder(SentenceEncoder):
    """The network, with the heads that its configuration names.

    :param config: sizes, dropout rates, what layers share, heads.
    :param generator: where the initial weights are drawn from; None: torch's default generator.
    :param embeddings: those of another encoder, which this one shares; None: its own.
    """

    config: EncoderConfig

    def __init__(
        self, config: EncoderConfig, generator: torch.Generator | None = None, embeddings: Embeddings | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.embeddings: Any = self._embeddings()
        self.widen = nn.Linear(config.width_of_words, config.n_embd) if config.n_embd_words is not None else None
        shared = {"attention": config.sharing in ("attention", "all")}
        shared["feed-forward"] = config.sharing in ("feed-forward", "all")
        count = {name: config.n_groups if its else config.n_layer for name, its in shared.items()}
        self.attention = nn.ModuleList(self._attention(number) for number in range(count["attention"]))
        self.feed_forward = nn.ModuleList(self._feed_forward() for _ in range(count["feed-forward"]))
        self.pooler = self._pooler() if config.pooler else None
        self.word_head: Any = self._word_head() if config.words else None
        self.pair_head = nn.Linear(config.n_embd, 2) if config.pair else None
        self.replaced_head = ReplacedHead(config) if config.replaced else None
        draw_weights(self, config.init_std, generator)
        if embeddings is not None:
            self.embeddings = embeddings
        self._shared = shared

    def _embeddings(self) -> nn.Module:
        """What the first layer reads, of ids and segments; its ``words`` is a table of words."""
        return Embeddings(self.config)

    def _attention(self, number: int) -> nn.Module:
        """The attention of a layer, with its norm."""
        return SelfAttention(self.config)

    def _feed_forward(self) -> nn.Module:
        """A layer's position-wise network, with its norm."""
        return FeedForward(self.config)

    def _pooler(self) -> nn.Module:
        """What the state that stands for a sequence goes through."""
        return nn.Linear(self.config.n_embd, self.config.n_embd)

    def _word_head(self) -> nn.Module:
        """What tells words, from states and the table of words."""
        return WordHead(self.config)

    def encode(
        self, tokens: Tensor, segments: Tensor | None = None, mask: Tensor | None = None, entities: Tensor | None = None
    ) -> Tensor:
        for states, _ in self._walk(tokens, segments, mask, entities):
            x = states
        return x

    def layer_states(
        self, tokens: Tensor, segments: Tensor | None = None, mask: Tensor | None = None, scores: bool = False
    ) -> LayerStates:
        """What :meth:`encode` computes on its way, layer by layer.

        :param scores: also those of the attention, which take a product more than :meth:`encode` does.
        """
        layers = LayerStates([], [])
        for states, attention in self._walk(tokens, segments, mask):
            layers.states.append(states)
            if scores and attention is not None:
                layers.scores.append(attention.scores(states))
        return layers

    def _walk(
        self, tokens: Tensor, segments: Tensor | None, mask: Tensor | None, entities: Tensor | None = None
    ) -> Iterator[tuple[Tensor, SelfAttention | None]]:
        """States [B, T, D] with the attention of the layer that reads them; after the last layer with None."""
        visible = None if mask is None else mask.bool()[:, None, None, :]  # (B, 1, 1, T)
        x = self._embedded(tokens, segments)
        for layer in range(self.config.n_layer):
            attention = self.attention[self._place(layer, "attention")]
            yield x, cast(SelfAttention, attention)
            x = attention(x, visible)
            x = self.feed_forward[self._place(layer, "feed-forward")](x)
        yield x, None

    def _embedded(self, tokens: Tensor, segments: Tensor | None) -> Tensor:
        """What the first layer reads: [B, T] each -> [B, T, D].

        :raises ValueError: if T exceeds n_ctx.
        """
        if tokens.shape[1] > self.config.n_ctx:
            raise ValueError(f"a sequence of {tokens.shape[1]} tokens does not fit n_ctx = {self.config.n_ctx}")
        x: Tensor = self.embeddings(tokens, segments)  # (B, T, E)
        if self.widen is not None:
            x = self.widen(x)  # (B, T, D)
        return x

    def compile_layers(self) -> None:
        """Have torch.compile fuse each sub-layer by itself, as layers may share some of them."""
        for part in (*self.attention, *self.feed_forward):
            part.compile(dynamic=False)
        self.compiled = True

    def layer_parts(self, layer: int) -> list[nn.Module]:
        return [self.attention[self._place(layer, "attention")], self.feed_forward[self._place(layer, "feed-forward")]]

    def _place(self, layer: int, part: str) -> int:
        """Which of the sub-layers of a kind is this layer's."""
        if not self._shared[part]:
            return layer
        return int(layer / (self.config.n_layer / self.config.n_groups))  # as transformers divides them

    def summary(self, states: Tensor) -> Tensor:
        """What stands for a whole sequence: states [B, T, D] -> [B, D], the pooled first one, or it as it is.

        (BERT, section 3.1; ELECTRA has no pooler, original code.)
        """
        first = super().summary(states)
        return first if self.pooler is None else torch.tanh(self.pooler(first))

    def word_scores(self, states: Tensor) -> Tensor:
        """Logits of every word: states [..., D] -> [..., V].

        :raises InputError: a network without that head.
        """
        scores: Tensor = self._there(self.word_head, "masked words")(states, self.embeddings.words.weight)
        return scores

    def hidden_word_scores(
        self, texts: Sequence[NDArray[Any]], places: Sequence[int], pieces: Specials, width: int
    ) -> Tensor:
        """Logits of every word at one place of each text, where it is hidden: ids [T] and a place each -> [N, V].

        :param pieces: the ids of the vocabulary's special pieces, between two of which each text stands.
        :param width: positions of the batch, those two counted.
        :raises InputError: a network without the head for it.
        """
        tokens = np.full((len(texts), width), pieces.pad, dtype=np.int64)  # (N, width)
        for row, (ids, place) in enumerate(zip(texts, places, strict=True)):
            tokens[row, [0, 1 + len(ids)]] = pieces.cls, pieces.sep
            tokens[row, 1 : 1 + len(ids)] = ids
            tokens[row, 1 + place] = pieces.mask
        device = self.embeddings.words.weight.device
        mask = np.arange(width) < np.asarray([[len(ids) + 2] for ids in texts])
        states = self.encode(torch.from_numpy(tokens).to(device), None, torch.from_numpy(mask).to(device))
        at = torch.tensor(places, device=device) + 1
        return self.word_scores(states[torch.arange(len(texts), device=device), at])

    def pair_scores(self, states: Tensor) -> Tensor:
        """Logits of the two labels of each pair of segments: states [B, T, D] -> [B, 2].

        :raises InputError: a network without that head.
        """
        scores: Tensor = self._there(self.pair_head, "pairs of segments")(self.summary(states))
        return scores

    def replaced_scores(self, states: Tensor) -> Tensor:
        """Logits of each token's having been replaced: states [B, T, D] -> [B, T].

        :raises InputError: a network without that head.
        """
        scores: Tensor = self._there(self.replaced_head, "replaced tokens")(states)
        return scores

    def _there(self, head: _Head | None, what: str) -> _Head:
        """:raises InputError: a network without that head."""
        if head is None:
            raise InputError(f"model: has no head for {what}; expected a folder that holds one")
        return head

    def forward(
        self, tokens: Tensor, segments: Tensor | None = None, mask: Tensor | None = None, entities: Tensor | None = None
    ) -> Tensor:
        """What the token head predicts: replaced-token logits [B, T] of a discriminator, else word logits [B, T, V].

        :param tokens, segments, mask, entities: as :meth:`encode` takes them.
        :raises InputError: a network without such a head.
        """
        states = self.encode(tokens, segments, mask, entities)
        return self.replaced_scores(states) if self.config.replaced else self.word_scores(states)

    @property
    def tuned_config(self) -> EncoderConfig:
        return without_heads(self.config)

    def take_over(self, source: Self, n_transfer: int) -> None:
        """Take over what an encoder of the same kind has learnt, up to layer ``n_transfer``.

        :raises InputError: some of the layers, which share half of their parameters.
        """
        c = self.config
        if c.sharing not in ("none", "all") and 0 < n_transfer < c.n_layer:
            raise InputError(
                f"n_transfer = {n_transfer}: the model's layers share parameters, expected 0 or {c.n_layer}"
            )
        theirs = source.state_dict()
        for name, tensor in self.state_dict().items():
            if n_transfer == c.layers or self._depth(name) <= n_transfer:
                tensor.copy_(theirs[name][: len(tensor)])

    def _depth(self, name: str) -> int:
        """How many blocks have to be taken over for a tensor to go with them: 0 for what stands below them, -1 for what
        is not learnt."""
        part, number, *_ = name.split(".")
        if part in ("attention", "feed_forward"):
            return int(number) + 1
        return 0 if part in ("embeddings", "widen") else self.config.layers  # the pooler reads what all layers give

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """Parameters of the embeddings, of each layer, and of the pooler with the heads of pre-training.

        Layers that share everything are one depth a group (ALBERT: one); a sub-layer that several layers share besides
        others of their own has the depth of the last of them.
        """
        embeddings = [self.embeddings] if self.widen is None else [self.embeddings, self.widen]
        whole = all(self._shared.values())
        depth_of: dict[nn.Module, int] = {}
        for layer in range(self.config.n_layer):
            for name, parts in (("attention", self.attention), ("feed-forward", self.feed_forward)):
                place = self._place(layer, name)
                depth_of[parts[place]] = 1 + (place if whole else layer)
        heads = [self.pooler, self.word_head, self.pair_head, self.replaced_head]
        levels: list[list[nn.Module]] = [[*embeddings], *([] for _ in range(self.config.layers))]
        for part, depth in depth_of.items():
            levels[depth].append(part)
        levels.append([head for head in heads if head is not None])
        return [[each for part in parts for each in part.parameters()] for parts in levels if parts]

    @property
    def pools(self) -> bool:
        return self.pooler is not None

    def flops_per_token(self, n_positions: int) -> float:
        """Floating-point operations of one trained token; the word head counts for the share of tokens that BERT masks.

        Entities, a few a sequence, are not counted.
        """
        return self.config.flops_per_token(n_positions, PretrainConfig().share_of_masked)


def without_heads(config: Settings) -> Settings:
    """The settings of the network that is fine-tuned: nothing in it serves pre-training alone."""
    heads = ("words", "pair", "replaced", "entity_head")
    return dataclasses.replace(config, **{f.name: False for f in dataclasses.fields(config) if f.name in heads})


def draw_weights(network: nn.Module, std: float, generator: torch.Generator | None) -> None:
    """Draw every matrix and embedding N(0, std), what lies beyond two deviations anew; biases 0, gains 1."""
    for part in network.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            _draw(part.weight, std, generator)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)


def _draw(weight: Tensor, std: float, generator: torch.Generator | None) -> None:
    nn.init.normal_(weight, generator=generator)
    if weight.is_meta:  # shapes without numbers
        return
    with torch.no_grad():
        while (beyond := weight.abs() > 2).any():
            weight[beyond] = torch.randn(int(beyond.sum()), generator=generator)
        weight.mul_(std)
