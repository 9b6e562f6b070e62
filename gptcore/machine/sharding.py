"""One model on several processes: whole on each of them (DDP), or sharded over them (FSDP2, `fully_shard`).

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
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gptcore.data.feed import MicroBatch, Objective
from gptcore.machine.distributed import World


class Step(nn.Module):
    """A model together with its objective, as one module: what DDP and FSDP2 wrap.

    :param objective: runs ``model``, whichever of its methods it calls.
    """

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self._objective = objective

    def forward(self, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The objective's result."""
        return self._objective(batch)


_READ_TOO = ("scores", "attention_scores", "widened", "narrowed")
"""Methods of blocks that read their weights, too (:class:`gptcore.models.network.LayerStates`, and blocks of
:mod:`gptcore.models.knowledge_encoder`, whose inner layers meet)."""


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


def summing(objective: Objective, world: World) -> Callable[[MicroBatch, bool], tuple[Tensor, dict[str, Tensor]]]:
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

    def run(batch: MicroBatch, last: bool) -> tuple[Tensor, dict[str, Tensor]]:
        with contextlib.nullcontext() if last else replicas.no_sync():
            found: tuple[Tensor, dict[str, Tensor]] = replicas(batch)
            return found

    return run


def _sum(bucket: Any) -> torch.futures.Future[Tensor]:
    """What DDP does with the gradients of a ``GradBucket`` once they are there; its own way is to average."""
    work: Any = dist.all_reduce(bucket.buffer(), async_op=True)
    summed: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return summed


def whole(tensors: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """``tensors``, sharded ones put together in the main process's RAM; elsewhere those are left out.

    Called on all processes at once.
    """
    if not world.sharded:
        return dict(tensors)
    from torch.distributed.tensor import DTensor

    found = {}
    for name, value in tensors.items():
        together = value.full_tensor() if isinstance(value, DTensor) else value
        if world.main:
            found[name] = together.cpu()
    return found


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
