"""One training run on worlds of 1, 2 and 4 processes, replicated and sharded: are the curves equal, is a resume exact?

    python -m tests.trials.worlds [--steps 60] [--folder FOLDER]

Starts the pre-training job through torchrun as the pipeline does (gloo, float32, no dropout, one thread a process), on
generated tokens. Prints the largest difference of the loss curves from that of one process; the SHA-256 of the weights
of a run that was never stopped beside those of runs ended by SIGTERM and by SIGKILL half-way and started again; tokens
a second; and what becomes of two "hosts" (two torchruns, one rendezvous) when one is killed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from gptcore.base.files import read_json, write_json_atomic
from gptcore.config import ModelConfig, PretrainConfig
from gptcore.data.shards import write_shards
from gptcore.machine.process import OUTCOME_VARIABLE, PARENT_VARIABLE
from tasks.jobs.command import job_command
from tests.trials.scenarios import free_ports, heading, options, row, started

_N_VOCAB = 1000
_MODEL = ModelConfig(
    n_vocab=_N_VOCAB,
    n_ctx=64,
    n_layer=4,
    n_head=4,
    n_embd=128,
    n_inner=512,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    resid_pdrop=0.0,
    init_std=0.07,
)


def _write_tokens(folder: Path) -> None:
    """A language in which a token mostly follows from the one before it."""
    draws = np.random.default_rng(0)
    for split, n_documents in (("train", 200), ("validation", 20)):
        documents = []
        for number in range(n_documents):
            ids = [int(draws.integers(_N_VOCAB))]
            for _ in range(int(draws.integers(50, 400))):
                ids.append((ids[-1] * 7 + 3) % _N_VOCAB if draws.random() < 0.8 else int(draws.integers(_N_VOCAB)))
            documents.append((f"{split}-{number}", [ids]))
        write_shards(documents, folder / split, n_vocab=_N_VOCAB, max_tokens=1_000_000)
    write_json_atomic(folder / "meta.json", {"tokenizer_digest": "worlds", "n_vocab": _N_VOCAB})


class Run:
    """One workspace, and the processes that work in it."""

    def __init__(self, folder: Path, shards: Path, steps: int, nproc: int, sharded: bool = False) -> None:
        config = PretrainConfig(
            batch_size=16,
            micro_batch_size=2,
            steps=steps,
            lr=1e-3,
            warmup_steps=10,
            eval_every=steps,
            checkpoint_every=max(1, steps // 6),
            precision="float32",
        )
        self.folder, self.nproc = folder, nproc
        self.job: dict[str, Any] = {
            "model": dataclasses.asdict(_MODEL),
            "pretrain": dataclasses.asdict(config),
            "shards": str(shards),
            "tokenizer_digest": "worlds",
            "workspace": str(folder),
            "threads": 1,
            "sharded": sharded,
        }

    def start(self, **hosts: Any) -> subprocess.Popen[bytes]:
        """The command of the pipeline; ``hosts``: see :func:`job_command`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json_atomic(self.folder / "JOB.json", self.job)
        command = job_command("gptcore.training.pretrain", self.folder / "JOB.json", self.nproc, **hosts)
        told = {PARENT_VARIABLE: str(os.getpid()), OUTCOME_VARIABLE: str(self.folder / "outcome.json")}
        told = {**os.environ, **told, "OMP_NUM_THREADS": "1"}
        return started(command, self.folder / "log.txt", told, start_new_session=True)

    def finish(self, **hosts: Any) -> None:
        """To the end; the trial ends where that fails."""
        if self.start(**hosts).wait(900):
            sys.exit(f"a run failed; see {self.folder / 'log.txt'}")

    def curve(self) -> np.ndarray[Any, Any]:
        """The training loss of every update."""
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        records = [json.loads(line)["metrics"] for line in lines]
        return np.array([record["train/loss"] for record in records if "train/loss" in record])

    def digest(self) -> str:
        """The SHA-256 of the weights."""
        return hashlib.sha256((self.folder / "model/model.safetensors").read_bytes()).hexdigest()[:16]

    def wait_for_checkpoint(self, process: subprocess.Popen[bytes]) -> None:
        """Until the first one is there."""
        while not list(self.folder.glob("checkpoints/step-*/manifest.json")):
            if process.poll() is not None:
                sys.exit(f"ended before its first checkpoint; see {self.folder / 'log.txt'}")
            time.sleep(0.01)


def kill(process: subprocess.Popen[bytes], whole: bool) -> None:
    """SIGTERM to torchrun; or SIGKILL to it and to all that it started, at once."""
    if not whole:
        process.terminate()
    else:
        for member in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            member.kill()
    process.wait()


def main() -> None:
    """All of it; a row is printed as it is known."""
    parser = options(__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--folder", help="keep the runs there")
    given = parser.parse_args()
    root = Path(given.folder or tempfile.mkdtemp(prefix="gptmill-worlds-"))
    shards, steps = root / "shards", given.steps
    _write_tokens(shards)
    alone = Run(root / "alone", shards, steps, 1)
    alone.finish()
    expected = alone.curve()
    print(f"one process: loss {expected[0]:.4f} -> {expected[-1]:.4f} in {len(expected)} updates\n")
    columns = ("processes", "weights", "largest difference of a loss", "relative", "tokens/s")
    heading(*columns, "whole", "SIGTERM", "SIGKILL")
    for sharded in (False, True):
        for nproc in (2, 3, 4):
            name = f"{'sharded' if sharded else 'replicated'}-{nproc}"
            runs = {
                way: Run(root / f"{name}-{way}", shards, steps, nproc, sharded) for way in ("whole", "TERM", "KILL")
            }
            runs["whole"].finish()
            for way in ("TERM", "KILL"):
                process = runs[way].start()
                runs[way].wait_for_checkpoint(process)
                kill(process, whole=way == "KILL")
                runs[way].finish()
            off = np.abs(runs["whole"].curve() - expected)
            speed = read_json(runs["whole"].folder / "result.json")["tokens_per_second"]
            apart = [f"{off.max():.1e}", f"{(off / expected).max():.1e}"]
            row(nproc, name.split("-")[0], *apart, f"{speed:,.0f}", *(run.digest() for run in runs.values()))
    print(f"\n{_two_hosts(root, shards, 10 * steps)}", flush=True)


def _two_hosts(root: Path, shards: Path, steps: int) -> str:
    """Two torchruns with a process each find one another; one is killed, and the other goes on by itself."""
    (port,) = free_ports(1)
    hosts = {"nnodes": "1:2", "rendezvous": f"127.0.0.1:{port}", "run_id": "worlds", "max_restarts": 3}
    run = Run(root / "hosts", shards, steps, 1)
    first = run.start(**hosts)
    time.sleep(3)  # the first to come keeps the rendezvous, and is not the one to be killed
    second = run.start(**hosts)
    run.wait_for_checkpoint(first)
    started = time.monotonic()
    second.send_signal(signal.SIGKILL)
    second.wait()
    code = first.wait(900)
    log = (run.folder / "log.txt").read_text()
    resumed = [line for line in log.splitlines() if line.startswith("resuming from")]
    result = read_json(run.folder / "result.json")
    return (
        f"two hosts, one killed: the other ended with code {code} after {time.monotonic() - started:.0f} s, "
        f"{len(resumed)} resume(s), {result['steps']} updates, at last {result['world_size']} process(es), loss "
        f"{run.curve()[-1]:.4f}"
    )


if __name__ == "__main__":
    main()
