"""A pre-trained encoder plus one linear layer, the network that is fine-tuned (BERT, section 4.1; SWAG: section 4.4).

B batch, C sequences an example, T positions, D width, K outputs of the linear layer.

    form          sequences C    representation           linear layer   softmax over
    single, pair  1              the encoder's summary    D -> classes   classes
    labels        1              the encoder's summary    D -> classes   none: each class by itself
    choices       one a choice   one a choice             D -> 1         choices
    span          1              each state               D -> 2         positions, for the start and for the end
    tags          1              each state               D -> tags      tags, at each position
"""

from __future__ import annotations

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.config import EncoderConfig, NetworkConfig
from gptcore.families import FAMILIES
from gptcore.models.classifier import Classifier, Head
from gptcore.models.cpu import dropout
from gptcore.models.encoder import Encoder, draw_weights, without_heads
from gptcore.models.network import Network


class EncoderClassificationModel(Classifier):
    """Task logits from what stands for the whole sequence; nothing is learnt beside the task.

    :param encoder: the pre-trained network, without the heads of its pre-training.
    :param form: name of one of :data:`gptcore.nlu.forms.FORMS`.
    :param n_outputs: K; 1 for "choices", where every choice gets one scalar.
    :param clf_pdrop: dropout before the linear layer (original code: 0.1).
    :param generator: where the linear layer's weights are drawn from, as the encoder's own are; None: torch's default
        generator.
    """

    def __init__(
        self, encoder: Encoder, form: str, n_outputs: int, clf_pdrop: float, generator: torch.Generator | None = None
    ) -> None:
        width, std = encoder.config.n_embd, encoder.config.init_std
        super().__init__(width, form, n_outputs, clf_pdrop)
        self.encoder = encoder
        has_layer = encoder.config.classifier_layer and not self.row_form.places
        self.layer = nn.Linear(width, width) if has_layer else None
        if self.layer is not None:
            draw_weights(self.layer, std, generator)
        draw_weights(self.head, std, generator)

    @classmethod
    def over(cls, network: Network, where: str, head: Head, generator: torch.Generator | None = None) -> Self:
        """See :meth:`Classifier.over`."""
        if not isinstance(network, Encoder):
            title = FAMILIES[network.config.family].title
            raise InputError(f"{where}: found {title}, expected an encoder")
        return cls(network, *head, generator)

    @classmethod
    def network_settings(cls, config: NetworkConfig, **changes: Any) -> NetworkConfig:
        """See :meth:`Classifier.network_settings`."""
        return super().network_settings(
            without_heads(config) if isinstance(config, EncoderConfig) else config, **changes
        )

    @property
    def _places_pdrop(self) -> float:
        """The released `run_squad.py` drops nothing before its layer; for tags the paper is silent, as for classes."""
        return 0.0 if self.row_form.over_positions else self.clf_pdrop

    @property
    def network(self) -> Encoder:
        """The encoder."""
        return self.encoder

    def forward(
        self,
        tokens: Tensor,
        clf_position: Tensor,
        lm_positions: Tensor | None = None,
        *,
        segments: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        """Run a batch.

        :param tokens: [B, C, T] ids, right-padded.
        :param clf_position: not read: a sequence is told by its first state.
        :param lm_positions: None: an encoder predicts no next token.
        :param segments: [B, C, T] numbers of segments; None: all 0.
        :param mask: [B, C, T] 1 for a word, 0 for padding; None: all words.
        :returns: task logits [B, K], [B, C] for choices, [B, T, K] for places (of a span the starts and ends of
            padding are -inf); None, as there is no language model.
        """
        n_rows, n_sequences, _ = tokens.shape
        marks = (None if given is None else given.flatten(0, 1) for given in (segments, mask))
        states = self.encoder.encode(tokens.flatten(0, 1), *marks)  # (B*C, T, D)
        if self.row_form.places:
            places: Tensor = self.head(dropout(states, self._places_pdrop, self.training))  # (B, T, K)
            if self.row_form.over_positions and mask is not None:
                places = places.masked_fill(~mask.flatten(0, 1)[..., None], -torch.inf)
            return places, None
        summary = self.encoder.summary(states)  # (B*C, D)
        if self.layer is not None:
            summary = F.relu(self.layer(summary))
        summary = summary.view(n_rows, n_sequences, -1)  # (B, C, D)
        # One mask for all choices of an example, so that none of them is favoured, as GPT-1's original code has it.
        summary = summary * dropout(torch.ones_like(summary[:, :1]), self.clf_pdrop, self.training)
        logits: Tensor = self.head(summary)  # (B, C, 1) for choices, else (B, 1, K)
        return logits.flatten(1), None
