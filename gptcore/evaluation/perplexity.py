"""Token-level loss and perplexity of a language model on held-out documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from gptcore.losses import fused_language_model_loss
from gptcore.models.language_model import LanguageModel
from gptcore.training.device import autocast
from gptcore.training.distributed import World
from gptcore.training.process import Interrupted

Batch = tuple[NDArray[np.int64], NDArray[np.int64]]


def perplexity(
    model: LanguageModel,
    batches: Iterable[Batch],
    world: World,
    dtype: torch.dtype = torch.float32,
    interrupted: Callable[[], bool] = lambda: False,
) -> dict[str, float]:
    """Score every target of ``batches`` once; the processes take the batches in turn.

    :param model: put into eval mode by the caller.
    :param batches: (inputs, targets), int64 [B, T] each; targets of -100 are left out. Equal on every process.
    :param dtype: of the matrix products.
    :param interrupted: asked after each round of batches.
    :return: "loss" (nats a token), "perplexity" (its exponential), "tokens" (targets scored).
    :raises Interrupted: where ``interrupted`` says yes.
    :raises ValueError: if there is no target.
    """
    sums = torch.zeros(2, dtype=torch.float64, device=world.device)  # nats, tokens
    with torch.no_grad():
        for number, (inputs, targets) in enumerate(batches):
            if number % world.size == world.rank:
                target = torch.from_numpy(targets).to(world.device)  # (B, T)
                real = (target >= 0).float()
                with autocast(world.device, dtype):
                    table = model.table()
                    hidden = model.states(torch.from_numpy(inputs).to(world.device), table)  # (B, T, D)
                    nats = fused_language_model_loss(hidden, model.words(table), target, weights=real)
                sums += torch.stack([nats.double(), real.sum(dtype=torch.float64)])
            if number % world.size == world.size - 1 and interrupted():
                raise Interrupted("SIGTERM during an evaluation")
    nats_sum, tokens = world.sum_(sums).tolist()
    if not tokens:
        raise ValueError("no token to score")
    loss = nats_sum / tokens
    return {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf, "tokens": tokens}
