"""Which words are hidden: the fast choice beside a plain twin, shares as in the papers, draws that never change; and
updates of such sequences: the same whoever shares them, short ones first, copies that come back."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from gptcore.base.seeds import derive_seed, sample_bits, uniforms
from gptcore.config import ModelConfig, PretrainConfig
from gptcore.data.masking import Masking, PieceTable, WordMasker
from gptcore.data.shards import Shards
from gptcore.machine.distributed import World
from gptcore.objectives.masked_data import Hiding, MaskedData, held_out_batches, unigram_entropy
from gptcore.objectives.objective import Text
from tests.gptcore.sentence_shards import CLS, FIRST, MASK, PAD, SEP, sentence_shards, table

FIRST_TAIL, N_VOCAB = 30, 50
RULES = [Masking(), Masking(whole_words=True), Masking(whole_words=True, ngrams=3), Masking(0.4, ngrams=3)]
IDS = ["tokens", "whole words", "n-grams of words", "n-grams of tokens"]


def word_table() -> PieceTable:
    """Ids 0..3 are marks, 4..29 begin a word, 30..49 go on one."""
    ids = np.arange(N_VOCAB)
    return PieceTable(N_VOCAB, PAD, CLS, SEP, MASK, special=ids < FIRST, tail=ids >= FIRST_TAIL)


def batch(lengths: list[tuple[int, int]], seed: int, width: int = 0) -> tuple[np.ndarray[Any, Any], ...]:
    """Sequences [CLS] A [SEP] B [SEP] of random pieces, A and B as long as given."""
    draws = np.random.default_rng(seed)
    rows = []
    for a, b in lengths:
        first, second = draws.integers(FIRST, N_VOCAB, a), draws.integers(FIRST, N_VOCAB, b)
        rows.append([CLS, *first, SEP, *([*second, SEP] if b else [])])
    width = max(width, *map(len, rows))
    tokens = np.array([row + [PAD] * (width - len(row)) for row in rows])
    mask = np.array([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return tokens, mask


def plainly_chosen(
    tokens: list[int], n: int, bits: np.ndarray[Any, Any], rule: Masking, pieces: PieceTable
) -> list[int]:
    """The rule of the original code, word by word: positions chosen in one sequence."""
    words: list[list[int]] = []
    for at in range(n):
        if pieces.special[tokens[at]]:
            continue
        goes_on = at > 0 and not pieces.special[tokens[at - 1]] and pieces.tail[tokens[at]]
        if rule.whole_words and goes_on and words:
            words[-1].append(at)
        else:
            words.append([at])
    wanted = min(max(1, round(rule.share * n)), sum(map(len, words)))
    chances = np.cumsum([1 / k for k in range(1, rule.ngrams + 1)])
    chosen: set[int] = set()
    for number in sorted(range(len(words)), key=lambda number: int(bits[0, words[number][0]])):
        if len(chosen) >= wanted:
            break
        n_words = 1 + sum(float(uniforms(bits[1])[words[number][0]]) >= chances[:-1] / chances[-1])
        for size in range(int(n_words), 0, -1):
            run = words[number : number + size]
            if any(later[0] != before[-1] + 1 for before, later in pairwise(run)):
                continue  # it would reach into another segment
            places = [at for word in run for at in word]
            if len(chosen) + len(places) <= wanted:
                if not chosen & set(places):
                    chosen |= set(places)
                break
    return sorted(chosen)


@pytest.mark.parametrize("rule", RULES, ids=IDS)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=6), st.integers(0, 2**32))
@settings(max_examples=60)
def test_the_choice_is_that_of_the_plain_rule(rule: Masking, lengths: list[tuple[int, int]], seed: int) -> None:
    pieces, (tokens, mask) = word_table(), batch(lengths, seed)
    numbers = np.arange(len(lengths)) * 3 + seed
    found = WordMasker(pieces, rule, seed)(tokens, mask, numbers)
    width = tokens.shape[1]
    for row, number in enumerate(numbers):
        bits = sample_bits(derive_seed(seed, "masks", width, 0), np.array([number]), 4 * width).reshape(4, width)
        expected = plainly_chosen(tokens[row].tolist(), int(mask[row].sum()), bits, rule, pieces)
        assert np.flatnonzero(found.chosen[row]).tolist() == expected
    same = ~found.chosen
    assert (found.tokens[same] == tokens[same]).all()
    changed = found.tokens != tokens
    assert ((found.tokens[changed] == MASK) | (found.tokens[changed] >= FIRST)).all()


def many(rule: Masking, n_rows: int = 4000, width: int = 64) -> tuple[np.ndarray[Any, Any], Any]:
    tokens, mask = batch([(30, 31)] * n_rows, 5, width)
    return tokens, WordMasker(word_table(), rule, 1)(tokens, mask, np.arange(n_rows))


def test_the_shares_are_those_of_the_paper() -> None:
    tokens, found = many(Masking())
    assert (found.chosen.sum(1) == 10).all()  # 15 % of 64, rounded
    hidden = found.chosen & (found.tokens == MASK)
    kept = found.chosen & (found.tokens == tokens)
    n = int(found.chosen.sum())
    by_chance = 0.1 / (N_VOCAB - FIRST)  # a random word that is the word itself
    observed = [hidden.sum(), kept.sum(), n - hidden.sum() - kept.sum()]
    assert chisquare(observed, [0.8 * n, (0.1 + by_chance) * n, (0.1 - by_chance) * n]).pvalue > 1e-3
    random = found.tokens[found.chosen & ~hidden & ~kept]
    assert chisquare(np.bincount(random, minlength=N_VOCAB)[FIRST:]).pvalue > 1e-3  # also pieces that go on a word
    places = np.flatnonzero(~word_table().special[tokens[0]])
    assert chisquare(found.chosen.sum(0)[places]).pvalue > 1e-3
    assert not found.chosen[word_table().special[tokens]].any()


def test_nothing_is_random_where_the_rule_says_so() -> None:
    """ELECTRA's generator: 85 % hidden, 15 % as they are (original code)."""
    tokens, found = many(Masking(masked=0.85, random=0.0))
    shown = found.tokens[found.chosen]
    assert np.isin(shown, [MASK]).mean() == pytest.approx(0.85, abs=0.005)
    assert (found.tokens == tokens)[found.chosen & (found.tokens != MASK)].all()


