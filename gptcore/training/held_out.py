"""A pre-trained model's scores on held-out text, also of an objective that it was not trained for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from gptcore.config import PretrainConfig
from gptcore.data.shards import Shards
from gptcore.families import FAMILIES
from gptcore.machine.distributed import World
from gptcore.models.build import load_model
from gptcore.training.pretraining_objective import PretrainingObjective


def score_held_out(
    model: str, shards: Path, config: PretrainConfig, interrupted: Callable[[], bool] = lambda: False
) -> dict[str, float]:
    """The scores of :meth:`PretrainingObjective.score` over all held-out documents.

    A model with the head of pairs of segments is so scored on any kind of pairs: the head's label 0 is "goes on" in
    each of them.

    :param model: any fsspec URL of its folder, of a family that trains no network beside it.
    :param shards: the folder with validation/ and its vocabulary.
    :param config: what the sequences are: `pairs`, `mask_share`.
    """
    network = load_model(model)
    learnt: PretrainingObjective = FAMILIES[network.config.family].part("objective")
    objective = learnt.objective(network, config)
    alone = World(0, 1, torch.device("cpu"))
    return learnt.score(objective, Shards(shards / "validation"), network.config, config, None, alone, interrupted)
