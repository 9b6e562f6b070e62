"""A task's rows, for the training loop: L3 = L2 + lambda * L1 of fine-tuning (GPT-1, section 3.2).

B batch, C sequences an example, T positions, K classes, choices or (of places) positions, N language-model targets of a
micro-batch.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gptcore.config import FinetuneConfig
from gptcore.data.feed import POOL_BATCHES, BucketedBatches, Losses, MicroBatch, Objective, Update
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.models.classifier import Classifier
from gptcore.nlu.inputs import MARKS, TaskBatch
from gptcore.nlu.rows import Rows, TaskRows
from gptcore.objectives.losses import combined_loss, fused_language_model_loss, sequence_weights, weighted_task_loss

_MICRO_TOKENS = 8192
"""Padded tokens that go through the network at once: a RACE batch at paper size has 65 536. The update is the
same, but for tags, whose mean is over a micro-batch's."""


class FinetuneData:
    """Length-bucketed batches as updates, cut into micro-batches that fit the memory; plain ones as released.

    Batches are padded to their longest row. The released code pads them to n_ctx, which changes nothing: padding has
    neither a target nor, attention being causal, an influence on what stands before it.

    :param repeats: the sequences of an example begin alike, and the network's states of that beginning are the same in
        each: its language-model targets are kept once.
    """

    def __init__(self, rows: Rows, config: FinetuneConfig, *, repeats: bool = False) -> None:
        self._rows = rows
        self._repeats = repeats
        self._with_lm = config.lm_coef != 0.0
        pool_batches = 1 if config.original else POOL_BATCHES
        self._weights = class_weights(rows) if config.class_weights else None
        self._batches = BucketedBatches(rows.sizes, config.batch_size, config.seed, pool_batches)
        self._epoch: tuple[int, list[NDArray[np.int64]]] = (-1, [])
        self.batches_per_epoch = self._batches.batches_per_epoch

    def update(self, step: int) -> Update:
        """Update ``step`` of the run; epochs follow one another."""
        chosen = self._chosen(step)
        micro_batches, n_tokens = [], 0
        for part in _within(self._rows.sizes[chosen], _MICRO_TOKENS):
            batch = self._rows.batch(chosen[part])
            packed = pack(batch, len(batch.tokens) / len(chosen), self._with_lm, self._repeats)
            if self._weights is not None:
                packed["label_weights"] = self._weights[packed["labels"]]  # (B,)
            micro_batches.append(packed)
            n_tokens += batch.n_tokens
        return Update(micro_batches, n_tokens)

    def documents(self, step: int) -> list[str]:
        """Where the update's rows came from, ``file:line``."""
        return [self._rows.names[row] for row in self._chosen(step)]

    def _chosen(self, step: int) -> NDArray[np.int64]:
        epoch, at = divmod(step, self.batches_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._batches.epoch(epoch))
        return self._epoch[1][at]


def class_weights(rows: Rows) -> Tensor:
    """What each class's rows count, (K,) float32: all classes' rows the same together, and a row 1 on average.

    :param rows: of a task each of whose rows has one of several labels.
    """
    assert isinstance(rows, TaskRows), "the settings are refused for others"
    spec = rows.reader.spec
    counts = np.bincount(rows.labels.astype(np.int64), minlength=len(spec.labels))
    weights = len(rows) / np.maximum(counts, 1) / np.count_nonzero(counts)
    return torch.from_numpy(weights.astype(np.float32))


def _within(sizes: NDArray[np.int64], budget: int) -> list[slice]:
    """Cut rows into runs of at most ``budget`` padded tokens each, one row at least."""
    cuts, start = [], 0
    for at in range(1, len(sizes) + 1):
        if at == len(sizes) or (at + 1 - start) * int(sizes[start : at + 1].max()) > budget:
            cuts.append(slice(start, at))
            start = at
    return cuts


def pack(batch: TaskBatch, share: float, with_lm: bool, repeats: bool = False) -> MicroBatch:
    """A batch as the tensors that :func:`finetune_objective` reads.

    :param share: the micro-batch's share of its update's examples.
    :param with_lm: also find the language-model targets: positions in the flattened B*C*T, next tokens, weights.
    :param repeats: of those that all sequences of an example begin with keep the first one's, with all their weight.
    """
    assert batch.labels is not None, "training rows carry labels"
    packed = {
        "tokens": batch.tokens,  # (B, C, T)
        "clf_position": batch.clf_position,  # (B, C)
        "labels": batch.labels,  # (B,) or (B, K); (B, 2) or (B, T) of places
        "share": torch.tensor(share),
        **batch.marks,  # (B, C, T) each
    }
    if with_lm:
        targets = batch.lm_targets  # (B, C, T)
        weights = sequence_weights(targets.flatten(0, 1)).view(targets.shape)
        if repeats:
            targets, weights = _merged(batch.tokens, targets, weights)
        positions = (targets.flatten() != IGNORE_INDEX).nonzero()[:, 0]  # (N,)
        packed["lm_positions"] = positions
        packed["lm_targets"] = targets.flatten()[positions]
        packed["lm_weights"] = weights.flatten()[positions]
    return packed


def _merged(tokens: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Targets and weights [B, C, T], those that follow the same tokens in all C sequences in the first one alone."""
    alike = (
        ((tokens == tokens[:, :1]) & (targets == targets[:, :1])).all(dim=1, keepdim=True).cumprod(dim=2)
    )  # (B, 1, T)
    others = alike.bool() & (torch.arange(tokens.shape[1])[:, None] > 0)  # (B, C, T)
    first = torch.where(alike[:, 0] > 0, weights.sum(dim=1), weights[:, 0])  # (B, T)
    return targets.masked_fill(others, IGNORE_INDEX), torch.cat([first[:, None], weights[:, 1:]], dim=1)


def finetune_objective(model: Classifier, lm_coef: float) -> Objective:
    """L3 (equation 5) as an objective of the training loop; with ``lm_coef`` 0 the vocabulary is never multiplied."""

    def objective(batch: MicroBatch) -> Losses:
        marks = {name: batch[name] for name in MARKS if name in batch}
        logits, for_lm = model(batch["tokens"], batch["clf_position"], batch.get("lm_positions"), **marks)
        if (weights := batch.get("label_weights")) is None:
            task = model.loss(logits, batch["labels"]) * batch["share"]
        else:
            task = weighted_task_loss(logits, batch["labels"], weights) * batch["share"]
        if for_lm is None:
            return task, {"loss": task, "task_loss": task}
        states, table = for_lm
        lm = fused_language_model_loss(states, table, batch["lm_targets"], batch["lm_weights"]) * batch["share"]
        loss = combined_loss(task, lm, lm_coef)
        return loss, {"loss": loss, "task_loss": task, "lm_loss": lm}

    return objective
