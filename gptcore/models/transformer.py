"""The decoder of section 4.1, a causal Transformer with learned positions and a tied output; and GPT-2's.

Legend of the shape comments: B batch, T positions, D width (n_embd), H heads, V vocabulary rows (n_vocab + n_special).

Where the paper is silent, the released code decides (reference: openai/finetune-transformer-lm): tanh-GELU, fused
q/k/v, layer-norm epsilon 1e-5, no norm on the embedding or after the last block, no scaling of residual weights.
Dropout on the embeddings follows the paper's text (on the sum of token and position); `original` in the config follows
the released code instead (on the whole table, positions included, once a forward pass).

GPT-2 ("Language Models are Unsupervised Multitask Learners", section 2.3) is the same but for its norms (`norm_first`):
they stand at the input of each sub-layer, one more after the last block, and the weights of the sub-layers' output are
drawn smaller by 1/sqrt(their number).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.config import LAYER_NORM_EPSILON, ModelConfig
from gptcore.models.attention import Attention, SmearedAttention
from gptcore.models.cpu import dropout
from gptcore.models.decoder import Block, Decoder, PreNormBlock
from gptcore.models.feed_forward import FeedForward
from gptcore.models.network import load_model


class GPT(Decoder):
    """The language model of GPT-1 or, with ``norm_first``, of GPT-2.

    :param config: sizes and dropout rates, and which parts the blocks are made of.
    :param generator: where the initial weights are drawn from; None: torch's default generator.
    """

    config: ModelConfig
    positions: nn.Embedding

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        if config.norm_first:
            self.shrink_outputs()

    def block(self) -> Block:
        c = self.config
        attention = (SmearedAttention if c.smeared_keys else Attention)(c, c.rotary)
        kind = PreNormBlock if c.norm_first else Block
        return kind(attention, FeedForward(c, "gelu_new"), self._layer_norm(), self._layer_norm())  # original code

    def last_norm(self) -> nn.Module:
        return self._layer_norm() if self.config.norm_first else nn.Identity()

    def _layer_norm(self) -> nn.Module:
        return nn.LayerNorm(self.config.n_embd, eps=LAYER_NORM_EPSILON)

    def table(self) -> Tensor:
        """[V, D]; as released, [V + n_ctx, D]: the positions are its last rows, and dropout is on the whole of it."""
        if not self.config.original:
            return self.tokens.weight
        rows = torch.cat([self.tokens.weight, self.positions.weight])
        return dropout(rows, self.config.embd_pdrop, self.training)

    def position_rows(self, table: Tensor) -> Tensor:
        """Position embeddings, [n_ctx, D]: the last rows of ``table`` where it has them (original code)."""
        n_rows = self.tokens.num_embeddings
        return table[n_rows:] if len(table) > n_rows else self.positions.weight

    @property
    def embedding_pdrop(self) -> float:
        """Dropout of what the first block gets; 0 in the original code, which drops in :meth:`table`."""
        return 0.0 if self.config.original else self.config.embd_pdrop

    @classmethod
    def load(cls, url: str | Path) -> GPT:
        """Read a model, in eval mode on the CPU, from any fsspec URL of a folder.

        The folder is our own (a model or a checkpoint), a Hugging Face "openai-gpt" or "gpt2" one (config.json and
        model.safetensors or pytorch_model.bin), or the original release's (params_0..9.npy and params_shapes.json).

        :raises InputError: naming the file, and what was expected of it.
        """
        model = load_model(str(url))
        if not isinstance(model, GPT):
            kind = type(model.config).__name__
            raise InputError(f"{url}: found {kind}, a network of another kind; expected a Transformer")
        return model
