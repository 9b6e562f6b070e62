"""Scores of a language model are those of float32, whatever the training ran in."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from gptcore import GPT, ModelConfig
from gptcore.config import PretrainConfig
from gptcore.data.sampler import sequential_windows
from gptcore.data.shards import Shards
from gptcore.machine import process
from gptcore.machine.device import autocast
from gptcore.machine.distributed import World
from gptcore.models.build import load_model
from gptcore.objectives.held_out import perplexity
from gptcore.objectives.next_token import NEXT_TOKEN, language_model_objective
from gptcore.objectives.objective import Text
from gptcore.training import adapt, pretrain
from gptcore.training.pretrain import ValidationMonitor
from tests.gptcore.conftest import job_for as pretrain_job  # noqa: F401  # a fixture
from tests.gptcore.test_adapt import job_for as adapt_job  # noqa: F401  # a fixture

ALONE = World(0, 1, torch.device("cpu"))
Job = dict[str, Any]


def with_offset(offset: float, n_vocab: int) -> GPT:
    """A model all of whose logits lie around ``offset``: a direction that all states and all embeddings share."""
    config = ModelConfig(n_vocab=n_vocab, n_ctx=16, n_layer=1, n_head=2, n_embd=16, n_inner=32)
    model = GPT(config, torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        model.blocks[-1].norm_2.bias += offset / 16 / 0.5
        model.tokens.weight += 0.5
    return model


def plain_loss(model: GPT, found: Shards) -> float:
    """Nats a token, a sequence at a time, in float64."""
    model, nats, n = model.double(), 0.0, 0
    for inputs, targets in sequential_windows(found, model.config.n_ctx, None):
        for x, y in zip(torch.from_numpy(inputs), torch.from_numpy(targets), strict=True):
            scored = y != -100
            logits = model(x[None])[0][scored]
            nats -= float(torch.log_softmax(logits, -1).gather(1, y[scored][:, None]).detach().sum())
            n += int(scored.sum())
    return nats / n


def test_a_validation_in_bfloat16_training_scores_in_float32(shards: Path, tmp_path: Path) -> None:
    held_out = Shards(shards / "validation")
    model = with_offset(-80.0, n_vocab=40)
    objective = language_model_objective(model)
    with torch.no_grad():
        assert -82 < model(torch.zeros(1, 4, dtype=torch.int64)).mean() < -78
    config = PretrainConfig(precision="bfloat16", steps=1)
    score = partial(NEXT_TOKEN.score, objective, Text(held_out, model.config, config, ALONE))
    monitor = ValidationMonitor(model, score, config, 1, held_out.n_tokens, ALONE, tmp_path)
    found = monitor.evaluate(1, lambda: False)["validation/loss"]
    with autocast(ALONE.device, torch.bfloat16):
        rounded = perplexity(objective, sequential_windows(held_out, 16, None), ALONE)["loss"]
    expected = plain_loss(model, held_out)
    assert found == pytest.approx(expected, abs=2e-5)
    assert abs(rounded - expected) > 1e-3, "what it would be in the training's own type"


@pytest.mark.parametrize("job", ["pretrain", "adapt"])
def test_the_final_scores_of_a_bfloat16_job_are_those_of_its_weights_in_float32(
    job: str,
    pretrain_job: Callable[..., Job],  # noqa: F811
    adapt_job: Callable[..., Job],  # noqa: F811
    tmp_path: Path,
) -> None:
    module, make = {"pretrain": (pretrain, pretrain_job), "adapt": (adapt, adapt_job)}[job]
    given = make(tmp_path, precision="bfloat16")
    module.run(given, process.StopRequest())
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["precision"] == "bfloat16"
    model = load_model(str(tmp_path / "model"))
    objective = language_model_objective(model)
    if job == "pretrain":
        windows = sequential_windows(Shards(Path(given["shards"]) / "validation"), model.config.n_ctx, None)
        split = "validation"
    else:
        blocks = adapt.Blocks(Shards(Path(given["shards"]) / "test"), given["adapt"]["block_size"], 0)
        windows, split = blocks.in_order(4, None), "test"
    found = perplexity(objective, windows, ALONE)["loss"]
    assert result[f"{split}/loss"] == pytest.approx(found, abs=1e-6)
    assert result[f"{split}/perplexity"] == pytest.approx(math.exp(found), rel=1e-6)
