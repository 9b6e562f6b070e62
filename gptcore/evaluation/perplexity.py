"""Token-level loss and perplexity of a language model on held-out documents.

Scores are computed in float32, whatever the training ran in: in bfloat16 the loss of logits at an offset of -80 is
wrong by 0.01 nats, and settings are compared that differ by less than 0.001.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable

import torch

from gptcore.data.feed import Objective
from gptcore.data.sampler import IGNORE_INDEX, WindowBatch
from gptcore.machine.distributed import World
from gptcore.machine.process import Interrupted


def perplexity(
    objective: Objective,
    batches: Iterable[WindowBatch],
    world: World,
    interrupted: Callable[[], bool] = lambda: False,
) -> dict[str, float]:
    """Score every target of ``batches`` once; the processes take the batches in turn, all equally often.

    :param objective: of :func:`language_model_objective`; its model is put into eval mode by the caller.
    :param batches: (inputs, targets), int64 [B, T] each; targets of -100 are left out. Equal on every process.
    :param interrupted: asked after each round of batches.
    :return: "loss" (nats a token), "perplexity" (its exponential), "tokens" (targets scored).
    :raises Interrupted: where ``interrupted`` says yes.
    :raises ValueError: if there is no target.
    """
    sums = torch.zeros(2, dtype=torch.float64, device=world.device)  # nats, tokens
    remaining = iter(batches)
    with torch.no_grad():
        while turn := list(itertools.islice(remaining, world.size)):
            inputs, targets = (torch.from_numpy(part).to(world.device) for part in turn[world.rank % len(turn)])
            counts = torch.tensor(float(world.rank < len(turn)), device=world.device)  # or somebody else scores it
            nats, _ = objective({"inputs": inputs, "targets": targets, "weight": counts})
            n_tokens = (targets != IGNORE_INDEX).sum(dtype=torch.float64) * counts
            sums += torch.stack([nats.double(), n_tokens])
            if interrupted():
                raise Interrupted("SIGTERM during an evaluation")
    nats_sum, tokens = world.sum_(sums).tolist()
    if not tokens:
        raise ValueError("no token to score")
    loss = nats_sum / tokens
    return {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf, "tokens": tokens}
