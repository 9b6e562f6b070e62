"""Training jobs of tests: a small language to learn, a stop anywhere, and what must be equal after it."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gptcore.config import ModelConfig, PretrainConfig
from gptcore.data.shards import write_shards
from gptcore.machine import process
from gptcore.machine.distributed import World
from gptcore.training import checkpoint, pretrain

N_VOCAB, N_CTX = 40, 16
MODEL = ModelConfig(n_vocab=N_VOCAB, n_ctx=N_CTX, n_layer=2, n_head=2, n_embd=16, n_inner=64)
SETTINGS = PretrainConfig(
    batch_size=6,
    micro_batch_size=2,
    steps=120,
    lr=3e-3,
    warmup_steps=10,
    eval_every=25,
    eval_tokens=100,
    checkpoint_every=10,
    precision="float32",
)
ALONE = World(0, 1, torch.device("cpu"))
Job = dict[str, Any]
JobFor = Callable[..., Job]


def write_language(
    folder: Path, documents: dict[str, int], longest: int, n_vocab: int = N_VOCAB, begin: tuple[int, ...] = ()
) -> None:
    """Shards of a noisy arithmetic language; some documents are shorter than a window.

    :param documents: split -> how many.
    :param longest: of a document, in tokens.
    :param n_vocab: of the shards; the language has ``N_VOCAB`` words.
    :param begin: with what each document begins.
    """
    draws = np.random.default_rng(0)
    for split, count in documents.items():
        written = []
        for number in range(count):
            ids = [*begin, int(draws.integers(N_VOCAB))]
            for _ in range(int(draws.integers(4, longest))):
                ids.append((ids[-1] * 3 + 1) % N_VOCAB if draws.random() < 0.9 else int(draws.integers(N_VOCAB)))
            written.append((f"{split}-{number}", [ids]))
        write_shards(written, folder / split, n_vocab=n_vocab, max_tokens=1000)


def assert_same_run(workspace: Path, expected: Path) -> None:
    """Weights, optimiser and metrics are equal to the bit; only clocks may differ."""
    ours, theirs = (checkpoint.newest_valid(folder / "checkpoints") for folder in (workspace, expected))
    assert ours.step == theirs.step
    for group in ("model", "optimizer"):
        a, b = ours.tensors(group), theirs.tensors(group)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[name], b[name]) for name in a)
    # Python's own generator is left out: in this process other threads (the suite's Prefect server) draw from it too.
    mine, its = ([{k: v for k, v in rank.items() if k != "python"} for rank in c.state["rng"]] for c in (ours, theirs))
    assert mine == its
    final, other = (load_file(folder / "model" / "model.safetensors") for folder in (workspace, expected))
    assert all(torch.equal(final[name], other[name]) for name in final)
    assert timeless(workspace) == timeless(expected)


def timeless(workspace: Path) -> list[tuple[int, dict[str, float]]]:
    clocks = ("tokens_per_second", "eta_seconds")
    records = [json.loads(line) for line in (workspace / "metrics.jsonl").read_text().splitlines()]
    return [(r["step"], {k: v for k, v in r["metrics"].items() if k not in clocks}) for r in records]


class StopAfter(process.StopRequest):
    """A SIGTERM that arrives at the n-th time the loop asks."""

    def __init__(self, asked: int) -> None:
        self._left = asked

    @property  # type: ignore[override]  # the original is a plain attribute
    def requested(self) -> bool:
        self._left -= 1
        return self._left < 0


def stopped_and_resumed(run: Callable[..., Any], job: Job, *asked: int) -> None:
    """The job, stopped each time at so many questions, and at last done to its end."""
    for questions in asked:
        with pytest.raises(process.Interrupted):
            run(job, StopAfter(questions))
    torch.manual_seed(999)  # whatever the new process has drawn before
    run(job, process.StopRequest())


def start(job: Job) -> subprocess.Popen[bytes]:
    """The job as a child process."""
    path = Path(job["workspace"]) / "job.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(job))
    command = [sys.executable, "-m", "gptcore.training.pretrain", str(path)]
    return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True)


def wait_for_checkpoint(job: Job, child: subprocess.Popen[bytes], after: int = 0) -> None:
    """Until there is a checkpoint of a later step than ``after``."""
    deadline = time.monotonic() + 120
    while (found := checkpoint.newest_valid(Path(job["workspace"]) / "checkpoints")) is None or found.step <= after:
        assert child.poll() is None, "the child ended before a checkpoint"
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- worlds without torchrun: forks of a process that has imported torch once


def curve(workspace: Path) -> np.ndarray[Any, Any]:
    """Every loss and gradient norm."""
    names = ("train/loss", "train/grad_norm", "validation/loss")
    return np.array([metrics[name] for _, metrics in timeless(workspace) for name in names if name in metrics])


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _member(rank: int, size: int, port: int, job: Job, asked: int | None, prepare: Callable[[], None] | None) -> None:
    if prepare:
        prepare()
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    try:
        pretrain.run(job, process.StopRequest() if asked is None else StopAfter(asked))
    except process.Interrupted:
        os._exit(process.EXIT_INTERRUPTED)
    os._exit(process.EXIT_DONE)


def run_world(job: Job, size: int, asked: int | None = None, prepare: Callable[[], None] | None = None) -> None:
    """A pre-training job in ``size`` processes, to its end or its stop.

    :param asked: the number of questions after which SIGTERM arrives.
    :param prepare: what each process does first.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.gptcore.jobs", "torch.distributed.fsdp", "torch._dynamo"])
    port = free_port()
    members = [context.Process(target=_member, args=(rank, size, port, job, asked, prepare)) for rank in range(size)]
    for one in members:
        one.start()
    for one in members:
        one.join(120)
    expected = process.EXIT_DONE if asked is None else process.EXIT_INTERRUPTED
    assert [one.exitcode for one in members] == [expected] * size
