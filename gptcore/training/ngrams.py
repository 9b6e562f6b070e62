"""What words and n-grams tell of a task's rows, fitted by L-BFGS, and how much that counts beside the network.

Of a text's topic its words tell more than a network does that has read little, and both together more than either.

B rows, C sequences a row, K outputs.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from gptcore.base.seeds import choose_rows
from gptcore.data.feed import by_length, evaluation_tokens
from gptcore.evaluation.predict import mean_loss
from gptcore.machine import process
from gptcore.models.classifier import Classifier
from gptcore.models.ngrams import BUCKETS, ROWS, SIDES, NGrams
from gptcore.nlu.forms import form_of
from gptcore.nlu.registry import TaskSpec
from gptcore.nlu.rows import Rows
from gptcore.text.word_edges import BEGINS, ENDS
from gptcore.training.best_epoch import BestEpoch

_WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Weights of the n-grams' logits beside the network's; the greatest leaves next to nothing of these."""
PENALTIES = (10.0, 3.0, 1.0, 0.1)
"""Factors of half the sum of the squares of the layer's weights; the loss is a sum over rows: scikit-learn's 1 / C."""
_SCALES = [np.float32(2 ** (-step / 4)) for step in range(33)]
"""Scales of both logits, down to 1/256. A metric does not see them, yet a great weight makes every row certain."""
_MOST = 1 << 24
"""Words and n-grams that are fitted together; of more rows some are drawn."""
_LEAST = 1e-6
_MANY = 1000
"""Sequences from which on n-grams of a single one are left out, as the floors leave out words."""


def add_ngrams(
    model: Path, longest: int, edges: str, rows: Rows, every: Rows, monitor: BestEpoch, interrupted: Callable[[], bool]
) -> dict[str, float]:
    """Give a trained model the n-grams of its training rows, with the weight and the penalty that serve the monitor's
    rows best: of equal scores by the lower loss, then the lower weight. Its scores are those of both together then.

    All logits but those of a grade, which answers follow from, are scaled so that the rows' loss is least (temperature
    scaling, Guo et al. 2017): labels stay, probabilities are right on average.

    :param model: folder of the model that is kept, which is written anew.
    :param longest: pieces of the longest n-grams.
    :param edges: of each piece, see :func:`gptcore.text.word_edges.word_edges`.
    :param rows: that the monitor's best model was trained on; ``every``: that the n-grams which are kept are fitted on.
    :return: for the result, the weight and how long the fit took.
    :raises Interrupted: see :meth:`BestEpoch.logits`; while a layer is fitted, too.
    """
    spec, world, started = monitor.spec, monitor.world, time.monotonic()
    best, _ = Classifier.load(monitor.best / "model")
    best.to(world.device)
    alone = monitor.logits(best, monitor.rows, interrupted)
    fit = NGramFit(spec, rows, edges, longest, interrupted)

    def loss_of(logits: Sequence[NDArray[np.float32]]) -> float:
        return mean_loss(spec, monitor.rows, logits, world.device)

    candidates = []
    for penalty in PENALTIES:
        best.ngrams = fit.layer(penalty).to(world.device)
        beside = monitor.logits(best, monitor.rows, interrupted)
        for weight in _WEIGHTS:
            both = [one + weight * (other - one) for one, other in zip(alone, beside, strict=True)]
            score = monitor.decided(both)[0].scores(spec)["score"]
            candidates.append(((score, -loss_of(both), -weight), weight, penalty, both))
    _, weight, penalty, both = max(candidates, key=itemgetter(0))
    scales = _SCALES[:1] if spec.score_range else _SCALES
    scale = min(scales, key=lambda scale: loss_of([scale * row for row in both]))
    answers, monitor.shift = monitor.decided([scale * row for row in both])
    monitor.scores, monitor.collapsed = answers.scores(spec), answers.collapsed
    answers.write(spec, monitor.best / "predictions.jsonl")
    kept, settings = Classifier.load(model)
    with torch.no_grad():
        for part in kept.head.parameters():
            part.mul_(float(scale))
    kept.ngrams = None
    if weight:
        kept.ngrams = NGramFit(spec, every, edges, longest, interrupted).layer(penalty).weighted(weight * float(scale))
    kept.save(model, settings)
    return {"ngrams_weight": weight, "ngrams_seconds": time.monotonic() - started}


class Bags(NamedTuple):
    """Which rows of a table are summed up for which sequence, with which weights; and the same by rows of the table."""

    rows: Tensor
    starts: Tensor
    weights: Tensor
    sequences: Tensor
    row_starts: Tensor
    row_weights: Tensor

    @classmethod
    def of(cls, rows: Tensor, weights: Tensor, sizes: Tensor, n_rows: int) -> Self:
        """:param sizes: how many of the rows each sequence has, one sequence after the other."""
        order, counts = rows.argsort(stable=True), rows.bincount(minlength=n_rows)
        sequences = torch.arange(len(sizes)).repeat_interleave(sizes)
        starts, row_starts = (each.cumsum(0) - each for each in (sizes, counts))
        return cls(rows, starts, weights, sequences[order], row_starts, weights[order])


