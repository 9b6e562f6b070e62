"""A pre-trained network plus one linear layer: the network that is fine-tuned.

Decoders: sections 3.2 and 3.3 and Figure 1 (right). Encoders: BERT, sections 4.1 and 4.4 (SWAG).

B batch, C sequences an example (choices or orders), T positions, D width, K outputs of the linear layer, N
language-model targets of the whole batch.

    form         sequences C      representation        linear layer   softmax over
    single       1                h at classify         D -> classes   classes
    labels       1                h at classify         D -> classes   none: each class by itself
    pair         1, or 2 (orders) h, or the sum of two  D -> classes   classes
    choices      one a choice     one a choice          D -> 1         choices
    span         1                each state            D -> 2         positions, for the start and for the end
    tags         1                each state            D -> tags      tags, at each position

Of an encoder its summary stands in the place of h, a pair is one sequence, and it alone points at places.
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
from gptcore.models.network import LanguageModel, Network, initialise, next_token_network


class ClassificationModel(Classifier):
    """Task logits, and on request the states that the language model predicts from, in one pass through the decoder.

    :param form: name of one of :data:`gptcore.nlu.forms.FORMS`.
    :param n_outputs: K; 1 for "choices", where every choice gets one scalar.
    :param clf_pdrop: dropout before the linear layer (section 4.1: 0.1).
    :param generator: where the linear layer's N(0, 0.02) weights are drawn from; None: torch's default generator.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        form: str,
        n_outputs: int,
        clf_pdrop: float,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(language_model.config.n_embd, form, n_outputs, clf_pdrop)
        self.gpt = language_model
        initialise(self.head, language_model.config.init_std, generator)

    @classmethod
    def over(cls, network: Network, where: str, head: Head, generator: torch.Generator | None = None) -> Self:
        """See :meth:`Classifier.over`."""
        return cls(next_token_network(network, where), *head, generator)

    @property
    def network(self) -> LanguageModel:
        """The decoder."""
        return self.gpt

    @property
    def shares_choices(self) -> bool:
        """Whether in training the states of what an example's choices begin with are the same in each."""
        return self.row_form.choices and not self.gpt.drops

    def forward(
        self, tokens: Tensor, clf_position: Tensor, lm_positions: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """Run a batch.

        :param tokens: [B, C, T] ids, right-padded; the causal mask keeps padding from every real position.
        :param clf_position: [B, C] index of the first classify token of each sequence.
        :param lm_positions: [N] positions in the flattened B*C*T whose next token is a language-model target, so that
            padding never reaches the product with the vocabulary, the costliest of a short sequence. None: no states.
        :returns: task logits [B, K], or [B, C] for choices; None, or the states of the asked positions [N, D] and the
            table [V, D] whose rows the language model chooses from (as released, positions are among them).
        """
        n_rows, n_sequences, n_positions = tokens.shape
        table = self.gpt.table()
        found = None
        if lm_positions is None and not self.training:
            alike = self.row_form.choices  # which share their document; orders share nothing
            shape = (n_rows, n_sequences) if alike else (n_rows * n_sequences, 1)
            summary = self.gpt.last_states(tokens.view(*shape, n_positions), clf_position.view(shape), table)
            summary = summary.view(n_rows, n_sequences, -1)  # (B, C, D)
        else:
            flat, places = self._states(tokens, clf_position, table)
            starts = torch.arange(n_rows * n_sequences, device=tokens.device) * n_positions  # (B*C,)
            ends = starts + clf_position.reshape(-1)
            ends = ends if places is None else places[ends]
            summary = flat[ends].view(n_rows, n_sequences, -1)  # (B, C, D)
            if lm_positions is not None:
                # A shared position may be asked for once a choice; the gradients of a look-up's rows are added in one
                # order, those of an index on several threads in any.
                states = flat[lm_positions] if places is None else F.embedding(places[lm_positions], flat)
                found = states, table
        if not self.row_form.choices:
            summary = summary.sum(dim=1, keepdim=True)  # (B, 1, D)
        # One mask for all choices of an example, so that none of them is favoured (original code).
        summary = summary * dropout(torch.ones_like(summary[:, :1]), self.clf_pdrop, self.training)
        logits = self.head(summary)  # (B, C, 1) for choices, else (B, 1, K)
        return logits.flatten(1), found

    def _states(self, tokens: Tensor, clf_position: Tensor, table: Tensor) -> tuple[Tensor, Tensor | None]:
        """States [N, D], and which of them is that of each of the B*C*T positions; None: they are these."""
        if self.row_form.choices:  # which share their document
            return self.gpt.choices(tokens, clf_position, table)
        hidden = self.gpt.sequence_states(tokens.flatten(0, 1), clf_position.flatten(), table)  # (B*C, T, D)
        return hidden.reshape(-1, hidden.shape[-1]), None


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
