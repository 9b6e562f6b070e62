"""Random windows are a pure function of (seed, i), uniform and inside one document; evaluation sees every token; blocks
are those of a plain concatenation, each once an epoch; batches hold like lengths."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from gptcore.base.errors import InputError
from gptcore.base.seeds import choose_rows
from gptcore.config import preset_named
from gptcore.data.feed import BucketedBatches, by_length
from gptcore.data.sampler import IGNORE_INDEX, Blocks, WindowSampler, sequential_windows
from gptcore.data.shards import Shards, write_shards

DOCS = Path(__file__).parents[2] / "infra" / "docs"
BOOKS = 13_737_254
"""Tokens to train on of the 73 books of the documentation."""
row_lengths = st.lists(st.integers(0, 30), max_size=12)


def shards_of(folder: Path, lengths: list[int], max_tokens: int = 64) -> Shards:
    """Rows whose tokens all differ, so that a token tells where it is from."""
    ends = np.cumsum(lengths).tolist()
    documents = [(f"d{i}", [range(end - n, end)]) for i, (n, end) in enumerate(zip(lengths, ends, strict=True))]
    write_shards(documents, folder, n_vocab=1 + sum(lengths), max_tokens=max_tokens)
    return Shards(folder)


def window_of(sampler: WindowSampler, i: int) -> list[int]:
    """The tokens of a sample, from the batch that has it alone: its inputs, and the last one's target."""
    (inputs,), (targets,) = sampler.batch(i, 1)
    n = int((targets != IGNORE_INDEX).sum())
    assert targets[: n - 1].tolist() == inputs[1:n].tolist()
    assert not inputs[n:].any()
    assert (targets[n:] == IGNORE_INDEX).all()
    return [*inputs[:n].tolist(), int(targets[n - 1])]


@given(row_lengths, st.integers(1, 12), st.integers(0, 2**64 - 1))
@settings(max_examples=60)
def test_windows_are_contiguous_and_stay_in_their_document(tmp_path_factory, lengths, n_ctx, seed):
    shards = shards_of(tmp_path_factory.mktemp("shards"), lengths)
    if max(lengths, default=0) < 2:
        with pytest.raises(InputError, match="no document of two tokens or more"):
            WindowSampler(shards, n_ctx, seed)
        return
    sampler = WindowSampler(shards, n_ctx, seed)
    for i in range(20):
        window, row = window_of(sampler, i), int(sampler.document(i).removeprefix("d"))
        assert len(window) == min(n_ctx + 1, lengths[row])
        assert (np.diff(window) == 1).all()
        assert set(window) <= set(shards.tokens(row).tolist())


def test_every_valid_start_is_equally_likely(tmp_path):
    lengths, n_ctx = [1, 10, 0, 3, 5, 2, 1], 4
    shards = shards_of(tmp_path, lengths)
    starts = [start for row, n in enumerate(lengths) if n >= 2 for start in _starts(shards, row, n, n_ctx)]
    sampler = WindowSampler(shards, n_ctx, 7)
    drawn = Counter(window_of(sampler, i)[0] for i in range(9000))
    assert sorted(drawn) == starts
    assert chisquare([drawn[start] for start in starts]).pvalue > 1e-3


