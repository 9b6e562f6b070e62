"""A causal Transformer whose blocks are made of parts, of which each network names its own.

Legend of the shape comments: B batch, T positions, L positions of a trunk with its branches, D width (n_embd), H heads,
V vocabulary rows (n_vocab + n_special).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.config.network import TransformerConfig
from gptcore.models.attention import Attention
from gptcore.models.context import IN_ORDER, Branches, Context, fold, rows_at
from gptcore.models.cpu import dropout
from gptcore.models.network import LanguageModel, LayerStates, initialise


class Block(nn.Module):
    """Two sub-layers, each of which adds to its input; the sums are normalised."""

    def __init__(self, attention: Attention, feed_forward: nn.Module, norm_1: nn.Module, norm_2: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.norm_1 = norm_1
        self.feed_forward = feed_forward
        self.norm_2 = norm_2

    def forward(self, x: Tensor, context: Context = IN_ORDER) -> Tensor:
        """[B, T, D] -> [B, T, D], or the states of those positions that the context asks for, [B, N, D]."""
        x = self.norm_1(rows_at(x, context.at) + self.attention(x, context))
        output: Tensor = self.norm_2(x + self.feed_forward(x))
        return output

    def attention_scores(self, x: Tensor) -> Tensor:
        """How much each position asks for each of what the block gets, before the softmax: -> [B, H, T, T]."""
        return self.attention.scores(x)


class PreNormBlock(Block):
    """Two sub-layers, each of which adds to its input what it makes of it normalised."""

    def forward(self, x: Tensor, context: Context = IN_ORDER) -> Tensor:
        x = rows_at(x, context.at) + self.attention(self.norm_1(x), context)
        output: Tensor = x + self.feed_forward(self.norm_2(x))
        return output

    def attention_scores(self, x: Tensor) -> Tensor:
        return super().attention_scores(self.norm_1(x))


class Decoder(LanguageModel):
    """A language model. Rows of ``tokens``: n_vocab words and pieces, then n_special start/delimiter/classify rows.

    :param config: sizes and dropout rates.
    :param generator: where the initial weights are drawn from; None: torch's default generator.
    """

    config: TransformerConfig
    _compiled: Callable[[Tensor], Tensor] | None = None
    learns_positions = True
    """Whether each position has a row of its own that is added to its token's."""

    def __init__(self, config: TransformerConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.n_vocab + config.n_special, config.n_embd)
        self.positions = nn.Embedding(config.n_ctx, config.n_embd) if self.learns_positions else None
        self.blocks = nn.ModuleList(self.block() for _ in range(config.n_layer))
        self.norm = self.last_norm()
        initialise(self, config.init_std, generator)

    def shrink_outputs(self) -> None:
        """Make what sub-layers add smaller: sums of 2 * n_layer start as large as one (GPT-2, section 2.3)."""
        with torch.no_grad():
            for block in self.blocks:
                for part in (cast(Block, block).attention, cast(Block, block).feed_forward):
                    cast(nn.Linear, part.projection).weight.div_(math.sqrt(2 * self.config.n_layer))

    @abstractmethod
    def block(self) -> Block:
        """A block, of new parts."""

    @abstractmethod
    def last_norm(self) -> nn.Module:
        """What the states go through after the last block."""

    def position_rows(self, table: Tensor) -> Tensor | None:
        """What is added to the tokens' rows at each position, [n_ctx, D]; None: nothing."""
        return None if self.positions is None else self.positions.weight

    def embedded(self, tokens: Tensor, table: Tensor, positions: Tensor | None = None) -> Tensor:
        """What the first block gets: [B, T] -> [B, T, D].

        :param positions: [B, T] where each token stands; None: one after the other.
        """
        x, rows = F.embedding(tokens, table), self.position_rows(table)
        if rows is not None:
            x = x + (rows[: tokens.shape[-1]] if positions is None else F.embedding(positions, rows))
        return dropout(x, self.embedding_pdrop, self.training)

    @property
    def embedding_pdrop(self) -> float:
        """Dropout of what the first block gets."""
        return self.config.embd_pdrop

    def through(self, x: Tensor, context: Context = IN_ORDER) -> Tensor:
        """What the blocks make of what they get, as the softmax and the heads get it: [B, T, D] -> [B, T, D]."""
        for block in self.blocks:
            x = block(x, context)
        states: Tensor = self.norm(x)
        return states

    def states(self, tokens: Tensor, table: Tensor) -> Tensor:
        """States after the last block: ids [B, T] (T <= n_ctx) -> [B, T, D].

        :raises ValueError: if T exceeds n_ctx.
        """
        through = self._compiled if self._compiled and self.training else self.through
        return through(self._embedded_in_order(tokens, table))

    def compile_layers(self) -> None:
        """Have torch.compile fuse all blocks as one function, which spares an H100 a seventh of GPT-1's update."""
        self._compiled, self.compiled = torch.compile(self.through, dynamic=False), True

    def layer_states(self, tokens: Tensor, table: Tensor, scores: bool = False) -> LayerStates:
        """What :meth:`states` computes on its way, block by block; of the last the states that are predicted from.

        :param scores: also those of the attention, which take a product more than :meth:`states` does.
        """
        x = self._embedded_in_order(tokens, table)
        layers = LayerStates([x], [])
        for block in self.blocks:
            if scores:
                layers.scores.append(cast(Block, block).attention_scores(x))
            x = block(x)
            layers.states.append(x)
        layers.states[-1] = self.norm(x)
        return layers

    def layer_parts(self, layer: int) -> list[nn.Module]:
        return [self.blocks[layer]]

    def last_states(self, tokens: Tensor, ends: Tensor, table: Tensor) -> Tensor:
        """States of the last tokens, [B, C, D]; on a CPU in eval mode the last block computes these positions alone."""
        if self.training or tokens.device.type != "cpu" or not self.blocks:
            return super().last_states(tokens, ends, table)
        branches = fold(tokens, ends)
        *blocks, last = self.blocks
        x = self._embedded_folded(branches, table)
        for block in blocks:
            x = block(x, branches)
        states: Tensor = self.norm(last(x, branches.asked_at(ends)))
        return states

    def choices(self, tokens: Tensor, ends: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """States of sequences that begin alike, what they share computed once where no dropout makes it differ.

        Only on a CPU: on a GPU flash attention takes no mask of one's own.
        """
        if tokens.device.type != "cpu" or (self.training and self.drops):
            return super().choices(tokens, ends, table)
        branches = fold(tokens, ends)
        x = self.through(self._embedded_folded(branches, table), branches)
        B, L, _ = x.shape
        first = (torch.arange(B) * L)[:, None, None]  # (B, 1, 1)
        return x.flatten(0, 1), (first + branches.origins).flatten()

    def _embedded_in_order(self, tokens: Tensor, table: Tensor) -> Tensor:
        """What the first block gets of whole sequences: [B, T] -> [B, T, D]."""
        self.require_room(tokens.shape[-1])
        return self.embedded(tokens, table)

    def _embedded_folded(self, branches: Branches, table: Tensor) -> Tensor:
        """What the first block gets of folded sequences: [B, L] -> [B, L, D]."""
        self.require_room(int(branches.positions.max()) + 1)
        return self.embedded(branches.tokens, table, branches.positions)

    @property
    def width_of_keys(self) -> int:
        """Width of the keys, and of the values, of each block."""
        return cast(Block, self.blocks[0]).attention.width_of_keys if self.blocks else 0

    def require_room(self, length: int) -> None:
        """:raises ValueError: a sequence that is longer than n_ctx."""
        if length > self.config.n_ctx:
            raise ValueError(f"a sequence of {length} tokens does not fit n_ctx = {self.config.n_ctx}")

    def take_over(self, source: Self, n_transfer: int) -> None:
        if n_transfer >= 0:
            self.copy_embeddings(source)
        if n_transfer >= 0 and self.positions is not None and source.positions is not None:
            with torch.no_grad():
                self.positions.weight.copy_(source.positions.weight[: self.config.n_ctx])
        for mine, its in zip(self.blocks, source.blocks[: max(0, n_transfer)], strict=False):
            mine.load_state_dict(its.state_dict())
        if n_transfer == self.config.n_layer:
            self.norm.load_state_dict(source.norm.state_dict())  # of what all of these blocks together give

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """Parameters of the embeddings (with the tied output), then of each block, the last one with the last norm."""
        depths = [list(self.tokens.parameters())]
        depths[0] += () if self.positions is None else self.positions.parameters()
        depths += [list(block.parameters()) for block in self.blocks]
        depths[-1] += self.norm.parameters()
        return depths
