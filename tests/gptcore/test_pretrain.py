"""The pre-training job: a run that is stopped anywhere, in any way, ends with the bits of one that never was."""

from __future__ import annotations

import dataclasses
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gptcore import GPT
from gptcore.base.errors import InputError
from gptcore.base.files import read_json
from gptcore.config import ModelConfig
from gptcore.data.sampler import WindowSampler, sequential_windows
from gptcore.data.shards import Shards
from gptcore.machine import process
from gptcore.machine.distributed import World
from gptcore.objectives import next_token
from gptcore.objectives.losses import language_model_loss
from gptcore.objectives.next_token import PretrainData, language_model_objective
from gptcore.objectives.objective import perplexity
from gptcore.training import checkpoint, loop, pretrain
from gptcore.training.checkpoint import MetricsLog
from gptcore.training.optim import warmup_cosine
from tests.expected import expected
from tests.gptcore.jobs import (
    ALONE,
    MODEL,
    N_CTX,
    N_VOCAB,
    SETTINGS,
    Job,
    JobFor,
    StopAfter,
    assert_same_run,
    start,
    stopped_and_resumed,
    timeless,
    wait_for_checkpoint,
)


def test_the_run_learns_and_leaves_what_it_promises(straight: Path) -> None:
    result = read_json(straight / "result.json")
    assert result["steps"] == 120
    assert result["validation/perplexity"] < 20 < N_VOCAB
    assert result["validation/perplexity"] == pytest.approx(np.exp(result["validation/loss"]))
    assert (result["precision"], result["device"], result["world_size"], result["mfu"]) == ("float32", "cpu", 1, None)
    assert result["peak_memory_bytes"] > 50e6
    assert result["tokens_per_second"] > 0
    names = sorted(path.name for path in (straight / "checkpoints").iterdir())
    assert names == ["step-00000100", "step-00000110", "step-00000120"]
    assert read_json(straight / "model" / "meta.json")["tokenizer_digest"] == "d1"
    records = timeless(straight)
    assert [step for step, metrics in records if "validation/loss" in metrics] == sorted(
        {1, 2, 4, 8, 15, 30, 60, 25, 50, 75, 100, 120}
    )
    assert [step for step, metrics in records if "train/loss" in metrics] == list(range(1, 121))
    assert records[0][1].keys() == {"train/loss", "train/grad_norm", "train/lr", "tokens_seen", "progress"}
    logged = {step: metrics for step, metrics in records if "train/lr" in metrics}
    assert [logged[step]["progress"] for step in (1, 60, 120)] == pytest.approx([1 / 120, 0.5, 1.0])
    factor = warmup_cosine(SETTINGS.warmup_steps, 120)  # of the rate that the update was made with
    rates = [logged[step]["train/lr"] for step in (1, 2, 60, 120)]
    assert rates == pytest.approx([SETTINGS.lr * factor(step) for step in (0, 1, 59, 119)])


def test_models_on_the_way_are_kept(straight: Path, shards: Path) -> None:
    steps = [1, 2, 4, 8, 15, 30, 60]
    folders = sorted((straight / "snapshots").iterdir())
    assert [folder.name for folder in folders] == [f"step-{step:07d}" for step in steps]
    scores = [read_json(folder / "meta.json") for folder in folders]
    assert [score["steps"] for score in scores] == steps
    assert scores[-1]["validation/loss"] < scores[0]["validation/loss"]
    batches = sequential_windows(Shards(shards / "validation"), N_CTX, SETTINGS.eval_tokens)
    found = perplexity(language_model_objective(GPT.load(folders[-1])), batches, ALONE)
    assert found["loss"] == pytest.approx(scores[-1]["validation/loss"], rel=1e-5)


def test_the_reported_perplexity_is_that_of_the_saved_model(straight: Path, shards: Path) -> None:
    model = GPT.load(straight / "model")
    nats, count = 0.0, 0
    validation = Shards(shards / "validation")
    with torch.no_grad():
        for row in range(validation.n_rows):
            ids = torch.from_numpy(validation.tokens(row).astype(np.int64))
            for start in range(0, len(ids) - 1, N_CTX):  # plainly: window after window, each scored on its own
                window = ids[start : start + N_CTX + 1]
                nats += language_model_loss(model(window[None, :-1]), window[None, 1:]).item() * (len(window) - 1)
                count += len(window) - 1
    result = read_json(straight / "result.json")
    assert result["validation/tokens"] == count
    assert result["validation/loss"] == pytest.approx(nats / count, rel=1e-4)