def _met(shards: Shards, epochs: float, n_ctx: int, repeating: float, later_share: float) -> float:
    """The share of a text's tokens that a training has as inputs.

    :param repeating: the share of its windows, the first ones, of which half repeat.
    """
    count, met = round(epochs * shards.n_tokens / n_ctx), np.zeros(shards.n_tokens, bool)
    sampler = WindowSampler(shards, n_ctx, 0, round(repeating * count), later_share)
    for step in range(count // 64):
        met[sampler.batch(step, 64)[0]] = True
    return float(met.mean())


def test_an_epoch_meets_as_much_of_the_text_as_the_page_says(tmp_path):
    """The table of trainings: tokens that a preset draws, epochs of 73 books, and what the sampler gives of a text."""
    page = (DOCS / "explanation" / "trainings.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*?) \| ([\d.]+) M \| ([\d.]+) \| (\d+) % \|$", page, re.MULTILINE)
    once = {"pretrain": {"steps": tomllib.loads((DOCS.parent / "one-epoch.toml").read_text())["pretrain"]["steps"]}}
    presets = [preset_named("small"), preset_named("small", once), preset_named("long"), preset_named("best")]
    assert ["small" in rows[0][0], "one epoch" in rows[1][0], "long" in rows[2][0], "best" in rows[3][0]] == [True] * 4
    shards = shards_of(tmp_path, [1 << 22], max_tokens=1 << 22)
    for preset, (_, drawn, epochs, share) in zip(presets, rows, strict=True):
        config, n_ctx = preset.pretrain, preset.model.n_ctx
        tokens = config.total_steps(n_ctx, BOOKS) * config.batch_size * n_ctx
        assert (f"{tokens / 1e6:.1f}", f"{tokens / BOOKS:.1f}") == (drawn, epochs), preset.name
        first, later = config.repeating
        met = _met(shards, tokens / BOOKS, n_ctx, first * n_ctx / tokens, later)
        assert met == pytest.approx(float(share) / 100, abs=0.005), preset.name
        assert met <= 1 - np.exp(-tokens / BOOKS) + 0.003
    assert _met(shards, tokens / BOOKS, n_ctx, 0, 0) == pytest.approx(0.985, abs=0.001), "best, but for its repeats"


def _starts(shards: Shards, row: int, length: int, n_ctx: int) -> list[int]:
    first = int(shards.tokens(row)[0])
    return [first + k for k in range(length) if k == 0 or k + n_ctx + 1 <= length]


def test_a_sample_depends_on_nothing_but_seed_and_index(tmp_path):
    shards = shards_of(tmp_path, [500, 300])
    forwards = [window_of(WindowSampler(shards, 8, 3), i) for i in range(50)]
    backwards = [window_of(WindowSampler(shards, 8, 3), i) for i in reversed(range(50))]
    assert forwards == backwards[::-1]
    assert forwards != [window_of(WindowSampler(shards, 8, 4), i) for i in range(50)]
    assert len({tuple(window) for window in forwards}) > 40


def test_the_draws_are_pinned(tmp_path):
    """A resumed run, maybe under another numpy, must see the same windows: these starts never change."""
    sampler = WindowSampler(shards_of(tmp_path, [1000], max_tokens=1000), 8, 42)
    assert [window_of(sampler, i)[0] for i in (0, 1, 2, 10**12)] == [813, 365, 869, 650]


def test_half_of_the_first_windows_repeat_their_beginning(tmp_path):
    shards = shards_of(tmp_path, [2000], max_tokens=2000)  # of which no two tokens are alike
    plain, repeating = WindowSampler(shards, 16, 3), WindowSampler(shards, 16, 3, 300)
    periods = Counter()
    for i in range(400):
        whole, found = window_of(plain, i), window_of(repeating, i)
        period = len(set(found))
        assert found == [whole[place % period] for place in range(17)]
        periods[period, i < 300] += 1
    assert periods[17, False] == 100  # behind the first ones, none does
    assert 120 < periods[17, True] < 180
    assert {period for period, early in periods if early} == {4, 5, 6, 7, 8, 17}  # 4 to n_ctx / 2, or none


def test_a_share_of_the_later_windows_repeats_too(tmp_path):
    shards = shards_of(tmp_path, [2000], max_tokens=2000)
    plain, repeating = WindowSampler(shards, 16, 3), WindowSampler(shards, 16, 3, 100, 0.125)
    found = [window_of(repeating, i) != window_of(plain, i) for i in range(1100)]
    assert 35 < sum(found[:100]) < 65
    assert 95 < sum(found[100:]) < 155  # an eighth of a thousand
    early = WindowSampler(shards, 16, 3, 100)
    assert all(window_of(early, i) == window_of(repeating, i) for i in range(100))


@pytest.mark.parametrize("repeating", [(0, 0.0), (33, 0.0), (60, 0.0), (33, 0.4)])
def test_a_batch_is_its_samples(tmp_path, repeating):
    sampler = WindowSampler(shards_of(tmp_path, [50, 3, 40]), 8, 1, *repeating)
    alone = [sampler.batch(i, 1) for i in range(30, 36)]
    for whole, parts in zip(sampler.batch(5, 6), zip(*alone, strict=True), strict=True):
        assert np.array_equal(whole, np.concatenate(parts))


@given(row_lengths, st.integers(1, 12), st.integers(1, 5))
@settings(max_examples=60)
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


@settings(max_examples=60)
@given(lengths=st.lists(st.integers(0, 150), min_size=1, max_size=12), size=st.integers(2, 70))
def test_blocks_are_the_stream_cut_every_so_many_tokens(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], size: int
) -> None:
    shards = shards_of(tmp_path_factory.mktemp("s"), lengths)
    if sum(lengths) < size:
        with pytest.raises(InputError, match=f"blocks of {size} tokens, expected 2 to {sum(lengths)}"):
            Blocks(shards, size)
        return
    stream = np.arange(sum(lengths))
    blocks = Blocks(shards, size)
    assert blocks.count == len(stream) // size
    for n in range(blocks.count):
        assert blocks.tokens(n).tolist() == stream[n * size : (n + 1) * size].tolist()
    inputs = np.concatenate([x for x, _ in blocks.in_order(3)])
    assert inputs.ravel().tolist() == stream[: blocks.count * size].tolist()
    for x, y in blocks.in_order(2, most=4):
        assert (y[:, :-1] == x[:, 1:]).all()
        assert (y[:, -1] == IGNORE_INDEX).all()


