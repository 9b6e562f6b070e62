"""What a student loses on single layers of its teacher (TinyBERT, section 3.1), on a text and on a task's rows.

Legend of shape comments: B sequences, T positions, N positions that count (words and marks), D width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from gptcore.config import DistilConfig
from gptcore.models.network import LayerStates
from gptcore.papers.students.losses import attention_loss, states_loss


class Counted(NamedTuple):
    """Which positions of a batch count, and how much."""

    places: Tensor
    """[N] of the B*T positions."""
    weight: Tensor
    """[B, T], 0 where a position does not count."""
    visible: Tensor
    """Which positions each one sees: bool, [B, 1, 1, T] or [1, 1, T, T]."""


def layer_losses(
    fit: nn.Linear | None,
    config: DistilConfig,
    layers: tuple[int, ...],
    counted: Counted,
    ours: LayerStates,
    theirs: LayerStates,
) -> dict[str, Tensor]:
    """What is told of single layers, by the names of the weights in the settings; what weighs nothing is left out.

    :param fit: brings the student's states to its teacher's width; None where no states are compared.
    :param layers: the teacher's, counted from 1, that the student's stand for.
    """
    weight = counted.weight.flatten()[counted.places]  # (N,)

    def differ(mine: Tensor, its: Tensor) -> Tensor:
        assert fit is not None, "drawn where states are compared"
        mine, its = (states.flatten(0, 1)[counted.places] for states in (mine, its))  # (N, D)
        return states_loss(fit(mine), its, weight)

    losses: dict[str, Tensor] = {}
    if config.embedding_weight:
        losses["embedding"] = differ(ours.states[0], theirs.states[0])
    if config.hidden_weight:
        pairs = zip(ours.states[1:], layers, strict=True)
        losses["hidden"] = torch.stack([differ(mine, theirs.states[layer]) for mine, layer in pairs]).sum()
    if config.attention_weight:
        scored = zip(ours.scores, layers, strict=True)
        losses["attention"] = torch.stack(
            [attention_loss(mine, theirs.scores[layer - 1], counted.visible, counted.weight) for mine, layer in scored]
        ).sum()
    return losses
