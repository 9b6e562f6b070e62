"""How fast this machine trains, measured in a child process: the process of a flow imports no torch and no CUDA."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import dataclass

_SHARE = 0.3
"""Of the speed of matrix products alone, what a training reaches: the share that infra/README.md's plan for scale
assumes of a GPU. Updates on two cores that other work shared, bfloat16: 0.32 (117 M), 0.24 (small), 0.08 (demo)."""
_SECONDS = 120.0  # a machine that takes longer for a second's products cannot train


class SpeedUnknown(RuntimeError):
    """The measurement failed; the message holds its last line."""


@dataclass(frozen=True)
class Speed:
    """Of one GPU, or of all cores."""

    device: str
    """ "cpu", or the GPU's product name."""
    flops: float
    """Operations a second that a training is expected to reach."""


@functools.cache
def training_speed() -> Speed:
    """What one GPU of this machine, or all of its cores, are expected to train with, as busy as it is now.

    Some three seconds, once a process.

    :raises SpeedUnknown: it cannot be measured here.
    """
    command = [sys.executable, "-m", "gptcore.machine.speed"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except subprocess.TimeoutExpired:
        raise SpeedUnknown(f"matrix products took more than {_SECONDS:g} s") from None
    except subprocess.CalledProcessError as error:
        lines = str(error.stderr).strip().splitlines() or [f"exit code {error.returncode}"]
        raise SpeedUnknown(lines[-1]) from None
    measured = json.loads(done.stdout.splitlines()[-1])
    return Speed(measured["device"], _SHARE * measured["flops"])
