"""What pre-training, fine-tuning and scoring ask of a network that predicts the next token, whatever it is inside.

Legend: B batch, T positions, D width (n_embd), V rows of the embedding (n_vocab + n_special).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.models.network import Network


class LanguageModel(Network):
    """A network with an embedding that also is its output layer. Subclasses: the Transformer, the LSTM of Table 5.

    A forward pass asks for :meth:`table` once and hands it to :meth:`states` and to the softmax, because the released
    code drops the same elements of it for both.
    """

    tokens: nn.Embedding

    def table(self) -> Tensor:
        """The embedding of this forward pass: [V, D]; rows after those V are no words (positions, original code)."""
        return self.tokens.weight

    @abstractmethod
    def states(self, tokens: Tensor, table: Tensor) -> Tensor:
        """What the next token is predicted from: ids [B, T] -> [B, T, D]."""

    def sequence_states(self, tokens: Tensor, ends: Tensor, table: Tensor) -> Tensor:
        """States of whole sequences, each of which ends at ``ends`` [B]: ids [B, T], right-padded -> [B, T, D].

        As :meth:`states`, but for networks whose positions see what comes behind them, too.
        """
        return self.states(tokens, table)

    @abstractmethod
    def adapt(
        self,
        n_special: int = 3,
        n_ctx: int | None = None,
        n_transfer: int | None = None,
        generator: torch.Generator | None = None,
        **changes: Any,
    ) -> LanguageModel:
        """A copy to fine-tune; see :meth:`gptcore.models.transformer.GPT.adapt`."""

    def choices(self, tokens: Tensor, ends: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """States of sequences that are likely to begin alike.

        :param tokens: [B, C, T] ids; C sequences an example, right-padded.
        :param ends: [B, C] index of each sequence's last token.
        :returns: states [N, D], and which of them is that of each position: [B*C*T]; for padding any number.
        """
        hidden = self.sequence_states(tokens.flatten(0, 1), ends.flatten(), table)  # (B*C, T, D)
        return hidden.flatten(0, 1), torch.arange(tokens.numel(), device=tokens.device)

    def last_states(self, tokens: Tensor, ends: Tensor, table: Tensor) -> Tensor:
        """States of the last tokens alone: ids [B, C, T], each sequence up to ``ends`` [B, C] -> [B, C, D]."""
        B, C, _ = tokens.shape
        hidden = self.sequence_states(tokens.flatten(0, 1), ends.flatten(), table)  # (B*C, T, D)
        return hidden[torch.arange(B * C, device=tokens.device), ends.flatten()].view(B, C, -1)

    def words(self, table: Tensor) -> Tensor:
        """The rows of ``table`` that are words, pieces and specials: [V, D]."""
        return table[: self.tokens.num_embeddings]

    def hidden(self, tokens: Tensor) -> Tensor:
        """States after the last layer: ids [B, T] -> [B, T, D]."""
        return self.states(tokens, self.table())

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of every row of the tied embedding: [..., D] -> [..., V]."""
        return F.linear(hidden, self.tokens.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """Ids [B, T] -> next-token logits [B, T, V]."""
        table = self.table()
        return F.linear(self.states(tokens, table), self.words(table))

    def copy_embeddings(self, source: LanguageModel) -> None:
        """Take over the rows of ``source``'s embedding that this model has too."""
        rows = min(self.tokens.num_embeddings, source.tokens.num_embeddings)
        with torch.no_grad():
            self.tokens.weight[:rows] = source.tokens.weight[:rows]


def check_transfer(n_ctx: int, n_transfer: int, positions: int, layers: int) -> None:
    """:raises InputError: more positions or layers are asked for than a model has."""
    if not 1 <= n_ctx <= positions:
        raise InputError(f"n_ctx = {n_ctx}: the model has {positions} positions")
    if not -1 <= n_transfer <= layers:
        raise InputError(f"n_transfer = {n_transfer}: the model has {layers} blocks")


def initialise(module: nn.Module, std: float, generator: torch.Generator | None = None) -> None:
    """Draw every weight matrix and embedding of ``module`` N(0, std); biases become 0, gains 1 (section 4.1)."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=std, generator=generator)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.LSTM):
            for name, parameter in part.named_parameters():
                if name.startswith("weight"):
                    nn.init.normal_(parameter, std=std, generator=generator)
                else:
                    nn.init.zeros_(parameter)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
