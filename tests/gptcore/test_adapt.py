"""Fine-tuning a language model on a domain: it learns, starts from what it is given, and resumes to the bit."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gptcore import GPT
from gptcore.abstracts.config import AdaptConfig
from gptcore.base.errors import InputError
from gptcore.base.files import read_json, write_json_atomic
from gptcore.config import ModelConfig
from gptcore.data.sampler import Blocks
from gptcore.data.shards import Shards
from gptcore.machine import process
from gptcore.training import adapt
from tests.expected import expected
from tests.gptcore.jobs import N_VOCAB, Job, JobFor, StopAfter, timeless, write_language

MODEL = ModelConfig(n_vocab=N_VOCAB, n_ctx=24, n_layer=2, n_head=2, n_embd=16, n_inner=64, norm_first=True)
SETTINGS = AdaptConfig(
    block_size=16, batch_size=2, accumulation=2, lr=1e-2, epochs=6, evaluations=5, eval_blocks=8, precision="float32"
)


@pytest.fixture(scope="module")
def job_for(tmp_path_factory: pytest.TempPathFactory) -> JobFor:
    folder = tmp_path_factory.mktemp("inputs")
    # a special id, then the language
    write_language(folder / "shards", {"train": 60, "valid": 8, "test": 8}, 40, n_vocab=N_VOCAB + 2, begin=(N_VOCAB,))
    GPT(MODEL, torch.Generator().manual_seed(1)).save(folder / "model")
    write_json_atomic(folder / "model" / "meta.json", {"tokenizer_digest": "d1"})
    without = {f"{part}_pdrop": 0.0 for part in ("embd", "attn", "resid")}
    GPT(dataclasses.replace(MODEL, **without), torch.Generator().manual_seed(1)).save(folder / "no dropout")

    def make(workspace: Path, **changes: Any) -> Job:
        return {
            "adapt": dataclasses.asdict(dataclasses.replace(SETTINGS, **changes)),
            "model": str(folder / "model"),
            "n_special": 2,
            "shards": str(folder / "shards"),
            "tokenizer_digest": "d1",
            "workspace": str(workspace),
            "threads": 1,
        }

    return make


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, job_for: JobFor) -> Path:
    workspace = tmp_path_factory.mktemp("straight")
    adapt.run(job_for(workspace), process.StopRequest())
    return workspace


def test_it_learns_and_leaves_what_it_promises(straight: Path, job_for: JobFor) -> None:
    result = read_json(straight / "result.json")
    blocks = Blocks(Shards(Path(job_for(straight)["shards"]) / "train"), 16)
    assert result["steps"] == math.ceil(6 * blocks.count / 4)
    assert result["tokens_seen"] == result["steps"] * 4 * 15  # a block's first token is not predicted
    first = timeless(straight)[0][1]["train/loss"]
    assert result["test/loss"] < 0.8 * first
    for split in adapt.SPLITS:
        assert result[f"{split}/perplexity"] == pytest.approx(math.exp(result[f"{split}/loss"]))
    model = GPT.load(straight / "model")
    assert (model.config.n_special, model.config.n_ctx, model.config.norm_first) == (2, 16, True)


def test_the_reported_losses_are_those_of_the_saved_model(straight: Path, job_for: JobFor) -> None:
    result, model = read_json(straight / "result.json"), GPT.load(straight / "model")
    for split in ("valid", "test"):
        nats, count = 0.0, 0
        for inputs, targets in Blocks(Shards(Path(job_for(straight)["shards"]) / split), 16).in_order(1):
            with torch.no_grad():
                logits = model(torch.from_numpy(inputs)).double()
            nats -= sum(
                torch.log_softmax(logits[0, at], -1)[targets[0, at]].item() for at in range(inputs.shape[1] - 1)
            )
            count += inputs.shape[1] - 1
        assert result[f"{split}/tokens"] == count
        assert result[f"{split}/loss"] == pytest.approx(nats / count, rel=1e-5)


@pytest.mark.parametrize("asked", [1, 7, 30, 61])
def test_sigterm_anywhere_then_resume_is_exact(tmp_path: Path, straight: Path, job_for: JobFor, asked: int) -> None:
    with pytest.raises(process.Interrupted):
        adapt.run(job_for(tmp_path), StopAfter(asked))
    adapt.run(job_for(tmp_path), process.StopRequest())
    final, other = (load_file(folder / "model" / "model.safetensors") for folder in (tmp_path, straight))
    assert all(torch.equal(final[name], other[name]) for name in final)
    assert timeless(tmp_path) == timeless(straight)
    ours, theirs = (read_json(folder / "result.json") for folder in (tmp_path, straight))
    assert {k: v for k, v in ours.items() if "/" in k} == {k: v for k, v in theirs.items() if "/" in k}


def test_accumulation_gives_the_gradient_of_the_whole(tmp_path: Path, job_for: JobFor) -> None:
    """Two blocks twice are four at once, to rounding."""
    losses = []
    for number, (batch, times) in enumerate([(4, 1), (2, 2), (1, 4)]):
        workspace = tmp_path / str(number)
        job = job_for(workspace, batch_size=batch, accumulation=times, epochs=0.5)
        adapt.run({**job, "model": str(Path(job["model"]).with_name("no dropout"))}, process.StopRequest())
        losses.append(read_json(workspace / "result.json")["test/loss"])
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-4)


def test_new_rows_and_cut_positions_leave_the_rest_as_it_was(tmp_path: Path, job_for: JobFor) -> None:
    job = adapt.AdaptJob.parse(job_for(tmp_path))
    source, start = GPT.load(job.model), adapt.adapted_model(job)
    for name, value in source.state_dict().items():
        mine = start.state_dict()[name]
        assert torch.equal(mine[: len(value)], value[: len(mine)]), name
    scratch = adapt.adapted_model(dataclasses.replace(job, adapt=dataclasses.replace(job.adapt, pretrained=False)))
    assert scratch.config == start.config
    assert not torch.equal(scratch.tokens.weight, start.tokens.weight)


@pytest.mark.parametrize(("changes", "message"), expected(__file__, "test_a_job_that_cannot_be_done_is_refused"))
def test_a_job_that_cannot_be_done_is_refused(tmp_path: Path, job_for: JobFor, changes: Job, message: str) -> None:
    with pytest.raises(InputError, match=message):
        adapt.run({**job_for(tmp_path), **changes}, process.StopRequest())
