"""The position-wise feed-forward network, of which decoders and encoders are made.

Legend of the shape comments: B batch, T positions, D width, I width of the inner layer.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.config.network import TransformerConfig
from gptcore.models.cpu import dropout, tanh_gelu
from gptcore.models.products import Linear


def activated(x: Tensor, activation: str) -> Tensor:
    """An inner layer behind its activation, one of :data:`gptcore.config.network.ACTIVATIONS` or "silu"."""
    if activation == "silu":
        return F.silu(x)
    return tanh_gelu(x) if activation == "gelu_new" else F.gelu(x)


class FeedForward(nn.Module):
    """Two matrices with an activation between them.

    :param activation: one of :data:`gptcore.config.network.ACTIVATIONS`.
    """

    def __init__(self, config: TransformerConfig, activation: str) -> None:
        super().__init__()
        self.activation = activation
        self.resid_pdrop = config.resid_pdrop
        self.inner = Linear(config.n_embd, config.n_inner)
        self.projection = Linear(config.n_inner, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        return self.projected(self.inner(x))

    def projected(self, inner: Tensor) -> Tensor:
        """What the network gives, of the inner layer before its activation: [B, T, I] -> [B, T, D]."""
        hidden = self.projection(activated(inner, self.activation))
        return dropout(hidden, self.resid_pdrop, self.training)


class GatedFeedForward(nn.Module):
    """A feed-forward network whose inner layer is multiplied by a second one, without biases (Shazeer 2020, "GLU
    Variants Improve Transformer").

    :param activation: of the first of the two: "silu" (SwiGLU), or one of :data:`gptcore.config.network.ACTIVATIONS`.
    """

    def __init__(self, config: TransformerConfig, activation: str) -> None:
        super().__init__()
        self.activation = activation
        self.resid_pdrop = config.resid_pdrop
        self.inner = Linear(config.n_embd, 2 * config.n_inner, bias=False)
        self.inner.matrices = (config.n_inner, config.n_inner)
        self.projection = Linear(config.n_inner, config.n_embd, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        inner, factors = self.inner(x).chunk(2, dim=-1)  # (B, T, I) each
        return dropout(self.projection(activated(inner, self.activation) * factors), self.resid_pdrop, self.training)
