"""Settings of ELECTRA's network, the discriminator, and of the generator that is trained beside it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from gptcore.base.settings import derived
from gptcore.config.network import EncoderConfig
from gptcore.config.training import PretrainConfig

GENERATOR_SHARE = 1 / 4
"""The generator's width as a share of the discriminator's: that of ELECTRA's small and large models (Table 6)."""


@dataclass(frozen=True)
class DiscriminatorConfig(EncoderConfig):
    """BERT's encoder as ELECTRA's discriminator ("ELECTRA", Clark et al. 2020, section 2), beside a generator."""

    family: str = derived("electra")

    def share_told(self, settings: PretrainConfig) -> float:
        """The share of the positions that the word head predicts: the masked ones, or all with all-tokens-mlm."""
        return 1.0 if settings.replaced_objective == "all-tokens-mlm" else super().share_told(settings)

    def pretraining_flops_per_token(self, n_positions: float, settings: PretrainConfig) -> float:
        """The operations of one token in a pre-training, with those of the generator, which is trained, too."""
        flops = super().pretraining_flops_per_token(n_positions, settings)
        generator = generator_config(self, settings.generator_share or GENERATOR_SHARE)
        return flops + generator.flops_per_token(n_positions, settings.share_of_masked)


def generator_config(config: EncoderConfig, share: float) -> EncoderConfig:
    """The generator beside a discriminator: as deep, narrower, with the same embeddings (ELECTRA, section 3.2)."""
    n_head = max(1, round(config.n_head * share))
    n_embd = config.n_embd // config.n_head * n_head  # heads as wide as the discriminator's (original code)
    E = config.width_of_words
    return dataclasses.replace(
        config,
        n_head=n_head,
        n_embd=n_embd,
        n_inner=max(1, round(config.n_inner * share)),
        n_embd_words=None if n_embd == E else E,
        words=True,
        pooler=False,
        pair=False,
        replaced=False,
    )
