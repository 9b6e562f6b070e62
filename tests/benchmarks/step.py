"""One update of pre-training against transformers' port of the release, plainly and under torch.compile."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

from gptcore.config import ModelConfig, demo, paper, small
from gptcore.config.operations import pretraining_flops
from gptcore.machine.device import autocast, pays_to_compile, pick_dtype
from gptcore.models.transformer import GPT
from gptcore.objectives.next_token import language_model_objective
from gptcore.training.optim import adam
from tests.benchmarks.table import Work, beside

_SHAPES = (("paper", 4, 40_478), ("small", 16, 4_372), ("demo", 24, 2_086))
"""Preset, windows a batch, vocabulary."""
COMPILED = "the same compiled; {} to warm all three up"


def run(seconds: float, _folder: Path) -> None:
    """Row 1, as a job of the preset runs; bfloat16 where the machine multiplies it natively."""
    native = pick_dtype("auto", torch.device("cpu"))
    for name, batch, vocabulary in _SHAPES:
        preset = {"paper": paper, "small": small, "demo": demo}[name]()
        model = dataclasses.replace(preset.model, n_vocab=vocabulary)
        draws = torch.Generator().manual_seed(0)
        tokens = torch.randint(vocabulary, (batch, model.n_ctx + 1), generator=draws)
        for dtype in dict.fromkeys((native, torch.float32)):
            what = f"update, {name} {batch} x {model.n_ctx}, {str(dtype)[6:]}"
            eager = (_theirs(model, tokens, dtype, lambda loss: loss), "", "transformers")
            compiled = (_theirs(model, tokens, dtype, torch.compile), ">= 1.1x", COMPILED)
            peers = [eager, compiled]
            operations = pretraining_flops(model, preset.pretrain, preset.pretrain.steps or 0)
            compiles = pays_to_compile(operations, torch.device("cpu"), dtype, bool(model.resid_pdrop))
            if compiles:
                peers.append((ours(model, tokens, dtype), "", "ours, not compiled, as a short job runs it"))
            beside("1", what, "tokens/s", seconds, ours(model, tokens, dtype, compiles), *peers, warm=2)
            torch._dynamo.reset()


def ours(config: ModelConfig, tokens: Tensor, dtype: torch.dtype, compiled: bool = False) -> Work:
    """Updates of our network on one batch of windows (batch, n_ctx + 1); as much work as they have targets."""
    model = GPT(config, torch.Generator().manual_seed(0)).train()
    if compiled:
        model.compile_layers()
    objective = language_model_objective(model)
    batch = {
        "inputs": tokens[:, :-1].contiguous(),
        "targets": tokens[:, 1:].contiguous(),
        "weight": torch.tensor(1.0 / tokens[:, 1:].numel()),
    }
    return updating(model, lambda: objective(batch)[0], dtype, batch["targets"].numel())


def as_transformers(config: ModelConfig) -> OpenAIGPTConfig:
    """A network's settings as transformers has them."""
    return OpenAIGPTConfig(
        vocab_size=config.n_vocab + config.n_special,
        n_positions=config.n_ctx,
        n_embd=config.n_embd,
        n_layer=config.n_layer,
        n_head=config.n_head,
        embd_pdrop=config.embd_pdrop,
        attn_pdrop=config.attn_pdrop,
        resid_pdrop=config.resid_pdrop,
    )


def _theirs(config: ModelConfig, tokens: Tensor, dtype: torch.dtype, wrap: Callable[..., Any]) -> Work:
    model = OpenAIGPTLMHeadModel(as_transformers(config)).train()
    inputs = tokens[:, :-1].contiguous()
    return updating(model, wrap(lambda: model(inputs, labels=inputs).loss), dtype, inputs.numel())


def updating(
    model: nn.Module,
    loss: Callable[[], Tensor],
    dtype: torch.dtype,
    n_done: int,
    optimizer: torch.optim.Optimizer | None = None,
) -> Work:
    """An update as a piece of work, by default with pre-training's optimiser."""
    optimizer = optimizer or adam(model, paper().pretrain)
    parameters = list(model.parameters())

    def update() -> float:
        with autocast(parameters[0].device, dtype):
            value = loss()
        value.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        model.zero_grad(set_to_none=True)
        return n_done

    return update
