"""Compiled trainings: the numbers of plain ones, the same bits after a kill, and only where they pay."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from gptcore import GPT
from gptcore.base.files import read_json
from gptcore.config import ModelConfig
from gptcore.machine import device as machine
from gptcore.machine import process
from gptcore.machine.distributed import World
from gptcore.objectives import losses
from gptcore.objectives.next_token import language_model_objective
from gptcore.training import pretrain
from tests.gptcore.jobs import (
    JobFor,
    StopAfter,
    assert_same_run,
    start,
    stopped_and_resumed,
    timeless,
    wait_for_checkpoint,
)


def compiles(test: Any) -> Any:
    """A test that compiles, which takes half a minute and a C++ compiler."""
    return pytest.mark.slow(pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")(test))


@compiles
def test_what_is_compiled_computes_what_is_not() -> None:
    config = ModelConfig(n_vocab=50, n_ctx=16, n_embd=32, n_inner=64, n_head=2, n_layer=2, embd_pdrop=0.0)
    config = dataclasses.replace(config, attn_pdrop=0.0, resid_pdrop=0.0)
    model = GPT(config, torch.Generator().manual_seed(0)).train()
    tokens = torch.randint(50, (4, 17), generator=torch.Generator().manual_seed(0))
    batch = {"inputs": tokens[:, :-1], "targets": tokens[:, 1:], "weight": torch.tensor(1 / 64)}

    def found() -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            loss, _ = language_model_objective(model)(batch)
        return [loss, *torch.autograd.grad(loss, list(model.parameters()))]

    plain = found()
    model.compile_layers()
    for ours, theirs in zip(found(), plain, strict=True):
        assert (ours - theirs).norm() <= 0.03 * theirs.norm()


@compiles
def test_a_compiled_run_resumes_to_the_bit(tmp_path: Path, straight: Path, job_for: JobFor) -> None:
    whole, killed = ({**job_for(tmp_path / name), "compiled": True} for name in ("whole", "killed"))
    with start(whole) as child:
        child.wait()
    with start(killed) as child:
        wait_for_checkpoint(killed, child)
        child.kill()
    with start(killed) as child:
        child.wait()
    assert_same_run(tmp_path / "killed", tmp_path / "whole")
    compiled, plain = (read_json(path / "result.json")["validation/loss"] for path in (tmp_path / "whole", straight))
    assert compiled == pytest.approx(plain, rel=0.02)  # other dropout
    assert compiled != plain


def test_a_run_goes_on_as_it_began_compiled_or_not(
    tmp_path: Path, straight: Path, job_for: JobFor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts: list[str] = []
    monkeypatch.setattr(torch, "compile", lambda part, **_: parts.append(part.__name__) or part)
    losses._compiled_softmax.cache_clear()
    job = {**job_for(tmp_path / "compiled"), "compiled": True}
    with pytest.raises(process.Interrupted):
        pretrain.run(job, StopAfter(25))
    assert parts == ["through", "_plain_softmax"]
    pretrain.run({**job, "compiled": False}, process.StopRequest())
    assert "what was compiled before is not now: other bits follow" in capsys.readouterr().err
    compiled, plain = (
        [metrics["train/loss"] for _, metrics in timeless(path) if "train/loss" in metrics][:25]
        for path in (tmp_path / "compiled", straight)
    )
    assert compiled == pytest.approx(plain, rel=1e-4)
    stopped_and_resumed(pretrain.run, job_for(tmp_path / "plain"), 25)
    pretrain.run({**job_for(tmp_path / "plain"), "compiled": True}, process.StopRequest())
    assert_same_run(tmp_path / "plain", straight)
    losses._compiled_softmax.cache_clear()


def test_several_processes_compile_nothing(tmp_path: Path, job_for: JobFor) -> None:
    job = pretrain.PretrainJob.parse({**job_for(tmp_path), "compiled": True})
    for size in (1, 2):
        assert pretrain._compiles(job, 10, World(0, size, torch.device("cpu")), drops=False) == (size == 1)


@pytest.mark.parametrize(
    ("case", "tools", "found"),
    [
        (("cpu", 1e13, torch.bfloat16, False), True, False),
        (("cpu", 1e15, torch.bfloat16, False), True, True),
        (("cpu", 1e15, torch.float32, False), True, False),
        (("cpu", 1e15, torch.bfloat16, True), True, False),
        (("cpu", 1e15, torch.bfloat16, False), False, False),
        (("cuda", 1e16, torch.bfloat16, True), True, False),
        (("cuda", 1e18, torch.bfloat16, True), True, True),
        (("cuda", 1e18, torch.float32, True), False, False),
    ],
)
def test_a_long_training_is_compiled_where_that_is_possible_and_pays(
    case: tuple[str, float, torch.dtype, bool], tools: bool, found: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    device, operations, dtype, drops = case
    monkeypatch.setattr(machine, "find_spec", lambda name: name)
    monkeypatch.setenv("CC", "cc") if tools else monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("CXX", sys.executable if tools else "no-such-compiler")
    if not tools:
        monkeypatch.setenv("PATH", "")
    assert machine.pays_to_compile(operations, torch.device(device), dtype, drops) == found
    assert ("nothing is compiled" in capsys.readouterr().err) == (not tools)
