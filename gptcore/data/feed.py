"""What the training loop is fed with: micro-batches, the objective that they go to, and updates made ahead of time."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

MicroBatch = dict[str, Tensor]
Objective = Callable[[MicroBatch], tuple[Tensor, dict[str, Tensor]]]
"""Runs the model on one micro-batch, on the model's device: the loss, and scalars to log ("loss" first)."""


@dataclass(frozen=True)
class Update:
    """What one process contributes to one update."""

    micro_batches: list[MicroBatch]
    """On the CPU; given to the objective one after the other; at least one."""
    n_tokens: int
    """Tokens of the whole global batch, padding left out."""


class Data(Protocol):
    """The batches. Both methods are pure functions of ``step``, the number of updates already made."""

    def update(self, step: int) -> Update:
        """This process's share of the global batch."""
        ...

    def documents(self, step: int) -> list[str]:
        """Where the global batch came from, for an error message."""
        ...


def prefetched(data: Data, steps: range, device: torch.device) -> Iterator[Update]:
    """The updates of ``steps``. For a GPU a thread prepares them ahead, in pinned memory, while the device works.

    On a CPU the cores are busy with the model itself: there they are made when asked for.
    """
    if device.type != "cuda":
        yield from (data.update(step) for step in steps)
        return
    ready: queue.Queue[Update | BaseException] = queue.Queue(maxsize=2)
    finished = threading.Event()

    def put(item: Update | BaseException) -> None:
        while not finished.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return

    def produce() -> None:
        try:
            torch.cuda.set_device(device)  # a thread starts on the first GPU, whichever its process uses
            for step in steps:
                update = data.update(step)
                pinned = [{name: value.pin_memory() for name, value in b.items()} for b in update.micro_batches]
                put(Update(pinned, update.n_tokens))
                if finished.is_set():
                    return
        except BaseException as error:  # handed to the training thread, which raises it
            put(error)

    threading.Thread(target=produce, name="prefetch", daemon=True).start()
    try:
        for _ in steps:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        finished.set()
