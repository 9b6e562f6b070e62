"""Learning-rate schedules: functions from the number of updates already made to a factor of the maximum rate."""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[int], float]


def warmup_cosine(warmup_steps: int, total_steps: int) -> Schedule:
    """Pre-training (section 4.1): linear from zero over ``warmup_steps`` updates, then a cosine down to 0."""

    def factor(step: int) -> float:
        if step < warmup_steps:
            return step / warmup_steps
        progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))

    return factor


def warmup_steps_linear(warmup_steps: int, total_steps: int) -> Schedule:
    """Pre-training of BERT (appendix A.2): linear from zero over ``warmup_steps`` updates, then linear decay.

    The decay is counted from the first update of all, so that the rate steps down where the warm-up ends (original
    code); at the last update it is all but 0.
    """

    def factor(step: int) -> float:
        return step / warmup_steps if step < warmup_steps else max(0.0, 1.0 - step / total_steps)

    return factor


def pretraining_schedule(decay: str | None, warmup_steps: int, total_steps: int) -> Schedule:
    """The schedule that the setting `pretrain.decay` names; None: the cosine."""
    return (warmup_steps_linear if decay == "linear" else warmup_cosine)(warmup_steps, total_steps)


def warmup_linear(warmup: float, total_steps: int) -> Schedule:
    """Fine-tuning (section 4.1): linear warm-up over a share of training, then linear decay.

    s(x) = (x / warmup if x <= warmup else 1) * (1 - x) with x the share of updates already made (original code),
    so the two ramps multiply and the first update of all has the rate 0.
    """

    def factor(step: int) -> float:
        x = step / total_steps
        return (x / warmup if warmup > 0 and x <= warmup else 1.0) * (1.0 - x)

    return factor


def taught_schedule(warmup: float, n_layer_steps: int, total_steps: int) -> Schedule:
    """Fine-tuning beside a teacher: a warm-up and a constant rate while layers are learnt, then fine-tuning's own."""
    after = warmup_linear(warmup, max(1, total_steps - n_layer_steps))

    def factor(step: int) -> float:
        if step < n_layer_steps:
            return min(1.0, step / (warmup * n_layer_steps)) if warmup else 1.0
        return after(step - n_layer_steps)

    return factor
