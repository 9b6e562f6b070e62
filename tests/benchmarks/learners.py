"""A family's network as it is pre-trained, with a batch of random tokens; nothing here loads the networks of others."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import torch
from torch import Tensor, nn

from gptcore.config import EncoderConfig, NetworkConfig, PretrainConfig, preset_named
from gptcore.config.distillation import DistilConfig
from gptcore.data.feed import Objective
from gptcore.families import FAMILIES
from gptcore.models.network import Network, build_model
from gptcore.objectives.objective import PretrainingObjective
from gptcore.papers.graphs.config import KnowledgeEncoderConfig
from gptcore.papers.students.distillation import Distilled


def preset_of(family: str, preset: str) -> tuple[NetworkConfig, PretrainConfig, DistilConfig]:
    """What a family trains by a preset, in `paper` the published base size, and how."""
    if FAMILIES[family].ablation:
        settings = preset_named(preset)
        return settings.lstm, settings.pretrain, settings.distil
    settings = preset_named(preset, {"family": family})
    return settings.model, settings.pretrain, settings.distil


def micro_batch(config: NetworkConfig, rows: int) -> dict[str, Tensor]:
    """Whole sequences; of an encoder's, which have two segments, 15 % of the words are hidden."""
    draws = torch.Generator().manual_seed(0)
    text = torch.randint(config.n_vocab, (rows, config.n_ctx + 1), generator=draws)
    tokens, each = text[:, :-1].contiguous(), torch.tensor(1 / (rows * config.n_ctx))
    weights = dict.fromkeys(("weight", "next_weight", "word_weight", "token_weight"), each)
    if not isinstance(config, EncoderConfig):
        marks = {"words": torch.ones_like(tokens, dtype=torch.bool), "whole": torch.arange(rows) % 2 > 0}
        return {"inputs": tokens, "tokens": tokens, "targets": text[:, 1:].contiguous(), **marks, **weights}
    n_told = round(PretrainConfig().share_of_masked * tokens.numel())
    places = torch.randperm(tokens.numel(), generator=draws)[:n_told].sort().values
    batch = {
        "tokens": tokens,
        "segments": (torch.arange(config.n_ctx) >= config.n_ctx // 2).long().expand_as(tokens).contiguous(),
        "mask": torch.ones_like(tokens),
        "places": places,
        "targets": torch.randint(config.n_vocab, (n_told,), generator=draws),
        "draws": torch.rand(n_told, generator=draws),
        "labels": torch.randint(2, (rows,), generator=draws),
        **weights,
        "word_weight": torch.tensor(1.0 / n_told),
        "pair_weight": torch.tensor(1.0 / rows),
    }
    if isinstance(config, KnowledgeEncoderConfig):  # a word in 16 begins a mention
        mentions = torch.arange(0, tokens.numel(), 16)
        known = torch.arange(len(mentions)) % config.n_entities
        entities = torch.zeros_like(tokens).flatten().scatter(0, mentions, known + 1).view_as(tokens)
        batch |= {"entities": entities, "mentions": mentions, "mentioned": known, "entity_weight": each}
        batch["candidates"] = torch.arange(config.n_entities) + 1
    return batch


class Learner:
    """A network with its family's objective, beside a teacher where there is one; drawn when it is first asked for.

    :param rows: sequences of the batch.
    """

    def __init__(
        self,
        config: NetworkConfig,
        settings: PretrainConfig,
        rows: int,
        taught: tuple[Network, DistilConfig] | None = None,
    ) -> None:
        self.config, self._taught = config, taught
        self.settings = dataclasses.replace(settings, batch_size=rows, short_length=None, short_share=None)
        self.batch, self.tokens = micro_batch(config, rows), rows * config.n_ctx

    @cached_property
    def model(self) -> Network:
        """The family's network."""
        return build_model(self.config, torch.Generator().manual_seed(0))

    @cached_property
    def trained(self) -> nn.Module:
        """The network with what is trained beside it."""
        return self._learnt.network(self.model, self.settings, torch.Generator().manual_seed(1)).train()

    @cached_property
    def _learnt(self) -> PretrainingObjective:
        family = FAMILIES[self.config.family]
        own: PretrainingObjective = family.part("objective")
        if self._taught is None:
            return own
        return Distilled(own, family.part("distillation"), *self._taught)

    @cached_property
    def _objective(self) -> Objective:
        return self._learnt.objective(self.trained, self.settings)

    def loss(self) -> Tensor:
        """The loss of the batch."""
        value: Tensor = self._objective(self.batch)[0]
        return value
