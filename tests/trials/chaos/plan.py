"""When what is killed: the moments of a trial, drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LIFE = (
    "start-up",
    "baseline",
    "corpus",
    "tokenizer",
    "dataset",
    "shards",
    "ngrams",
    "pretrain",
    "finetune",
    "report",
    "exit",
)
"""The pipeline's life, cut where the next stage begins to work: `ngrams` ends when `pretrain` has its workspace."""
JOB_STAGES = ("corpus", "shards", "pretrain", "finetune")
"""Where child processes work: the pool's workers, the two trainings."""


@dataclass(frozen=True)
class Moment:
    """One kill."""

    victim: str
    stage: str
    """Part of the pipeline's life, of :data:`LIFE`."""
    share: float
    """How much of that part is over, 0 to 1: of the reference run's time from its beginning to its end, or of the
    time in which a job works."""
    draw: int
    """Names one of several processes that may be meant."""

    def __str__(self) -> str:
        return f"{self.victim} at {self.share:.0%} of {self.stage}"


def moments(seed: str, counts: Mapping[str, int], stages: Mapping[str, Sequence[str]]) -> list[Moment]:
    """``counts[victim]`` moments for each victim, every stage hit as often as any other, give or take one.

    :param stages: victim -> the parts of the life in which it can be killed.
    """
    plan = []
    for victim, count in counts.items():
        draws = random.Random(f"{seed}/{victim}")
        left: list[str] = []
        for _ in range(count):
            if not left:
                left = draws.sample(list(stages[victim]), len(stages[victim]))
            plan.append(Moment(victim, left.pop(), draws.random(), draws.randrange(1 << 16)))
    return plan
