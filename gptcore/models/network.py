"""What training, scoring and files ask of any family's network, and of one that predicts the next token; networks from
configurations and from model folders, or their shapes alone.

Legend: B batch, T positions, D width (n_embd), H heads, V rows of the embedding (n_vocab + n_special).
"""

from __future__ import annotations

import contextlib
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gptcore.base.errors import InputError, require
from gptcore.config import NetworkConfig
from gptcore.families import FAMILIES
from gptcore.models.files.folder import write_own
from gptcore.models.files.layout import read_model
from gptcore.models.products import linear

_NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""What weights are kept as."""
_MULTIPLES = {"cuda": 64}
"""What the number of a table's rows is to be a multiple of: the released ones have 40,478, 50,257 and 30,522, with
which an update of GPT-1 takes an H100 1.15 times as long."""


class LayerStates(NamedTuple):
    """What the layers of a network make of a batch."""

    states: list[Tensor]
    """[B, T, D] each: the embeddings, then what each layer gives."""
    scores: list[Tensor]
    """[B, H, T, T] of each layer's attention, before the softmax; empty where they were not asked for."""


class Network(nn.Module, ABC):
    """A network of a family. Below it: those that predict the next token, and encoders."""

    config: NetworkConfig
    special_rows: ClassVar[int] = 0
    """Rows that fine-tuning adds to the vocabulary; an encoder's special pieces belong to it."""
    compiled: bool = False
    """Whether passes in training run as :meth:`compile_layers` has them."""

    def compile_layers(self) -> None:
        """Have torch.compile fuse what the layers do between their products; nothing where a network has none."""

    def flops_per_token(self, n_positions: int) -> float:
        """Floating-point operations of one trained token in a sequence of ``n_positions``, forward and backward."""
        return self.config.flops_per_token(n_positions)

    @classmethod
    def count_inner_weights(cls, config: Any) -> int:
        """How many weights of matrices a network of these settings has, but for its embeddings."""
        with shapes_only():
            network = cls(config)
        looked_up = {part.weight for part in network.modules() if isinstance(part, nn.Embedding)}
        return sum(each.numel() for each in network.parameters() if each.ndim > 1 and each not in looked_up)

    def adapt(
        self,
        n_special: int | None = None,
        n_ctx: int | None = None,
        n_transfer: int | None = None,
        generator: torch.Generator | None = None,
        **changes: Any,
    ) -> Self:
        """A copy to fine-tune: new special rows, positions cut, blocks above ``n_transfer`` drawn afresh.

        :param n_special: rows after the vocabulary; rows beyond those this model has are drawn; None: as many as
            :attr:`special_rows`.
        :param n_ctx: positions kept (at most this model's); None: all.
        :param n_transfer: blocks copied besides the embeddings (GPT-1's paper, Figure 2, left), of ALBERT's layers
            groups; 0: embeddings only; -1: nothing (original code); None: all.
        :param changes: other fields of the configuration to replace (dropout rates, `original`).
        :raises InputError: more positions or blocks than this model has, or some of those that share parameters.
        """
        n_special = self.special_rows if n_special is None else n_special
        n_ctx = self.config.n_ctx if n_ctx is None else n_ctx
        n_transfer = self.config.layers if n_transfer is None else n_transfer
        check_transfer(n_ctx, n_transfer, self.config.n_ctx, self.config.layers)
        kind: Callable[..., Self] = type(self)
        config = dataclasses.replace(self.tuned_config, n_special=n_special, n_ctx=n_ctx, **changes)
        copy = kind(config, generator).to(next(self.parameters()).device)
        copy.take_over(self, n_transfer)
        return copy

    @property
    def tuned_config(self) -> NetworkConfig:
        """The settings of the network that is fine-tuned: none that serve pre-training alone."""
        return self.config

    def take_over(self, source: Self, n_transfer: int) -> None:
        """Take over what a network of the same kind has learnt; see :meth:`adapt`."""
        raise NotImplementedError

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

    def go_on_from(self, tensors: Mapping[str, Tensor], url: str) -> Self:
        """Take over the weights of the model that a training goes on from: by default all that the network has.

        :raises InputError: as :meth:`fill`.
        """
        return self.fill(tensors, url)

    def require(self, tensors: Mapping[str, Tensor], url: str) -> None:
        """Refuse tensors that are not this network's.

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


class SentenceEncoder(Network):
    """A network whose states see a sequence from both sides: the encoder, and those of other kinds."""

    @abstractmethod
    def encode(
        self, tokens: Tensor, segments: Tensor | None = None, mask: Tensor | None = None, entities: Tensor | None = None
    ) -> Tensor:
        """States after the last layer: ids [B, T] (T <= n_ctx) -> [B, T, D].

        :param segments: [B, T] numbers of segments; None: all 0.
        :param mask: [B, T] 1 for a word, 0 for padding, which nothing attends to; None: all words. The states of
            padding mean nothing.
        :param entities: [B, T] 1 + the number of the entity whose mention begins at a position, else 0; None: those
            that a network of entities finds by itself. One that knows none reads them not.
        :raises ValueError: if T exceeds n_ctx.
        """

    def summary(self, states: Tensor) -> Tensor:
        """What stands for a whole sequence: states [B, T, D] -> [B, D], the first one as it is."""
        return states[:, 0]


class LanguageModel(Network):
    """A network that tells the next token, mostly by the rows of its embedding. Subclasses: decoders, Table 5's LSTM.

    A forward pass asks for :meth:`table` once and hands it to :meth:`states` and to the softmax, because the released
    code drops the same elements of it for both.
    """

    tokens: nn.Embedding
    special_rows = 3

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

    @property
    def output(self) -> Tensor | None:
        """The rows of an output layer of the network's own, [V, D]; None: it is tied to the embedding.

        :raises InputError: a network that was read without an output layer.
        """
        return None

    def words(self, table: Tensor) -> Tensor:
        """The rows that words, pieces and specials are told by, [V, D]: of ``table``, or of an own output layer."""
        return table[: self.tokens.num_embeddings] if self.output is None else self.output

    def hidden(self, tokens: Tensor) -> Tensor:
        """States after the last layer: ids [B, T] -> [B, T, D]."""
        return self.states(tokens, self.table())

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of every row of the output layer: [..., D] -> [..., V]."""
        return word_scores(hidden, self.words(self.tokens.weight))

    def forward(self, tokens: Tensor) -> Tensor:
        """Ids [B, T] -> next-token logits [B, T, V]."""
        table = self.table()
        return word_scores(self.states(tokens, table), self.words(table))

    def copy_embeddings(self, source: LanguageModel) -> None:
        """Take over the rows of ``source``'s embedding that this model has too."""
        rows = min(self.tokens.num_embeddings, source.tokens.num_embeddings)
        with torch.no_grad():
            self.tokens.weight[:rows] = source.tokens.weight[:rows]


