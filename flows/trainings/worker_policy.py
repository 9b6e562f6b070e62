"""What becomes of trainings for which no worker is online: wait, fail, or train here.

One variable of the environment says which, GPTMILL_NO_WORKER, as GPTMILL_JOBS says where jobs go: it describes the
machine that orchestrates (may it train? does somebody look after workers?), not what is computed, so it is no field of
ten forms. A single run gets another one by its job variable ``env``, which Prefect's page of a deployment asks for.

- ``wait``, or ``wait HOURS`` (24): the training's run waits for a worker, which is said every ten minutes; with no
  worker for so many hours it fails.
- ``fail``: at once.
- ``here``: in the process that orchestrates.
- unset: here, where all that is missing takes this machine ten minutes or less, as far as that can be estimated; else
  ``wait``. Trainings that were given to a worker's pool before its last worker went stay there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from gptcore.base.errors import InputError

VARIABLE = "GPTMILL_NO_WORKER"
SHORT_SECONDS = 600.0
"""What an orchestrating process trains itself, unless it is told otherwise."""
_CHOICES = ("wait", "fail", "here")
_HOURS = 24.0


class NoWorker(RuntimeError):
    """No worker takes a training, and the policy is not to wait for one, or no longer."""


@dataclass(frozen=True)
class WorkerPolicy:
    """What the variable says."""

    choice: str = ""
    """wait, fail, here; empty: it is not set."""
    hours: float = _HOURS
    """Without a worker, after which who waits gives up."""

    def __str__(self) -> str:
        if not self.choice:
            return f"{VARIABLE} is not set"
        return f"{VARIABLE}={self.choice}" + (f" {self.hours:g}" if self.choice == "wait" else "")

    def choice_for(self, seconds: float | None, on_cluster: bool) -> str:
        """wait, fail or here.

        :param seconds: that the training is estimated to take here; None: not known.
        :param on_cluster: whether "here" only hands it to a cluster.
        """
        if self.choice:
            return self.choice
        return "here" if on_cluster or (seconds is not None and seconds <= SHORT_SECONDS) else "wait"


def worker_policy() -> WorkerPolicy:
    """The policy of this machine.

    :raises InputError: the variable says something else.
    """
    text = os.environ.get(VARIABLE, "")
    choice, *rest = text.split() or [""]
    hours = _hours(rest[0]) if choice == "wait" and len(rest) == 1 else None if rest else _HOURS
    if hours is None or (choice and choice not in _CHOICES):
        raise InputError(f"{VARIABLE}: found {text!r:.60}, expected wait, wait HOURS, fail, here, or nothing")
    return WorkerPolicy(choice, hours)


def _hours(text: str) -> float | None:
    try:
        hours = float(text)
    except ValueError:
        return None
    return hours if 0 <= hours < float("inf") else None
