"""A family of another package: a network that knows a token by the mean of the last few embeddings.

Its network, its inputs and its objective are its own: it learns the token that comes next and the one behind that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.config import PretrainConfig
from gptcore.data.feed import Data, MicroBatch, Objective
from gptcore.data.sampler import IGNORE_INDEX, WindowSampler, sequential_windows
from gptcore.families import Family
from gptcore.families import with_family as recorded_with
from gptcore.models.network import LanguageModel, check_transfer, initialise
from gptcore.nlu.forms.form import Ids
from gptcore.nlu.inputs import DecoderReader
from gptcore.objectives.next_token import PretrainData, language_model_objective
from gptcore.objectives.objective import PretrainingObjective, Text, exponential, summed_metrics

FAMILY = Family(
    "windowed",
    "Windowed",
    "lower-case English",
    config="tests.toy_family.windowed:WindowedConfig",
    network="tests.toy_family.windowed:Windowed",
    network_title="window of embeddings",
    reader="",  # no text is generated
    objective="tests.toy_family.windowed:NEXT_TWO",
    objective_settings=(),
    inputs="tests.toy_family.windowed:LastWords",
    presets={"demo": {"model": {"window": 3}}},
    tokenizer_recorded={},  # GPT-1's kind, whose tokenizers it shares
)


class LastWords(DecoderReader):
    """One special id at the end, one order of any pair, and of each part the last words alone."""

    n_special = 1

    def sequences(self, fields: Sequence[Ids], choices: Sequence[Ids]) -> tuple[list[Ids], bool]:
        room = (self.n_ctx - 1) // (len(fields) + bool(choices))
        ends = [[*fields, choice] for choice in choices] or [[*fields]]
        cut = any(len(part) > room for parts in ends for part in parts)
        return [np.concatenate([*(part[-room:] for part in parts), [self.n_vocab]]) for parts in ends], cut


@dataclass(frozen=True)
class WindowedConfig:
    n_vocab: int = 1000
    n_special: int = 0
    n_ctx: int = 32
    n_embd: int = 16
    window: int = 2
    init_std: float = 0.1
    family: str = "windowed"

    @property
    def layers(self) -> int:
        return 1

    @property
    def shape(self) -> str:
        return f"{self.window} of {self.n_embd}"

    @property
    def shape_in_words(self) -> str:
        return f"window of {self.window} x {self.n_embd}"

    def as_recorded(self, values: dict[str, Any]) -> dict[str, Any]:
        return recorded_with(values.pop("family"), values)


class Windowed(LanguageModel):
    config: WindowedConfig

    def __init__(self, config: WindowedConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.n_vocab + config.n_special, config.n_embd)
        self.mix = nn.Linear(config.n_embd, config.n_embd)
        initialise(self, config.init_std, generator)

    def states(self, tokens: Tensor, table: Tensor) -> Tensor:
        embedded = F.embedding(tokens, table).transpose(1, 2)  # (B, D, T)
        mean = F.avg_pool1d(F.pad(embedded, (self.config.window - 1, 0)), self.config.window, stride=1)
        return torch.tanh(self.mix(mean.transpose(1, 2)))

    def adapt(
        self,
        n_special: int = 3,
        n_ctx: int | None = None,
        n_transfer: int | None = None,
        generator: torch.Generator | None = None,
        **changes: Any,
    ) -> Self:
        n_ctx = self.config.n_ctx if n_ctx is None else n_ctx
        n_transfer = 1 if n_transfer is None else n_transfer
        check_transfer(n_ctx, n_transfer, self.config.n_ctx, 1)
        copy = type(self)(dataclasses.replace(self.config, n_special=n_special, n_ctx=n_ctx, **changes), generator)
        copy.copy_embeddings(self)
        copy.mix.load_state_dict(self.mix.state_dict())
        return copy

    def flops_per_token(self, n_positions: int) -> float:
        return 6.0 * (self.mix.weight.numel() + self.tokens.weight.numel())


class NextTwo(PretrainingObjective):
    """The token that comes next and the one behind that, both told from the same states."""

    def data(self, text: Text, micro_batch_size: int | None) -> Data:
        sampler = WindowSampler(text.shards, text.model.n_ctx, text.config.seed)
        return PretrainData(sampler, text.config.batch_size, micro_batch_size, text.world)

    def objective(self, trained: nn.Module, config: PretrainConfig) -> Objective:
        assert isinstance(trained, Windowed)
        told = language_model_objective(trained)

        def objective(batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
            next_loss, _ = told(batch)
            behind = F.pad(batch["targets"][:, 1:], (0, 1), value=IGNORE_INDEX)
            later_loss, _ = told({**batch, "targets": behind})
            loss = next_loss + later_loss
            return loss, {"loss": loss, "next_loss": next_loss, "later_loss": later_loss}

        return objective

    def score(
        self, objective: Objective, text: Text, max_tokens: int | None, interrupted: Callable[[], bool]
    ) -> dict[str, float]:
        tokens = 0

        def batches() -> Iterator[MicroBatch]:
            nonlocal tokens
            for window in sequential_windows(text.shards, text.model.n_ctx, max_tokens):
                inputs, targets = map(torch.from_numpy, window)
                tokens += int((targets != IGNORE_INDEX).sum())
                yield {"inputs": inputs, "targets": targets, "weight": torch.ones(())}

        sums = summed_metrics(objective, batches(), text.world, interrupted)
        loss, later = (sums[name] / tokens for name in ("next_loss", "later_loss"))
        return {"loss": loss, "perplexity": exponential(loss), "later_loss": later, "tokens": float(tokens)}


NEXT_TWO = NextTwo()
