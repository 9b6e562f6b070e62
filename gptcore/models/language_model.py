"""What pre-training, fine-tuning and scoring ask of a network, whatever it is inside.

Legend: B batch, T positions, D width (n_embd), V rows of the embedding (n_vocab + n_special).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.config import NetworkConfig
from gptcore.errors import InputError
from gptcore.models.files.own import write_own

_NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""What weights are kept as."""


class LanguageModel(nn.Module, ABC):
    """A network with an embedding that also is its output layer. Subclasses: the Transformer, the LSTM of Table 5.

    A forward pass asks for :meth:`table` once and hands it to :meth:`states` and to the softmax, because the released
    code drops the same elements of it for both.
    """

    config: NetworkConfig
    tokens: nn.Embedding

    def table(self) -> Tensor:
        """The embedding of this forward pass: [V, D]; rows after those V are no words (positions, original code)."""
        return self.tokens.weight

    @abstractmethod
    def states(self, tokens: Tensor, table: Tensor) -> Tensor:
        """What the next token is predicted from: ids [B, T] -> [B, T, D]."""

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

    @abstractmethod
    def flops_per_token(self, n_positions: int) -> float:
        """Floating-point operations of one trained token in a sequence of ``n_positions``, forward and backward."""

    @property
    def drops(self) -> bool:
        """Whether two passes over the same tokens differ in training."""
        return any(getattr(self.config, name, 0.0) for name in ("embd_pdrop", "attn_pdrop", "resid_pdrop"))

    def choices(self, tokens: Tensor, ends: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """States of sequences that are likely to begin alike.

        :param tokens: [B, C, T] ids; C sequences an example, right-padded.
        :param ends: [B, C] index of each sequence's last token.
        :returns: states [N, D], and which of them is that of each position: [B*C*T]; for padding any number.
        """
        hidden = self.states(tokens.flatten(0, 1), table)  # (B*C, T, D)
        return hidden.flatten(0, 1), torch.arange(tokens.numel(), device=tokens.device)

    def last_states(self, tokens: Tensor, ends: Tensor, table: Tensor) -> Tensor:
        """States of the last tokens alone: ids [B, C, T], each sequence up to ``ends`` [B, C] -> [B, C, D]."""
        B, C, _ = tokens.shape
        hidden = self.states(tokens.flatten(0, 1), table)  # (B*C, T, D)
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

    @property
    def num_parameters(self) -> int:
        """Trained numbers, the tied embedding counted once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def copy_embeddings(self, source: LanguageModel) -> None:
        """Take over the rows of ``source``'s embedding that this model has too."""
        rows = min(self.tokens.num_embeddings, source.tokens.num_embeddings)
        with torch.no_grad():
            self.tokens.weight[:rows] = source.tokens.weight[:rows]

    def save(self, folder: str | Path, weights: Mapping[str, Tensor] | None = None) -> None:
        """Write config.json and model.safetensors into a local folder (made if absent).

        :param weights: of a sharded model, put together; None: as they are here.
        """
        write_own(self.config, self.state_dict() if weights is None else weights, Path(folder))

    def fill(self, tensors: Mapping[str, Tensor], url: str) -> Self:
        """Take over ``tensors``, by our names, and go into eval mode; gives back itself.

        :param url: where they were read, for the error.
        :raises InputError: if one is missing or of another shape.
        """
        self.require(tensors, url)
        for name, parameter in self.state_dict().items():
            parameter.copy_(tensors[name])
        return self.eval()

    def require(self, tensors: Mapping[str, Tensor], url: str) -> None:
        """See that ``tensors`` are this network's.

        :raises InputError: if one is missing, of another shape or no weights; names ``url``.
        """
        for name, parameter in self.state_dict().items():
            if name not in tensors:
                raise InputError(f"{url}: no tensor {name}")
            if tensors[name].shape != parameter.shape:
                found, expected = list(tensors[name].shape), list(parameter.shape)
                raise InputError(f"{url}: {name} has the shape {found}, expected {expected}")
            if tensors[name].dtype not in _NUMBERS:  # quantised ones come with scales that nobody here reads
                found_type = str(tensors[name].dtype).removeprefix("torch.")
                raise InputError(
                    f"{url}: {name} holds {found_type}, expected floating-point numbers of 16 bits or more"
                )


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
