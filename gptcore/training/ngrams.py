"""What n-grams tell of a task's rows, fitted by L-BFGS, and how much that counts beside the network.

Of a text's topic its words tell more than a network does that has read little, and both together more than either.

B rows, C sequences a row, N n-grams of a sequence, K outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from gptcore.base.seeds import choose_rows
from gptcore.data.feed import by_length, evaluation_tokens
from gptcore.evaluation.predict import answers_of, mean_loss
from gptcore.models.classifier import Classifier
from gptcore.models.ngrams import BUCKETS, NGrams
from gptcore.nlu.forms import form_of
from gptcore.nlu.registry import TaskSpec
from gptcore.nlu.rows import Rows
from gptcore.training.best_epoch import BestEpoch

_WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Of the n-grams' logits beside the network's; the greatest leaves next to nothing of these."""
_PENALTIES = (1.0, 0.1, 0.01)
"""Of half the sum of the squares of the layer's weights, where the loss is a sum over rows: scikit-learn's 1 / C."""
_MOST = 1 << 25
"""n-grams that are fitted together, in 400 MB; of more rows some are drawn."""
_MANY = 1000
"""Sequences from which on n-grams of a single one are left out, as the floors leave out words."""


def add_ngrams(
    model: Path, longest: int, rows: Rows, every: Rows, monitor: BestEpoch, interrupted: Callable[[], bool]
) -> float:
    """Give a trained model the n-grams of its training rows, with the weight and the penalty that serve the monitor's
    rows best: of equal scores by the lower loss, then the lower weight. Its scores are those of both together then.

    :param model: folder of the model that is kept, which is written anew.
    :param longest: pieces of the longest n-grams.
    :param rows: that the monitor's best model was trained on; ``every``: that the n-grams which are kept are fitted on.
    :return: the weight.
    :raises Interrupted: see :meth:`BestEpoch.logits`.
    """
    spec, world = monitor.spec, monitor.world
    best, _ = Classifier.load(monitor.best / "model")
    best.to(world.device)
    alone = monitor.logits(best, monitor.rows, interrupted)
    found = []
    for penalty in _PENALTIES:
        best.ngrams = fitted(spec, rows, longest, penalty).to(world.device)
        beside = monitor.logits(best, monitor.rows, interrupted)
        for weight in _WEIGHTS:
            both = [one + weight * (other - one) for one, other in zip(alone, beside, strict=True)]
            answers = answers_of(spec, monitor.rows, both)
            scores, loss = answers.scores(spec), mean_loss(spec, monitor.rows, both, world.device)
            found.append(((scores["score"], -loss, -weight), weight, penalty, answers))
    _, weight, penalty, answers = max(found, key=itemgetter(0))
    monitor.scores, monitor.collapsed = answers.scores(spec), answers.collapsed
    answers.write(spec, monitor.best / "predictions.jsonl")
    kept, settings = Classifier.load(model)
    kept.ngrams = fitted(spec, every, longest, penalty).weighted(weight) if weight else None
    kept.save(model, {name: value for name, value in settings.items() if name not in ("model", "head")})
    return weight


def fitted(spec: TaskSpec, rows: Rows, longest: int, penalty: float) -> NGrams:
    """The layer that tells labelled rows best by their form's loss; a grade moves all its classes along their scale."""
    form, most = form_of(spec), max(1, _MOST * len(rows) // (longest * rows.tokens))
    loss_of: Callable[[Tensor, Tensor], Tensor] = form.part("loss")
    layer = NGrams(longest, form.n_outputs(spec))
    chosen = choose_rows(len(rows), most, 0)
    buckets, labels = [], []
    for part in by_length(rows.sizes[chosen], evaluation_tokens(torch.device("cpu"))):
        batch = rows.batch(chosen[part])
        assert batch.labels is not None, "training rows carry labels"
        buckets.append(layer.buckets(batch.tokens, batch.ends))
        labels.append(batch.labels)
    layer.rarity[:BUCKETS] = 1.0
    counts = torch.bincount(torch.cat([each[layer.shares(each) > 0] for each in buckets]), minlength=BUCKETS + 1)
    n_sequences = sum(map(len, buckets))
    layer.rarity *= (1 + torch.log((1 + n_sequences) / (1 + counts))) * (counts > (n_sequences >= _MANY))
    shares = [layer.shares(each) for each in buckets]
    ids = torch.cat([each[share > 0] for each, share in zip(buckets, shares, strict=True)])
    beside = torch.cat([share[share > 0] for share in shares])
    sizes = torch.cat([(share > 0).sum(dim=1) for share in shares])
    starts, wanted = sizes.cumsum(0) - sizes, torch.cat(labels)
    del buckets, shares
    n_outputs = len(layer.bias)
    spread = torch.linspace(-1, 1, n_outputs)[None] if spec.score_range else torch.eye(n_outputs)
    weight, bias = torch.zeros(BUCKETS + 1, len(spread), requires_grad=True), layer.bias.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=100, history_size=5, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        each = F.embedding_bag(ids, weight, starts, per_sample_weights=beside, mode="sum") @ spread + bias
        each = each.view(len(chosen), -1, n_outputs)  # (B, C, K)
        logits = each.flatten(1) if form.choices else each.sum(dim=1)
        found = loss_of(logits, wanted) + penalty * (weight**2).sum() / (2 * len(chosen))
        found.backward()  # type: ignore[no-untyped-call]  # not annotated
        return found

    optimizer.step(loss)  # type: ignore[no-untyped-call]  # not annotated
    layer.weight, layer.bias = weight.detach() @ spread, bias.detach()
    return layer
