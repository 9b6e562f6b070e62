"""Masked language modelling with pairs of segments, as pre-training: BERT's and ALBERT's objective.

The loss is the sum of two means, over the hidden words and over the pairs of an update (BERT, section A.2). Only the
states of hidden words reach the product with the vocabulary.

Legend of shape comments: B sequences, T positions, D width, N hidden words, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.base.errors import InputError, require
from gptcore.config import PretrainConfig
from gptcore.data.feed import Data, Losses, MicroBatch, Objective
from gptcore.data.masking import Masking
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.families import FAMILIES
from gptcore.models.encoder import Encoder
from gptcore.objectives.masked_data import Hiding, MaskedData, Sequences, held_out_batches, unigram_entropy
from gptcore.objectives.objective import PretrainingObjective, Text, exponential, summed_metrics


class Counted:
    """Held-out batches that are counted as they pass."""

    def __init__(self, batches: Iterable[MicroBatch]) -> None:
        self._batches = batches
        self.words = self.pairs = self.tokens = 0

    def __iter__(self) -> Iterator[MicroBatch]:
        for batch in self._batches:
            self.count(batch)
            yield batch

    def count(self, batch: MicroBatch) -> None:
        """Add what a batch has to score."""
        self.words += len(batch["targets"])
        self.pairs += int((batch["labels"] != IGNORE_INDEX).sum())
        self.tokens += int(batch["mask"].sum())

    def scores(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Loss, perplexity and accuracy of hidden words; loss and accuracy of pairs, where there are any.

        :param sums: of the objective's metrics.
        :raises InputError: no word was hidden.
        """
        require(self.words, "held-out text: found no hidden word to score; expected more of it")
        loss = sums["word_loss"] / self.words
        scores = {
            "loss": loss,
            "perplexity": exponential(loss),
            "word_accuracy": sums["word_accuracy"] / self.words,
            "tokens": float(self.words),
        }
        if self.pairs:
            scores |= {name: sums[name] / self.pairs for name in ("pair_loss", "pair_accuracy")}
        return scores


class MaskedWords(PretrainingObjective):
    """Hidden words, and what the second segment is to the first."""

    counting: type[Counted] = Counted
    """What counts the held-out batches that a score is over."""
    sequences: type[Sequences] = Sequences
    """What the sequences hold that the objective is about."""

    def __init__(self, pairs: str, masking: Masking) -> None:
        """:param pairs: one of `PAIRS` in :mod:`gptcore.config.training`, unless the settings name another."""
        self._hiding = Hiding(pairs, masking)

    def data(self, text: Text, micro_batch_size: int | None) -> Data:
        """Sequences of sentences with hidden words.

        :raises InputError: shards without sentence borders, or pairs to tell and a network that has no head for them.
        """
        pairs = self._hiding.with_settings(text.config).pairs
        if pairs != "none" and not getattr(text.model, "pair", True):
            title = FAMILIES[text.model.family].title
            raise InputError(f"pretrain.pairs = {pairs!r}: {title} has no head of pairs here; expected none")
        return MaskedData(text, self._hiding, micro_batch_size, self.sequences)

    def objective(self, trained: nn.Module, config: PretrainConfig) -> Objective:
        """Words and pairs.

        :param trained: an :class:`Encoder`, or what tells words and pairs as it does.
        """
        return partial(masked_words_losses, cast(Encoder, trained))

    def score(
        self, objective: Objective, text: Text, max_tokens: int | None, interrupted: Callable[[], bool]
    ) -> dict[str, float]:
        """Scores of held-out sequences whose hidden words are the same each time.

        "loss" is nats a hidden word, "perplexity" its exponential (no probability of the text, but of each hidden word
        given the rest), "tokens" how many words were hidden; "unigram_entropy" is the loss of knowing how frequent each
        word is, and nothing else.
        """
        batches = self.counting(held_out_batches(text, self._hiding, max_tokens, self.sequences))
        sums = summed_metrics(objective, batches, text.world, interrupted)
        return batches.scores(sums) | {"unigram_entropy": unigram_entropy(text.shards)}


def masked_words_losses(model: Encoder, batch: MicroBatch) -> Losses:
    """What the hidden words and the pairs of segments of a micro-batch cost."""
    states = model.encode(batch["tokens"], batch["segments"], batch["mask"])  # (B, T, D)
    metrics = word_and_pair_losses(model, states, batch)
    loss = metrics["word_loss"] + metrics["pair_loss"]
    return loss, {"loss": loss, **metrics}


def word_and_pair_losses(model: Encoder, states: Tensor, batch: MicroBatch) -> dict[str, Tensor]:
    """ "word_loss", "word_accuracy", "pair_loss" and "pair_accuracy" of a micro-batch.

    :param states: of its sequences, [B, T, D].
    """
    scores = model.word_scores(states.flatten(0, 1)[batch["places"]]).float()  # (N, V)
    word_loss, word_accuracy = told(scores, batch["targets"], batch["word_weight"])
    pair_scores = model.pair_scores(states).float()  # (B, 2)
    pair_loss, pair_accuracy = told(pair_scores, batch["labels"], batch["pair_weight"])
    words = {"word_loss": word_loss, "word_accuracy": word_accuracy}
    return words | {"pair_loss": pair_loss, "pair_accuracy": pair_accuracy}


def told(scores: Tensor, targets: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Nats, and right answers, each of which counts ``weight``: scores [N, K] and targets [N] -> two numbers."""
    nats = F.cross_entropy(scores, targets, ignore_index=IGNORE_INDEX, reduction="sum")
    right = (scores.argmax(-1) == targets).sum()  # never where there is no target
    return nats * weight, right * weight


MASKED_WORDS = MaskedWords("none", Masking())
"""DistilBERT (section 3, "Distillation"): BERT's words, and nothing of pairs."""
MASKED_WORDS_AND_NEXT_SENTENCE = MaskedWords("nsp", Masking())
"""BERT (section 3.1): single pieces, 80/10/10."""
MASKED_WORDS_AND_SENTENCE_ORDER = MaskedWords("sop", Masking(whole_words=True, ngrams=3))
"""ALBERT (section 4.1, and whole words by its original code)."""