def test_short_runs_of_words_are_likelier() -> None:
    """p(n) ~ 1/n (ALBERT, section 4.1), measured where everything fits: one word in each place, nothing chosen yet."""
    pieces = word_table()
    tokens, mask = batch([(30, 30)] * 6000, 2)
    tokens[tokens >= FIRST_TAIL] = FIRST  # one piece a word
    rule = Masking(share=3 / 63, ngrams=3)
    found = WordMasker(pieces, rule, 0)(tokens, mask, np.arange(6000))
    assert (found.chosen.sum(1) == 3).all()
    runs: Counter[int] = Counter()
    for row in found.chosen:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
        if len(edges) == 2:
            runs[3] += 1
        elif len(edges) == 6:
            runs[1] += 1
        else:
            runs[2] += 1
    # Three at once: p(3), or three draws that happen to touch; about 2/11 and a little.
    assert 0.15 < runs[3] / 6000 < 0.28
    assert runs[1] > 0.15 * 6000


def test_copies_differ_and_come_back() -> None:
    tokens, mask = batch([(20, 20)] * 8, 3)
    masker = WordMasker(word_table(), Masking(), 9)
    one, two, again = (masker(tokens, mask, np.arange(8), copy) for copy in (0, 1, 0))
    assert (one.chosen == again.chosen).all()
    assert (one.tokens == again.tokens).all()
    assert (one.chosen != two.chosen).any()


def test_a_sequence_has_its_masks_whichever_batch_it_is_in() -> None:
    tokens, mask = batch([(20, 20)] * 8, 3)
    masker = WordMasker(word_table(), Masking(whole_words=True, ngrams=3), 9)
    whole = masker(tokens, mask, np.arange(100, 108))
    for cut in (slice(0, 3), slice(3, 8)):
        part = masker(tokens[cut], mask[cut], np.arange(100, 108)[cut])
        assert (part.tokens == whole.tokens[cut]).all()
        assert (part.chosen == whole.chosen[cut]).all()
    shuffled = np.array([5, 0, 7])
    part = masker(tokens[shuffled], mask[shuffled], 100 + shuffled)
    assert (part.tokens == whole.tokens[shuffled]).all()


