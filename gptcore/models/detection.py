"""ELECTRA's pair of encoders: a generator that fills in words, a discriminator that tells which were replaced.

Legend of the shape comments: B sequences, T positions, D width of the states, N chosen positions, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gptcore.config.network import generator_config
from gptcore.models.encoder import Encoder


class Detection(nn.Module):
    """ELECTRA's two networks, trained together: the embeddings are shared (section 3.2).

    :param discriminator: the family's network.
    :param share: the generator's width, heads and inner width as a share of the discriminator's (Table 3 of the
        paper's appendix: a quarter of the small model's, a third of the base one's).
    :param generator: where the generator network's weights are drawn from.
    """

    def __init__(self, discriminator: Encoder, share: float, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.discriminator = discriminator
        self.generator = Encoder(
            generator_config(discriminator.config, share), generator, embeddings=discriminator.embeddings
        )

    def word_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        """The generator's logits at some of the B*T positions: [B, T] three times, [N] -> [N, V]."""
        states = self.generator.encode(tokens, segments, mask).flatten(0, 1)  # (B*T, D)
        return self.generator.word_scores(states[places])

    def replaced_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        """The discriminator's logits of each token's having been replaced: [B, T] three times -> [B, T]."""
        return self.discriminator.replaced_scores(self.discriminator.encode(tokens, segments, mask))

    def told_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        """The other network's logits of words at some of the B*T positions: [B, T] three times, [N] -> [N, V]."""
        states = self.discriminator.encode(tokens, segments, mask).flatten(0, 1)  # (B*T, D)
        return self.discriminator.word_scores(states[places])

    def both_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """What :meth:`replaced_scores` and :meth:`told_scores` give, both at these places: [N] and [N, V]."""
        states = self.discriminator.encode(tokens, segments, mask).flatten(0, 1)[places]  # (N, D)
        return self.discriminator.replaced_scores(states), self.discriminator.word_scores(states)
