"""How long trainings would take on this machine, before any is started: to an order of magnitude, and said as that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tasks.jobs.devices import SpeedUnknown, training_speed, visible_gpus
from tasks.jobs.placement import on_cluster
from tasks.stages.training import Training

_SLOWEST = 1e10  # operations a second that any machine reaches: what is short at that needs no measurement
_UPDATE = 0.01  # seconds that an update takes however small its network is, on a CPU; a GPU's is about as much
_SHORT = 60.0


@dataclass(frozen=True)
class Estimate:
    """The time that trainings would take here."""

    seconds: float | None
    """None: not known."""
    reason: str
    """What it rests on, or why it is not known."""

    def __str__(self) -> str:
        """``some 31 hours (estimate: 4.5e+15 operations, at 40 GFLOP/s on this machine's cpu)``."""
        if self.seconds is None:
            return f"for a time that is not known ({self.reason})"
        return f"{about(self.seconds)} (estimate: {self.reason})"


def estimate(trainings: Iterable[Training[object]]) -> Estimate:
    """The time of ``trainings`` on this machine, one after another on all that it has."""
    if on_cluster():
        return Estimate(None, "as jobs of a cluster")
    trainings = list(trainings)
    work = [training.work for training in trainings]
    total = sum(each.operations for each in work)
    fixed = sum(each.updates for each in work) * _UPDATE
    if total / _SLOWEST + fixed < _SHORT:
        return Estimate(total / _SLOWEST + fixed, f"{total:.1e} operations")
    try:
        speed = training_speed()
    except SpeedUnknown as error:
        return Estimate(None, f"{total:.1e} operations; the speed of this machine: {error}")
    gpus = len(visible_gpus()) if speed.device != "cpu" else 1
    if not any(training.stage == "pretrain" for training in trainings):
        gpus = min(gpus, len(trainings))  # each of these has one
    where = f"{gpus} {speed.device}" if gpus > 1 else f"this machine's {speed.device}"
    reason = f"{total:.1e} operations, at {speed.flops * gpus / 1e9:,.0f} GFLOP/s on {where}"
    return Estimate(total / (speed.flops * gpus) + fixed, reason)


def about(seconds: float) -> str:
    """A time in words, as roughly as it is known: ``under a minute``, ``some 20 minutes``, ``some 31 hours``."""
    for unit, size, most in (("minute", 60.0, 100), ("hour", 3600.0, 72)):
        if seconds < most * size:
            count = round(seconds / size)
            return f"some {count} {unit}s" if count > 1 else f"{'a' if unit == 'minute' else 'an'} {unit} or less"
    return f"some {seconds / 86400:,.0f} days"