def test_the_draws_are_pinned() -> None:
    """A resumed run, maybe under another numpy, must see the same masks: these never change."""
    tokens, mask = batch([(10, 10)], 3)
    found = WordMasker(word_table(), Masking(0.3), 42)(tokens, mask, np.array([10**12]))
    assert np.flatnonzero(found.chosen[0]).tolist() == [1, 7, 9, 10, 14, 16, 17]
    assert found.tokens[0, found.chosen[0]].tolist() == [3, 3, 5, 8, 3, 3, 3]


def test_a_sequence_of_marks_alone_has_nothing_to_hide() -> None:
    tokens, mask = batch([(0, 0), (4, 0)], 1)
    found = WordMasker(word_table(), Masking(), 0)(tokens, mask, np.arange(2))
    assert found.chosen.sum(1).tolist() == [0, 1]


# --- updates


ALONE = World(0, 1, torch.device("cpu"))
CONFIG = PretrainConfig(batch_size=12, steps=100)
HIDING = Hiding("nsp", Masking())
BOOKS = [[5, 9, 7, 3, 8, 6, 4, 11, 5, 6] * 3, [6, 6, 7, 9, 4, 5, 8, 8] * 2, [4, 12, 5, 7, 9, 3, 6, 5, 5, 6, 7]]
N_TOKENS = sum(map(sum, BOOKS)) + sum(map(len, BOOKS))
N_CTX = 32
MODEL = ModelConfig(n_ctx=N_CTX)
Make = Callable[..., MaskedData]


def written(folder: Path) -> Shards:
    """The books' shards, with what the ids are beside them."""
    shards, _ = sentence_shards(folder / "train", BOOKS)
    table(shards.n_vocab).save(folder)
    return shards


@pytest.fixture
def make(tmp_path: Path) -> Make:
    shards = written(tmp_path)

    def data(micro: int | None = None, world: World = ALONE, hiding: Hiding = HIDING, **changes: Any) -> MaskedData:
        text = Text(shards, MODEL, dataclasses.replace(CONFIG, **changes), world)
        return MaskedData(text, hiding, micro)

    return data


def restored(batch: dict[str, Tensor]) -> Tensor:
    """The sequences as they were before words were hidden, padded to N_CTX."""
    tokens = batch["tokens"].flatten().clone()
    tokens[batch["places"]] = batch["targets"]
    tokens = tokens.view(batch["tokens"].shape)
    return torch.nn.functional.pad(tokens, (0, N_CTX - tokens.shape[1]), value=PAD)