@pytest.mark.parametrize("asked", [[0], [13], [25, 8, 40]], ids=["at once", "between checkpoints", "three times"])
def test_sigterm_anywhere_then_resume_is_exact(
    asked: list[int], tmp_path: Path, straight: Path, job_for: JobFor
) -> None:
    stopped_and_resumed(pretrain.run, job_for(tmp_path), *asked)
    assert_same_run(tmp_path, straight)


def test_with_muon_too_but_not_from_a_former_checkpoint(tmp_path: Path, job_for: JobFor) -> None:
    straight, stopped = (job_for(tmp_path / name, optimizer="muon") for name in ("straight", "stopped"))
    pretrain.run(straight, process.StopRequest())
    stopped_and_resumed(pretrain.run, stopped, 25)
    assert_same_run(tmp_path / "stopped", tmp_path / "straight")
    found = checkpoint.newest_valid(tmp_path / "stopped" / "checkpoints")
    kinds = {name.rsplit("/", 1)[1] for name in found.tensors("optimizer")}
    assert kinds == {"momentum_buffer", "exp_avg", "exp_avg_sq", "step"}
    former = {**found.state, "identity": {k: v for k, v in found.state["identity"].items() if k != "muon"}}
    tensors = {group: found.tensors(group) for group in ("model", "optimizer")}
    checkpoint.save(tmp_path / "stopped" / "checkpoints", found.step, tensors, former, keep=3)
    with pytest.raises(InputError, match="another run: muon = None there, 'queries, keys and values apart' here"):
        pretrain.run(stopped, process.StopRequest())  # which saw them as one matrix


