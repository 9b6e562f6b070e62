"""Batches: every row once, like lengths together, order from (seed, epoch) alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.seeds import choose_rows
from gptcore.data.batches import BucketedBatches, by_length

lengths_lists = st.lists(st.integers(1, 60), min_size=1, max_size=200).map(lambda x: np.asarray(x, dtype=np.int64))


@settings(deadline=None, max_examples=60)
@given(lengths=lengths_lists, batch_size=st.integers(1, 40), seed=st.integers(0, 2**31), epoch=st.integers(0, 5))
def test_an_epoch_uses_no_row_twice_and_only_drops_the_incomplete_batch(lengths, batch_size, seed, epoch):
    batches = BucketedBatches(lengths, batch_size, seed)
    order = batches.epoch(epoch)
    size = min(batch_size, len(lengths))
    assert [len(batch) for batch in order] == [size] * (len(lengths) // size)
    assert batches.batches_per_epoch == len(order)
    used = np.concatenate(order)
    assert len(set(used.tolist())) == len(used)
    assert set(used.tolist()) <= set(range(len(lengths)))


def test_the_order_follows_from_seed_and_epoch():
    lengths = np.random.default_rng(0).integers(5, 50, 3000)

    def order(seed, epoch):
        return np.concatenate(BucketedBatches(lengths, 8, seed).epoch(epoch)).tolist()

    assert order(1, 2) == order(1, 2)
    assert len({tuple(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_batches_hold_like_lengths_but_their_order_is_not_sorted():
    lengths = np.random.default_rng(0).integers(5, 100, 4096)
    order = BucketedBatches(lengths, 16, seed=3).epoch(0)
    padded = sum(int(lengths[batch].max()) * len(batch) for batch in order)
    assert padded < 1.06 * lengths.sum()
    firsts = np.asarray([lengths[batch].mean() for batch in order])
    assert abs(np.corrcoef(firsts, np.arange(len(firsts)))[0, 1]) < 0.2


@settings(deadline=None, max_examples=60)
@given(lengths=lengths_lists, max_tokens=st.integers(1, 400))
def test_by_length_gives_every_row_once_within_the_budget(lengths, max_tokens):
    batches = list(by_length(lengths, max_tokens))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= max_tokens


@settings(deadline=None, max_examples=60)
@given(n_rows=st.integers(0, 100), small=st.integers(0, 100), more=st.integers(0, 100), seed=st.integers(0, 99))
def test_a_larger_choice_of_rows_contains_the_smaller(n_rows, small, more, seed):
    few, many = choose_rows(n_rows, small, seed), choose_rows(n_rows, small + more, seed)
    assert len(few) == min(small, n_rows)
    assert set(few.tolist()) <= set(many.tolist()) <= set(range(n_rows))
    assert few.tolist() == sorted(few.tolist())
    assert choose_rows(n_rows, None, seed).tolist() == list(range(n_rows))
