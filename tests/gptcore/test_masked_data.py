"""Updates of sequences with hidden words: the same whoever shares them, short ones first, copies that come back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.config import ModelConfig, PretrainConfig
from gptcore.data.masking import Masking
from gptcore.data.shards import Shards
from gptcore.machine.distributed import World
from gptcore.objectives.masked_data import Hiding, MaskedData, held_out_batches, unigram_entropy
from gptcore.objectives.objective import Text
from tests.gptcore.sentence_shards import MASK, PAD, SEP, sentence_shards, table

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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pairs": "both"}, r"pretrain.pairs = 'both': expected one of none, nsp, sop"),
        ({"mask_share": 0.0}, r"pretrain.mask_share = 0.0: expected more than 0, and less than 1"),
        ({"mask_ngrams": 0}, r"pretrain.mask_ngrams = 0: expected 1 to 16"),
        ({"mask_copies": 0}, r"pretrain.mask_copies = 0"),
        ({"short_length": 4}, r"pretrain.short_length = 4: expected 8 to"),
        ({"short_share": 0.5}, r"pretrain.short_share = 0.5 without pretrain.short_length"),
        ({"replaced_weight": -1.0}, r"pretrain.replaced_weight = -1.0"),
    ],
)
def test_settings_of_no_use_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        dataclasses.replace(CONFIG, **change)
