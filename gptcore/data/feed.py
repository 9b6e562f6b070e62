"""What the training loop is fed with: micro-batches, the objective that they go to, and updates made ahead of time.

Which rows make which batch: padding is kept small, and the order is a pure function of (seed, epoch). A batch is padded
to its longest row, so rows of like length belong together; yet a network that sees all short rows first learns worse.
The compromise is the usual one: shuffle everything, sort only inside pools of a few dozen batches, and shuffle the
batches again.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gptcore.base.seeds import derive_seed
from gptcore.base.types import Ints

MicroBatch = dict[str, Tensor]
Losses = tuple[Tensor, dict[str, Tensor]]
"""What a micro-batch costs a model, and scalars to log ("loss" first)."""
Objective = Callable[[MicroBatch], Losses]
"""Runs the model on one micro-batch, on the model's device."""
POOL_BATCHES = 32
"""Batches a pool holds: padding falls to a few percent of the tokens while the order stays close to random."""


@dataclass(frozen=True)
class Update:
    """What one process contributes to one update."""

    micro_batches: list[MicroBatch]
    """Given to the objective one after the other; at least one."""
    n_tokens: int
    """Tokens of the whole global batch, padding left out."""


def moved(batch: MicroBatch, device: torch.device) -> MicroBatch:
    """Copy a micro-batch to ``device``; nobody waits for a GPU, which reads from pinned memory when it comes to it."""
    if device.type != "cuda":
        return {name: value.to(device) for name, value in batch.items()}
    return {name: value.pin_memory().to(device, non_blocking=True) for name, value in batch.items()}


class Data(Protocol):
    """The batches. Both methods are pure functions of ``step``, the number of updates already made."""

    def update(self, step: int) -> Update:
        """This process's share of the global batch."""
        ...

    def documents(self, step: int) -> list[str]:
        """Where the global batch came from, for an error message; empty where no document can be named."""
        return []


def prefetched(data: Data, steps: range, device: torch.device) -> Iterator[Update]:
    """The updates of ``steps``. For a GPU a thread prepares them ahead and sends them there, while the device works.

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
                put(Update([moved(batch, device) for batch in update.micro_batches], update.n_tokens))
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


class BucketedBatches:
    """Shuffled training batches of rows with like lengths.

    :param lengths: padded size of each row, in tokens.
    :param pool_batches: batches a pool holds; 1: a plain shuffle, whatever the lengths (original code).
    :param batch_size: rows a batch. A last, incomplete batch is dropped (original code, `n_train // batch`); fewer
        rows than one batch make one smaller batch.
    """

    def __init__(self, lengths: Ints, batch_size: int, seed: int, pool_batches: int = POOL_BATCHES) -> None:
        self._lengths = lengths
        self._pool_batches = pool_batches
        self._batch_size = min(batch_size, len(lengths))
        self._seed = seed
        self.batches_per_epoch = len(lengths) // self._batch_size

    def epoch(self, epoch: int) -> list[Ints]:
        """The row numbers of every batch of one epoch, in training order."""
        generator = np.random.Generator(np.random.Philox(derive_seed(self._seed, "batches", epoch)))
        order = generator.permutation(len(self._lengths))[: self.batches_per_epoch * self._batch_size]
        pool_rows = self._pool_batches * self._batch_size
        batches: list[Ints] = []
        for start in range(0, len(order), pool_rows):
            pool = order[start : start + pool_rows]
            pool = pool[np.argsort(self._lengths[pool], kind="stable")]
            batches.extend(pool[at : at + self._batch_size] for at in range(0, len(pool), self._batch_size))
        return [batches[at] for at in generator.permutation(len(batches))]


def evaluation_tokens(device: torch.device) -> int:
    """Padded tokens of a forward pass without gradients.

    On a CPU few, so that what lies between two layers stays in the cache and its memory is used again: 1,024 take half
    of the time that 16,384 do (four blocks of 256, one core).
    """
    return 1024 if device.type == "cpu" else 16_384


def by_length(lengths: Ints, max_tokens: int) -> Iterator[Ints]:
    """Every row once, longest first, in batches of at most ``max_tokens`` padded tokens (at least one row each).

    Longest first, so that a batch too big for the memory fails at once and not at the end.
    """
    order = np.argsort(-lengths, kind="stable")
    at = 0
    while at < len(order):
        rows = max(1, max_tokens // max(1, int(lengths[order[at]])))
        yield order[at : at + rows]
        at += rows
