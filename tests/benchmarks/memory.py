"""Peak memory of an update of pre-training at the published size, GPT-1's and BERT's, against transformers.

Each is measured in a process of its own: the most that was resident, Python and torch included. The first update is of
a few tokens and makes what Adam keeps; the second is the one measured. Where a machine emulates bfloat16, each would
take minutes: there the matrix products are left out, and zeros of their size take their place.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gptcore.config import ModelConfig
from gptcore.machine.device import pick_dtype
from tests.benchmarks.learners import Learner, micro_batch, preset_of
from tests.benchmarks.peers import theirs
from tests.benchmarks.step import updating
from tests.benchmarks.table import Work, shown

_WINDOWS = 8


def run(_seconds: float, _folder: Path) -> None:
    """Row 8, in bfloat16."""
    products = pick_dtype("auto", torch.device("cpu")) == torch.bfloat16
    for family, shape, target in (("gpt", "paper", "<= 0.5x"), ("bert", "BERT base", "<= 0.6x")):
        ours, theirs = (_peak(who, family, products) for who in ("ours", "theirs"))
        what = f"peak memory of an update, {shape} {_WINDOWS} x {ModelConfig().n_ctx}, bfloat16"
        what += "" if products else ", its products left out"
        peer = f"{shown(theirs / 1e9)} (transformers)"
        print(f"| 8 | {what} | {shown(ours / 1e9)} GB | {peer} | {ours / theirs:.2f}x | {target} |", flush=True)


def _peak(who: str, family: str, products: bool) -> float:
    """Bytes."""
    command = [sys.executable, "-m", "tests.benchmarks.memory", who, family, *(["--products"] if products else [])]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


class _NoProducts(TorchDispatchMode):
    """Gives zeros for a matrix product, as many as it has elements."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        aten = torch.ops.aten
        if func.overloadpacket not in (aten.mm, aten.bmm, aten.addmm, aten.addmm_):
            return func(*args, **kwargs)
        if func.overloadpacket is aten.addmm_:
            return args[0]
        if "out" in kwargs:
            return kwargs["out"].zero_()
        left, right = args[-2:]
        return left.new_zeros(*left.shape[:-1], right.shape[-1])


def _update_alone(update: Work, products: bool) -> None:
    """Two updates, then the most bytes that this process had resident."""
    with contextlib.nullcontext() if products else _NoProducts():
        update()
        update()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _update_of(who: str, family: str, n_layer: int) -> Work:
    config, settings, _ = preset_of(family, "paper")
    config = dataclasses.replace(config, n_ctx=ModelConfig().n_ctx, n_layer=n_layer)
    learner = Learner(config, settings, _WINDOWS)
    trained, loss = (learner.trained, learner.loss) if who == "ours" else theirs(learner)
    batches = iter([micro_batch(dataclasses.replace(config, n_ctx=8), 1), learner.batch])

    def next_loss() -> Tensor:
        learner.batch = next(batches)
        return loss()

    return updating(trained, next_loss, torch.bfloat16, 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("who", choices=("ours", "theirs"))
    parser.add_argument("family", choices=("gpt", "bert"))
    parser.add_argument("--layers", type=int, default=ModelConfig().n_layer)
    parser.add_argument("--products", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    _update_alone(_update_of(options.who, options.family, options.layers), options.products)
