"""GPT-BERT: one network that reads both ways, its batches, its two losses, and its pre-training as a job."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.base.files import read_json
from gptcore.config import ModelConfig, PretrainConfig, preset_named
from gptcore.config.operations import pretraining_flops
from gptcore.data.sampler import IGNORE_INDEX, WindowSampler
from gptcore.data.shards import Shards
from gptcore.machine import process
from gptcore.models.classifier import ClassificationModel, Head
from gptcore.models.network import load_model
from gptcore.models.transformer import GPT
from gptcore.objectives.objective import Text
from gptcore.papers.gptbert.both_ways import NEXT_TOKEN_AND_HIDDEN_WORDS, both_ways_losses
from gptcore.papers.gptbert.network import BothWays
from gptcore.training import pretrain
from tests.expected import expected as table_of
from tests.gptcore.jobs import (
    ALONE,
    N_CTX,
    N_VOCAB,
    Job,
    JobFor,
    assert_same_run,
    curve,
    run_world,
    stopped_and_resumed,
)

SIZES = {"n_vocab": N_VOCAB, "n_ctx": N_CTX, "n_layer": 2, "n_head": 2, "n_embd": 16, "n_inner": 64, "init_std": 0.3}
STEADY = {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
MODEL = ModelConfig(family="gptbert", norm_first=True, n_special=1, **SIZES)  # type: ignore[arg-type]  # see the values
CONFIG = PretrainConfig(batch_size=8, steps=20, hidden_share=0.5)


@pytest.fixture
def model() -> BothWays:
    return BothWays(dataclasses.replace(MODEL, **STEADY), torch.Generator().manual_seed(1)).eval()


def plain_states(model: BothWays, tokens: Tensor) -> Tensor:
    """A slow twin: one sequence that every position sees as a whole, spelled out: [T] -> [T, D]."""
    x = model.tokens.weight[tokens] + model.positions.weight[: len(tokens)]
    for block in model.blocks:
        attention: Any = block.attention
        q, k, v = attention.qkv(block.norm_1(x)).chunk(3, dim=-1)  # (T, D) each
        heads = []
        for at in range(0, x.shape[1], x.shape[1] // attention.n_head):
            its = slice(at, at + x.shape[1] // attention.n_head)
            weights = torch.softmax(q[:, its] @ k[:, its].T / (its.stop - its.start) ** 0.5, dim=-1)
            heads.append(weights @ v[:, its])
        x = x + attention.projection(torch.cat(heads, dim=-1))
        x = x + block.feed_forward(block.norm_2(x))
    states: Tensor = model.norm(x)
    return states


def test_each_sequence_is_read_in_its_own_way(model: BothWays) -> None:
    tokens = torch.randint(N_VOCAB, (4, N_CTX), generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([N_CTX, 9, N_CTX, 5])
    words = torch.arange(N_CTX) < lengths[:, None]
    whole = torch.tensor([True, True, False, False])
    found = model.mixed_states(tokens, model.table(), whole, words)
    causal = GPT.states(model, tokens, model.table())
    for row, length in enumerate(lengths.tolist()):
        expected = plain_states(model, tokens[row, :length]) if whole[row] else causal[row, :length]
        torch.testing.assert_close(found[row, :length], expected, atol=2e-5, rtol=1e-5)
    assert not torch.allclose(found[0], causal[0], atol=1e-2), "and the two ways differ"


@pytest.mark.parametrize("form", ["single", "choices"])
def test_a_fine_tuned_network_sees_each_sequence_whole_and_no_padding(model: BothWays, form: str) -> None:
    network = ClassificationModel(
        model, Head(form, 1 if form == "choices" else 3, 0.0), torch.Generator().manual_seed(3)
    )
    tokens = torch.randint(N_VOCAB, (3, 2, N_CTX), generator=torch.Generator().manual_seed(4))
    tokens[:, :, :4] = tokens[:, :1, :4]  # what choices begin with
    ends = torch.tensor([[11, 7], [N_CTX - 1, 4], [6, 6]])
    states = torch.stack(
        [
            plain_states(model, tokens[row, place, : end + 1])[end]
            for row in range(3)
            for place, end in enumerate(ends[row].tolist())
        ]
    ).view(3, 2, -1)
    summary = states if form == "choices" else states.sum(dim=1, keepdim=True)
    expected = network.head(summary).flatten(1)
    other = tokens.clone()
    other[torch.arange(N_CTX) > ends[..., None]] = 7  # padding
    for training in (False, True):
        network.train(training)
        for given in (tokens, other):
            torch.testing.assert_close(network(given, ends)[0], expected, atol=2e-5, rtol=1e-5)


def test_only_hidden_words_of_whole_sequences_are_told_from_the_place_before(shards: Path) -> None:
    data = NEXT_TOKEN_AND_HIDDEN_WORDS.data(Text(Shards(shards / "train"), MODEL, CONFIG, ALONE), None)
    windows = WindowSampler(Shards(shards / "train"), N_CTX, CONFIG.seed)
    hidden, tellable = 0, 0
    for step in range(20):
        (batch,) = data.update(step).micro_batches
        inputs, targets = (torch.from_numpy(part) for part in windows.batch(step, 8))
        whole = batch["whole"]
        assert int(whole.sum()) == 4, "half of them, evenly spread"
        assert torch.equal(batch["tokens"][~whole], inputs[~whole])
        assert torch.equal(batch["targets"][~whole], targets[~whole])
        assert torch.equal(batch["words"], targets != IGNORE_INDEX)
        told = batch["targets"][whole] != IGNORE_INDEX  # (4, T)
        assert torch.equal(batch["targets"][whole][told], targets[whole][told])
        changed = batch["tokens"][whole] != inputs[whole]
        assert not changed[:, 0].any()
        assert not (changed[:, 1:] & ~told[:, :-1]).any(), "what was changed is told, one place before"
        assert set(batch["tokens"][whole][changed].tolist()) <= set(range(N_VOCAB + 1))
        hidden += int((batch["tokens"] == MODEL.n_vocab).sum())
        tellable += int(batch["words"][whole].sum())
        n_words, n_next = told.sum(), (targets[~whole] != IGNORE_INDEX).sum()
        assert float(batch["word_weight"] * n_words) == pytest.approx(1)
        assert float(batch["next_weight"] * n_next) == pytest.approx(1)
        assert data.update(step).micro_batches[0]["tokens"].equal(batch["tokens"])
    assert hidden / tellable == pytest.approx(0.15 * 0.8, abs=0.03)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9375])
def test_the_share_of_hidden_sequences_is_kept_over_any_batches(share: float, shards: Path) -> None:
    config = dataclasses.replace(CONFIG, hidden_share=share, batch_size=6)
    data = NEXT_TOKEN_AND_HIDDEN_WORDS.data(Text(Shards(shards / "train"), MODEL, config, ALONE), 2)
    found = [bool(row) for step in range(16) for batch in data.update(step).micro_batches for row in batch["whole"]]
    assert sum(found) == pytest.approx(96 * share, abs=1)


def test_loss_and_gradients_are_those_of_the_plain_softmax(model: BothWays, shards: Path) -> None:
    data = NEXT_TOKEN_AND_HIDDEN_WORDS.data(Text(Shards(shards / "train"), MODEL, CONFIG, ALONE), None)
    (batch,) = data.update(3).micro_batches
    loss, metrics = both_ways_losses(model, 0.25, batch)
    loss.backward()
    ours = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    states = model.mixed_states(batch["tokens"], model.table(), batch["whole"], batch["words"])
    logits = states @ model.tokens.weight.T
    parts = []
    for rows in (~batch["whole"], batch["whole"]):
        targets = batch["targets"][rows].flatten()
        parts.append(F.cross_entropy(logits[rows].flatten(0, 1), targets, ignore_index=IGNORE_INDEX))
    expected = 0.75 * parts[0] + 0.25 * parts[1]
    expected.backward()
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    assert [float(metrics[name]) for name in ("next_loss", "word_loss")] == pytest.approx(
        [*map(float, parts)], rel=1e-5
    )
    for name, weight in model.named_parameters():
        assert weight.grad is not None
        torch.testing.assert_close(ours[name], weight.grad, atol=1e-6, rtol=1e-4)


def make_job(job_for: JobFor, workspace: Path, steady: bool = False, **changes: Any) -> Job:
    model = dataclasses.replace(MODEL, **STEADY) if steady else MODEL
    return {**job_for(workspace, hidden_share=0.5, **changes), "model": dataclasses.asdict(model)}


def test_a_job_learns_both_and_a_resume_is_exact(tmp_path: Path, job_for: JobFor) -> None:
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    pretrain.run(make_job(job_for, straight), process.StopRequest())
    stopped_and_resumed(pretrain.run, make_job(job_for, stopped), 14, 1, 9)
    assert_same_run(stopped, straight)
    result = read_json(straight / "result.json")
    assert result["validation/perplexity"] == pytest.approx(np.exp(result["validation/loss"]))
    assert result["validation/tokens"] == 184, "of 190 tokens of 6 documents"
    assert result["validation/loss"] < np.log(N_VOCAB) - 0.3
    assert result["validation/word_loss"] < np.log(N_VOCAB) - 0.3
    assert "validation/unigram_entropy" not in result
    made = load_model(str(straight / "model"))
    assert isinstance(made, BothWays)
    assert made(torch.zeros(1, 3, dtype=torch.int64)).shape == (1, 3, N_VOCAB + 1)


def test_the_curves_are_those_of_one_process(tmp_path: Path, job_for: JobFor) -> None:
    changes = {"steps": 16, "micro_batch_size": 1, "eval_every": 8, "checkpoint_every": 8, "steady": True}
    pretrain.run(make_job(job_for, tmp_path / "1", **changes), process.StopRequest())
    for size, sharded in ((4, False), (2, True)):
        workspace = tmp_path / f"{size}-{sharded}"
        job = {**make_job(job_for, workspace, **changes), "sharded": sharded}
        run_world(job, size)
        np.testing.assert_allclose(curve(workspace), curve(tmp_path / "1"), rtol=1e-5)


@pytest.mark.parametrize(("changes", "message"), table_of(__file__, "test_settings_of_other_objectives_are_refused"))
def test_settings_of_other_objectives_are_refused(
    changes: dict[str, Any], message: str, tmp_path: Path, job_for: JobFor
) -> None:
    with pytest.raises(InputError, match=message):
        pretrain.run({**make_job(job_for, tmp_path), **_changed(job_for, tmp_path, changes)}, process.StopRequest())


def _changed(job_for: JobFor, workspace: Path, changes: dict[str, Any]) -> Job:
    return {"pretrain": {**make_job(job_for, workspace)["pretrain"], **changes}}


def test_others_take_no_share_of_hidden_sequences(tmp_path: Path, job_for: JobFor) -> None:
    with pytest.raises(InputError, match=r"pretrain.hidden_share = 0.5: GPT-1 does not learn so, .*gptbert"):
        pretrain.run(job_for(tmp_path, hidden_share=0.5), process.StopRequest())


def test_its_presets_are_gpt2s_but_for_the_objective() -> None:
    for name in ("demo", "small", "long", "paper"):
        ours, theirs = (preset_named(name, {"family": family}) for family in ("gptbert", "gpt2"))
        assert dataclasses.replace(ours.pretrain, hidden_share=None) == theirs.pretrain
        assert dataclasses.replace(ours.model, family="gpt2", n_special=0) == theirs.model
        assert dataclasses.replace(ours.tokenizer, family="gpt2") == theirs.tokenizer


def test_its_operations_count_the_words_that_reach_the_vocabulary() -> None:
    whole, told = MODEL.flops_per_token(N_CTX), MODEL.flops_per_token(N_CTX, 0.15)
    found = pretraining_flops(MODEL, CONFIG, 20) / (20 * 8 * N_CTX)
    assert found == pytest.approx((whole + told) / 2)


@pytest.mark.parametrize("name", ["hidden_share", "mask_share"])
def test_every_setting_of_the_two_ways_changes_a_training(name: str, tmp_path: Path, job_for: JobFor) -> None:
    for folder, changes in (("plain", {}), ("changed", {name: 0.3})):
        job = make_job(job_for, tmp_path / folder, steps=4)
        pretrain.run({**job, "pretrain": {**job["pretrain"], **changes}}, process.StopRequest())
    ours, theirs = (load_model(str(tmp_path / folder / "model")).state_dict() for folder in ("plain", "changed"))
    assert any(not torch.equal(ours[part], theirs[part]) for part in ours)
