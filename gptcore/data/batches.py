"""Which rows make which batch: padding kept small, order a pure function of (seed, epoch).

A batch is padded to its longest row, so rows of like length belong together; yet a network that sees all short rows
first learns worse. The compromise is the usual one: shuffle everything, sort only inside pools of a few dozen
batches, and shuffle the batches again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from gptcore.base.seeds import derive_seed

POOL_BATCHES = 32
"""Batches a pool holds: padding falls to a few percent of the tokens while the order stays close to random."""


def _generator(seed: int, *names: str | int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(derive_seed(seed, *names)))


class BucketedBatches:
    """Shuffled training batches of rows with like lengths.

    :param lengths: padded size of each row, in tokens.
    :param pool_batches: batches a pool holds; 1: a plain shuffle, whatever the lengths (original code).
    :param batch_size: rows a batch. A last, incomplete batch is dropped (original code, `n_train // batch`); fewer
        rows than one batch make one smaller batch.
    """

    def __init__(
        self, lengths: NDArray[np.int64], batch_size: int, seed: int, pool_batches: int = POOL_BATCHES
    ) -> None:
        self._lengths = lengths
        self._pool_batches = pool_batches
        self._batch_size = min(batch_size, len(lengths))
        self._seed = seed
        self.batches_per_epoch = len(lengths) // self._batch_size

    def epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        """The row numbers of every batch of one epoch, in training order."""
        generator = _generator(self._seed, "batches", epoch)
        order = generator.permutation(len(self._lengths))[: self.batches_per_epoch * self._batch_size]
        pool_rows = self._pool_batches * self._batch_size
        batches: list[NDArray[np.int64]] = []
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


def by_length(lengths: NDArray[np.int64], max_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Every row once, longest first, in batches of at most ``max_tokens`` padded tokens (at least one row each).

    Longest first, so that a batch too big for the memory fails at once and not at the end.
    """
    order = np.argsort(-lengths, kind="stable")
    at = 0
    while at < len(order):
        rows = max(1, max_tokens // max(1, int(lengths[order[at]])))
        yield order[at : at + rows]
        at += rows