def test_each_block_comes_once_an_epoch_in_a_new_order(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, [50, 70, 90])
    blocks = Blocks(shards, 10, seed=3)
    epochs = [[blocks.block(epoch * 21 + n) for n in range(21)] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(21)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert [Blocks(shards, 10, seed=3).block(n) for n in range(63)] == [*epochs[0], *epochs[1], *epochs[2]]
    assert [Blocks(shards, 10, seed=4).block(n) for n in range(21)] != epochs[0]
    assert blocks.document(0) == f"d{[50, 120, 210].index(next(e for e in (50, 120, 210) if e > 10 * epochs[0][0]))}"


def test_the_order_is_pinned(tmp_path: Path) -> None:
    """A resumed run, on any version of numpy, goes on with the blocks it would have seen."""
    blocks = Blocks(shards_of(tmp_path, [80]), 10, seed=42)
    assert [blocks.block(n) for n in range(16)] == PINNED


PINNED = [7, 1, 6, 4, 3, 5, 0, 2, 5, 4, 0, 1, 7, 6, 2, 3]


def test_an_evaluation_of_some_is_spread_over_the_stream(tmp_path: Path) -> None:
    blocks = Blocks(shards_of(tmp_path, [100]), 10)
    firsts = [int(row[0]) for x, _ in blocks.in_order(2, most=3) for row in x]
    assert firsts == [0, 30, 60]


# --- batches of rows


lengths_lists = st.lists(st.integers(1, 60), min_size=1, max_size=200).map(lambda x: np.asarray(x, dtype=np.int64))


@settings(max_examples=60)
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


@settings(max_examples=60)
@given(lengths=lengths_lists, max_tokens=st.integers(1, 400))
def test_by_length_gives_every_row_once_within_the_budget(lengths, max_tokens):
    batches = list(by_length(lengths, max_tokens))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= max_tokens


@settings(max_examples=60)
@given(n_rows=st.integers(0, 100), small=st.integers(0, 100), more=st.integers(0, 100), seed=st.integers(0, 99))
def test_a_larger_choice_of_rows_contains_the_smaller(n_rows, small, more, seed):
    few, many = choose_rows(n_rows, small, seed), choose_rows(n_rows, small + more, seed)
    assert len(few) == min(small, n_rows)
    assert set(few.tolist()) <= set(many.tolist()) <= set(range(n_rows))
    assert few.tolist() == sorted(few.tolist())
    assert choose_rows(n_rows, None, seed).tolist() == list(range(n_rows))
