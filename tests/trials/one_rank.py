"""One of many ranks in a pre-training's updates: its collectives, their bytes, its memory, counted without the others.

The product's own training loop makes the updates within torch's fake process group, whose collectives return at once.
FSDP2 runs on fake tensors, which have shapes and no memory. DDP reads its tensors, so that its collectives are counted
on real ones, with a short sequence; their number and size do not depend on the batch. Its memory is that of the same
update without DDP on fake tensors, beside them its buckets.
"""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gptcore.config import ModelConfig, PretrainConfig
from gptcore.data.feed import Update
from gptcore.machine import rng
from gptcore.machine.distributed import Step, World, shard
from gptcore.machine.process import StopRequest
from gptcore.models.network import build_model
from gptcore.objectives.next_token import language_model_objective
from gptcore.training.loop import Trainer, Training, Unwatched

CPU = torch.device("cpu")
KINDS = {"allgather": "all-gather", "reduce_scatter": "reduce-scatter", "all_reduce": "all-reduce"}
"""Part of an operator's name, its underscores aside -> what it does."""


@dataclass(frozen=True)
class Case:
    """A training on many processes."""

    name: str
    model: ModelConfig
    ranks: int
    sharded: bool
    sequences: int
    """A micro-batch of one rank."""
    micro_batches: int
    """The micro-batches of one rank in an update."""
    alone: float = 0.0
    """Tokens a second of one GPU by itself: measured, or assumed."""

    @property
    def tokens(self) -> int:
        """The tokens of an update on all ranks."""
        return self.ranks * self.micro_batches * self.sequences * self.model.n_ctx


@dataclass(frozen=True)
class Found:
    """What was counted of one rank."""

    calls: dict[str, int]
    """Kind of collective -> how many an update makes."""
    sent: dict[str, int]
    """Kind of collective -> bytes of its whole tensors in an update."""
    peak: int
    """Bytes of tensors at most held at once."""

    def wire(self, ranks: int) -> float:
        """Bytes that a rank sends in an update, as rings do: all others' parts, of an all-reduce twice."""
        return sum((2 if kind == "all-reduce" else 1) * n for kind, n in self.sent.items()) * (ranks - 1) / ranks


class Watched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts collectives, their bytes, and the memory of the tensors that are met.

    :param fakes: whose tensors those are; other modes', in which DTensor asks what shapes there will be, are not.
    """

    def __init__(self, fakes: FakeTensorMode | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._fakes = fakes
        self.calls: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.held = self.peak = 0
        self._sizes: dict[int, int] = {}
        self._resize = torch.UntypedStorage.resize_

    def __enter__(self) -> Watched:
        def resized(storage: torch.UntypedStorage, size: int) -> Any:
            if storage._cdata in self._sizes:  # FSDP2 frees what it has gathered so
                self._hold(storage, size)
            return self._resize(storage, size)

        torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign, assignment]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind.__name__ == "DTensor" for kind in types):
            return NotImplemented  # comes again with its local tensors
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, result)) if isinstance(leaf, Tensor)]
        if (kind := kind_of(str(func))) is not None:
            self.calls[kind] += 1
            self.sent[kind] += max(tensor.nbytes for tensor in tensors)
        for tensor in tensors:
            if getattr(tensor, "fake_mode", None) is self._fakes:
                self._hold(storage := tensor.untyped_storage(), storage.nbytes())
        return result

    def _hold(self, storage: torch.UntypedStorage, size: int) -> None:
        key = storage._cdata
        if key not in self._sizes:
            weakref.finalize(storage, self._drop, key)
        self.held += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        self.peak = max(self.peak, self.held)

    def _drop(self, key: int) -> None:
        self.held -= self._sizes.pop(key)


def kind_of(operator: str) -> str | None:
    if "c10d" not in operator or "wait" in operator:
        return None
    flat = operator.replace("allreduce", "all_reduce").replace("all_gather", "allgather")
    return next((kind for part, kind in KINDS.items() if part in flat), None)


def update_of(case: Case, sequences: int, length: int) -> Update:
    """An update of one rank: the shapes are those of the job, the tokens all the same one."""
    ids = torch.zeros(sequences, length, dtype=torch.long)
    batch = {"inputs": ids, "targets": ids.clone(), "weight": torch.tensor(1.0 / case.tokens)}
    return Update([batch] * case.micro_batches, case.tokens)


def trainer(
    case: Case, world: World, folder: Path, tensors: contextlib.AbstractContextManager[Any] | None = None
) -> Trainer:
    """What the pre-training job builds, but for its data and evaluations; ``tensors``: a mode of torch's, if any."""
    config = PretrainConfig(batch_size=case.tokens // case.model.n_ctx, precision="bfloat16", steps=10, warmup_steps=1)
    tensors = contextlib.nullcontext() if tensors is None else tensors
    with tensors:
        model = build_model(case.model, rng.generator(config.seed, "weights"))
        step = Step(model, language_model_objective(model))  # type: ignore[arg-type]  # a decoder
    setattr(model, "to", lambda device: model)  # noqa: B010  # fake parameters cannot be moved, and are there
    if world.sharded:
        shard(step)  # its mesh is of real numbers
    training = Training(
        model=model,
        objective=step,
        data=None,  # type: ignore[arg-type]  # updates are handed to it
        monitor=Unwatched(),
        settings=config,
        total_steps=10,
        schedule=lambda _: 1.0,
        identity={},
        keep_checkpoints=1,
        checkpoint_every=10,
    )
    with tensors:
        return Trainer(training, folder, world, StopRequest())


def simulate(case: Case) -> Found:
    """Two updates of one rank; the second is what is counted, and has what Adam holds from the first on."""
    if case.sharded:
        return _simulated(case, case.sharded, case.ranks, case.sequences, fake=True)
    collectives = _simulated(case, False, case.ranks, 1, fake=False, length=8)
    return dataclasses.replace(collectives, peak=_simulated(case, False, 1, case.sequences, fake=True).peak)


def _simulated(case: Case, sharded: bool, ranks: int, sequences: int, fake: bool, length: int | None = None) -> Found:
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        fakes = FakeTensorMode() if fake else None
        trains = trainer(case, World(0, ranks, CPU, sharded), Path("unused"), fakes)
        with fakes or contextlib.nullcontext(), Watched(fakes) as watched:
            update = update_of(case, sequences, length or case.model.n_ctx)
            n_parameters = sum(parameter.numel() for parameter in trains.model.parameters())
            buckets = torch.zeros(n_parameters if not sharded and case.micro_batches > 1 else 0)  # DDP's, beside sums
            for _ in range(2):
                before = (watched.calls.copy(), watched.sent.copy())
                watched.peak = watched.held
                if not sharded and case.micro_batches == 1:  # its buckets are the gradients
                    for parameter in trains.model.parameters():
                        parameter.grad = torch.zeros_like(parameter)
                trains._update(update)
            del buckets
        return Found(dict(watched.calls - before[0]), dict(watched.sent - before[1]), watched.peak)
    finally:
        dist.destroy_process_group()
