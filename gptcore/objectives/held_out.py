"""Sums of an objective's metrics over held-out batches, by all processes together; a language model's perplexity.

Scores are computed in float32, whatever the training ran in: in bfloat16 the loss of logits at an offset of -80 is
wrong by 0.01 nats, and settings are compared that differ by less than 0.001.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from gptcore.data.feed import MicroBatch, Objective
from gptcore.data.sampler import IGNORE_INDEX, WindowBatch
from gptcore.machine.distributed import World
from gptcore.machine.process import Interrupted

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
            batch = {name: value.to(world.device) for name, value in turn[world.rank % len(turn)].items()}
            if world.rank >= len(turn):  # somebody else scores it
                batch |= {name: torch.zeros_like(value) for name, value in batch.items() if name.endswith(WEIGHTS)}
            _, metrics = objective(batch)
            names = list(metrics)
            found = torch.stack([value.double() for value in metrics.values()])
            sums = found if sums is None else sums + found
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
