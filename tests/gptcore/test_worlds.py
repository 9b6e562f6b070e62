"""Several processes as one trainer: the curves of one, whole weights or sharded, and resumes that change no bit."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import psutil
import pytest

from gptcore.base.files import read_json
from gptcore.config import LSTMConfig, ModelConfig
from gptcore.machine import process
from gptcore.training import checkpoint, pretrain
from tasks.jobs.command import job_command
from tests.gptcore.jobs import (
    MODEL,
    N_CTX,
    N_VOCAB,
    Job,
    JobFor,
    assert_same_run,
    curve,
    free_port,
    run_world,
    wait_for_checkpoint,
)

STEADY = dataclasses.replace(MODEL, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)
LSTM = LSTMConfig(n_vocab=N_VOCAB, n_ctx=N_CTX, n_units=24, n_embd=16, embd_pdrop=0.0, resid_pdrop=0.0)
SETTINGS = {"steps": 16, "batch_size": 6, "micro_batch_size": 1, "eval_every": 8, "checkpoint_every": 8}


@pytest.fixture(scope="module")
def steady(job_for: JobFor) -> JobFor:
    def make(workspace: Path, sharded: bool = False, model: ModelConfig | LSTMConfig = STEADY) -> Job:
        return {**job_for(workspace, **SETTINGS), "model": dataclasses.asdict(model), "sharded": sharded}

    return make


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, steady: JobFor) -> Path:
    workspace = tmp_path_factory.mktemp("alone")
    pretrain.run(steady(workspace), process.StopRequest())
    return workspace


@pytest.mark.parametrize("sharded", [False, True], ids=["replicated", "sharded"])
@pytest.mark.parametrize("size", [2, 4])
def test_the_curves_are_those_of_one_process(
    size: int, sharded: bool, tmp_path: Path, alone: Path, steady: JobFor
) -> None:
    """And a run of four that was stopped has the bits of one that was not; six windows make unequal shares."""
    run_world(steady(tmp_path / "whole", sharded), size)
    np.testing.assert_allclose(curve(tmp_path / "whole"), curve(alone), rtol=1e-5)
    if size == 4:
        for asked in (9, None):
            run_world(steady(tmp_path / "stopped", sharded), size, asked)
        assert_same_run(tmp_path / "stopped", tmp_path / "whole")


def test_a_sharded_checkpoint_is_like_any_other(tmp_path: Path, alone: Path, steady: JobFor) -> None:
    """Sharded over three, then whole on two, then sharded over two, at last alone: the same curve."""
    for size, sharded, asked in ((3, True, 5), (2, False, 5), (2, True, 5)):
        run_world(steady(tmp_path, sharded), size, asked)
    pretrain.run(steady(tmp_path), process.StopRequest())
    np.testing.assert_allclose(curve(tmp_path), curve(alone), rtol=1e-5)
    ours, theirs = (checkpoint.newest_valid(folder / "checkpoints") for folder in (tmp_path, alone))
    assert ours is not None
    assert theirs is not None
    for group in ("model", "optimizer"):
        a, b = ours.tensors(group), theirs.tensors(group)
        assert {name: x.shape for name, x in a.items()} == {name: x.shape for name, x in b.items()}


def test_another_network_is_sharded_as_well(tmp_path: Path, steady: JobFor) -> None:
    pretrain.run(steady(tmp_path / "alone", model=LSTM), process.StopRequest())
    run_world(steady(tmp_path / "sharded", True, LSTM), 2)
    np.testing.assert_allclose(curve(tmp_path / "sharded"), curve(tmp_path / "alone"), rtol=1e-5)


# --- through torchrun


def start(job: Job, nproc: int = 2, **hosts: str) -> subprocess.Popen[bytes]:
    path = Path(job["workspace"]) / "job.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(job))
    told = {"OMP_NUM_THREADS": "1", process.OUTCOME_VARIABLE: str(path.with_name("outcome.json"))}
    command = job_command("gptcore.training.pretrain", path, nproc, **hosts)
    return subprocess.Popen(command, env=os.environ | told, start_new_session=True)


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    """What a failing test leaves is ended; its workers go with it."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for child in started:
        child.kill()
        child.wait()


@pytest.mark.slow
def test_a_world_that_is_stopped_and_killed_and_one_on_two_hosts_end_with_the_same_bits(
    tmp_path: Path,
    job_for: JobFor,
    children: list[subprocess.Popen[bytes]],
) -> None:
    """With dropout: each process has its own draws, and gets them back. Undisturbed it needs no torchrun."""
    stopped, whole, hosts = (job_for(tmp_path / name) for name in ("stopped", "whole", "hosts"))
    children.append(start(stopped))
    wait_for_checkpoint(stopped, children[0])
    children[0].terminate()  # torchrun alone: it passes the signal on
    children[0].wait(60)
    assert process.read_outcome(tmp_path / "stopped" / "outcome.json") == (process.EXIT_INTERRUPTED, ANY, 0)
    reached = checkpoint.newest_valid(tmp_path / "stopped" / "checkpoints")
    assert reached is not None

    children.append(start(stopped))
    wait_for_checkpoint(stopped, children[1], after=reached.step)
    for worker in psutil.Process(children[1].pid).children():
        worker.send_signal(signal.SIGKILL)
    assert children[1].wait(60) == 1
    assert not (tmp_path / "stopped" / "result.json").exists()

    meeting = {"nnodes": "2", "rendezvous": f"127.0.0.1:{free_port()}", "run_id": "a"}
    last = [start(stopped), start(hosts, 1, **meeting), start(hosts, 1, **meeting)]
    children.extend(last)
    assert [child.wait(120) for child in last] == [0, 0, 0]
    run_world(whole, 2)
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")
    assert_same_run(tmp_path / "hosts", tmp_path / "whole")
    assert read_json(tmp_path / "hosts" / "result.json")["world_size"] == 2


def test_one_process_needs_no_torchrun_and_several_hosts_a_place_to_meet(tmp_path: Path) -> None:
    assert job_command("m", tmp_path / "j")[1:] == ["-m", "m", str(tmp_path / "j")]
    assert "gptcore.machine.torchrun" in job_command("m", tmp_path / "j", 2)
    with pytest.raises(ValueError, match="nnodes = 2 without a rendezvous"):
        job_command("m", tmp_path / "j", nnodes="2")
