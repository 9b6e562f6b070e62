"""L1 over windows or blocks of text: a language model's data and objective, for the training loop, and its scores.

Legend of shape comments: B sequences, T positions, D width, V vocabulary rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn

from gptcore.config import PretrainConfig
from gptcore.data.feed import Data, Losses, MicroBatch, Objective, Update
from gptcore.data.sampler import IGNORE_INDEX, WindowBatch, WindowSampler, sequential_windows
from gptcore.machine.distributed import MicroBatches, World
from gptcore.models.network import LanguageModel
from gptcore.objectives.losses import fused_language_model_loss
from gptcore.objectives.objective import PretrainingObjective, Text, perplexity


class Sampler(Protocol):
    """Where the sequences come from: pure functions of their numbers (see :class:`gptcore.data.sampler`)."""

    def batch(self, step: int, batch_size: int, /) -> WindowBatch: ...

    def document(self, i: int, /) -> str: ...


class PretrainData:
    """Sequences as updates: `batch_size` of them each, shared out to processes and micro-batches."""

    def __init__(self, sampler: Sampler, batch_size: int, micro_batch_size: int | None, world: World) -> None:
        self._sampler = sampler
        self._batch_size = batch_size
        self._micro = MicroBatches(batch_size, micro_batch_size, world)

    def update(self, step: int) -> Update:
        """Sequences step * batch_size .. (step + 1) * batch_size. The mean runs over the targets of all processes."""
        inputs, targets = map(torch.from_numpy, self._sampler.batch(step, self._batch_size))  # (B, T) each
        n_targets = int((targets != IGNORE_INDEX).sum())
        weight = torch.tensor(1.0 / n_targets)
        batches = [{"inputs": inputs[its], "targets": targets[its], "weight": weight} for its in self._micro.parts]
        idle = [{**batches[-1], "weight": torch.tensor(0.0)}] * self._micro.idle
        return Update([*batches, *idle], n_targets)

    def documents(self, step: int) -> list[str]:
        """The documents of the update's sequences, in order, each once."""
        first = step * self._batch_size
        return list(dict.fromkeys(self._sampler.document(i) for i in range(first, first + self._batch_size)))


def windows_of(text: Text) -> WindowSampler:
    """The random windows of a text that a pre-training reads."""
    return WindowSampler(text.shards, text.model.n_ctx, text.config.seed, *text.config.repeating)


def language_model_objective(model: LanguageModel) -> Objective:
    """L1 as an objective of the training loop."""

    def objective(batch: MicroBatch) -> Losses:
        targets = batch["targets"]  # (B, T)
        weights = (targets != IGNORE_INDEX) * batch["weight"]
        table = model.table()
        hidden = model.states(batch["inputs"], table)  # (B, T, D)
        loss = fused_language_model_loss(hidden, model.words(table), targets, weights, model.compiled)
        return loss, {"loss": loss}

    return objective


class NextToken(PretrainingObjective):
    """L1 of section 3.1: every token from those before it, in windows of n_ctx."""

    def data(self, text: Text, micro_batch_size: int | None) -> Data:
        """Random windows of the text."""
        return PretrainData(windows_of(text), text.config.batch_size, micro_batch_size, text.world)

    def objective(self, trained: nn.Module, config: PretrainConfig) -> Objective:
        """The mean loss of next tokens."""
        assert isinstance(trained, LanguageModel)
        return language_model_objective(trained)

    def score(
        self, objective: Objective, text: Text, max_tokens: int | None, interrupted: Callable[[], bool]
    ) -> dict[str, float]:
        """Loss (nats a token), perplexity, tokens."""
        windows = sequential_windows(text.shards, text.model.n_ctx, max_tokens)
        return perplexity(objective, windows, text.world, interrupted)


NEXT_TOKEN = NextToken()
"""The objective of GPT-1 and of those who read as it does."""
