"""What pre-training learns and how that is scored on held-out text: a family names one of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import nn

from gptcore.config import NetworkConfig, PretrainConfig
from gptcore.data.feed import Data, Objective
from gptcore.data.sampler import WindowSampler, sequential_windows
from gptcore.data.shards import Shards
from gptcore.evaluation.perplexity import perplexity
from gptcore.machine.distributed import World
from gptcore.models.language_model import LanguageModel
from gptcore.models.network import Network
from gptcore.objectives.next_token import PretrainData, language_model_objective


class PretrainingObjective(Protocol):
    """The data, the objective and the held-out scores of a family's pre-training."""

    def data(
        self, shards: Shards, model: NetworkConfig, config: PretrainConfig, micro_batch_size: int | None, world: World
    ) -> Data:
        """The batches; every draw is a function of the settings' seed and the index of the sequence."""
        ...

    def network(self, model: Network, generator: torch.Generator) -> nn.Module:
        """What is trained: the family's network, or one that has it as a part beside others.

        :param generator: where the others' weights are drawn from.
        """
        ...

    def others(self, trained: nn.Module) -> Mapping[str, Network]:
        """The others by the names of the folders, inside the model's, that they are kept in; mostly none."""
        ...

    def objective(self, trained: nn.Module, config: PretrainConfig) -> Objective:
        """What an update's loss is.

        :param trained: of :meth:`network`.
        """
        ...

    def score(
        self,
        objective: Objective,
        shards: Shards,
        model: NetworkConfig,
        config: PretrainConfig,
        max_tokens: int | None,
        world: World,
        interrupted: Callable[[], bool],
    ) -> dict[str, float]:
        """Scores of held-out text, the same on every process; "loss" and "perplexity" are among them.

        :param max_tokens: score no more than so many targets, the same ones each time; None: all of them.
        :param interrupted: see :class:`gptcore.training.loop.Monitor`.
        """
        ...


class NextToken:
    """L1 of section 3.1: every token from those before it, in windows of n_ctx."""

    def data(
        self, shards: Shards, model: NetworkConfig, config: PretrainConfig, micro_batch_size: int | None, world: World
    ) -> Data:
        """See :class:`PretrainingObjective`."""
        sampler = WindowSampler(shards, model.n_ctx, config.seed, *config.repeating)
        return PretrainData(sampler, config.batch_size, micro_batch_size, world)

    def network(self, model: Network, generator: torch.Generator) -> Network:
        """See :class:`PretrainingObjective`: the family's network alone."""
        return model

    def others(self, trained: nn.Module) -> Mapping[str, Network]:
        """See :class:`PretrainingObjective`: none."""
        return {}

    def objective(self, trained: nn.Module, config: PretrainConfig) -> Objective:
        """See :class:`PretrainingObjective`."""
        assert isinstance(trained, LanguageModel)
        return language_model_objective(trained)

    def score(
        self,
        objective: Objective,
        shards: Shards,
        model: NetworkConfig,
        config: PretrainConfig,
        max_tokens: int | None,
        world: World,
        interrupted: Callable[[], bool],
    ) -> dict[str, float]:
        """See :class:`PretrainingObjective`: loss (nats a token), perplexity, tokens."""
        return perplexity(objective, sequential_windows(shards, model.n_ctx, max_tokens), world, interrupted)


NEXT_TOKEN = NextToken()