def test_the_log_of_a_stopped_run_is_that_of_an_undisturbed_one(
    tmp_path: Path, job_for: JobFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Speed and remaining time, too, on a clock that an update moves by a second.

    Only runs of 200 updates and more tell several of them in one line; what no line has told yet must be kept.
    """
    real, seconds = next_token.language_model_objective, 0

    def ticking(model: GPT) -> Any:
        objective = real(model)

        def run(batch: Any) -> Any:
            nonlocal seconds
            seconds += model.training  # not in an evaluation
            return objective(batch)

        return run

    monkeypatch.setattr(next_token, "language_model_objective", ticking)
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: float(seconds)))
    changes = {"steps": 200, "batch_size": 2, "eval_every": 150, "checkpoint_every": 40}
    pretrain.run(job_for(tmp_path / "straight", **changes), process.StopRequest())
    job = job_for(tmp_path / "stopped", **changes)
    with pytest.raises(process.Interrupted):
        pretrain.run(job, StopAfter(50))
    stopped = checkpoint.newest_valid(tmp_path / "stopped" / "checkpoints")
    assert stopped.step % 2 == 1
    pretrain.run(job, process.StopRequest())
    assert_same_run(tmp_path / "stopped", tmp_path / "straight")
    mine, its = (
        [json.loads(line)["metrics"] for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("stopped", "straight")
    )
    assert mine == its
    results = [read_json(tmp_path / name / "result.json") for name in ("stopped", "straight")]
    assert results[0]["tokens_per_second"] == results[1]["tokens_per_second"] == 32.0
    assert results[0]["wall_seconds"] == results[1]["wall_seconds"] == 200.0


def test_sigterm_during_an_evaluation_repeats_it(tmp_path: Path, straight: Path, job_for: JobFor) -> None:
    # asked before the first update; the second question comes from inside the evaluation after it
    with pytest.raises(process.Interrupted, match="evaluation"):
        pretrain.run(job_for(tmp_path), StopAfter(1))
    assert timeless(tmp_path)[-1][0] == 1
    assert "validation/loss" not in timeless(tmp_path)[-1][1]
    pretrain.run(job_for(tmp_path), process.StopRequest())
    assert_same_run(tmp_path, straight)


def test_a_corrupt_newest_checkpoint_costs_time_but_no_bits(tmp_path: Path, straight: Path, job_for: JobFor) -> None:
    with pytest.raises(process.Interrupted):
        pretrain.run(job_for(tmp_path), StopAfter(47))
    newest = max((tmp_path / "checkpoints").iterdir())
    (newest / "model.safetensors").write_bytes(b"torn")
    pretrain.run(job_for(tmp_path), process.StopRequest())
    assert_same_run(tmp_path, straight)


def test_doing_a_finished_job_again_changes_nothing(tmp_path: Path, job_for: JobFor) -> None:
    job = job_for(tmp_path, steps=12)
    pretrain.run(job, process.StopRequest())
    before, result = timeless(tmp_path), read_json(tmp_path / "result.json")
    pretrain.run(job, process.StopRequest())
    assert timeless(tmp_path) == before
    clocks = {"wall_seconds", "peak_memory_bytes"}
    again = read_json(tmp_path / "result.json")
    assert {k: v for k, v in again.items() if k not in clocks} == {k: v for k, v in result.items() if k not in clocks}


def test_kill_9_of_a_child_then_resume_is_exact(tmp_path: Path, straight: Path, job_for: JobFor) -> None:
    job = job_for(tmp_path)
    child = start(job)
    wait_for_checkpoint(job, child)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert not (tmp_path / "result.json").exists()
    pretrain.run(job, process.StopRequest())
    assert_same_run(tmp_path, straight)


def test_the_global_batch_does_not_depend_on_processes_or_micro_batches(shards: Path) -> None:
    sampler = WindowSampler(Shards(shards / "train"), N_CTX, seed=1)
    for step in (0, 7):
        whole = PretrainData(sampler, 6, None, ALONE).update(step)
        for size, micro in ((2, 2), (3, None), (4, 1)):
            worlds = [World(rank, size, torch.device("cpu")) for rank in range(size)]
            parts = [PretrainData(sampler, 6, micro, world).update(step) for world in worlds]
            assert all(part.n_tokens == whole.n_tokens for part in parts)
            for name in ("inputs", "targets"):
                joined = torch.cat([batch[name] for part in parts for batch in part.micro_batches])
                assert torch.equal(joined, whole.micro_batches[0][name])


def test_the_losses_of_all_parts_add_up(shards: Path) -> None:
    model = GPT(MODEL, torch.Generator().manual_seed(0)).eval()
    objective = language_model_objective(model)
    sampler = WindowSampler(Shards(shards / "train"), N_CTX, seed=1)
    [whole] = PretrainData(sampler, 6, None, ALONE).update(3).micro_batches
    worlds = [World(rank, 3, torch.device("cpu")) for rank in range(3)]
    batches = [batch for world in worlds for batch in PretrainData(sampler, 6, 1, world).update(3).micro_batches]
    expected = language_model_loss(model(whole["inputs"]), whole["targets"])
    torch.testing.assert_close(objective(whole)[0], expected)
    torch.testing.assert_close(sum(objective(batch)[0] for batch in batches), expected)


def exit_code(tmp_path: Path, job: Job) -> int:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job))
    return process.main(pretrain.run, [str(path)])


def test_a_loss_that_is_not_finite_stops_the_run_and_says_where(
    tmp_path: Path, job_for: JobFor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = next_token.language_model_objective

    def poisoned(model: GPT) -> Any:
        objective, calls = real(model), 0

        def run(batch: Any) -> Any:
            nonlocal calls
            calls += model.training
            loss, metrics = objective(batch)
            # three micro-batches an update: the 14th
            factor = float("nan") if model.training and calls == 3 * 14 else 1.0
            return loss * factor, {"loss": metrics["loss"] * factor}

        return run

    monkeypatch.setattr(next_token, "language_model_objective", poisoned)
    assert exit_code(tmp_path, job_for(tmp_path / "w", steps=1500)) == process.EXIT_NON_FINITE
    printed = capsys.readouterr().err
    assert "loss = nan at step 14;" in printed  # though the loop reads the losses only every 15 updates
    assert "step-00000010" in printed
    assert "batch from: train-" in printed
    left = checkpoint.newest_valid(tmp_path / "w" / "checkpoints")
    assert left.step == 10


@pytest.mark.parametrize(("change", "said"), expected(__file__, "test_a_job_that_cannot_be_done_is_refused"))
def test_a_job_that_cannot_be_done_is_refused_before_any_work(
    change: Job, said: str, tmp_path: Path, job_for: JobFor, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(tmp_path, job_for(tmp_path / "w") | change) == process.EXIT_BAD_INPUT
    assert said in capsys.readouterr().err
    assert not (tmp_path / "w" / "checkpoints").exists()


def test_a_workspace_of_another_run_is_refused(
    tmp_path: Path, job_for: JobFor, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain.run(job_for(tmp_path / "w", steps=5), process.StopRequest())
    assert exit_code(tmp_path, job_for(tmp_path / "w", steps=5, lr=1.0)) == process.EXIT_BAD_INPUT
    assert "checkpoint of another run: lr = 0.003 there, 1.0 here" in capsys.readouterr().err


def test_steps_follow_from_epochs(tmp_path: Path, job_for: JobFor) -> None:
    config = pretrain.PretrainJob.parse(job_for(tmp_path, steps=None, epochs=2.5)).pretrain
    assert config.total_steps(N_CTX, n_tokens=960) == 25  # 2.5 * 960 / (6 * 16)
    assert config.total_steps(N_CTX, n_tokens=961) == 26
    half = dataclasses.replace(config, short_length=8, short_share=0.5)
    assert half.total_steps(N_CTX, n_tokens=960) == 34  # 2.5 * 960 / (6 * 12)
    assert dataclasses.replace(config, short_length=8).mean_length(128) == pytest.approx(20)


def test_perplexity_needs_something_to_score() -> None:
    with pytest.raises(ValueError, match="no token"):
        perplexity(language_model_objective(GPT(MODEL).eval()), [], ALONE)


def test_the_metrics_file_is_cut_where_the_checkpoint_was(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.append(1, {"a": 1.0})
    size = log.sync()
    log.append(2, {"a": 2.0})
    log.close()
    MetricsLog(path, size).close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1]
    MetricsLog(path, size - 2).close()  # a file that lost its end: no half line stays
    assert path.read_bytes() == b""


# --- from another model's weights ------------------------------------------------------------------------------------


def test_a_run_goes_on_from_weights_and_resumes_to_the_bit(straight: Path, job_for: JobFor, tmp_path: Path) -> None:
    """Fresh optimiser and schedule: the first evaluation is about where the other run ended, not where one begins."""

    def job(name: str) -> Job:
        return {**job_for(tmp_path / name, steps=20, lr=1e-4, eval_every=5), "start": str(straight / "model")}

    pretrain.run(job("whole"), process.StopRequest())
    first, last = (
        next(found["validation/loss"] for _, found in records if "validation/loss" in found)
        for records in (timeless(tmp_path / "whole"), timeless(straight)[::-1])
    )
    assert first == pytest.approx(last, rel=0.05)
    with pytest.raises(process.Interrupted):
        pretrain.run(job("cut"), StopAfter(7))
    pretrain.run(job("cut"), process.StopRequest())
    assert_same_run(tmp_path / "cut", tmp_path / "whole")
    with pytest.raises(InputError, match="checkpoint of another run: start = "):
        pretrain.run(job_for(tmp_path / "cut", steps=20, lr=1e-4, eval_every=5), process.StopRequest())


def test_weights_of_another_shape_are_refused(straight: Path, job_for: JobFor, tmp_path: Path) -> None:
    job = {**job_for(tmp_path), "start": str(straight / "model")}
    job["model"] = {**job["model"], "n_layer": 1, "resid_pdrop": 0.3}
    with pytest.raises(InputError, match="model: its n_layer is 2, expected 1 as in the settings"):
        pretrain.run(job, process.StopRequest())


def test_a_gpu_holds_as_many_sequences_as_fit_its_memory() -> None:
    """Some 34 bytes a position, dimension and layer in bfloat16: below 25 GB for the paper's networks."""
    for model in (ModelConfig(), ModelConfig(n_ctx=1024), ModelConfig(n_ctx=1024, n_layer=48, n_embd=1600, n_head=25)):
        rows = pretrain.sequences_at_once(model, "cuda")
        assert 15e9 < 34 * rows * model.n_ctx * model.n_embd * model.n_layer < 25e9
