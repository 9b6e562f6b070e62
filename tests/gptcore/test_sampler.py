"""Random windows are a pure function of (seed, i), uniform and inside one document; evaluation sees every token."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from gptcore.base.errors import InputError
from gptcore.data.sampler import WindowSampler, sequential_windows
from gptcore.data.shards import Shards, write_shards

row_lengths = st.lists(st.integers(0, 30), max_size=12)


def shards_of(folder: Path, lengths: list[int], max_tokens: int = 64) -> Shards:
    """Rows whose tokens all differ, so that a token tells where it is from."""
    ends = np.cumsum(lengths).tolist()
    documents = [(f"d{i}", [range(end - n, end)]) for i, (n, end) in enumerate(zip(lengths, ends, strict=True))]
    write_shards(documents, folder, n_vocab=1 + sum(lengths), max_tokens=max_tokens)
    return Shards(folder)


@given(row_lengths, st.integers(1, 12), st.integers(0, 2**64 - 1))
@settings(max_examples=60, deadline=None)
def test_windows_are_contiguous_and_stay_in_their_document(tmp_path_factory, lengths, n_ctx, seed):
    shards = shards_of(tmp_path_factory.mktemp("shards"), lengths)
    if max(lengths, default=0) < 2:
        with pytest.raises(InputError, match="no document of two tokens or more"):
            WindowSampler(shards, n_ctx, seed)
        return
    sampler = WindowSampler(shards, n_ctx, seed)
    for i in range(20):
        window, row = sampler.window(i), sampler.row(i)
        assert len(window) == min(n_ctx + 1, lengths[row])
        assert (np.diff(window) == 1).all()
        assert set(window) <= set(shards.tokens(row).tolist())
        assert sampler.document(i) == f"d{row}"


def test_every_valid_start_is_equally_likely(tmp_path):
    lengths, n_ctx = [1, 10, 0, 3, 5, 2, 1], 4
    shards = shards_of(tmp_path, lengths)
    starts = [start for row, n in enumerate(lengths) if n >= 2 for start in _starts(shards, row, n, n_ctx)]
    drawn = Counter(int(WindowSampler(shards, n_ctx, 7).window(i)[0]) for i in range(9000))
    assert sorted(drawn) == starts
    assert chisquare([drawn[start] for start in starts]).pvalue > 1e-3


def _starts(shards: Shards, row: int, length: int, n_ctx: int) -> list[int]:
    first = int(shards.tokens(row)[0])
    return [first + k for k in range(length) if k == 0 or k + n_ctx + 1 <= length]


def test_a_sample_depends_on_nothing_but_seed_and_index(tmp_path):
    shards = shards_of(tmp_path, [500, 300])
    forwards = [WindowSampler(shards, 8, 3).window(i).tolist() for i in range(50)]
    backwards = [WindowSampler(shards, 8, 3).window(i).tolist() for i in reversed(range(50))]
    assert forwards == backwards[::-1]
    assert forwards != [WindowSampler(shards, 8, 4).window(i).tolist() for i in range(50)]
    assert len({tuple(window) for window in forwards}) > 40


def test_the_draws_are_pinned(tmp_path):
    """A resumed run, maybe under another numpy, must see the same windows: these starts never change."""
    sampler = WindowSampler(shards_of(tmp_path, [1000], max_tokens=1000), 8, 42)
    assert [int(sampler.window(i)[0]) for i in (0, 1, 2, 10**12)] == [813, 365, 869, 650]


def test_half_of_the_first_windows_repeat_their_beginning(tmp_path):
    shards = shards_of(tmp_path, [2000], max_tokens=2000)  # of which no two tokens are alike
    plain, repeating = WindowSampler(shards, 16, 3), WindowSampler(shards, 16, 3, 300)
    periods = Counter()
    for i in range(400):
        whole, found = plain.window(i), repeating.window(i)
        period = len(set(found.tolist()))
        assert found.tolist() == [int(whole[place % period]) for place in range(17)]
        periods[period, i < 300] += 1
    assert periods[17, False] == 100  # behind the first ones, none does
    assert 120 < periods[17, True] < 180
    assert {period for period, early in periods if early} == {4, 5, 6, 7, 8, 17}  # 4 to n_ctx / 2, or none


def test_a_share_of_the_later_windows_repeats_too(tmp_path):
    shards = shards_of(tmp_path, [2000], max_tokens=2000)
    plain, repeating = WindowSampler(shards, 16, 3), WindowSampler(shards, 16, 3, 100, 0.125)
    found = [repeating.window(i).tolist() != plain.window(i).tolist() for i in range(1100)]
    assert 35 < sum(found[:100]) < 65
    assert 95 < sum(found[100:]) < 155  # an eighth of a thousand
    early = WindowSampler(shards, 16, 3, 100)
    assert all(early.window(i).tolist() == repeating.window(i).tolist() for i in range(100))


@pytest.mark.parametrize("shares", [[0, 6], [0, 3, 6], [0, 1, 5, 6]])
@pytest.mark.parametrize("repeating", [(0, 0.0), (33, 0.0), (60, 0.0), (33, 0.4)])
def test_a_global_batch_does_not_depend_on_how_it_is_shared_out(tmp_path, shares, repeating):
    sampler = WindowSampler(shards_of(tmp_path, [50, 3, 40]), 8, 1, *repeating)
    inputs, targets = sampler.batch(5, 6)
    cuts = [sampler.batch(5, 6, start, stop) for start, stop in pairwise(shares)]
    assert np.array_equal(inputs, np.concatenate([cut[0] for cut in cuts]))
    assert np.array_equal(targets, np.concatenate([cut[1] for cut in cuts]))
    for k in range(6):
        window = sampler.window(5 * 6 + k)
        n = len(window) - 1
        assert inputs[k, :n].tolist() == window[:-1].tolist()
        assert targets[k, :n].tolist() == window[1:].tolist()
        assert not inputs[k, n:].any()
        assert (targets[k, n:] == -100).all()


@given(row_lengths, st.integers(1, 12), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_evaluation_has_every_token_but_the_first_as_a_target_once(tmp_path_factory, lengths, n_ctx, batch_size):
    shards = shards_of(tmp_path_factory.mktemp("shards"), lengths)
    targets: list[int] = []
    for inputs, wanted in sequential_windows(shards, n_ctx, batch_size=batch_size):
        assert inputs.shape == wanted.shape
        assert inputs.shape[0] <= batch_size
        real = wanted != -100
        assert (wanted[real] == inputs[real] + 1).all()
        targets += wanted[real].tolist()
    assert targets == [token for row in range(shards.n_rows) for token in shards.tokens(row).tolist()[1:]]


def test_a_limited_evaluation_is_spread_over_the_documents(tmp_path):
    shards = shards_of(tmp_path, [41, 41, 41, 41])
    batches = list(sequential_windows(shards, 10, max_tokens=40))
    targets = np.concatenate([wanted[wanted != -100] for _, wanted in batches])
    assert len(targets) == 40
    assert {int(token) // 41 for token in targets} == {0, 1, 2, 3}
    everything = list(sequential_windows(shards, 10, max_tokens=10**6))
    assert sum(int((wanted != -100).sum()) for _, wanted in everything) == 160


def test_settings_out_of_range(tmp_path):
    shards = shards_of(tmp_path, [9])
    with pytest.raises(InputError, match="n_ctx = 0"):
        WindowSampler(shards, 0, 1)
    with pytest.raises(InputError, match="seed = -1"):
        WindowSampler(shards, 4, -1)
