"""What training and files ask of any family's network, whatever it predicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.config import NetworkConfig
from gptcore.models.files.own import write_own

_NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""What weights are kept as."""


class LayerStates(NamedTuple):
    """What the layers of a network make of a batch."""

    states: list[Tensor]
    """[B, T, D] each: the embeddings, then what each layer gives."""
    scores: list[Tensor]
    """[B, H, T, T] of each layer's attention, before the softmax; empty where they were not asked for."""


class Network(nn.Module, ABC):
    """A network of a family. Below it: those that predict the next token, and encoders."""

    config: NetworkConfig

    @abstractmethod
    def flops_per_token(self, n_positions: int) -> float:
        """Floating-point operations of one trained token in a sequence of ``n_positions``, forward and backward."""

    @abstractmethod
    def adapt(
        self,
        n_special: int = 0,
        n_ctx: int | None = None,
        n_transfer: int | None = None,
        generator: torch.Generator | None = None,
        **changes: Any,
    ) -> Network:
        """A copy to fine-tune; see :meth:`gptcore.models.transformer.GPT.adapt`."""

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """The parameters, each of them once, from the embeddings up to what reads the states of the last block.

        Blocks that share their parameters are one depth; so is a whole network that says nothing of its depths.
        """
        return [list(self.parameters())]

    def layer_parts(self, layer: int) -> list[nn.Module]:
        """The parts that a layer is made of, in an order that is the same in all networks of a kind.

        :param layer: counted from 0.
        """
        return []

    @property
    def pools(self) -> bool:
        """Whether the last of :meth:`parameters_by_depth` is a pooler's, above the blocks."""
        return False

    @property
    def drops(self) -> bool:
        """Whether two passes over the same tokens differ in training."""
        return any(getattr(self.config, name, 0.0) for name in ("embd_pdrop", "attn_pdrop", "resid_pdrop"))

    @property
    def num_parameters(self) -> int:
        """Trained numbers, the tied embedding counted once."""
        return sum(parameter.numel() for parameter in self.parameters())

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
            same = not parameter.is_floating_point() and tensors[name].dtype == parameter.dtype
            if tensors[name].dtype not in _NUMBERS and not same:  # quantised ones have scales that nobody here reads
                found_type = str(tensors[name].dtype).removeprefix("torch.")
                raise InputError(
                    f"{url}: {name} holds {found_type}, expected floating-point numbers of 16 bits or more"
                )
