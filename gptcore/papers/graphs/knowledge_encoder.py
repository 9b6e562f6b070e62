"""BERT's encoder with the entities of a knowledge graph beside the words (Zhang et al. 2019, ERNIE of Tsinghua).

The lower layers are BERT's ("T-Encoder", section 3.2). Each of the upper ones ("K-Encoder", section 3.3) lets words
attend to words and entities to entities, fuses the two where an entity is aligned with a word, in the inner layer of
the feed-forward network, and leads what comes of it back to both (equation 4; residuals and norms as in BERT: original
code). Where a text has no entity, all that is left is BERT.

The entities' vectors are TransE's and are not learnt further. With them the network keeps the names by which entities
are found in texts, so that its folder is all that has to be at hand.

Legend of the shape comments: B sequences, T positions, D width of the states, I of the inner layer, S mentions of the
sequence that has most, K width of the entities, M candidates, N chosen positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.config import EncoderConfig
from gptcore.models.cpu import dropout
from gptcore.models.encoder import Encoder, draw_weights
from gptcore.models.encoder_parts import Embeddings, FeedForward, SelfAttention, norm
from gptcore.models.feed_forward import activated
from gptcore.models.products import Linear
from gptcore.papers.graphs.config import KnowledgeEncoderConfig
from gptcore.papers.graphs.entities import Gazetteer

_TABLES = ("name_pieces", "name_stops", "name_entities", "name_tails")
_KNOWN = ("vectors", *_TABLES)
"""What the network is given and never learns."""


class Aligned(NamedTuple):
    """The mentions of a batch, those of each sequence side by side."""

    entities: Tensor
    """[B, S] 1 + the entity's number, 0 behind a sequence's last mention."""
    places: Tensor
    """[B*S] which of the B*T positions each begins at; behind the last mention the sequence's first."""


class EntityLayer(nn.Module):
    """What a fusing layer has for entities beside what it has for words."""

    def __init__(self, config: KnowledgeEncoderConfig) -> None:
        super().__init__()
        width = config.n_embd_entities
        sizes: EncoderConfig = dataclasses.replace(
            config.without_entities, n_embd=width, n_head=config.n_head_entities, n_embd_words=None
        )
        self.attention = SelfAttention(sizes)
        self.inner = Linear(width, config.n_inner, bias=False)  # the words' inner layer has the bias of both
        self.projection = Linear(config.n_inner, width)
        self.activation, self.resid_pdrop = config.activation, config.resid_pdrop
        self.norm = norm(width)

    def forward(self, e: Tensor, seen: Tensor) -> Tensor:
        """Entities attend to entities: [B, S, K] -> [B, S, K]; ``seen`` [B, 1, 1, S]: which there are."""
        attended: Tensor = self.attention(e, seen)
        return attended

    def widened(self, e: Tensor) -> Tensor:
        """What entities add to the inner layer: [B, S, K] -> [B, S, I]."""
        inner: Tensor = self.inner(e)
        return inner

    def narrowed(self, e: Tensor, inner: Tensor) -> Tensor:
        """What the layer gives to entities: its input [B, S, K], the inner layer at their places [B, S, I]."""
        hidden = self.projection(activated(inner, self.activation))
        output: Tensor = self.norm(e + dropout(hidden, self.resid_pdrop, self.training))
        return output


