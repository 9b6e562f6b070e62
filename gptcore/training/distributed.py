"""Several processes as one trainer, and the launcher that starts them.

    python -m gptcore.training.distributed --nproc 2 gptcore.training.pretrain JOB.json

The processes find each other by the environment variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
MASTER_PORT), so `torchrun --nproc-per-node 2 -m gptcore.training.pretrain JOB.json` works as well. The launcher here
differs in what matters to a supervisor: its exit code is the job's own, and after SIGTERM it waits for the
checkpoint however long that takes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, but not in torch's __all__

from gptcore.training import process
from gptcore.training.device import pick_device

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class World:
    """This process among its equals. With one process every method is free."""

    rank: int
    size: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this process is the one that writes files."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """This process's part of ``count`` things: contiguous, and all parts together are all things once."""
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def agree(self, *flags: bool) -> tuple[bool, ...]:
        """For each flag, whether any process raised it: the same answer everywhere. Does not wait for a GPU."""
        if self.size == 1:
            return flags
        raised = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(raised, dist.ReduceOp.MAX)
        return tuple(bool(flag) for flag in raised.tolist())

    def sum_(self, values: Tensor) -> Tensor:
        """``values`` summed over the processes, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace every gradient by its sum over the processes.

        One flat buffer in the parameters' order, not DistributedDataParallel: that class rearranges its buckets after
        its first update, so with three or more processes a resumed run would add in another order and lose its bits.
        """
        if self.size == 1:
            return
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def broadcast(self, value: Any) -> Any:
        """The main process's ``value``, everywhere."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """The ``value`` of every process, in order of rank, everywhere."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values


@contextlib.contextmanager
def join_world() -> Iterator[World]:
    """Become a member of the world that the environment describes; alone without one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    device = pick_device(int(os.environ.get("LOCAL_RANK", "0")))
    if size == 1:
        yield World(0, 1, device)
        return
    # gloo carries the flags and objects of the host; it never queues behind the GPU's work as nccl would
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(minutes=30))
    try:
        yield World(rank, size, device)
    finally:
        dist.destroy_process_group()


def launch(nproc: int, module: str, arguments: Sequence[str]) -> int:
    """Run ``python -m module arguments`` in ``nproc`` processes of one world on this machine.

    SIGTERM is passed on and waited for. When one process fails the others are ended.

    :return: 0 if all ended well, else the exit code of the first process that ended otherwise.
    """
    process.die_with_parent()
    stop = process.StopRequest()
    with stop.listening():
        store = TCPStore(_LOOPBACK, 0, is_master=True, wait_for_workers=False)  # port 0: one that is free
        children = [_start(nproc, rank, store.port, module, arguments) for rank in range(nproc)]
        try:
            return _supervise(children, stop)
        finally:
            for child in children:
                if child.poll() is None:
                    child.kill()
                child.wait()


def _start(nproc: int, rank: int, port: int, module: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "WORLD_SIZE": str(nproc),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": _LOOPBACK,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store runs here, so rank 0 must not open one
        process.PARENT_VARIABLE: str(os.getpid()),
    }
    return subprocess.Popen([sys.executable, "-m", module, *arguments], env=environment)


def _supervise(children: Sequence[subprocess.Popen[bytes]], stop: process.StopRequest, grace: float = 10.0) -> int:
    """Wait for all; after a failure the others get SIGTERM and ``grace`` seconds."""
    code, deadline, passed_on = process.EXIT_DONE, float("inf"), False
    while any(child.poll() is None for child in children):
        if stop.requested and not passed_on:
            _signal(children, signal.SIGTERM)
            passed_on = True
        failed = next((c.returncode for c in children if c.returncode not in (None, process.EXIT_DONE)), None)
        if failed is not None and code == process.EXIT_DONE:
            code, deadline = failed, time.monotonic() + grace
            if failed != process.EXIT_INTERRUPTED:
                _signal(children, signal.SIGTERM)
        if time.monotonic() > deadline and code != process.EXIT_INTERRUPTED:
            return code
        time.sleep(0.05)
    codes = [child.returncode for child in children if child.returncode != process.EXIT_DONE]
    return code or (codes[0] if codes else process.EXIT_DONE)


def _signal(children: Sequence[subprocess.Popen[bytes]], number: signal.Signals) -> None:
    for child in children:
        if child.poll() is None:
            child.send_signal(number)


def main(arguments: Sequence[str]) -> int:
    """The command line of this module."""
    parser = argparse.ArgumentParser(prog="python -m gptcore.training.distributed", description=launch.__doc__)
    parser.add_argument("--nproc", type=int, required=True, help="processes to start on this machine")
    parser.add_argument("module", help="module to run, e.g. gptcore.training.pretrain")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    code = launch(options.nproc, options.module, options.arguments)
    return code if code >= 0 else process.EXIT_FAILED  # a child ended by a signal has a negative code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
