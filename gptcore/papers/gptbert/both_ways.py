"""Next tokens and hidden words in one network, GPT-BERT's objective.

"GPT or BERT: why not both?" (Charpentier and Samuel 2024, section 3.1, "masked next-token prediction"): a hidden word
is told from the state at the place before it, by the same product with the vocabulary as a next token.

Every sequence is a window of the text. Which of them are read as a whole, with words hidden, follows from their numbers
alone, so that a resumed run and any number of processes see the same. The two losses are means over the tokens of an
update, weighted by the shares of the sequences (section 3.2).

Legend of shape comments: B sequences, T positions, N told positions, D width, V vocabulary rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import nn

from gptcore.base.errors import InputError, require
from gptcore.base.types import Bools, Ints
from gptcore.config import PretrainConfig
from gptcore.data.feed import Data, Losses, MicroBatch, Objective, Update
from gptcore.data.masking import Masking, PieceTable, WordMasker
from gptcore.data.sampler import IGNORE_INDEX, WindowBatch, sequential_windows
from gptcore.models.network import word_scores
from gptcore.objectives.losses import fused_language_model_loss
from gptcore.objectives.masked import told
from gptcore.objectives.next_token import PretrainData, windows_of
from gptcore.objectives.objective import PretrainingObjective, Text, exponential, summed_metrics
from gptcore.papers.gptbert.network import BothWays

_HELD_OUT = 0  # seed of what is hidden in held-out text: the same for every model


class NextTokenAndHiddenWords(PretrainingObjective):
    """Each sequence is read in one of two ways: word by word, or as a whole with words hidden."""

    def data(self, text: Text, micro_batch_size: int | None) -> Data:
        """Windows of the text, of which some have hidden words."""
        return _MixedData(text, micro_batch_size)

    def objective(self, trained: nn.Module, config: PretrainConfig) -> Objective:
        """The next-token loss and the loss of hidden words, by their shares.

        :raises InputError: a network that has no row for hidden words, or settings without their share.
        """
        assert isinstance(trained, BothWays)
        require(trained.config.n_special, "model.n_special = 0: expected 1 or more, for the row that hides words")
        return partial(both_ways_losses, trained, _share(config))

    def score(
        self, objective: Objective, text: Text, max_tokens: int | None, interrupted: Callable[[], bool]
    ) -> dict[str, float]:
        """Scores of held-out windows, each read both ways; what is hidden in them is the same each time.

        "loss" and "perplexity" are those of next tokens, as other decoders'; "word_loss" and "word_accuracy" those of
        hidden words.
        """
        batches = _HeldOut(text, max_tokens)
        sums = summed_metrics(objective, batches, text.world, interrupted)
        require(batches.next_tokens, f"{text.shards.folder}: found no token to score; expected more held-out text")
        loss = sums["next_loss"] / batches.next_tokens
        n_words = max(1, batches.words)
        return {
            "loss": loss,
            "perplexity": exponential(loss),
            "tokens": float(batches.next_tokens),
            "word_loss": sums["word_loss"] / n_words,
            "word_accuracy": sums["word_accuracy"] / n_words,
        }


NEXT_TOKEN_AND_HIDDEN_WORDS = NextTokenAndHiddenWords()


def both_ways_losses(model: BothWays, share: float, batch: MicroBatch) -> Losses:
    """The two losses of a micro-batch.

    :param share: of the sequences with hidden words, and so the weight of their loss.
    """
    whole, targets = batch["whole"], batch["targets"]  # (B,), (B, T)
    table = model.table()
    states = model.mixed_states(batch["tokens"], table, whole, batch["words"]).flatten(0, 1)  # (B*T, D)
    rows = model.words(table)  # (V, D)
    to_tell = targets != IGNORE_INDEX
    places = (to_tell & ~whole[:, None]).flatten().nonzero()[:, 0]  # (N,)
    following = targets.flatten()[places]
    weights = batch["next_weight"].expand(len(places))
    next_loss = fused_language_model_loss(states[places], rows, following, weights)
    places = (to_tell & whole[:, None]).flatten().nonzero()[:, 0]  # (N,)
    scores = word_scores(states[places], rows).float()  # (N, V)
    word_loss, word_accuracy = told(scores, targets.flatten()[places], batch["word_weight"])
    loss = (1 - share) * next_loss + share * word_loss
    return loss, {"loss": loss, "next_loss": next_loss, "word_loss": word_loss, "word_accuracy": word_accuracy}


class _MixedData(PretrainData):
    """Windows of which some have hidden words."""

    def __init__(self, text: Text, micro_batch_size: int | None) -> None:
        super().__init__(windows_of(text), text.config.batch_size, micro_batch_size, text.world)
        self._masker, self._share = _masker(text, text.config.seed), _share(text.config)

    def update(self, step: int) -> Update:
        """Windows step * batch_size .. (step + 1) * batch_size."""
        numbers = np.arange(step * self._batch_size, (step + 1) * self._batch_size)
        whole = np.floor((numbers + 1) * self._share) > np.floor(numbers * self._share)  # evenly spread
        batch = _hidden(self._sampler.batch(step, self._batch_size), whole, numbers, self._masker)
        n_next, n_words = _counts(batch)
        weights = {"next_weight": torch.tensor(1 / max(1, n_next)), "word_weight": torch.tensor(1 / max(1, n_words))}
        batches = [{name: part[its] for name, part in batch.items()} | weights for its in self._micro.parts]
        nothing = {name: torch.zeros(()) for name in weights}
        return Update([*batches, *[batches[-1] | nothing] * self._micro.idle], int(batch["words"].sum()))


class _HeldOut:
    """Held-out windows, each twice: read word by word, and as a whole; counted as they pass."""

    def __init__(self, text: Text, max_tokens: int | None) -> None:
        self._windows = sequential_windows(text.shards, text.model.n_ctx, max_tokens)
        self._masker = _masker(text, _HELD_OUT)
        self.next_tokens = self.words = 0

    def __iter__(self) -> Iterator[MicroBatch]:
        ones = {name: torch.ones(()) for name in ("next_weight", "word_weight")}
        first = 0
        for window in self._windows:
            numbers = np.arange(first, first + len(window[0]))
            first += len(numbers)
            for whole in (False, True):
                batch = _hidden(window, np.full(len(numbers), whole), numbers, self._masker)
                n_next, n_words = _counts(batch)
                self.next_tokens, self.words = self.next_tokens + n_next, self.words + n_words
                yield batch | ones


def _hidden(window: WindowBatch, whole: Bools, numbers: Ints, masker: WordMasker) -> MicroBatch:
    """A batch of windows; of those that are ``whole`` [B], words are hidden and they alone are targets.

    :param numbers: [B] of the windows, which what is drawn follows from.
    """
    inputs, targets = (part.copy() for part in window)  # [B, T] each
    words = targets != IGNORE_INDEX  # every input has a next token, but padding
    tellable = words.astype(np.int64)
    tellable[:, 0] = 0  # no place is before it
    masked = masker(inputs, tellable, numbers)
    inputs[whole] = masked.tokens[whole]
    following = np.zeros_like(words)
    following[:, :-1] = masked.chosen[:, 1:]
    targets[whole[:, None] & ~following] = IGNORE_INDEX
    parts = {"tokens": inputs, "targets": targets, "words": words, "whole": whole}
    return {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in parts.items()}


def _counts(batch: MicroBatch) -> tuple[int, int]:
    """How many next tokens and how many hidden words there are to tell."""
    to_tell, whole = batch["targets"] != IGNORE_INDEX, batch["whole"][:, None]
    return int((to_tell & ~whole).sum()), int((to_tell & whole).sum())


def _share(config: PretrainConfig) -> float:
    if config.hidden_share is None:
        raise InputError("pretrain.hidden_share: found none, expected the share of the sequences that hide words")
    return config.hidden_share


def _masker(text: Text, seed: int) -> WordMasker:
    """Hides words of a vocabulary without special pieces behind the row that comes after it."""
    n_vocab = text.model.n_vocab
    none = np.zeros(n_vocab, bool)
    table = PieceTable(n_vocab, pad=n_vocab, cls=n_vocab, sep=n_vocab, mask=n_vocab, special=none, tail=none)
    share = text.config.mask_share
    return WordMasker(table, Masking() if share is None else Masking(share=share), seed)