class KnowledgeEncoder(Encoder):
    """The network, with the heads that its configuration names.

    :param config: sizes, dropout rates, heads, how many layers fuse.
    :param generator: where the initial weights are drawn from; None: torch's default generator.
    :param embeddings: those of another encoder, which this one shares; None: its own.
    """

    config: KnowledgeEncoderConfig

    def __init__(
        self,
        config: KnowledgeEncoderConfig,
        generator: torch.Generator | None = None,
        embeddings: Embeddings | None = None,
    ) -> None:
        super().__init__(config, generator, embeddings)
        self.fusion = nn.ModuleList(EntityLayer(config) for _ in range(config.fused))
        self.entity_head = Linear(config.n_embd, config.n_embd_entities) if config.entity_head else None
        draw_weights(self.fusion, config.init_std, generator)
        if self.entity_head is not None:
            draw_weights(self.entity_head, config.init_std, generator)
        self.register_buffer("vectors", torch.zeros(config.n_entities + 1, config.n_embd_entities))  # the first: none
        self.register_buffer("name_pieces", torch.zeros(config.n_name_pieces, dtype=torch.int64))
        self.register_buffer("name_stops", torch.zeros(config.n_names, dtype=torch.int64))
        self.register_buffer("name_entities", torch.zeros(config.n_names, dtype=torch.int64))
        self.register_buffer("name_tails", torch.zeros(config.n_vocab, dtype=torch.bool))
        self._gazetteer: tuple[tuple[int, ...], Gazetteer] | None = None

    # --- what it knows ---

    def know(self, vectors: Tensor, gazetteer: Gazetteer, where: str) -> None:
        """Take over what is known of the entities.

        :param vectors: [entities, K].
        :param where: what holds them, for the error message.
        :raises InputError: others than the configuration says.
        """
        tables = (gazetteer.pieces, gazetteer.stops, gazetteer.entities, gazetteer.tail)
        given = {"vectors": torch.cat([torch.zeros(1, vectors.shape[1]), vectors.float()])}
        given |= {name: torch.from_numpy(table) for name, table in zip(_TABLES, tables, strict=True)}
        for name, tensor in given.items():
            mine = self.get_buffer(name)
            if tensor.shape != mine.shape:
                raise InputError(
                    f"{where}: its {name} have the shape {list(tensor.shape)}, expected {list(mine.shape)} as in the "
                    "settings"
                )
            mine.copy_(tensor)

    def link(self, tokens: Tensor) -> Tensor:
        """The entities that texts mention: [B, T] ids -> [B, T], see :meth:`Gazetteer.find`."""
        entities = self._names().find(tokens.cpu().numpy().astype(np.int64))
        return torch.from_numpy(entities).to(tokens.device)

    def _names(self) -> Gazetteer:
        """The names, as long as the tables stay what they are."""
        tables = [self.get_buffer(name) for name in _TABLES]
        version = tuple(key for table in tables for key in (table.data_ptr(), table._version))
        if self._gazetteer is None or self._gazetteer[0] != version:
            self._gazetteer = version, Gazetteer(*(table.cpu().numpy() for table in tables))
        return self._gazetteer[1]

    # --- what it computes ---

    def entity_scores(self, states: Tensor, candidates: Tensor) -> Tensor:
        """How likely each of some entities is at places of a text (equation 6): [N, D] and [M] -> logits [N, M].

        :param candidates: 1 + the entities' numbers.
        :raises InputError: a network without that head.
        """
        scores: Tensor = self._there(self.entity_head, "entities")(states) @ self.get_buffer("vectors")[candidates].T
        return scores

    def _walk(
        self, tokens: Tensor, segments: Tensor | None, mask: Tensor | None, entities: Tensor | None = None
    ) -> Iterator[tuple[Tensor, SelfAttention | None]]:
        aligned = self._aligned(tokens, entities) if self.config.fused else None
        if aligned is None:
            yield from super()._walk(tokens, segments, mask)
            return
        n_alone = self.config.n_layer - self.config.fused
        visible = None if mask is None else mask.bool()[:, None, None, :]  # (B, 1, 1, T)
        there = (aligned.entities > 0)[:, None, None, :]  # (B, 1, 1, S)
        # Of a sequence without a mention the first place is seen, so that its softmax is one; nobody reads the result.
        seen = there | (torch.arange(there.shape[-1], device=there.device) == 0)
        x = self._embedded(tokens, segments)
        e = self.get_buffer("vectors")[aligned.entities]  # (B, S, K)
        for layer, (attention, feed_forward) in enumerate(zip(self.attention, self.feed_forward, strict=True)):
            yield x, cast(SelfAttention, attention)
            x = attention(x, visible)
            if layer < n_alone:
                x = feed_forward(x)
                continue
            fusing = cast(EntityLayer, self.fusion[layer - n_alone])
            e = fusing(e, seen)
            x, e = _fused(cast(FeedForward, feed_forward), fusing, x, e, aligned)
        yield x, None

    def _aligned(self, tokens: Tensor, entities: Tensor | None) -> Aligned | None:
        """The mentions of a batch; None: none are found in it.

        Of given ones a batch without any passes the fusing layers, too: processes that share weights wait for each
        other in each layer, and another one's batch may have some.
        """
        if entities is None:
            if not self.config.linked:
                return None
            entities = self.link(tokens)
            if not entities.any():
                return None
        most = max(1, int((entities > 0).sum(1).max()))
        first = torch.argsort((entities == 0).to(torch.int8), dim=1, stable=True)[:, :most]  # (B, S)
        linked = entities.gather(1, first)
        rows = torch.arange(len(tokens), device=tokens.device)[:, None] * tokens.shape[1]
        return Aligned(linked, (rows + first.where(linked > 0, 0)).flatten())

    # --- its parts ---

    def _depth(self, name: str) -> int:
        part, number, *_ = f"{name}.".split(".")
        if part == "fusion":
            return self.config.n_layer - self.config.fused + int(number) + 1
        return -1 if part in _KNOWN else super()._depth(name)

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """The parameters from the embeddings up to the heads; a layer's entities are as deep as its words."""
        levels = super().parameters_by_depth()
        first = 1 + self.config.n_layer - self.config.fused  # behind the embeddings
        for number, layer in enumerate(self.fusion):
            levels[first + number] += layer.parameters()
        if self.entity_head is not None:
            levels[-1] += self.entity_head.parameters()
        return levels

    def layer_parts(self, layer: int) -> list[nn.Module]:
        """The parts of a layer, what it has for entities last."""
        number = layer - (self.config.n_layer - self.config.fused)
        return [*super().layer_parts(layer), *([self.fusion[number]] if number >= 0 else [])]

    def go_on_from(self, tensors: Mapping[str, Tensor], url: str) -> Self:
        """Take over the weights of a network of this kind, or of an encoder without entities, to which these are new.

        :raises InputError: if one is missing or of another shape.
        """
        if "vectors" in tensors:
            return self.fill(tensors, url)
        mine, kept = self.state_dict(), ("fusion", "entity_head", *_KNOWN)
        own = {name: tensor for name, tensor in mine.items() if name.split(".")[0] in kept}
        return self.fill({**own, **{name: tensor for name, tensor in tensors.items() if name in mine}}, url)


def _fused(
    feed_forward: FeedForward, fusing: EntityLayer, x: Tensor, e: Tensor, aligned: Aligned
) -> tuple[Tensor, Tensor]:
    """Equations 4 and 5: words [B, T, D] and entities [B, S, K] through one inner layer [B, T, I] and back."""
    inner = feed_forward.widened(x)  # (B, T, I)
    added = fusing.widened(e) * (aligned.entities > 0)[..., None]  # (B, S, I)
    flat = inner.flatten(0, 1).index_add(0, aligned.places, added.flatten(0, 1).to(inner.dtype))  # (B*T, I)
    theirs = flat.index_select(0, aligned.places).view_as(added)  # (B, S, I)
    return feed_forward.narrowed(x, flat.view_as(inner)), fusing.narrowed(e, theirs)
