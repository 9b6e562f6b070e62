"""What pre-training learns and how that is scored on held-out text: a family names one of these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from gptcore.config import NetworkConfig, PretrainConfig
from gptcore.data.feed import Data, Objective
from gptcore.data.masking import PieceTable
from gptcore.data.shards import Shards
from gptcore.families import FAMILIES
from gptcore.machine.distributed import World
from gptcore.models.build import load_model
from gptcore.models.network import Network


@dataclass(frozen=True)
class Text:
    """The shards of a split, and what tells how they are read: for which network, by which settings, who shares."""

    shards: Shards
    model: NetworkConfig
    config: PretrainConfig
    world: World

    @property
    def pieces(self) -> PieceTable:
        """What the ids of the vocabulary are, which shards with sentence borders say.

        :raises InputError: shards without them.
        """
        return PieceTable.read(self.shards.folder.parent)


class PretrainingObjective(ABC):
    """The data, the objective and the held-out scores of a family's pre-training.

    What is trained is the family's network alone, unless a subclass says otherwise.
    """

    @abstractmethod
    def data(self, text: Text, micro_batch_size: int | None) -> Data:
        """The batches; every draw is a function of the settings' seed and the index of the sequence.

        :param micro_batch_size: sequences that one process holds at once; None: all of its share.
        """

    def network(self, model: Network, generator: torch.Generator) -> nn.Module:
        """What is trained: the family's network, or one that has it as a part beside others.

        :param generator: where the others' weights are drawn from.
        """
        return model

    def others(self, trained: nn.Module) -> Mapping[str, Network]:
        """The others by the names of the folders, inside the model's, that they are kept in; mostly none."""
        return {}

    @abstractmethod
    def objective(self, trained: nn.Module, config: PretrainConfig) -> Objective:
        """What an update's loss is.

        :param trained: of :meth:`network`.
        """

    @abstractmethod
    def score(
        self, objective: Objective, text: Text, max_tokens: int | None, interrupted: Callable[[], bool]
    ) -> dict[str, float]:
        """Scores of held-out text, the same on every process; "loss" and "perplexity" are among them.

        :param max_tokens: score no more than so many targets, the same ones each time; None: all of them.
        :param interrupted: see :class:`gptcore.training.loop.Monitor`.
        """


def score_held_out(
    model: str, shards: Path, config: PretrainConfig, interrupted: Callable[[], bool] = lambda: False
) -> dict[str, float]:
    """A pre-trained model's scores of all held-out documents, also of an objective that it was not trained for.

    A model with the head of pairs of segments is so scored on any kind of pairs: the head's label 0 is "goes on" in
    each of them.

    :param model: any fsspec URL of its folder, of a family that trains no network beside it.
    :param shards: the folder with validation/ and its vocabulary.
    :param config: what the sequences are: `pairs`, `mask_share`.
    """
    network = load_model(model)
    learnt: PretrainingObjective = FAMILIES[network.config.family].part("objective")
    objective = learnt.objective(network, config)
    text = Text(Shards(shards / "validation"), network.config, config, World(0, 1, torch.device("cpu")))
    return learnt.score(objective, text, None, interrupted)
