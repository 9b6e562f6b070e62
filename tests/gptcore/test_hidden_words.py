"""What hidden words and pairs cost, beside plain sums over the sequences one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from gptcore.data.masking import Masking
from gptcore.data.shards import Shards
from gptcore.objectives.masked import MASKED_WORDS_AND_NEXT_SENTENCE, masked_words_losses
from gptcore.objectives.masked_data import Hiding
from tests.gptcore.hidden_words import Toy, books, micro_batches, scored_held_out, without_hidden_words


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return books(tmp_path)


@pytest.mark.parametrize("pairs", ["nsp", "sop", "none"])
def test_words_and_pairs_count_alike_however_the_update_is_cut(folder: Path, pairs: str) -> None:
    hiding = Hiding(pairs, Masking())
    model = Toy(Shards(folder).n_vocab)
    [whole] = micro_batches(folder, hiding)
    loss, metrics = masked_words_losses(model, whole)
    words, rows = [], whole["places"] // whole["tokens"].shape[1]
    states = model.encode(whole["tokens"], whole["segments"], whole["mask"])
    for row, place, target in zip(rows, whole["places"] % whole["tokens"].shape[1], whole["targets"], strict=True):
        words.append(F.cross_entropy(states[row, place] @ model.embedding.weight.T, target))
    labelled = whole["labels"] >= 0
    expected = torch.stack(words).mean()
    if pairs == "none":
        assert not labelled.any()
        assert metrics["pair_loss"] == 0
    else:
        expected = expected + F.cross_entropy(model.pair_scores(states)[labelled], whole["labels"][labelled])
    torch.testing.assert_close(loss, expected)
    parts = [masked_words_losses(model, part) for part in micro_batches(folder, hiding, micro=5)]
    for name, value in metrics.items():
        torch.testing.assert_close(sum(found[name] for _, found in parts), value)
    loss.backward()
    together = model.embedding.weight.grad.clone()
    model.zero_grad()
    for part, _ in parts:
        part.backward()
    torch.testing.assert_close(model.embedding.weight.grad, together)


def test_a_part_without_hidden_words_costs_nothing(folder: Path) -> None:
    loss, _ = masked_words_losses(Toy(Shards(folder).n_vocab), without_hidden_words(folder))
    assert loss == 0
    loss.backward()


def test_held_out_scores_are_means_over_all_words(folder: Path) -> None:
    found = scored_held_out(folder, MASKED_WORDS_AND_NEXT_SENTENCE)
    assert found["pair_accuracy"] == pytest.approx(found["pairs right"])
