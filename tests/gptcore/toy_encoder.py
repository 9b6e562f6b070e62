"""A small encoder, and families that pre-train it on hidden words: what the objectives and the job ask of any."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.config import ModelConfig, PretrainConfig
from gptcore.families import FAMILIES, Family
from gptcore.models.cpu import dropout
from gptcore.models.network import LanguageModel, initialise
from gptcore.papers.electra.replaced import ReplacedTokens


class ToyEncoder(LanguageModel):
    """Blocks that mix each state with the one before, the one after and the mean of all."""

    config: ModelConfig

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        width = config.n_embd
        self.tokens = nn.Embedding(config.n_vocab, width)
        self.segments = nn.Embedding(2, width)
        self.blocks = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(width)
        self.pair, self.replaced = nn.Linear(width, 2), nn.Linear(width, 1)
        initialise(self, 0.1, generator)

    def encode(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        kept = mask[..., None].float()
        states = self.tokens(tokens) + self.segments(segments)
        for block in self.blocks:
            states = states * kept
            mean = (states.sum(1, keepdim=True) / kept.sum(1, keepdim=True)).expand_as(states)
            near = F.pad(states, (0, 0, 1, 1))
            mixed = torch.tanh(block(torch.cat([states, near[:, :-2], near[:, 2:], mean], -1)))
            states = states + dropout(mixed, self.config.resid_pdrop, self.training)
        return self.norm(states)

    def word_scores(self, states: Tensor) -> Tensor:
        return F.linear(states, self.tokens.weight)

    def pair_scores(self, states: Tensor) -> Tensor:
        return self.pair(states[:, 0])

    def states(self, tokens: Tensor, table: Tensor) -> Tensor:
        raise NotImplementedError

    def adapt(self, *given: Any, **changes: Any) -> LanguageModel:
        raise NotImplementedError

    def flops_per_token(self, n_positions: int) -> float:
        return 6.0 * self.num_parameters


class ToyDetection(nn.Module):
    """The family's network as the discriminator, beside a generator of half its width."""

    def __init__(self, model: ToyEncoder, generator: torch.Generator) -> None:
        super().__init__()
        self.discriminator = model
        half = dataclasses.replace(model.config, n_embd=model.config.n_embd // 2)
        self.generator = ToyEncoder(half, generator)

    def word_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        states = self.generator.encode(tokens, segments, mask)
        return self.generator.word_scores(states.flatten(0, 1)[places])

    def replaced_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        return self.discriminator.replaced(self.discriminator.encode(tokens, segments, mask)).squeeze(-1)


class ToyReplaced(ReplacedTokens):
    def network(self, model: LanguageModel, _config: PretrainConfig, generator: torch.Generator) -> nn.Module:
        return ToyDetection(cast(ToyEncoder, model), generator)

    def others(self, trained: nn.Module) -> Mapping[str, LanguageModel]:
        return {"generator": cast(ToyDetection, trained).generator}


TOY_REPLACED = ToyReplaced()


def _family(name: str, objective: str, *settings: str) -> Family:
    return Family(
        name,
        name,
        "anything",
        sentences=True,
        network="tests.gptcore.toy_encoder:ToyEncoder",
        reader="",
        objective=objective,
        objective_settings=(*FAMILIES["bert"].objective_settings, *settings),
        ablation=True,
    )


MASKED = _family("toy_masked", "gptcore.objectives.masked:MASKED_WORDS_AND_NEXT_SENTENCE")
ORDER = _family("toy_order", "gptcore.objectives.masked:MASKED_WORDS_AND_SENTENCE_ORDER")
REPLACED = _family("toy_replaced", "tests.gptcore.toy_encoder:TOY_REPLACED", "replaced_weight", "replaced_objective")
TOYS = {family.name: family for family in (MASKED, ORDER, REPLACED)}


def know_toys() -> None:
    """Let this process find the toy families, as it finds those of other packages."""
    FAMILIES._theirs = dict(TOYS)  # type: ignore[attr-defined]
