"""Sequences with hidden words as updates for the training loop, and the held-out ones that a model is scored on.

Legend of shape comments: B sequences of a micro-batch, T positions of its longest, N hidden words in it.

A micro-batch holds::

    tokens     [B, T] what the network sees           segments  [B, T] 0 or 1
    mask       [B, T] 1 for a word or a mark, 0 for padding
    places     [N] which of the B*T positions are to be told, ascending
    targets    [N] the words that stand there         draws     [N] a uniform number for each, in 0..1
    labels     [B] of the pair of segments, -100 where there is nothing to tell
    word_weight, pair_weight, token_weight: what a word, a pair and a position that is no padding count, so that the
               sums over all micro-batches and processes are the means of the update

Who tells more than words and pairs has a subclass of :class:`Sequences`, whose micro-batches hold that, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from gptcore.base.seeds import derive_seed, sample_bits, uniforms
from gptcore.config import PretrainConfig
from gptcore.data.feed import MicroBatch, Update
from gptcore.data.masking import Masked, Masking, PieceTable, WordMasker
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.data.sentence_pairs import SentenceBatch, SentencePairs
from gptcore.data.shards import Shards
from gptcore.machine.distributed import MicroBatches
from gptcore.objectives.objective import Text

_HELD_OUT = 0  # seed of what is drawn for held-out text: the same for every model
_ROWS = 32  # held-out sequences in a batch
_COUNTED = 256  # rows of held-out text whose words are counted at once
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Hiding:
    """How sequences are made: the pairs of segments, and which words are hidden."""

    pairs: str
    masking: Masking

    def with_settings(self, config: PretrainConfig) -> Hiding:
        """A copy in which the settings take the place of what they name."""
        ours = self.masking
        masking = Masking(
            share=ours.share if config.mask_share is None else config.mask_share,
            masked=ours.masked,
            random=ours.random,
            whole_words=ours.whole_words if config.mask_words is None else config.mask_words,
            ngrams=ours.ngrams if config.mask_ngrams is None else config.mask_ngrams,
            copies=ours.copies if config.mask_copies is None else config.mask_copies,
        )
        return Hiding(self.pairs if config.pairs is None else config.pairs, masking)


@dataclass(frozen=True)
class Sequences:
    """Sequences and what is drawn for them."""

    batch: SentenceBatch
    masked: Masked
    draws: npt.NDArray[np.float32]
    """[B, T] uniform numbers."""

    @classmethod
    def of(cls, batch: SentenceBatch, masked: Masked, numbers: Numbers, seed: int, draws: int) -> Self:
        """Draw what belongs to the sequences of these numbers.

        :param seed: of what a subclass draws.
        :param draws: the seed of the uniform numbers.
        """
        return cls(batch, masked, uniforms(sample_bits(draws, numbers, batch.tokens.shape[1])).astype(np.float32))

    def counts(self) -> dict[str, int]:
        """How many words, pairs and positions there are, by the names of what each of them weighs in a micro-batch."""
        return {
            "word_weight": int(self.masked.chosen.sum()),
            "pair_weight": int((self.batch.labels != IGNORE_INDEX).sum()),
            "token_weight": int(self.batch.mask.sum()),
        }

    def arrays(self, rows: slice) -> dict[str, npt.NDArray[Any]]:
        """What a micro-batch of some of them holds, but for the weights."""
        batch = self.batch
        here = self.here(rows)
        chosen = self.masked.chosen[here].ravel()
        return {
            "tokens": self.masked.tokens[here],
            "segments": batch.segments[here],
            "mask": batch.mask[here],
            "places": np.flatnonzero(chosen),
            "targets": batch.tokens[here].ravel()[chosen],
            "draws": self.draws[here].ravel()[chosen],
            "labels": batch.labels[rows],
        }

    def here(self, rows: slice) -> tuple[slice, slice]:
        """These rows up to the end of the longest of them."""
        return rows, slice(int(self.batch.mask[rows].sum(1).max()))

    def micro_batch(self, rows: slice) -> dict[str, torch.Tensor]:
        """Some of them as tensors."""
        return {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in self.arrays(rows).items()}


class _Phase:
    """The updates with sequences of one length."""

    def __init__(self, text: Text, hiding: Hiding, length: int, seed: int, kind: type[Sequences]) -> None:
        self.length, table, self._kind = length, text.pieces, kind
        self.sampler = SentencePairs(text.shards, table, length, hiding.pairs, seed)
        self._masker = WordMasker(table, hiding.masking, seed)
        self._seed, self._draws = seed, derive_seed(seed, "replaced tokens", length)
        self._copies = hiding.masking.copies
        self._instances = max(1, text.shards.n_tokens // length)  # sequences that are as many tokens as there are

    def sequences(self, numbers: Numbers) -> Sequences:
        """The sequences of these numbers with hidden words, and a uniform number for each position."""
        if self._copies is None:
            batch = self.sampler.batch(numbers)
            masked = self._masker(batch.tokens, batch.mask, numbers)
        else:
            copies, instances = (numbers // self._instances) % self._copies, self.instance(numbers)
            batch = self.sampler.batch(instances)
            masked = _each_copy(self._masker, batch, instances, copies)
        return self._kind.of(batch, masked, numbers, self._seed, self._draws)

    def instance(self, numbers: Numbers) -> Numbers:
        """Which sequence each of these numbers is, where masks are drawn once and come back."""
        return numbers if self._copies is None else numbers % self._instances


class MaskedData:
    """Updates of `batch_size` sequences, shared out to processes and micro-batches; short ones first if asked for."""

    def __init__(
        self, text: Text, hiding: Hiding, micro_batch_size: int | None, kind: type[Sequences] = Sequences
    ) -> None:
        """:param hiding: the objective's, before what the settings say.

        :raises InputError: shards without sentence borders, nothing to sample from, or a length with no room.
        """
        config, n_ctx = text.config, text.model.n_ctx
        hiding = hiding.with_settings(config)
        self._size = config.batch_size
        self._long = self._short = _Phase(text, hiding, n_ctx, config.seed, kind)
        self._first_long = 0
        if config.short_length is not None:
            self._short = _Phase(text, hiding, min(config.short_length, n_ctx), config.seed, kind)
            self._first_long = round(config.share_of_short * config.total_steps(n_ctx, text.shards.n_tokens))
        self._micro = {
            length: MicroBatches(self._size, micro_batch_size and micro_batch_size * n_ctx // length, text.world)
            for length in {self._long.length, self._short.length}
        }

    def update(self, step: int) -> Update:
        """Sequences step * batch_size .. (step + 1) * batch_size."""
        phase = self._phase(step)
        sequences = phase.sequences(self._numbers(step))
        weights = {name: torch.tensor(1.0 / max(1, count)) for name, count in sequences.counts().items()}
        micro = self._micro[phase.length]
        batches = [sequences.micro_batch(its) | weights for its in micro.parts]
        nothing = {name: torch.zeros(()) for name in weights}
        return Update([*batches, *[batches[-1] | nothing] * micro.idle], int(sequences.batch.mask.sum()))

    def documents(self, step: int) -> list[str]:
        """The documents of the update's sequences, in order, each once."""
        phase = self._phase(step)
        return list(dict.fromkeys(phase.sampler.document(int(i)) for i in phase.instance(self._numbers(step))))

    def _phase(self, step: int) -> _Phase:
        return self._short if step < self._first_long else self._long

    def _numbers(self, step: int) -> Numbers:
        return np.arange(step * self._size, (step + 1) * self._size)