def test_an_update_is_what_it_says(make: Make) -> None:
    for step in (0, 5):
        [batch] = make().update(step).micro_batches
        B, T = batch["tokens"].shape
        assert B == 12
        assert batch["mask"].sum(1).max() == T
        changed = batch["tokens"] != restored(batch)[:, :T]
        assert set(changed.flatten().nonzero().flatten().tolist()) <= set(batch["places"].tolist())
        counts = torch.bincount(batch["places"] // T, minlength=B)
        assert counts.tolist() == [max(1, round(0.15 * int(n))) for n in batch["mask"].sum(1)]
        assert batch["word_weight"] == pytest.approx(1 / int(counts.sum()))
        assert batch["pair_weight"] == pytest.approx(1 / 12)
        assert batch["token_weight"] == pytest.approx(1 / int(batch["mask"].sum()))
        assert make().update(step).n_tokens == batch["mask"].sum()
        assert (batch["tokens"] == MASK).any()
        assert batch["draws"].dtype == torch.float32
        assert len(batch["draws"]) == len(batch["places"]) == len(batch["targets"])


def test_the_global_batch_does_not_depend_on_processes_or_micro_batches(make: Make) -> None:
    for hiding in (HIDING, Hiding("sop", Masking(whole_words=True, ngrams=3)), Hiding("none", Masking(copies=2))):
        [whole] = make(hiding=hiding).update(7).micro_batches
        for size, micro in ((2, 2), (3, None), (4, 1), (5, 2)):
            worlds = [World(rank, size, torch.device("cpu")) for rank in range(size)]
            parts = [b for world in worlds for b in make(micro, world, hiding).update(7).micro_batches]
            for name in ("labels", "targets", "draws"):
                assert torch.equal(torch.cat([part[name] for part in parts]), whole[name])
            assert torch.equal(torch.cat([restored(part) for part in parts]), restored(whole))
            assert all(part[name] == whole[name] for part in parts for name in whole if "weight" in name)


def test_sharded_processes_run_equally_often(make: Make) -> None:
    worlds = [World(rank, 5, torch.device("cpu"), sharded=True) for rank in range(5)]
    updates = [make(1, world).update(3).micro_batches for world in worlds]
    assert {len(batches) for batches in updates} == {3}
    idle = [batch for batches in updates for batch in batches if not batch["word_weight"]]
    assert len(idle) == 3
    assert not any(batch[name] for batch in idle for name in ("pair_weight", "token_weight"))


def test_short_sequences_come_first(make: Make) -> None:
    data = make(short_length=16, short_share=0.25)
    lengths = [int(data.update(step).micro_batches[0]["mask"].sum(1).max()) for step in (0, 24, 25, 99)]
    assert lengths == [16, 16, 32, 32]
    default = make(short_length=16, steps=None, epochs=30.0)
    total = dataclasses.replace(CONFIG, short_length=16, steps=None, epochs=30.0).total_steps(N_CTX, N_TOKENS)
    first_long = round(0.9 * total)
    assert default.update(first_long - 1).micro_batches[0]["tokens"].shape[1] == 16
    assert default.update(first_long).micro_batches[0]["tokens"].shape[1] == 32
    assert len(make(2, short_length=16).update(0).micro_batches) == 3  # as many tokens at once as of long ones


def test_masks_drawn_once_come_back_after_their_copies(make: Make) -> None:
    hiding = Hiding("sop", Masking(copies=3))
    instances = N_TOKENS // N_CTX  # sequences that have as many tokens as there are
    data = make(hiding=hiding, batch_size=instances)
    batches = [data.update(step).micro_batches[0] for step in range(5)]
    assert all(torch.equal(restored(batches[0]), restored(batch)) for batch in batches)
    places = [batch["places"].tolist() for batch in batches]
    assert places[0] == places[3]
    assert places[1] == places[4]
    assert places[0] != places[1] != places[2] != places[0]
    assert data.documents(0) == data.documents(3)
    anew = make(batch_size=instances)
    assert not torch.equal(restored(anew.update(0).micro_batches[0]), restored(anew.update(1).micro_batches[0]))


def test_settings_go_before_the_objective_s_own() -> None:
    config = dataclasses.replace(CONFIG, pairs="none", mask_share=0.3, mask_words=False, mask_ngrams=2, mask_copies=4)
    ours = Hiding("sop", Masking(0.1, 0.85, 0.0, whole_words=True, ngrams=3))
    assert ours.with_settings(CONFIG) == ours
    assert ours.with_settings(config) == Hiding("none", Masking(0.3, 0.85, 0.0, whole_words=False, ngrams=2, copies=4))


def test_held_out_sequences_are_the_same_each_time(tmp_path: Path) -> None:
    text = Text(written(tmp_path), MODEL, CONFIG, ALONE)
    one, other = (list(held_out_batches(text, HIDING, None)) for _ in range(2))
    assert all(torch.equal(a[name], b[name]) for a, b in zip(one, other, strict=True) for name in a)
    part = list(held_out_batches(text, HIDING, 100))
    assert sum(len(batch["labels"]) for batch in part) == 3
    assert sum(len(batch["labels"]) for batch in one) > 10


def test_the_unigram_s_entropy_counts_words_alone(tmp_path: Path) -> None:
    shards, _ = sentence_shards(tmp_path / "validation", [[4], [], *[[1]] * 300])
    pieces = table(shards.n_vocab)
    pieces.save(tmp_path)
    assert unigram_entropy(shards) == pytest.approx(np.log(304))
    assert SEP not in np.flatnonzero(~pieces.special)
