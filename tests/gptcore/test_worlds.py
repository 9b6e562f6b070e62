"""Several processes as one trainer, whole weights or sharded; forked jobs: the bits, exit codes and ends of one."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import psutil
import pytest
from safetensors.torch import load_file

from gptcore.base.files import read_json
from gptcore.config import LSTMConfig, ModelConfig
from gptcore.machine import fork_server, process
from gptcore.machine.fork_server import WarmProcess, fork_job
from gptcore.machine.process import EXIT_BAD_INPUT, EXIT_INTERRUPTED, read_outcome
from gptcore.training import checkpoint, pretrain
from tasks.jobs.command import job_command
from tests.gptcore import tiny_tasks
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
    timeless,
    wait_for_checkpoint,
)
from tests.trials.scenarios import ended

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
    """A run of four that was stopped has the bits of one that was not, too; six windows make unequal shares."""
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


def start(job: Job, nproc: int = 2, **hosts: Any) -> subprocess.Popen[bytes]:
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
    tmp_path: Path, job_for: JobFor, children: list[subprocess.Popen[bytes]]
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


@pytest.mark.slow
def test_when_one_of_four_is_killed_torchrun_starts_them_again_and_the_bits_are_the_same(
    tmp_path: Path, job_for: JobFor, children: list[subprocess.Popen[bytes]]
) -> None:
    """With dropout. Two processes then go on from the last checkpoint that the four had: other dropout, like losses."""
    killed, whole = job_for(tmp_path / "killed"), job_for(tmp_path / "whole")
    children.append(start(killed, 4, max_restarts=1))
    wait_for_checkpoint(killed, children[0], after=20)
    first = psutil.Process(children[0].pid).children()
    assert len(first) == 4
    first[2].send_signal(signal.SIGKILL)
    assert children[0].wait(240) == 0
    run_world(whole, 4)
    assert_same_run(tmp_path / "killed", tmp_path / "whole")

    last = checkpoint.newest_valid(tmp_path / "killed" / "checkpoints")
    assert last is not None
    shutil.rmtree(last.folder)
    (tmp_path / "killed" / "result.json").unlink()
    run_world(killed, 2)
    assert read_json(tmp_path / "killed" / "result.json")["world_size"] == 2
    fewer, all_four = (timeless(tmp_path / name) for name in ("killed", "whole"))
    kept = [record for record in all_four if record[0] < last.step - 10]
    assert fewer[: len(kept)] == kept
    np.testing.assert_allclose(curve(tmp_path / "killed"), curve(tmp_path / "whole"), rtol=0.2)


@pytest.mark.slow
def test_of_two_hosts_the_one_that_is_left_goes_on_alone(
    tmp_path: Path, job_for: JobFor, children: list[subprocess.Popen[bytes]]
) -> None:
    job = job_for(tmp_path, steps=200)
    meeting = {"nnodes": "1:2", "rendezvous": f"127.0.0.1:{free_port()}", "run_id": "a", "max_restarts": 3}
    children.append(start(job, 1, **meeting))
    time.sleep(3)  # the first to come keeps the rendezvous, and is not the one to be killed
    children.append(start(job, 1, **meeting))
    wait_for_checkpoint(job, children[0])
    assert psutil.Process(children[1].pid).children(), "both train"
    children[1].kill()
    assert children[0].wait(240) == 0
    result = read_json(tmp_path / "result.json")
    assert (result["steps"], result["world_size"]) == (200, 1)


def test_one_process_needs_no_torchrun_and_several_hosts_a_place_to_meet(tmp_path: Path) -> None:
    assert job_command("m", tmp_path / "j")[1:] == ["-m", "m", str(tmp_path / "j")]
    assert "gptcore.machine.torchrun" in job_command("m", tmp_path / "j", 2)
    with pytest.raises(ValueError, match="nnodes = 2 without a rendezvous"):
        job_command("m", tmp_path / "j", nnodes="2")


FINETUNE, PRETRAIN = "gptcore.training.finetune", "gptcore.training.pretrain"
ENVIRONMENT = dict(os.environ)
"""One environment for all tests, as pytest's own holds the test's name."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_tasks.encoded(tmp_path_factory.mktemp("warm"), "mnli")


@pytest.fixture(scope="module", autouse=True)
def _none_before() -> Iterator[None]:
    """The process that forks is of this module alone: one that other tests started may have another environment."""
    _end_warm()
    yield
    _end_warm()