def held_out_batches(
    text: Text, hiding: Hiding, max_tokens: int | None, kind: type[Sequences] = Sequences
) -> Iterator[MicroBatch]:
    """Held-out sequences with hidden words, each weight 1: the same for every seed and every number of processes.

    :param hiding: the objective's, before what the settings say.
    :param max_tokens: no more than so many, in sequences spread evenly over the shards; None: all.
    """
    hiding, table, n_ctx = hiding.with_settings(text.config), text.pieces, text.model.n_ctx
    sampler = SentencePairs(text.shards, table, n_ctx, hiding.pairs, _HELD_OUT)
    masker = WordMasker(table, hiding.masking, _HELD_OUT)
    seed = derive_seed(_HELD_OUT, "replaced tokens", n_ctx)
    for numbers, batch in sampler.in_order(_ROWS, max_tokens):
        masked = masker(batch.tokens, batch.mask, numbers)
        sequences = kind.of(batch, masked, numbers, _HELD_OUT, seed)
        yield sequences.micro_batch(slice(None)) | {name: torch.ones(()) for name in sequences.counts()}


@lru_cache(maxsize=2)
def unigram_entropy(shards: Shards) -> float:
    """Nats a word of the words' own frequencies: what telling hidden words costs that knows nothing of their context.

    A loss that stays there has learnt nothing else, however much it fell before.
    """
    table = PieceTable.read(shards.folder.parent)
    counts = np.zeros(table.n_vocab, np.int64)
    for first in range(0, shards.n_rows, _COUNTED):
        rows = range(first, min(first + _COUNTED, shards.n_rows))
        counts += np.bincount(np.concatenate([shards.tokens(row) for row in rows]), minlength=table.n_vocab)
    shares = counts[~table.special & (counts > 0)] / max(1, counts[~table.special].sum())
    return float(-(shares * np.log(shares)).sum())


def _each_copy(masker: WordMasker, batch: SentenceBatch, instances: Numbers, copies: Numbers) -> Masked:
    tokens, chosen = batch.tokens.copy(), np.zeros(batch.tokens.shape, bool)
    for copy in np.unique(copies):
        its = copies == copy
        tokens[its], chosen[its] = masker(batch.tokens[its], batch.mask[its], instances[its], int(copy))
    return Masked(tokens, chosen)
