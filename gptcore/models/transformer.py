"""The decoder of section 4.1, a causal Transformer with learned positions and a tied output; and GPT-2's.

Legend of the shape comments: B batch, T positions, D width (n_embd), H heads, V vocabulary rows (n_vocab + n_special).

Where the paper is silent, the released code decides (reference: openai/finetune-transformer-lm): tanh-GELU, fused
q/k/v, layer-norm epsilon 1e-5, no norm on the embedding or after the last block, no scaling of residual weights.
Dropout on the embeddings follows the paper's text (on the sum of token and position); `original` in the config follows
the released code instead (on the whole table, positions included, once a forward pass).

GPT-2 ("Language Models are Unsupervised Multitask Learners", section 2.3) is the same but for its norms (`norm_first`):
they stand at the input of each sub-layer, one more after the last block, and the weights of the sub-layers' output are
drawn smaller by 1/sqrt(their number).

GPT-BERT's network ("GPT or BERT: why not both?", Charpentier and Samuel 2024, section 3) is GPT-2's decoder, too, which
reads a sequence word by word or as a whole, as it is told to (:class:`BothWays`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.config import LAYER_NORM_EPSILON, ModelConfig
from gptcore.models.attention import Attention, rows_at
from gptcore.models.cpu import Branches, dropout, fold, tanh_gelu
from gptcore.models.network import LanguageModel, LayerStates, initialise, load_model
from gptcore.models.products import Linear

_SubLayer = Callable[[Tensor], Tensor]


class FeedForward(nn.Module):
    """Position-wise feed-forward network with the tanh form of GELU (original code)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.resid_pdrop = config.resid_pdrop
        self.inner = Linear(config.n_embd, config.n_inner)
        self.projection = Linear(config.n_inner, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        x = self.projection(tanh_gelu(self.inner(x)))
        return dropout(x, self.resid_pdrop, self.training)


class Block(nn.Module):
    """Two sub-layers; each one's output is added to its input."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_first
        self.attention = Attention(config)
        self.norm_1 = nn.LayerNorm(config.n_embd, eps=LAYER_NORM_EPSILON)
        self.feed_forward = FeedForward(config)
        self.norm_2 = nn.LayerNorm(config.n_embd, eps=LAYER_NORM_EPSILON)

    def forward(
        self, x: Tensor, visible: Tensor | None = None, at: Tensor | None = None, folded: Branches | None = None
    ) -> Tensor:
        """[B, T, D] -> [B, T, D], or [B, N, D]; ``visible``, ``at`` and ``folded`` as in :class:`Attention`."""
        return self.joined(x, lambda states: self.attention(states, visible, at, folded), self.feed_forward, at)

    def attention_scores(self, x: Tensor) -> Tensor:
        """See :meth:`Attention.scores`, of what the block gets."""
        return self.attention.scores(self.norm_1(x) if self.norm_first else x)

    def joined(self, x: Tensor, attend: _SubLayer, feed: _SubLayer, at: Tensor | None = None) -> Tensor:
        """The block with its sub-layers computed by ``attend`` and ``feed``; the former answers at ``at`` alone.

        Post-norm: the sums are normalised (original code). ``norm_first``: what goes into a sub-layer is.
        """
        kept = x if at is None else rows_at(x, at)
        if self.norm_first:
            x = kept + attend(self.norm_1(x))
            return x + feed(self.norm_2(x))
        x = self.norm_1(kept + attend(x))
        output: Tensor = self.norm_2(x + feed(x))
        return output


class GPT(LanguageModel):
    """The language model. Rows of ``tokens``: n_vocab words and pieces, then n_special start/delimiter/classify rows.

    :param config: sizes and dropout rates.
    :param generator: where the initial weights are drawn from; None: torch's default generator.
    """

    config: ModelConfig
    _compiled: Callable[[Tensor], Tensor] | None = None

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.n_vocab + config.n_special, config.n_embd)
        self.positions = nn.Embedding(config.n_ctx, config.n_embd)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(config.n_embd, eps=LAYER_NORM_EPSILON) if config.norm_first else nn.Identity()
        initialise(self, config.init_std, generator)
        if config.norm_first:
            self._shrink_outputs()

    def _shrink_outputs(self) -> None:
        """Sums of 2 * n_layer sub-layers start as large as one (GPT-2, section 2.3)."""
        with torch.no_grad():
            for part in self.modules():
                if isinstance(part, Attention | FeedForward):
                    part.projection.weight.div_(math.sqrt(2 * self.config.n_layer))

    def table(self) -> Tensor:
        """[V, D]; as released, [V + n_ctx, D]: the positions are its last rows, and dropout is on the whole of it."""
        if not self.config.original:
            return self.tokens.weight
        rows = torch.cat([self.tokens.weight, self.positions.weight])
        return dropout(rows, self.config.embd_pdrop, self.training)

    def states(self, tokens: Tensor, table: Tensor) -> Tensor:
        """States after the last block: ids [B, T] (T <= n_ctx) -> [B, T, D].

        :raises ValueError: if T exceeds n_ctx.
        """
        through = self._compiled if self._compiled and self.training else self._through
        return through(self._embedded_in_order(tokens, table))

    def compile_layers(self) -> None:
        """See :meth:`Network.compile_layers`: all blocks as one, which spares an H100 a seventh of GPT-1's update."""
        self._compiled, self.compiled = torch.compile(self._through, dynamic=False), True

    def _through(self, x: Tensor) -> Tensor:
        """What the blocks make of what they get: [B, T, D] -> [B, T, D]."""
        for block in self.blocks:
            x = block(x)
        return self._normalised(x)

    def layer_states(self, tokens: Tensor, table: Tensor, scores: bool = False) -> LayerStates:
        """What :meth:`states` computes on its way, block by block; of the last the states that are predicted from.

        :param scores: also those of the attention, which take a product more than :meth:`states` does.
        """
        x = self._embedded_in_order(tokens, table)
        found = LayerStates([x], [])
        for block in self.blocks:
            if scores:
                found.scores.append(cast(Block, block).attention_scores(x))
            x = block(x)
            found.states.append(x)
        found.states[-1] = self._normalised(x)
        return found

    def layer_parts(self, layer: int) -> list[nn.Module]:
        """See :meth:`gptcore.models.network.Network.layer_parts`."""
        return [self.blocks[layer]]

    def _embedded_in_order(self, tokens: Tensor, table: Tensor) -> Tensor:
        """What the first block gets of whole sequences: [B, T] -> [B, T, D]."""
        T = tokens.shape[-1]
        self._require_room(T)
        positions = table[self.tokens.num_embeddings :] if self.config.original else self.positions.weight
        x = F.embedding(tokens, table) + positions[:T]  # (B, T, D)
        return x if self.config.original else dropout(x, self.config.embd_pdrop, self.training)

    def last_states(self, tokens: Tensor, ends: Tensor, table: Tensor) -> Tensor:
        """See :meth:`LanguageModel.last_states`. The last block answers at the ends alone (CPU; not in training)."""
        if self.training or tokens.device.type != "cpu" or not self.blocks:
            return super().last_states(tokens, ends, table)
        found = fold(tokens, ends)
        *blocks, last = self.blocks
        x = self._embedded(found, table)
        for block in blocks:
            x = block(x, found.visible, folded=found)
        at = found.places.gather(2, ends[..., None])[..., 0]  # (B, C)
        visible = found.visible.gather(2, at[:, None, :, None].expand(-1, -1, -1, x.shape[1]))  # (B, 1, C, L)
        return self._normalised(last(x, visible, at, found))

    def _normalised(self, x: Tensor) -> Tensor:
        """States after the last block as the softmax and the heads get them: [..., D] -> the same."""
        states: Tensor = self.norm(x)
        return states

    def _require_room(self, length: int) -> None:
        if length > self.config.n_ctx:
            raise ValueError(f"a sequence of {length} tokens does not fit n_ctx = {self.config.n_ctx}")

    def _embedded(self, found: Branches, table: Tensor) -> Tensor:
        """What the first block gets: [B, L, D]."""
        self._require_room(int(found.positions.max()) + 1)
        positions = table[self.tokens.num_embeddings :] if self.config.original else self.positions.weight
        return F.embedding(found.tokens, table) + F.embedding(found.positions, positions)

    def choices(self, tokens: Tensor, ends: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`LanguageModel.choices`. What they share is computed once where no dropout tells them apart.

        Only on a CPU: on a GPU flash attention takes no mask of one's own.
        """
        if tokens.device.type != "cpu" or (self.training and self.drops):
            return super().choices(tokens, ends, table)
        found = fold(tokens, ends)
        x = self._embedded(found, table)  # (B, L, D)
        for block in self.blocks:
            x = block(x, found.visible, folded=found)
        x = self._normalised(x)
        B, L, _ = x.shape
        first = (torch.arange(B) * L)[:, None, None]  # (B, 1, 1)
        return x.flatten(0, 1), (first + found.places).flatten()

    def take_over(self, source: Self, n_transfer: int) -> None:
        """See :meth:`gptcore.models.network.Network.take_over`."""
        if n_transfer >= 0:
            self.copy_embeddings(source)
            with torch.no_grad():
                self.positions.weight.copy_(source.positions.weight[: self.config.n_ctx])
        for mine, its in zip(self.blocks, source.blocks[: max(0, n_transfer)], strict=False):
            mine.load_state_dict(its.state_dict())
        if n_transfer == self.config.n_layer:
            self.norm.load_state_dict(source.norm.state_dict())  # of what all of these blocks together give

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """See :meth:`gptcore.models.network.Network.parameters_by_depth`; the tied output is the embeddings', a last
        norm the last block's.
        """
        depths = [[*self.tokens.parameters(), *self.positions.parameters()]]
        depths += [list(block.parameters()) for block in self.blocks]
        depths[-1] += self.norm.parameters()
        return depths

    @classmethod
    def load(cls, url: str | Path) -> GPT:
        """Read a model, in eval mode on the CPU, from any fsspec URL of a folder.

        The folder is our own (a model or a checkpoint), a Hugging Face "openai-gpt" or "gpt2" one (config.json and
        model.safetensors or pytorch_model.bin), or the original release's (params_0..9.npy and params_shapes.json).

        :raises InputError: naming the file, and what was expected of it.
        """
        found = load_model(str(url))
        if not isinstance(found, GPT):
            kind = type(found.config).__name__
            raise InputError(f"{url}: found {kind}, a network of another kind; expected a Transformer")
        return found


class BothWays(GPT):
    """GPT-2's decoder with a row of its embedding, the first behind the vocabulary's, for hidden words.

    What differs from sequence to sequence is which positions each of them sees. Logits stay those of the next token,
    also where that one is hidden and the network reads on behind it.

    Alone (:meth:`forward`, :meth:`states`) it reads word by word; fine-tuned it sees each sequence whole.
    """

    @property
    def mask(self) -> int:
        """The id that stands in a hidden word's place."""
        return self.config.n_vocab

    def mixed_states(self, tokens: Tensor, table: Tensor, whole: Tensor, words: Tensor) -> Tensor:
        """States after the last block, of sequences read in either way: ids [B, T] -> [B, T, D].

        :param whole: [B] bool, which sequences are seen as a whole.
        :param words: [B, T] bool, False for padding, which no other position sees.
        """
        T = tokens.shape[1]
        before = torch.ones(T, T, dtype=torch.bool, device=tokens.device).tril_()
        seen = torch.where(whole[:, None, None, None], words[:, None, None, :], before)  # (B, 1, T, T)
        return self._seen(tokens, table, seen)

    def sequence_states(self, tokens: Tensor, ends: Tensor, table: Tensor) -> Tensor:
        """See :meth:`LanguageModel.sequence_states`; every position sees all up to the end."""
        words = torch.arange(tokens.shape[1], device=tokens.device) <= ends[:, None]  # (B, T)
        return self._seen(tokens, table, words[:, None, None, :])

    def choices(self, tokens: Tensor, ends: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`LanguageModel.choices`; what begins alike goes on differently, so nothing is shared."""
        return LanguageModel.choices(self, tokens, ends, table)

    def last_states(self, tokens: Tensor, ends: Tensor, table: Tensor) -> Tensor:
        """See :meth:`LanguageModel.last_states`; nothing is shared, either."""
        return LanguageModel.last_states(self, tokens, ends, table)

    def _seen(self, tokens: Tensor, table: Tensor, seen: Tensor) -> Tensor:
        """:param seen: [B, 1, T or 1, T] bool, what each position, or every one, sees."""
        x = self._embedded_in_order(tokens, table)
        for block in self.blocks:
            x = block(x, seen)
        return self._normalised(x)
