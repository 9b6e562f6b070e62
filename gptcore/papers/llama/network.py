"""The network of Llama and its kin, of the decoder's parts.

Legend of the shape comments: B batch, T positions, D width, Q width of the queries, K width of the keys, V vocabulary
rows (n_vocab + n_special).
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.models.attention import Attention
from gptcore.models.context import Context
from gptcore.models.decoder import Block, Decoder, PreNormBlock
from gptcore.models.feed_forward import GatedFeedForward
from gptcore.models.network import initialise
from gptcore.papers.llama.config import LlamaConfig


class LlamaAttention(Attention):
    """Attention of grouped heads whose queries and keys are turned by their positions and, if so set, normalised."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(
            config,
            True,
            config.n_head_keys,
            config.qkv_bias,
            output_bias=config.output_bias,
            width=config.n_head_width,
            theta=config.theta,
        )
        norms = {name: nn.RMSNorm(self.width, eps=config.norm_eps) for name in ("q", "k") if config.qk_norms}
        self.norms = nn.ModuleDict(norms)

    def _placed(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return super()._placed(self._normed(q, "q"), self._normed(k, "k"), context)

    def _normed(self, x: Tensor, name: str) -> Tensor:
        """Queries or keys whose heads are each normalised, where the network has norms for them: -> the same shape."""
        if name not in self.norms:
            return x
        normed: Tensor = self.norms[name](x.reshape(*x.shape[:2], -1, self.width))  # (B, T, H, Q/H)
        return normed.flatten(2)


class Llama(Decoder):
    """The language model of Llama's kind; where its output layer has rows of its own, they are ``head``'s.

    :param config: sizes, dropout rates, and which parts the blocks have.
    :param generator: where the initial weights are drawn from; None: torch's default generator.
    """

    config: LlamaConfig
    learns_positions = False

    def __init__(self, config: LlamaConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        has_rows = config.untied and not config.headless
        self.head = nn.Embedding(self.tokens.num_embeddings, config.n_embd) if has_rows else None
        if self.head is not None:
            initialise(self.head, config.init_std, generator)
        self.shrink_outputs()

    def block(self) -> Block:
        return PreNormBlock(
            LlamaAttention(self.config), GatedFeedForward(self.config, "silu"), self.last_norm(), self.last_norm()
        )

    def last_norm(self) -> nn.Module:
        return nn.RMSNorm(self.config.n_embd, eps=self.config.norm_eps)

    @property
    def output(self) -> Tensor | None:
        if self.config.headless:
            raise InputError("model: has no head for the next token; expected a folder that holds one")
        return None if self.head is None else self.head.weight

    def take_over(self, source: Self, n_transfer: int) -> None:
        super().take_over(source, n_transfer)
        if n_transfer == self.config.n_layer and self.head is not None and source.head is not None:
            rows = min(self.head.num_embeddings, source.head.num_embeddings)
            with torch.no_grad():
                self.head.weight[:rows] = source.head.weight[:rows]

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """Parameters of the embeddings, then of each block, the last one with the last norm and the output layer."""
        depths = super().parameters_by_depth()
        if self.head is not None:
            depths[-1] += self.head.parameters()
        return depths
