"""Interpolated Kneser-Ney n-gram models: the classical baselines beside the Transformer's perplexity.

Modified discounts after Chen and Goodman (1998), "An empirical study of smoothing techniques for language modeling".
An n-gram is packed into one integer in base V, so counting is sorting, and looking up is binary search.
Legend of shape comments: N n-grams, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gptcore.base.errors import InputError, require
from gptcore.base.types import Advance, Floats, Ints, Progress, quiet
from gptcore.data.shards import INDEX_FILE, Shards

_CHUNK = 4_000_000  # n-grams sorted or scored at a time


Counting = Callable[..., Iterable[tuple[Ints, Ints]]]
"""The built-in ``map``, or one that gives results in order and whose workers see the folder of the training rows."""


def ngram_perplexity(
    train: Shards, valid: Shards, order: int, progress: Advance = quiet, map: Counting = map
) -> dict[str, float]:
    """Count n-grams of ``order`` on the training rows and score the validation rows.

    Scored is every token but a row's first, the same targets as :func:`gptcore.data.sampler.sequential_windows`; the
    context never leaves the row and is shorter than ``order - 1`` at its start. The parameters and the memory are those
    of :class:`NgramModel`.

    :returns: ``perplexity``, ``nats`` (mean per token) and ``tokens`` (scored).
    :raises InputError: two vocabularies, an order below 2 or too high for them, or no tokens to count or to score.
    """
    if train.n_vocab != valid.n_vocab:
        raise InputError(f"{valid.folder}: n_vocab is {valid.n_vocab}, expected {train.n_vocab} as in {train.folder}")
    model = NgramModel(train, order, progress, map)
    nats, tokens = 0.0, 0
    for row in range(valid.n_rows):
        ids = valid.tokens(row)
        for begin in range(1, len(ids), _CHUNK):
            chunk = ids[max(0, begin - order + 1) : begin + _CHUNK]
            scored = len(ids[begin : begin + _CHUNK])
            nats -= float(np.log(model.probabilities(chunk)[-scored:]).sum())
            tokens += scored
    require(tokens, f"{valid.folder}: no row of two tokens or more to score")
    return {"perplexity": math.exp(nats / tokens), "nats": nats / tokens, "tokens": tokens}


class NgramModel:
    """N-grams counted once, to score any sentences: a :class:`gptcore.evaluation.likelihood.Likelihood`.

    Memory grows with the number of distinct n-grams in the training rows, some 100 bytes each at the peak.

    :param order: 2 for the bigram, 3 for the trigram model.
    :param progress: called with the number of training tokens counted since its last call.
    :raises InputError: an order below 2 or too high for the vocabulary, or no tokens to count.
    """

    def __init__(self, train: Shards, order: int, progress: Advance = quiet, map: Counting = map) -> None:
        self.n_vocab = n_vocab = train.n_vocab
        if order < 2 or n_vocab**order > np.iinfo(np.int64).max:
            raise InputError(f"n-gram order = {order}: expected 2 or more, and n_vocab ** order below 2 ** 63")
        jobs = list(_jobs(train, order))
        grams, counts = _sum(_reported(map(_count_rows, jobs), jobs, progress))
        require(len(grams), f"{train.folder}: no row of {order} tokens or more to count")
        self._levels = [_level(grams, counts, n_vocab)]
        """The levels of orders 1 to the highest, which counts occurrences, the others distinct left neighbours."""
        for lower in range(order - 1, 0, -1):
            grams, counts = np.unique(grams % n_vocab**lower, return_counts=True)
            self._levels.insert(0, _level(grams, counts, n_vocab))

    def log_probabilities(self, sequences: Sequence[Sequence[int]], progress: Progress = quiet) -> Floats:
        """Sum of log P(id | the ids before it) over every id of a sequence but its first, in nats: float64 [N]."""
        sums, done = np.zeros(len(sequences)), 0
        lengths = np.asarray([len(ids) for ids in sequences])
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            ids = np.asarray([sequences[row] for row in rows.tolist()], np.uint32)  # [rows, length]
            if length > 1:
                sums[rows] = np.log(self.probabilities(ids)).sum(axis=-1)
            done += len(rows)
            progress(done, len(sequences))
        return sums

    def probabilities(self, ids: npt.NDArray[np.unsignedinteger]) -> Floats:
        """P(token | the tokens before it) of all ``ids`` [..., T] but each row's first, float64 [..., T - 1]."""
        probabilities = np.full(ids.shape, 1 / self.n_vocab)
        for order, level in enumerate(self._levels, start=1):
            if ids.shape[-1] < order:
                break
            grams = _pack(ids, order, self.n_vocab)
            context = np.minimum(np.searchsorted(level.contexts, grams // self.n_vocab), len(level.contexts) - 1)
            known = level.contexts[context] == grams // self.n_vocab
            place = np.minimum(np.searchsorted(level.grams, grams), len(level.grams) - 1)
            share = np.where(level.grams[place] == grams, level.shares[place], 0.0)
            left_over = np.where(known, level.left_over[context], 1.0)
            probabilities[..., order - 1 :] = share + left_over * probabilities[..., order - 1 :]
        return probabilities[..., 1:]


class UnigramModel:
    """Pieces by how often they come, one added to each count: what is told without any order of words.

    :param train: the training rows.
    """

    def __init__(self, train: Shards) -> None:
        self.n_vocab = train.n_vocab
        counts = np.ones(self.n_vocab)
        for row in range(train.n_rows):
            counts += np.bincount(train.tokens(row), minlength=self.n_vocab)
        self._nats = np.log(counts / counts.sum())

    def log_probabilities(self, sequences: Sequence[Sequence[int]], progress: Progress = quiet) -> Floats:
        """Sum of log P(id | the ids before it) over every id of a sequence but its first, in nats: float64 [N]."""
        sums = np.asarray([self._nats[np.asarray(ids[1:], dtype=np.int64)].sum() for ids in sequences])
        progress(len(sequences), len(sequences))
        return sums


@dataclass(frozen=True)
class _Level:
    """One order: P(w | context) = share(context, w) + left_over(context) * P(w | context without its first token)."""

    grams: Ints
    """Distinct n-grams (context, w), packed, ascending [N]."""
    shares: Floats
    """Discounted relative frequency of each within its context [N]."""
    contexts: Ints
    """Distinct contexts, packed, ascending."""
    left_over: Floats
    """Probability that the discounts free in each context, for the lower order."""


def _level(grams: Ints, counts: Ints, n_vocab: int) -> _Level:
    kinds = np.minimum(counts, 3)
    discounts = _discounts(counts)[kinds]  # [N]
    contexts, first = np.unique(grams // n_vocab, return_index=True)
    totals = np.add.reduceat(counts, first)
    left_over = np.add.reduceat(discounts, first) / totals
    shares = (counts - discounts) / np.repeat(totals, np.diff(np.append(first, len(grams))))
    return _Level(grams, shares, contexts, left_over)


def _discounts(counts: Ints) -> Floats:
    """Discount of n-grams seen 0, 1, 2, and 3 or more times: Chen and Goodman's closed form.

    Clipped to 0.1 .. count, because the form is undefined or out of range on tiny corpora and every context must leave
    something to the lower order.
    """
    seen = np.maximum(np.bincount(np.minimum(counts, 5), minlength=6), 1)  # n-grams seen exactly 1, 2, 3, 4 times
    y = seen[1] / (seen[1] + 2 * seen[2])
    return np.array([0.0, *(np.clip(k - (k + 1) * y * seen[k + 1] / seen[k], 0.1, k) for k in (1, 2, 3))])


def _pack(ids: npt.NDArray[np.unsignedinteger], order: int, n_vocab: int) -> Ints:
    """Every n-gram of ``ids`` [..., T] as one integer, its last token the lowest digit, int64 [..., T - order + 1]."""
    wide = ids.astype(np.int64)
    packed = np.zeros((*ids.shape[:-1], ids.shape[-1] - order + 1), np.int64)
    for position in range(order):
        packed = packed * n_vocab + wide[..., position : wide.shape[-1] - order + 1 + position]
    return packed


@dataclass(frozen=True)
class _Job:
    """Rows whose n-grams are counted at a time; small, so that it travels well to another process."""

    folder: Path
    changed: int
    """When the folder's index was written: another one is opened anew."""
    order: int
    begin: int
    end: int
    n_tokens: int


def _jobs(train: Shards, order: int) -> Iterator[_Job]:
    """All rows, in runs of about _CHUNK tokens."""
    changed = (train.folder / INDEX_FILE).stat().st_mtime_ns
    ends = np.cumsum(train.lengths)
    begin = before = 0
    while begin < train.n_rows:
        end = min(train.n_rows, int(np.searchsorted(ends, before + _CHUNK)) + 1)
        yield _Job(train.folder, changed, order, begin, end, int(ends[end - 1]) - before)
        begin, before = end, int(ends[end - 1])


def _reported(results: Iterable[tuple[Ints, Ints]], jobs: list[_Job], progress: Advance) -> Iterator[tuple[Ints, Ints]]:
    for job, result in zip(jobs, results, strict=True):
        progress(job.n_tokens)
        yield result


def _count_rows(job: _Job) -> tuple[Ints, Ints]:
    """Distinct n-grams of some rows, packed, ascending, and how often each came."""
    train = _opened(job.folder, job.changed)
    return _sum(np.unique(packed, return_counts=True) for packed in _packed_rows(train, job))


@lru_cache(maxsize=1)
def _opened(folder: Path, _changed: int) -> Shards:
    return Shards(folder)


def _packed_rows(train: Shards, job: _Job) -> Iterator[Ints]:
    """The n-grams of a job's rows, in arrays of about _CHUNK."""
    order = job.order
    held: list[Ints] = []
    n_held = 0
    for row in range(job.begin, job.end):
        ids = train.tokens(row)
        for begin in range(0, len(ids) - order + 1, _CHUNK):
            held.append(_pack(ids[begin : begin + _CHUNK + order - 1], order, train.n_vocab))
            n_held += len(held[-1])
            if n_held >= _CHUNK:
                yield np.concatenate(held)
                held, n_held = [], 0
    if held:
        yield np.concatenate(held)


def _sum(chunks: Iterable[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Distinct values, ascending, and how often each came in all chunks."""
    waiting: list[tuple[Ints, Ints]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for chunk in chunks:
        waiting.append(chunk)
        # Merging only when the new ones weigh as much as what is merged already keeps the work at O(n log n).
        if sum(len(grams) for grams, _ in waiting[1:]) >= len(waiting[0][0]):
            waiting = [_merge(waiting)]
    return _merge(waiting)


def _merge(counted: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    grams = np.concatenate([grams for grams, _ in counted])
    order = np.argsort(grams, kind="stable")
    distinct, first = np.unique(grams[order], return_index=True)
    if not len(distinct):
        return counted[0]
    return distinct, np.add.reduceat(np.concatenate([counts for _, counts in counted])[order], first)
