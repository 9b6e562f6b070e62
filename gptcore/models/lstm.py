"""The recurrent network of Table 5: one LSTM layer in the place of the Transformer (section 5, "ablation studies").

Legend of the shape comments: B batch, T positions, D width (n_embd), U units.

The paper says "a single layer 2048 unit LSTM using the same framework" and no more. Here: the same embedding, tied to
the output as in the Transformer, with one projection from the units to its width; dropout where the Transformer has it
on its embedding and on a sub-layer's output.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from gptcore.config import LSTMConfig
from gptcore.models.cpu import dropout
from gptcore.models.network import LanguageModel, initialise
from gptcore.models.products import Linear


class LSTM(LanguageModel):
    """The language model.

    :param config: sizes and dropout rates.
    :param generator: where the initial weights are drawn from; None: torch's default generator.
    """

    config: LSTMConfig

    def __init__(self, config: LSTMConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.n_vocab + config.n_special, config.n_embd)
        self.recurrent = nn.LSTM(config.n_embd, config.n_units, batch_first=True)
        self.projection = Linear(config.n_units, config.n_embd)
        initialise(self, config.init_std, generator)

    def states(self, tokens: Tensor, table: Tensor) -> Tensor:
        """Ids [B, T] -> [B, T, D], each from the tokens up to its own; right padding changes nothing before it."""
        x = dropout(nn.functional.embedding(tokens, table), self.config.embd_pdrop, self.training)  # (B, T, D)
        units, _ = self.recurrent(x)  # (B, T, U)
        return dropout(self.projection(units), self.config.resid_pdrop, self.training)

    def take_over(self, source: Self, n_transfer: int) -> None:
        """See :meth:`gptcore.models.network.Network.take_over`; there is one block."""
        if n_transfer >= 0:
            self.copy_embeddings(source)
        if n_transfer == 1:
            self.recurrent.load_state_dict(source.recurrent.state_dict())
            self.projection.load_state_dict(source.projection.state_dict())

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """See :meth:`gptcore.models.network.Network.parameters_by_depth`; the tied output is the embeddings', the
        projection the layer's.
        """
        return [list(self.tokens.parameters()), [*self.recurrent.parameters(), *self.projection.parameters()]]
