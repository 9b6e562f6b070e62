"""Networks that transformers builds, as the networks that everything here asks for.

Their passes are transformers' own; they are not compiled, and nothing of them is fused. Dropout is drawn from torch's
generators, as everywhere.

Legend: B batch, T positions, D width, V rows of the embedding (n_vocab + n_special).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.models.incremental import Reader, padded
from gptcore.models.network import LanguageModel, Network, SentenceEncoder
from gptcore.papers.auto.config import WrappedConfig, WrappedDecoderConfig


def transformers_library() -> Any:
    """The package, which says no more than errors.

    :raises ImportError: it is not installed.
    """
    try:
        import transformers
    except ImportError:
        raise ImportError("the package transformers for any network (pip install 'gptmill[hf]')") from None
    logging: Any = transformers.logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return transformers


def trunk(config: WrappedConfig, generator: torch.Generator | None = None) -> Any:
    """transformers' network without any head, its weights drawn as it does, from torch's generator, seeded here.

    :raises InputError: transformers no longer knows the network.
    :raises ImportError: transformers is not installed.
    """
    library, settings = transformers_library(), json.loads(config.settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(
            0 if generator is None else int(torch.randint(1 << 31, (), generator=generator, device="cpu"))
        )
        try:
            theirs = library.AutoConfig.for_model(**settings)
            kind = library.AutoModel._model_mapping[type(theirs)]
        except (KeyError, ValueError) as error:
            raise InputError(f"{config.architecture}: transformers has no such network ({error})") from None
        kind = kind[0] if isinstance(kind, tuple) else kind
        return kind(theirs, **({} if builds_pooler(kind) else {"add_pooling_layer": False}))


def builds_pooler(kind: type) -> bool:
    """Whether a network of transformers' has its pooler, if any, without being asked."""
    return "add_pooling_layer" not in inspect.signature(kind).parameters


class _Wrapped(Network):
    """A network of transformers' without heads."""

    config: WrappedConfig
    model: Any
    """transformers' network."""

    def take_over(self, source: Self, n_transfer: int) -> None:
        if n_transfer not in (-1, self.config.layers):
            raise InputError(f"n_transfer = {n_transfer}: expected all layers of a network of transformers', or none")
        if n_transfer == self.config.layers:
            theirs = source.state_dict()
            for name, tensor in self.state_dict().items():
                if tensor.shape == theirs[name].shape:
                    tensor.copy_(theirs[name])
                else:  # rows of a vocabulary, of which one of the two has more
                    rows = min(len(tensor), len(theirs[name]))
                    tensor[:rows].copy_(theirs[name][:rows])

    @property
    def drops(self) -> bool:
        return any(isinstance(part, nn.Dropout) and part.p > 0 for part in self.modules())


class WrappedEncoder(_Wrapped, SentenceEncoder):
    """An encoder of transformers': its first state stands for a sequence.

    :param generator: where the initial weights are drawn from; None: a fixed seed.
    """

    def __init__(self, config: WrappedConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.model = trunk(config, generator)
        takes = inspect.signature(self.model.forward).parameters
        self._segments = "token_type_ids" in takes and (getattr(self.model.config, "type_vocab_size", 0) or 0) > 1

    def encode(
        self, tokens: Tensor, segments: Tensor | None = None, mask: Tensor | None = None, entities: Tensor | None = None
    ) -> Tensor:
        if tokens.shape[1] > self.config.n_ctx:
            raise ValueError(f"a sequence of {tokens.shape[1]} tokens does not fit n_ctx = {self.config.n_ctx}")
        more = {"token_type_ids": segments} if self._segments and segments is not None else {}
        seen = torch.ones_like(tokens) if mask is None else mask.to(tokens.dtype)
        states: Tensor = self.model(input_ids=tokens, attention_mask=seen, **more)[0]
        return states


class WrappedDecoder(_Wrapped, LanguageModel):
    """A decoder of transformers', which reads the rows of an embedding that stands here, with its appended rows.

    :param generator: where the initial weights are drawn from; None: a fixed seed.
    """

    config: WrappedDecoderConfig

    def __init__(self, config: WrappedDecoderConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.model = trunk(config, generator)
        first = self.model.get_input_embeddings()
        self._scale = getattr(first, "embed_scale", 1.0)
        self.tokens = nn.Embedding(config.n_vocab + config.n_special, first.weight.shape[1])
        nn.init.normal_(self.tokens.weight, std=config.init_std, generator=generator)
        with torch.no_grad():
            self.tokens.weight[: config.n_vocab] = first.weight[: config.n_vocab]
        self.model.set_input_embeddings(nn.Identity())  # the rows come from here
        self.head = nn.Linear(config.n_embd, config.n_vocab + config.n_special, bias=False) if config.untied else None
        if self.head is not None:
            nn.init.normal_(self.head.weight, std=config.init_std, generator=generator)

    @property
    def output(self) -> Tensor | None:
        if self.config.headless:
            raise InputError(f"model: of {self.config.architecture} nothing that tells the next token was read")
        return None if self.head is None else self.head.weight

    def states(self, tokens: Tensor, table: Tensor) -> Tensor:
        if tokens.shape[-1] > self.config.n_ctx:
            raise ValueError(f"a sequence of {tokens.shape[-1]} tokens does not fit n_ctx = {self.config.n_ctx}")
        states: Tensor = self.model(inputs_embeds=F.embedding(tokens, table) * self._scale, use_cache=False)[0]
        return states


class WholeReader(Reader):
    """Reads each text anew for every token, which any network can; one longer than n_ctx from its newest half."""

    def __init__(self, model: WrappedDecoder, batch: int, kept: int = 0, width: int | None = None) -> None:
        super().__init__(model, batch)
        self._model = model
        self._kept = kept
        self._texts: list[list[int]] = [[] for _ in range(batch)]

    def logits(self, states: Tensor) -> Tensor:
        return self._model.logits(states)

    @staticmethod
    def position_bytes(model: Any) -> int:
        return 8

    @property
    def longest(self) -> int:
        return max(map(len, self._texts), default=0)

    def spread(self, rows: Sequence[int], room: int) -> WholeReader:
        other = WholeReader(self._model, len(rows), self._kept)
        other._texts = [list(self._texts[row]) for row in rows]
        return other

    def _has_room(self, n_new: int) -> bool:
        return True

    def _read(self, texts: Sequence[Sequence[int]], rows: slice) -> Tensor:
        n_ctx, known = self._model.config.n_ctx, self._texts[rows]
        for text, new in zip(known, texts, strict=True):
            text += new
            if len(text) > n_ctx:
                head = text[: self._kept] if self._kept <= n_ctx // 2 else []
                text[:] = [*head, *text[-max(len(new), (n_ctx - len(head)) // 2) :]]
        tokens, lengths = padded(known, self._device)
        states = self._model.hidden(tokens)  # (B, T, D)
        width = max(map(len, texts))
        at = (lengths - torch.tensor([len(new) for new in texts]))[:, None] + torch.arange(width)
        return states[torch.arange(len(known))[:, None], at.clamp(max=tokens.shape[1] - 1).to(self._device)]
