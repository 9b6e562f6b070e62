"""The recurrent network of Table 5: one LSTM layer in the place of the Transformer (section 5, "ablation studies").

Legend of the shape comments: B batch, T positions, D width (n_embd), U units.

The paper says "a single layer 2048 unit LSTM using the same framework" and no more. Here: the same embedding, tied to
the output as in the Transformer, with one projection from the units to its width; dropout where the Transformer has it
on its embedding and on a sub-layer's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from gptcore.config import LSTMConfig
from gptcore.models.cpu import dropout
from gptcore.models.incremental import Reader, padded
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
        """Take over the embeddings and, with ``n_transfer`` = 1, the one block, LSTM and projection."""
        if n_transfer >= 0:
            self.copy_embeddings(source)
        if n_transfer == 1:
            self.recurrent.load_state_dict(source.recurrent.state_dict())
            self.projection.load_state_dict(source.projection.state_dict())

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """Parameters from the input up: the embeddings with the tied output, the layer with its projection."""
        return [list(self.tokens.parameters()), [*self.recurrent.parameters(), *self.projection.parameters()]]


class LSTMReader(Reader):
    """Carries the recurrent states along."""

    def __init__(self, model: LSTM, batch: int, kept: int = 0, width: int | None = None) -> None:
        super().__init__(model, batch)
        self._model = model
        weight = model.tokens.weight
        self._hidden, self._cell = (weight.new_zeros(1, batch, model.config.n_units) for _ in range(2))

    def spread(self, rows: Sequence[int], room: int) -> LSTMReader:
        """A reader of texts that begin as these ``rows``; an LSTM's state has room for any number of further ids."""
        other = LSTMReader(self._model, 0)
        other._batch = len(rows)
        chosen = torch.tensor(rows, dtype=torch.int64, device=self._device)
        other._hidden, other._cell = (state.index_select(1, chosen) for state in (self._hidden, self._cell))
        return other

    @staticmethod
    def position_bytes(model: LSTM) -> int:
        """0 bytes a position, as an LSTM keeps one state of a whole text."""
        return 0

    @property
    def longest(self) -> int:
        """1, as an LSTM keeps one state of a text of any length."""
        return 1

    def logits(self, states: Tensor) -> Tensor:
        return self._model.logits(states)

    def _has_room(self, n_new: int) -> bool:
        return True

    def _read(self, texts: Sequence[Sequence[int]], rows: slice) -> Tensor:
        tokens, counts = padded(texts, self._device)
        taking = counts.nonzero()[:, 0]  # a packed sequence has one step at least
        chosen = torch.arange(self._batch)[rows][taking].to(self._device)
        before = self._hidden[:, chosen], self._cell[:, chosen]
        packed = pack_padded_sequence(
            self._model.tokens(tokens[taking.to(self._device)]), counts[taking], batch_first=True, enforce_sorted=False
        )
        outputs, (self._hidden[:, chosen], self._cell[:, chosen]) = self._model.recurrent(packed, before)
        units, _ = pad_packed_sequence(outputs, batch_first=True, total_length=tokens.shape[1])
        states = units.new_zeros(*tokens.shape, self._model.config.n_embd)
        states[taking.to(self._device)] = self._model.projection(units)  # (b, T, units) -> (b, T, D)
        return states
