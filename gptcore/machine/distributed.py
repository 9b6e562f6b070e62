"""Several processes as one trainer.

The processes find each other by the environment variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
MASTER_PORT), which starts them (gptcore.machine.torchrun).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.machine.device import pick_device


@dataclass(frozen=True)
class World:
    """This process among its equals. With one process every method is free."""

    rank: int
    size: int
    device: torch.device
    sharded: bool = False
    """Each process holds its part of every weight, its gradient and its optimiser state, and no more."""

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


class MicroBatches:
    """How an update's sequences are shared out to processes and, within each, to micro-batches: a process' shares.

    :ivar parts: the sequences of each of its micro-batches, as slices of the update's.
    :ivar idle: how many more, of weight 0, it has to run: sharded weights are put together by all processes at once,
        so all run equally often.
    """

    def __init__(self, batch_size: int, micro_batch_size: int | None, world: World) -> None:
        """:raises InputError: fewer sequences an update than processes."""
        if batch_size < world.size:
            raise InputError(f"batch_size = {batch_size} sequences an update is less than the {world.size} processes")
        share = world.share(batch_size)
        largest = math.ceil(batch_size / world.size)  # process's share
        size = micro_batch_size or largest
        self.parts = [slice(at, min(at + size, share.stop)) for at in range(share.start, share.stop, size)]
        self.idle = math.ceil(largest / size) - len(self.parts) if world.sharded else 0


@contextlib.contextmanager
def join_world(sharded: bool = False) -> Iterator[World]:
    """Become a member of the world that the environment describes; alone, and whole, without one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    device = pick_device(int(os.environ.get("LOCAL_RANK", "0")))
    if size == 1:
        yield World(0, 1, device)
        return
    # gloo carries the flags and objects of the host; it never queues behind the GPU's work as nccl would
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(minutes=30))
    yield World(rank, size, device, sharded)
    dist.destroy_process_group()  # not after an error: the others would fail of it before this one has told its reason