class Sums(torch.autograd.Function):
    """What `embedding_bag` gives, whose own gradient sorts all n-grams anew each time: three quarters of a fit."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, *bags: Tensor) -> Tensor:
        """Sums of a table's rows, for each sequence."""
        ctx.bags = Bags(*bags)
        return F.embedding_bag(bags[0], table, bags[1], per_sample_weights=bags[2], mode="sum")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Sums of the sequences' gradients, for each row of the table."""
        bags: Bags = ctx.bags
        ids, starts, weights = bags.sequences, bags.row_starts, bags.row_weights
        sums = F.embedding_bag(ids, grad.contiguous(), starts, per_sample_weights=weights, mode="sum")
        return sums, *(None for _ in bags)


class NGramFit:
    """Labelled rows, counted once, for which layers of any penalty are fitted by their form's loss.

    A grade moves all its classes along their scale.

    :raises Interrupted: by :meth:`layer`, once ``interrupted`` says so.
    """

    def __init__(self, spec: TaskSpec, rows: Rows, edges: str, longest: int, interrupted: Callable[[], bool]) -> None:
        self._form, self._interrupted = form_of(spec), interrupted
        n_outputs = self._form.n_outputs(spec)
        self._spread = torch.linspace(-1, 1, n_outputs)[None] if spec.score_range else torch.eye(n_outputs)
        chosen = choose_rows(len(rows), max(1, _MOST * len(rows) // ((longest + 1) * rows.tokens)), 0)
        n_ids = rows.reader.n_vocab + rows.reader.n_special  # the last ones are no pieces
        of_ids = [*map(int, edges), *[BEGINS | ENDS] * (n_ids - len(edges))]
        layer = NGrams(longest, n_outputs, torch.tensor(of_ids, dtype=torch.uint8), rows.reader.delimiter)
        grams, labels = [], []
        for alike in by_length(rows.sizes[chosen], evaluation_tokens(torch.device("cpu"))):
            batch = rows.batch(chosen[alike])
            assert batch.labels is not None, "training rows carry labels"
            grams.append(layer.grams(batch.tokens, batch.ends))
            labels.append(batch.labels)
        counts, texts = torch.zeros(ROWS), torch.zeros(BUCKETS)
        for buckets, counted in grams:
            counts += torch.bincount(buckets[counted], minlength=ROWS)
            texts += torch.bincount(buckets[counted] // SIDES, minlength=BUCKETS)
        n_sequences = sum(len(part.rows) for part in grams)
        layer.rarity[:BUCKETS] = 1 + torch.log((1 + n_sequences) / (1 + texts))
        layer.known = counts > (n_sequences >= _MANY)
        ids, beside, sizes, common = [], [], [], []
        for part in grams:
            share = layer.shares(part)
            ids.append(part.rows[share > 0])
            beside.append(share[share > 0])
            sizes.append((share > 0).sum(dim=(1, 2)))
            common.append(layer.common(part))
        self._used, places = torch.cat(ids).unique(return_inverse=True)  # type: ignore[no-untyped-call]  # not annotated
        self._bags = Bags.of(places, torch.cat(beside), torch.cat(sizes), len(self._used))
        every = torch.cat(common)
        self._scale, self._mean = torch.std_mean(every, dim=0, correction=0)
        self._scale[self._scale < _LEAST] = 1.0  # what is the same everywhere tells nothing
        self._common = (every - self._mean) / self._scale
        self._labels = torch.cat(labels)
        self._fresh = layer

    def layer(self, penalty: float) -> NGrams:
        """The one that is fitted with a penalty of half the sum of the squares of its weights."""
        layer = copy.deepcopy(self._fresh)
        n_outputs, n_rows = len(layer.bias), len(self._labels)
        loss_of: Callable[[Tensor, Tensor], Tensor] = self._form.part("loss")
        weight = torch.zeros(len(self._used), len(self._spread), requires_grad=True)
        shared = torch.zeros(len(layer.shared), len(self._spread), requires_grad=True)
        bias = torch.zeros(n_outputs, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [weight, shared, bias], max_iter=100, history_size=5, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            if self._interrupted():
                raise process.Interrupted("SIGTERM while n-grams were fitted")
            optimizer.zero_grad()
            words = Sums.apply(weight, *self._bags)  # type: ignore[no-untyped-call]  # (B*C, 1 or K)
            each = ((words + self._common @ shared) @ self._spread + bias).view(n_rows, -1, n_outputs)  # (B, C, K)
            logits = each.flatten(1) if self._form.choices else each.sum(dim=1)
            squares = (weight**2).sum() + (shared**2).sum()
            objective = loss_of(logits, self._labels) + penalty * squares / (2 * n_rows)
            objective.backward()  # type: ignore[no-untyped-call]  # not annotated
            return objective

        optimizer.step(loss)  # type: ignore[no-untyped-call]  # not annotated
        layer.weight[self._used] = weight.detach() @ self._spread
        layer.shared = (shared.detach() / self._scale[:, None]) @ self._spread
        layer.bias = bias.detach() - self._mean @ layer.shared
        return layer
