"""What pre-training learns and how that is scored on held-out text: a family names one of these.

Scores are computed in float32, whatever the training ran in: in bfloat16 the loss of logits at an offset of -80 is
wrong by 0.01 nats, and settings are compared that differ by less than 0.001.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from gptcore.config import NetworkConfig, PretrainConfig
from gptcore.data.feed import Data, MicroBatch, Objective, moved
from gptcore.data.masking import PieceTable
from gptcore.data.sampler import IGNORE_INDEX, WindowBatch
from gptcore.data.shards import Shards
from gptcore.families import FAMILIES
from gptcore.machine.distributed import World
from gptcore.machine.process import Interrupted
from gptcore.models.network import Network, load_model


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

    def shards(self, folder: Path, knowledge: Path | None) -> Shards:
        """The shards of a split, with what is known beside its text where the family has such knowledge.

        :param folder: of the split.
        :param knowledge: the folder of what is known, with one of the split's name inside; None: there is none.
        """
        return Shards(folder)

    def know(self, model: Network, knowledge: Path) -> dict[str, str]:
        """Give the network what is known beside the text and what it never learns.

        :return: what checkpoints say of that, by which a training refuses to go on with another.
        :raises InputError: knowledge of another size than the network's settings say.
        """
        return {}

    @abstractmethod
    def data(self, text: Text, micro_batch_size: int | None) -> Data:
        """The batches; every draw is a function of the settings' seed and the index of the sequence.

        :param micro_batch_size: sequences that one process holds at once; None: all of its share.
        """

    def network(self, model: Network, config: PretrainConfig, generator: torch.Generator) -> nn.Module:
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


def score_held_out(model: str, shards: Path, config: PretrainConfig) -> dict[str, float]:
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
    return learnt.score(objective, text, None, lambda: False)


WEIGHTS = "weight"
"""How the names of what a micro-batch's parts count end."""


def summed_metrics(
    objective: Objective, batches: Iterable[MicroBatch], world: World, interrupted: Callable[[], bool] = lambda: False
) -> dict[str, float]:
    """The metrics of all batches added up; the processes take the batches in turn, all equally often.

    :param objective: its model is put into eval mode by the caller.
    :param batches: equal on every process.
    :param interrupted: asked after each round of batches.
    :raises Interrupted: where ``interrupted`` says yes.
    :raises ValueError: if there is no batch.
    """
    names: list[str] = []
    sums: Tensor | None = None
    remaining = iter(batches)
    with torch.no_grad():
        while turn := list(itertools.islice(remaining, world.size)):
            batch = moved(turn[world.rank % len(turn)], world.device)
            if world.rank >= len(turn):  # somebody else scores it
                batch |= {name: torch.zeros_like(value) for name, value in batch.items() if name.endswith(WEIGHTS)}
            _, metrics = objective(batch)
            names = list(metrics)
            values = torch.stack([value.double() for value in metrics.values()])
            sums = values if sums is None else sums + values
            if interrupted():
                raise Interrupted("SIGTERM during an evaluation")
    if sums is None:
        raise ValueError("no token to score")
    return dict(zip(names, world.sum_(sums).tolist(), strict=True))


def perplexity(
    objective: Objective, batches: Iterable[WindowBatch], world: World, interrupted: Callable[[], bool] = lambda: False
) -> dict[str, float]:
    """Score every target of ``batches`` once; the processes take the batches in turn, all equally often.

    :param objective: of :func:`gptcore.objectives.next_token.language_model_objective`; its model is put into eval
        mode by the caller.
    :param batches: (inputs, targets), int64 [B, T] each; targets of -100 are left out. Equal on every process.
    :param interrupted: asked after each round of batches.
    :return: "loss" (nats a token), "perplexity" (its exponential), "tokens" (targets scored).
    :raises Interrupted: where ``interrupted`` says yes.
    :raises ValueError: if there is no target.
    """
    tokens = 0

    def counted() -> Iterator[MicroBatch]:
        nonlocal tokens
        for window in batches:
            inputs, targets = map(torch.from_numpy, window)
            tokens += int((targets != IGNORE_INDEX).sum())
            yield {"inputs": inputs, "targets": targets, "weight": torch.ones(())}

    nats = summed_metrics(objective, counted(), world, interrupted)["loss"]
    if not tokens:
        raise ValueError("no token to score")
    return {"loss": nats / tokens, "perplexity": exponential(nats / tokens), "tokens": float(tokens)}


def exponential(loss: float) -> float:
    """The perplexity of a loss in nats; infinite where no number is as large."""
    return math.exp(loss) if loss < 700 else math.inf
