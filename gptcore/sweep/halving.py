"""Successive halving (Jamieson and Talwalkar 2016; one bracket of Hyperband, Li et al. 2018).

On rung r of R every trial that is left trains for a share eta^(r - R) of its full length, and the best 1/eta of them
go on. Each rung's training is whole, with a schedule of its own: the learning rate falls over the run's own length, so
a longer run is another one from its first update on, and none goes on from a shorter one's weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from gptcore.base.errors import InputError
from gptcore.config import FinetuneConfig, PretrainConfig


@dataclass(frozen=True)
class Rung:
    """One round of a sweep."""

    number: int
    """From 1."""
    trials: int
    """How many begin it, where none before them failed."""
    part: int
    """The rung's share of the full length is 1 / ``part``."""


def rungs(trials: int, eta: int, count: int) -> list[Rung]:
    """``trials`` begin the first of ``count`` rungs; ``trials // eta ** r`` the one that follows r others.

    :raises InputError: none would be left for the last one.
    """
    if trials < (least := eta ** (count - 1)):
        raise InputError(f"trials = {trials}; expected {least} or more, for {count} rungs with eta = {eta}")
    return [Rung(r + 1, trials // eta**r, eta ** (count - 1 - r)) for r in range(count)]


def survivors(objectives: Mapping[int, float | None], keep: int, lower_is_better: bool) -> list[int]:
    """The ``keep`` best trials, best first; of equals the one with the lower number.

    :param objectives: trial -> what it reached; None: it failed, and does not go on whatever room is left.
    """
    sign = 1 if lower_is_better else -1
    ranked = sorted((sign * value, trial) for trial, value in objectives.items() if value is not None)
    return [trial for _, trial in ranked[:keep]]


def shortened(config: PretrainConfig, part: int) -> PretrainConfig:
    """A pre-training of 1 / ``part`` of the length, its warm-up shorter by as much; itself where ``part`` is 1."""
    if part == 1:
        return config
    warmup = round(config.warmup_steps / part)
    if config.steps is None:
        return dataclasses.replace(config, epochs=config.epochs / part, warmup_steps=warmup)
    return dataclasses.replace(config, steps=max(1, round(config.steps / part)), warmup_steps=warmup)


def fewer_rows(config: FinetuneConfig, part: int, rows: int) -> FinetuneConfig:
    """A fine-tuning on 1 / ``part`` of its training rows; itself where ``part`` is 1.

    :param rows: that the training split has.
    """
    if part == 1:
        return config
    used = min(rows, config.max_train_rows or rows)
    return dataclasses.replace(config, max_train_rows=max(1, round(used / part)))
