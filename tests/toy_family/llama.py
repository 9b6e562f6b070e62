"""Llama's network, of the product's parts and two of its own: no biases, and no positions but in queries and keys."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.models.attention import Attention
from gptcore.models.cpu import dropout
from gptcore.models.decoder import Block, Decoder, PreNormBlock
from gptcore.models.products import Linear
from tests.toy_family.family import LlamaConfig


class SwiGLU(nn.Module):
    """A feed-forward network whose inner layer is gated (Shazeer 2020): [B, T, D] -> [B, T, D]."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.resid_pdrop = config.resid_pdrop
        self.gate = Linear(config.n_embd, config.n_inner, bias=False)
        self.inner = Linear(config.n_embd, config.n_inner, bias=False)
        self.projection = Linear(config.n_inner, config.n_embd, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return dropout(self.projection(F.silu(self.gate(x)) * self.inner(x)), self.resid_pdrop, self.training)


class Llama(Decoder):
    config: LlamaConfig
    learns_positions = False

    def block(self) -> Block:
        attention = Attention(self.config, rotary=True, n_head_keys=self.config.n_head_keys, bias=False)
        return PreNormBlock(attention, SwiGLU(self.config), self.last_norm(), self.last_norm())

    def last_norm(self) -> nn.Module:
        return nn.RMSNorm(self.config.n_embd, eps=1e-5)
