"""Sums of an objective's metrics over held-out batches, by all processes together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from gptcore.data.feed import MicroBatch, Objective
from gptcore.machine.distributed import World
from gptcore.machine.process import Interrupted

WEIGHTS = "_weight"
"""How the names of what a micro-batch's parts count end."""


def summed_metrics(
    objective: Objective, batches: Iterable[MicroBatch], world: World, interrupted: Callable[[], bool] = lambda: False
) -> dict[str, float]:
    """The metrics of all batches added up; the processes take the batches in turn, all equally often.

    Scores are computed in float32, whatever the training ran in (see :mod:`gptcore.evaluation.perplexity`).

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
        raise ValueError("no batch to score")
    return dict(zip(names, world.sum_(sums).tolist(), strict=True))
