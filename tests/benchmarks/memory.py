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
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

from gptcore.config import ModelConfig
from gptcore.machine.device import pick_dtype
from gptcore.models.transformer import GPT
from gptcore.objectives.next_token import language_model_objective
from tests.benchmarks import encoders
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


def _encoder_update(who: str) -> Work:
    config = dataclasses.replace(encoders.pretraining_config("bert", "base", 30_522), n_ctx=ModelConfig().n_ctx)
    first = encoders.micro_batch(dataclasses.replace(config, n_ctx=8), 1)
    batches = iter([first, encoders.micro_batch(config, _WINDOWS)])
    build = encoders.our_loss if who == "ours" else encoders.their_loss
    model, loss = build("bert", config)
    return updating(model, lambda: loss(next(batches)), torch.bfloat16, 0)


def _decoder_update(who: str, n_layer: int) -> Work:
    config = dataclasses.replace(ModelConfig(), n_layer=n_layer)
    tokens = torch.randint(config.n_vocab, (_WINDOWS, config.n_ctx + 1), generator=torch.Generator().manual_seed(0))
    batches = iter([tokens[:1, :9], tokens])
    if who == "ours":
        model: torch.nn.Module = GPT(config, torch.Generator().manual_seed(0)).train()
        objective = language_model_objective(model)

        def loss() -> Tensor:
            batch = next(batches)
            weight = torch.tensor(1.0 / batch[:, 1:].numel())
            return objective({"inputs": batch[:, :-1], "targets": batch[:, 1:], "weight": weight})[0]
    else:
        model = OpenAIGPTLMHeadModel(OpenAIGPTConfig(n_layer=n_layer)).train()

        def loss() -> Tensor:
            batch = next(batches)[:, :-1]
            return model(batch, labels=batch).loss

    return updating(model, loss, torch.bfloat16, 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("who", choices=("ours", "theirs"))
    parser.add_argument("family", choices=("gpt", "bert"))
    parser.add_argument("--layers", type=int, default=ModelConfig().n_layer)
    parser.add_argument("--products", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    decoder = options.family == "gpt"
    _update_alone(
        _decoder_update(options.who, options.layers) if decoder else _encoder_update(options.who), options.products
    )
