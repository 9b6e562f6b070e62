"""The floor of words and n-grams: what :mod:`gptcore.training.ngrams` adds to a network, without any network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gptcore.base.seeds import choose_rows
from gptcore.config import FinetuneConfig
from gptcore.evaluation.predict import EVAL_ROW_SEED, answers_of, logits_of, mean_loss
from gptcore.models.ngrams import NGrams
from gptcore.nlu.encoded import encoded_splits, read_encoded
from gptcore.nlu.forms import form_of
from gptcore.nlu.held_out import held_out_rows
from gptcore.nlu.inputs import RowReader
from gptcore.nlu.metrics import stderrs_of_file
from gptcore.nlu.rows import Rows, numbered_rows, split_rows
from gptcore.training.decision import decided, moved
from gptcore.training.ngrams import PENALTIES, NGramFit

_CPU = torch.device("cpu")


def score_ngrams(
    dataset: Path, reader: RowReader, edges: str, config: FinetuneConfig, out: Path, interrupted: Callable[[], bool]
) -> dict[str, float]:
    """Fit words and n-grams by the protocol of a fine-tune that counts them, and score them: learnt from its rows, with
    the penalty and the decision that serve its held-out rows best (dev rows, where it chooses by these), then fitted on
    all of them.

    :param dataset: folder of the encoded dataset.
    :param reader: how the network that they would stand beside reads rows.
    :param edges: of each piece, see :func:`gptcore.text.word_edges.word_edges`.
    :param config: of the fine-tune: its ``ngrams``, ``select``, ``max_train_rows``, ``max_eval_rows`` and seed.
    :param out: folder that the predictions of each split are written into, as JSON lines.
    :return: ``<split>/<metric>`` and ``<split>/<metric>_stderr`` of each split with labels but train, fractions.
    :raises Interrupted: once ``interrupted`` says so.
    """
    spec, longest = reader.spec, config.ngrams or 0
    numbers = choose_rows(len(read_encoded(dataset, "train")), config.max_train_rows, config.seed)
    held_out = held_out_rows(dataset, numbers) if config.select else numbers[:0]
    parts = (np.setdiff1d(numbers, held_out), numbers)
    learnt, every = (numbered_rows(reader, dataset, "train", part) for part in parts)
    splits = [split for split in encoded_splits(dataset) if split != "train"]
    scored = {split: split_rows(reader, dataset, split, config.max_eval_rows, EVAL_ROW_SEED) for split in splits}
    choosing = numbered_rows(reader, dataset, "train", held_out) if config.select else scored["dev"]
    fit = NGramFit(spec, learnt, edges, longest, interrupted)
    tried = []
    for place, penalty in enumerate(PENALTIES):
        logits = _logits(fit.layer(penalty), choosing)
        answers, shift = decided(spec, choosing, logits) if config.select else (answers_of(spec, choosing, logits), 0.0)
        loss = mean_loss(spec, choosing, logits, _CPU)
        tried.append((answers.scores(spec)["score"], -loss, -place, penalty, shift))
    *_, penalty, shift = max(tried)
    layer = NGramFit(spec, every, edges, longest, interrupted).layer(penalty)
    scores: dict[str, float] = {}
    for split, rows in scored.items():
        answers, predictions = answers_of(spec, rows, moved(_logits(layer, rows), shift)), out / f"{split}.jsonl"
        answers.write(spec, predictions)
        figures = answers.scores(spec) | stderrs_of_file(spec, predictions)
        scores |= {f"{split}/{name}": value for name, value in figures.items()}
    return scores


def _logits(layer: NGrams, rows: Rows) -> Sequence[NDArray[np.float32]]:
    return logits_of(_Alone(layer, form_of(rows.reader.spec).choices), rows, _CPU)


class _Alone(torch.nn.Module):
    """A layer of n-grams in the place of a network that has one."""

    def __init__(self, layer: NGrams, choices: bool) -> None:
        super().__init__()
        self._layer, self._choices = layer, choices

    def forward(self, tokens: Tensor, ends: Tensor, **_: Tensor) -> tuple[Tensor, None]:
        """The logits that :meth:`Classifier.task_logits` adds to the network's, and no words'."""
        words = self._layer(tokens, ends)  # (B, C, K)
        return (words if self._choices else words.sum(dim=1)).flatten(1), None
