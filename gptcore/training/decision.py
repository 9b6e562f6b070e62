"""The probability from which on a model of two classes says yes, where another than a half is best for the metric.

The loss asks for probabilities, of which a half gives the most right answers. F1 is best from half of its own best
value on (Lipton et al. 2014), and Matthews' correlation not at a half either where one class is rare. So held-out rows
say what to add to the second class's logit: the plug-in rule of Koyejo et al. 2014, with the probabilities of Platt
1999. It is smooth where the metric itself, over some hundred rows, jumps from threshold to threshold.

N rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray

from gptcore.models.classifier import Classifier
from gptcore.nlu.metrics import OF_COUNTS, is_constant, needs_threshold
from gptcore.nlu.registry import Metric, TaskSpec
from gptcore.nlu.rows import Rows, TaskRows

FEWEST = 100
"""Held-out rows; of fewer it is luck which probability is best."""


def move_decision(model: Path, shift: float) -> None:
    """Add to the second class's logit of a trained model, whose folder is written anew.

    :param shift: nats, see :func:`decision_shift`.
    """
    kept, settings = Classifier.load(model)
    with torch.no_grad():
        kept.head.bias[1] += shift
    kept.save(model, settings)


def decision_shift(spec: TaskSpec, rows: Rows, logits: Sequence[NDArray[np.float32]]) -> float:
    """What, added to the second class's logit of held-out rows, is expected to be best for the task's metric, nats.

    :param logits: (2,) of each row.
    :return: 0 where a half is best, of fewer rows than :data:`FEWEST`, and of logits that are no numbers.
    """
    if not needs_threshold(spec) or len(rows) < FEWEST or not np.isfinite(logits).all():
        return 0.0
    assert isinstance(rows, TaskRows), "each has a class"
    return best_shift(spec.headline, np.stack(logits), rows.labels)


def best_shift(metric: Metric, logits: ArrayLike, labels: ArrayLike) -> float:
    """What, added to the second class's logit, is expected to be best for the metric.

    :param metric: "f1" or "matthews".
    :param logits: (N, 2) of labelled rows.
    :param labels: (N,) their classes, 0 or 1.
    :return: nats; 0 where the logits tell nothing of the labels.
    """
    first, second = np.asarray(logits, np.float64).T
    order = np.argsort(second - first)
    log_odds, ordered = (second - first)[order], np.asarray(labels, np.float64)[order]
    if is_constant(ordered) or (probabilities := _platt(log_odds, ordered)) is None:
        return 0.0
    cuts, starts = np.unique(log_odds, return_index=True)  # equal rows are answered alike
    yes = len(log_odds) - starts.astype(np.float64)  # from each of them on
    tp = np.cumsum(probabilities[::-1])[::-1][starts]
    fn = probabilities.sum() - tp
    best = int(np.argmax(OF_COUNTS[metric](len(log_odds) - yes - fn, fn, yes - tp, tp)))
    below = cuts[best - 1] if best else 2 * cuts[0] - cuts[1]  # yes to all: as far as to the next one
    return -float(below + cuts[best]) / 2


def _platt(log_odds: NDArray[np.float64], labels: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Probabilities (N,) of the second class that are right on average: sigmoid of a line through log-odds, fitted to
    labels that are drawn in by one row of either class, so that of separable rows none is certain.

    :return: None where they would not rise with the log-odds.
    """
    ones = float(labels.sum())
    targets = torch.from_numpy(np.where(labels == 1, (ones + 1) / (ones + 2), 1 / (len(labels) - ones + 2)))
    given = torch.from_numpy((log_odds - log_odds.mean()) / max(float(log_odds.std()), 1e-9))
    line = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([line], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        cross_entropy = F.binary_cross_entropy_with_logits(line[0] * given + line[1], targets)
        cross_entropy.backward()  # type: ignore[no-untyped-call]  # not annotated
        return cross_entropy

    optimizer.step(loss)  # type: ignore[no-untyped-call]  # not annotated
    slope, offset = line.detach()
    return None if slope <= 0 else torch.sigmoid(slope * given + offset).numpy()