def _end_warm() -> None:
    if fork_server._warm is not None:
        fork_server._warm.process.kill()
        fork_server._warm.process.wait()
        fork_server._warm = None
    fork_server._latest = {}


def write_job(dataset: Path, workspace: Path, **settings: Any) -> Path:
    workspace.mkdir()
    given = {
        "task": "mnli",
        "finetune": {"batch_size": 2, "epochs": 2, "lr": 1e-3, "pretrained": False, **settings},
        "model": None,
        "model_config": dataclasses.asdict(tiny_tasks.MODEL),
        "dataset": str(dataset),
        "workspace": str(workspace),
        "threads": 2,
    }
    (workspace / "JOB.json").write_text(json.dumps(given), encoding="utf-8")
    return workspace / "JOB.json"


def forked(job: Path, module: str = FINETUNE) -> WarmProcess:
    """The job as a fork, as soon as there is who forks it."""
    with open(job.with_name("log.txt"), "ab") as log:
        return wait_for(lambda: fork_job(module, job, job.with_name("outcome.json"), log, ENVIRONMENT))


def wait_for(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def has_checkpoints(job: Path) -> bool:
    return any(job.parent.glob("checkpoints/step-*"))


def test_a_fork_computes_the_bits_of_a_process_of_its_own(dataset: Path, tmp_path: Path) -> None:
    jobs = [write_job(dataset, tmp_path / name) for name in ("alone", "first", "second")]
    subprocess.run([sys.executable, "-m", FINETUNE, str(jobs[0])], check=True, capture_output=True)
    first, second = (forked(job) for job in jobs[1:])  # side by side
    assert (os.getpgid(first.pid), os.getpgid(second.pid)) == (first.pid, second.pid)
    assert first.wait(120) == second.wait(120) == 0
    expected = load_file(jobs[0].parent / "model" / "model.safetensors")
    for job in jobs[1:]:
        found = load_file(job.parent / "model" / "model.safetensors")
        assert found.keys() == expected.keys()
        assert all(found[name].equal(expected[name]) for name in expected)
        results = [read_json(each.parent / "result.json") for each in (jobs[0], job)]
        assert results[0]["dev/score"] == results[1]["dev/score"]
        assert "train/loss" in job.with_name("log.txt").read_text(encoding="utf-8")


def test_a_forked_pre_training_has_the_bits_of_a_process_of_its_own(
    tmp_path: Path, job_for: Callable[..., dict[str, Any]]
) -> None:
    jobs = [tmp_path / name / "JOB.json" for name in ("alone", "forked")]
    for job in jobs:
        job.parent.mkdir()
        job.write_text(json.dumps(job_for(job.parent)), encoding="utf-8")
    subprocess.run([sys.executable, "-m", PRETRAIN, str(jobs[0])], check=True, capture_output=True)
    _end_warm()
    fork_server.warm_up(ENVIRONMENT)
    wait_for(lambda: fork_server._warm.ready)  # so that even the first job of all is a fork
    assert forked(jobs[1], PRETRAIN).wait(120) == 0
    assert fork_server._latest == ENVIRONMENT
    assert_same_run(jobs[1].parent, jobs[0].parent)


def test_a_fork_ends_as_a_process_does(dataset: Path, tmp_path: Path) -> None:
    bad = write_job(dataset, tmp_path / "bad")
    bad.write_text("{}", encoding="utf-8")
    refused = forked(bad)
    assert refused.wait(120) == EXIT_BAD_INPUT
    left = read_outcome(bad.with_name("outcome.json"))
    assert left.code == EXIT_BAD_INPUT
    assert left.reason in bad.with_name("log.txt").read_text(encoding="utf-8")

    told, killed = (write_job(dataset, tmp_path / name, epochs=200) for name in ("told", "killed"))
    running, lost = forked(told), forked(killed)
    wait_for(lambda: has_checkpoints(told) and has_checkpoints(killed))
    assert running.poll() is None
    assert psutil.Process(running.pid).cmdline()[0] == FINETUNE  # as whoever looks for a job expects
    assert not any("gptcore.training" in word for word in psutil.Process(fork_server._warm.process.pid).cmdline())
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(0.0)
    os.killpg(running.pid, signal.SIGTERM)
    os.killpg(lost.pid, signal.SIGKILL)
    assert running.wait(120) == EXIT_INTERRUPTED
    assert lost.wait(120) == -signal.SIGKILL


@pytest.mark.slow
def test_who_forks_takes_its_jobs_along_and_is_replaced(dataset: Path, tmp_path: Path) -> None:
    job = write_job(dataset, tmp_path / "orphan", epochs=200)
    running = forked(job)
    wait_for(lambda: has_checkpoints(job))
    fork_server._warm.process.kill()
    fork_server._warm.process.wait()
    assert running.wait(120) != 0
    assert ended(running.pid)
    left = read_outcome(job.with_name("outcome.json"))
    assert left.code == EXIT_INTERRUPTED  # it wrote a checkpoint
    assert forked(write_job(dataset, tmp_path / "next")).wait(120) == 0


@pytest.mark.slow
def test_nothing_is_left_of_a_killed_caller(dataset: Path, tmp_path: Path) -> None:
    job = write_job(dataset, tmp_path / "job", epochs=200)
    program = (
        "import os, sys, time; from pathlib import Path; from gptcore.machine import fork_server\n"
        "job = Path(sys.argv[1])\n"
        "log, environment, fork = open(os.devnull, 'wb'), dict(os.environ), None\n"
        f"while not fork: fork = fork_server.fork_job({FINETUNE!r}, job, job.with_name('outcome.json'), log, "
        "environment)\n"
        "print(fork.pid, fork_server._warm.process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(job)], stdout=subprocess.PIPE, text=True) as caller:
        pids = [int(word) for word in caller.stdout.readline().split()]
        wait_for(lambda: has_checkpoints(job))
        caller.kill()
    wait_for(lambda: all(map(ended, pids)), 60)


def test_what_cannot_be_forked_is_not(dataset: Path, tmp_path: Path) -> None:
    job = write_job(dataset, tmp_path / "job")
    with open(os.devnull, "wb") as log:

        def fork(module: str, **more: str) -> WarmProcess | None:
            return fork_job(module, job, job.with_name("outcome.json"), log, {**ENVIRONMENT, **more})

        assert fork("gptcore.machine.torchrun") is None
        done = wait_for(lambda: fork(FINETUNE))
        assert fork(FINETUNE, OMP_NUM_THREADS="7") is None  # read once, by whoever imports torch
        assert done.wait(120) == 0


def test_another_environment_has_its_own_process_and_ends_no_job_of_the_one_before(
    dataset: Path, tmp_path: Path
) -> None:
    """A library may set a variable on the way, for which later jobs would each import all again."""
    before = forked(write_job(dataset, tmp_path / "before", epochs=200))
    replaced = fork_server._warm.process.pid
    job = write_job(dataset, tmp_path / "after")
    with open(os.devnull, "wb") as log:
        changed = {**ENVIRONMENT, "A_LIBRARY_WAS": "here"}
        after = wait_for(lambda: fork_job(FINETUNE, job, job.with_name("outcome.json"), log, changed))
    assert after.wait(120) == 0
    assert before.poll() is None, "it goes on"
    assert not ended(replaced)
    os.kill(before.pid, signal.SIGTERM)
    assert before.wait(120) == EXIT_INTERRUPTED
    del before
    wait_for(lambda: ended(replaced))


def test_the_first_job_is_a_process_of_its_own_and_starts_nothing(dataset: Path, tmp_path: Path) -> None:
    _end_warm()
    job = write_job(dataset, tmp_path / "only")
    with open(os.devnull, "wb") as log:
        assert fork_job(FINETUNE, job, job.with_name("outcome.json"), log, ENVIRONMENT) is None
    assert fork_server._warm is None


@pytest.mark.parametrize("descriptors", [1, 2], ids=["too many files open", "nobody waits"])
def test_a_fork_that_fails_leaves_the_others_alone(dataset: Path, tmp_path: Path, descriptors: int) -> None:
    job, other = (write_job(dataset, tmp_path / name, epochs=200) for name in ("job", "other"))
    running = forked(job)
    assert fork_server._warm is not None
    request = json.dumps({"module": FINETUNE, "job": str(other), "outcome": str(other.with_name("outcome.json"))})
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with open(os.devnull, "wb") as log, theirs:
        ours.close()
        socket.send_fds(fork_server._warm._control, [request.encode()], [log.fileno(), theirs.fileno()][:descriptors])
    wait_for(lambda: has_checkpoints(job))
    assert running.poll() is None
    os.killpg(running.pid, signal.SIGKILL)
    assert running.wait(120) == -signal.SIGKILL
    assert fork_server._warm.process.poll() is None
    assert not has_checkpoints(other)