def aligned(table: Tensor) -> Tensor:
    """``table``, [V, ...], on a GPU with rows of zeros behind it that make its products fast."""
    missing = -len(table) % _MULTIPLES.get(table.device.type, 1)
    return F.pad(table, (0, 0) * (table.ndim - 1) + (0, missing)) if missing else table


def word_scores(states: Tensor, table: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product with a vocabulary: states [..., D], its table [V, D] and bias [V] -> [..., V]."""
    rows = aligned(table)
    if rows is table:
        return linear(states, table, bias)
    return F.linear(states, rows, None if bias is None else aligned(bias))[..., : len(table)]


def check_transfer(n_ctx: int, n_transfer: int, positions: int, layers: int) -> None:
    """:raises InputError: more positions or layers are asked for than a model has."""
    require(1 <= n_ctx <= positions, f"n_ctx = {n_ctx}: the model has {positions} positions")
    require(-1 <= n_transfer <= layers, f"n_transfer = {n_transfer}: the model has {layers} blocks")


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


@contextlib.contextmanager
def shapes_only() -> Iterator[None]:
    """Inside the ``with`` block new tensors have a shape and no memory, and initial weights are not drawn.

    So a file's sizes are checked before memory is spent on them.
    """
    with torch.device("meta"), _NoDraws():
        yield


class _NoDraws(TorchFunctionMode):
    """Leave tensors as they are where random numbers would be drawn into them.

    Without memory there is nothing to draw into; torch would import its compiler, a second's work, to do nothing.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if function.__name__ in ("normal_", "uniform_", "kaiming_uniform_"):
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def build_model(config: NetworkConfig, generator: torch.Generator | None = None) -> Network:
    """The network of a configuration, with weights drawn from ``generator``."""
    model: Network = FAMILIES[config.family].part("network")(config, generator)
    return model


def load_language_model(url: str) -> LanguageModel:
    """:func:`load_model` where a network is asked for that predicts the next token.

    :raises InputError: an encoder, which does not; or as :func:`load_model`.
    """
    return next_token_network(load_model(url), url)


def next_token_network(network: Network, where: str) -> LanguageModel:
    """Refuse a network that does not predict the next token; gives back the network.

    :param where: what holds it, for the error message.
    :raises InputError: an encoder.
    """
    if not isinstance(network, LanguageModel):
        title = FAMILIES[network.config.family].title
        raise InputError(f"{where}: found {title}, an encoder; expected a model that predicts the next token")
    return network


def load_model(url: str) -> Network:
    """Read a model of any family, in eval mode on the CPU, from any of the kinds of folder that
    :meth:`gptcore.GPT.load` names.

    :raises InputError: naming the file, and what was expected of it.
    """
    stored = read_model(url)
    with shapes_only():
        build_model(stored.config).require(stored.tensors, url)
    return build_model(stored.config).fill(stored.tensors, url)
