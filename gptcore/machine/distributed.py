"""Several processes as one trainer, and one model on them: whole on each (DDP), or sharded (FSDP2, `fully_shard`).

The processes find each other by the environment variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
MASTER_PORT), which starts them (gptcore.machine.torchrun).

Either way the gradients of an update are the sums of what the processes found, and travel while the backward pass goes
on. The losses of all processes add up to the update's (gptcore.training.loop), so nothing is divided by their number,
as both engines do unless told otherwise.

Both add in an order that depends on the weights' shapes alone, so that a resumed run has the bits of one that never
stopped. FSDP2 reduces block by block. DDP rearranges its buckets after the first update, by the order in which that
update's gradients came; a resumed run would rearrange them one update later than the other did, and with three or more
processes lose its bits. With ``find_unused_parameters`` it keeps the first arrangement (tests/gptcore/test_worlds.py).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gptcore.base.errors import InputError
from gptcore.data.feed import Losses, MicroBatch, Objective
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


class Step(nn.Module):
    """A model together with its objective, as one module: what DDP and FSDP2 wrap.

    :param objective: runs ``model``, whichever of its methods it calls.
    """

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self._objective = objective

    def forward(self, batch: MicroBatch) -> Losses:
        """The objective's result."""
        return self._objective(batch)


_READ_TOO = ("scores", "attention_scores", "widened", "narrowed")
"""Methods of blocks that read their weights, too (:class:`gptcore.models.network.LayerStates`, and the blocks of an
encoder whose inner layers meet those of entities)."""


def shard(step: Step) -> None:
    """Leave to each process its part of every weight, in place; the optimiser is made afterwards.

    A block's weights are put together for its forward pass and again for its backward pass, and let go after each.
    The blocks are the members of the model's lists of modules; the rest (embeddings) makes one more part.
    """
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    lists = [part for part in step.model.modules() if isinstance(part, nn.ModuleList)]
    parts: list[nn.Module] = [block for blocks in lists for block in blocks]
    for part in (*parts, step):
        fully_shard(part)
        for name in _READ_TOO:
            if hasattr(part, name):
                register_fsdp_forward_method(part, name)
    for part in (*parts, step):
        sharded = cast(FSDPModule, part)  # its class was changed
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)  # gloo knows no other


def summing(objective: Objective, world: World) -> Callable[[MicroBatch, bool], Losses]:
    """``objective``, after whose last backward pass of an update every gradient is the sum over the processes.

    :param objective: with several processes a :class:`Step`, on the world's device.
    :return: gets a micro-batch, and whether it is the update's last. Sharded gradients are summed after each, as
        waiting would take whole gradients on every process: the memory that sharding is to save.
    """
    if world.size == 1 or world.sharded:
        return lambda batch, last: objective(batch)
    assert isinstance(objective, Step), "several processes need a module to share"
    replicas = DistributedDataParallel(objective, find_unused_parameters=True, gradient_as_bucket_view=True)
    replicas.register_comm_hook(None, lambda state, bucket: _sum(bucket))  # it refuses annotations that are strings

    def run(batch: MicroBatch, last: bool) -> Losses:
        with contextlib.nullcontext() if last else replicas.no_sync():
            result: Losses = replicas(batch)
            return result

    return run


def _sum(bucket: Any) -> torch.futures.Future[Tensor]:
    """What DDP does with the gradients of a ``GradBucket`` once they are there; its own way is to average."""
    gradients: Tensor = bucket.buffer()
    work: Any = dist.all_reduce(gradients, async_op=True)
    summed: torch.futures.Future[Tensor] = work.get_future().then(lambda done: gradients)
    return summed


def whole(tensors: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """``tensors``, sharded ones put together in the main process's RAM; elsewhere those are left out.

    Called on all processes at once.
    """
    if not world.sharded:
        return dict(tensors)
    from torch.distributed.tensor import DTensor

    gathered = {}
    for name, value in tensors.items():
        together = value.full_tensor() if isinstance(value, DTensor) else value
        if world.main:
            gathered[name] = together.cpu()
    return gathered


def placed_like(model: Tensor, value: Tensor) -> Tensor:
    """A copy of ``value`` on ``model``'s device; where ``model`` is sharded, this process's part of it.

    :param value: whole; of another shape than ``model`` (an optimiser's counter) it stays whole.
    """
    local = value.to(model.device, copy=True)
    if not hasattr(model, "placements") or model.shape != value.shape:
        return local
    from torch.distributed.tensor import DTensor, distribute_tensor

    like = cast(DTensor, model)
    return distribute_tensor(local, like.device_mesh, like.placements, src_data_rank=None)  # all have the same file


def clip_gradients(parameters: list[nn.Parameter], max_norm: float, world: World) -> Tensor:
    """Scale the gradients down to a global norm of ``max_norm`` at most; the norm that they had, all processes'."""
    norm = nn.utils.clip_grad_norm_(parameters, max_norm)
    return cast(Any, norm).full_tensor() if world.sharded else norm
