"""What hidden words, pairs and replaced tokens cost, beside plain sums over the sequences one by one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chisquare
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.config import NetworkConfig, PretrainConfig
from gptcore.data.masking import Masking
from gptcore.data.shards import Shards
from gptcore.machine.distributed import World
from gptcore.machine.process import Interrupted
from gptcore.objectives.masked import MASKED_WORDS_AND_NEXT_SENTENCE, MaskedWords, masked_words_objective
from gptcore.objectives.masked_data import Hiding, MaskedData, held_out_batches
from gptcore.objectives.objective import Text
from gptcore.objectives.replaced import (
    REPLACED_TOKENS,
    copied,
    drawn_words,
    replaced_tokens_objective,
    told_words_objective,
)
from tests.expected import expected as table_of
from tests.gptcore.sentence_shards import sentence_shards, table

ALONE = World(0, 1, torch.device("cpu"))
CONFIG = PretrainConfig(batch_size=12, steps=100)
BOOKS = [[5, 9, 7, 3, 8, 6, 4, 11, 5, 6], [6, 6, 7, 9, 4, 5, 8, 8], [4, 12, 5, 7, 9, 3, 6, 5, 5, 6, 7]]
N_CTX = 32


class Toy(nn.Module):
    """Each state is that of its token, its segment and the sum of all; no layers."""

    def __init__(self, n_vocab: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.segment = nn.Embedding(n_vocab, 8), nn.Embedding(2, 8)
        self.pair, self.replaced = nn.Linear(8, 2), nn.Linear(8, 1)

    def encode(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        states = (self.embedding(tokens) + self.segment(segments)) * mask[..., None]
        return states + states.sum(1, keepdim=True)

    def word_scores(self, *given: Tensor) -> Tensor:
        if len(given) == 1:
            return given[0] @ self.embedding.weight.T
        tokens, segments, mask, places = given
        return self.encode(tokens, segments, mask).flatten(0, 1)[places] @ self.embedding.weight.T

    def pair_scores(self, states: Tensor) -> Tensor:
        return self.pair(states[:, 0])

    def replaced_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        return self.replaced(self.encode(tokens, segments, mask)).squeeze(-1)

    def told_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        return 2 * self.word_scores(tokens, segments, mask, places)

    def both_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.replaced_scores(tokens, segments, mask).flatten()[places]
        return logits, self.told_scores(tokens, segments, mask, places)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Shards as the objectives read them: what the vocabulary is stands beside the two splits."""
    shards, _ = sentence_shards(tmp_path / "train", BOOKS)
    table(shards.n_vocab).save(tmp_path)
    return tmp_path / "train"


def text(folder: Path) -> Text:
    return Text(Shards(folder), cast(NetworkConfig, SimpleNamespace(n_ctx=N_CTX)), CONFIG, ALONE)


def micro_batches(folder: Path, hiding: Hiding, micro: int | None = None, step: int = 3) -> list[dict[str, Tensor]]:
    return MaskedData(text(folder), hiding, micro).update(step).micro_batches


@pytest.mark.parametrize("pairs", ["nsp", "sop", "none"])
def test_words_and_pairs_count_alike_however_the_update_is_cut(folder: Path, pairs: str) -> None:
    hiding = Hiding(pairs, Masking())
    model = Toy(Shards(folder).n_vocab)
    objective = masked_words_objective(model)
    [whole] = micro_batches(folder, hiding)
    loss, metrics = objective(whole)
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
    parts = [objective(part) for part in micro_batches(folder, hiding, micro=5)]
    for name, value in metrics.items():
        torch.testing.assert_close(sum(found[name] for _, found in parts), value)
    loss.backward()
    together = model.embedding.weight.grad.clone()
    model.zero_grad()
    for part, _ in parts:
        part.backward()
    torch.testing.assert_close(model.embedding.weight.grad, together)


def test_a_part_without_hidden_words_costs_nothing(folder: Path) -> None:
    [whole] = micro_batches(folder, Hiding("none", Masking()))
    empty = whole | {name: whole[name][:0] for name in ("places", "targets", "draws")}
    model = Toy(Shards(folder).n_vocab)
    for objective in (masked_words_objective(model), replaced_tokens_objective(model, 0.0)):
        loss, _ = objective(empty)
        assert loss == 0
        loss.backward()


def test_replaced_tokens_are_those_that_the_generator_did_not_guess(folder: Path) -> None:
    [batch] = micro_batches(folder, Hiding("none", Masking(0.3, masked=0.85, random=0.0)))
    model = Toy(Shards(folder).n_vocab)
    seen: list[Tensor] = []
    real = model.replaced_scores

    def watched(tokens: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        seen.append(tokens)
        return real(tokens, segments, mask)

    model.replaced_scores = watched  # type: ignore[method-assign]
    loss, metrics = replaced_tokens_objective(model, 50.0)(batch)
    [tokens] = seen
    scores = model.word_scores(batch["tokens"], batch["segments"], batch["mask"], batch["places"])
    words = drawn_words(scores, batch["draws"])
    assert torch.equal(tokens.flatten()[batch["places"]], words)
    others = torch.ones(tokens.numel(), dtype=torch.bool)
    others[batch["places"]] = False
    assert torch.equal(tokens.flatten()[others], batch["tokens"].flatten()[others])
    replaced = torch.zeros(tokens.numel())
    replaced[batch["places"]] = (words != batch["targets"]).float()
    logits = real(tokens, batch["segments"], batch["mask"]).flatten()
    kept = batch["mask"].flatten() > 0
    detection = F.binary_cross_entropy_with_logits(logits[kept], replaced[kept])
    torch.testing.assert_close(metrics["replaced_loss"], detection)
    torch.testing.assert_close(loss, F.cross_entropy(scores, batch["targets"]) + 50 * detection)
    found = (logits > 0) & (replaced > 0)
    assert metrics["replaced_found"] == pytest.approx(float(found.sum()) / len(words))
    assert metrics["replaced"] == pytest.approx(float(replaced.sum()) / len(words))
    parts = [
        replaced_tokens_objective(model, 50.0)(part)[1]
        for part in micro_batches(folder, Hiding("none", Masking(0.3, masked=0.85, random=0.0)), micro=5)
    ]
    for name, value in metrics.items():
        torch.testing.assert_close(sum(part[name] for part in parts), value)


def test_the_controls_learn_less_or_other_things_of_the_same_text(folder: Path) -> None:
    hiding = Hiding("none", Masking(0.3, masked=0.85, random=0.0))
    [batch] = micro_batches(folder, hiding)
    segments, mask, places = batch["segments"], batch["mask"], batch["places"]
    model = Toy(Shards(folder).n_vocab)
    model.embedding.weight.data *= 0.1  # no probability is 0
    scores = model.word_scores(batch["tokens"], segments, mask, places)
    words = drawn_words(scores, batch["draws"])
    tokens = batch["tokens"].flatten().scatter(0, places, words).view_as(mask)
    own = batch["tokens"].flatten().scatter(0, places, batch["targets"])
    generator = F.cross_entropy(scores, batch["targets"])

    logits = model.replaced_scores(tokens, segments, mask).flatten()[places]
    detection = F.binary_cross_entropy_with_logits(logits, (words != batch["targets"]).float())
    loss, metrics = replaced_tokens_objective(model, 50.0, only_hidden=True)(batch)
    torch.testing.assert_close(metrics["replaced_loss"], detection)
    torch.testing.assert_close(loss, generator + 50 * detection)

    told = model.told_scores(tokens, segments, mask, places)
    loss, metrics = told_words_objective(model, 1.0, every=False)(batch)
    torch.testing.assert_close(loss, generator + F.cross_entropy(told, batch["targets"]))
    assert metrics["told_accuracy"] == pytest.approx(float((told.argmax(-1) == batch["targets"]).float().mean()))

    real = mask.flatten().nonzero().squeeze(-1)
    logits, told = model.both_scores(tokens, segments, mask, real)
    copies = F.one_hot(tokens.flatten()[real], told.shape[-1]).float()
    replaced = logits.sigmoid()[:, None]
    probabilities = (1 - replaced) * copies + replaced * told.softmax(-1)
    loss, metrics = told_words_objective(model, 1.0, every=True)(batch)
    torch.testing.assert_close(metrics["told_loss"], F.nll_loss(probabilities.log(), own[real]), rtol=1e-4, atol=0)
    torch.testing.assert_close(loss, generator + metrics["told_loss"])
    right = (probabilities.argmax(-1) == own[real]).float().mean()
    assert metrics["told_accuracy"] == pytest.approx(float(right))
    for objective in (
        replaced_tokens_objective(model, 50.0, True),
        *(told_words_objective(model, 1, e) for e in (0, 1)),
    ):
        whole = objective(batch)[1]
        parts = [objective(part)[1] for part in micro_batches(folder, hiding, micro=5)]
        for name, value in whole.items():
            torch.testing.assert_close(sum(part[name] for part in parts), value)


def test_a_sure_copy_costs_nothing_and_overflows_nowhere() -> None:
    scores, words = torch.zeros(2, 4), torch.tensor([1, 2])
    nats, right = copied(torch.full((2,), -200.0), scores, words, words)
    assert (nats, right) == (0, 2)
    nats, right = copied(torch.full((2,), 200.0), scores, words, torch.tensor([1, 3]))
    assert nats == pytest.approx(2 * np.log(4))


def test_a_control_needs_the_heads_that_it_trains() -> None:
    from gptcore.config import EncoderConfig
    from gptcore.models.encoder import Encoder

    sizes = {"n_vocab": 20, "n_ctx": 8, "n_layer": 1, "n_head": 2, "n_embd": 8, "n_inner": 16}
    for chosen, words, replaced, refused in table_of(__file__, "test_a_control_needs_the_heads_that_it_trains"):
        heads = {"words": words, "replaced": replaced, "pooler": False, "pair": False}
        config = PretrainConfig(replaced_objective=chosen)
        network = REPLACED_TOKENS.network(Encoder(EncoderConfig(**sizes, **heads)), config, torch.Generator())
        if refused:
            with pytest.raises(InputError, match=refused):
                REPLACED_TOKENS.objective(network, config)
        else:
            REPLACED_TOKENS.objective(network, config)
    with pytest.raises(InputError, match="expected one of electra, electra-15, replace-mlm, all-tokens-mlm"):
        PretrainConfig(replaced_objective="electra-10")


def test_a_word_that_was_guessed_counts_as_real() -> None:
    batch = {
        "tokens": torch.tensor([[1, 3, 2]]),
        "segments": torch.zeros(1, 3, dtype=torch.int64),
        "mask": torch.ones(1, 3, dtype=torch.int64),
        "places": torch.tensor([1]),
        "targets": torch.tensor([6]),
        "draws": torch.tensor([0.5]),
        **{name: torch.ones(()) for name in ("word_weight", "pair_weight", "token_weight")},
    }
    model = Toy(8)
    for word, expected in ((6, 0.0), (7, 1.0)):
        sure = F.one_hot(torch.tensor([word]), 8).float() * 100
        model.word_scores = lambda *_, sure=sure: sure  # type: ignore[method-assign]
        assert replaced_tokens_objective(model, 1.0)(batch)[1]["replaced"] == expected


def test_no_gradient_goes_through_the_words_drawn(folder: Path) -> None:
    [batch] = micro_batches(folder, Hiding("none", Masking()))
    generator, discriminator = Toy(Shards(folder).n_vocab), Toy(Shards(folder).n_vocab)

    class Both(nn.Module):
        word_scores = staticmethod(generator.word_scores)
        replaced_scores = staticmethod(discriminator.replaced_scores)

    found = []
    for weight in (0.0, 50.0):
        generator.zero_grad()
        replaced_tokens_objective(Both(), weight)(batch)[0].backward()
        found.append(generator.embedding.weight.grad.clone())
    assert torch.equal(*found)
    assert discriminator.embedding.weight.grad.abs().sum() > 0


def test_words_are_drawn_by_their_probabilities() -> None:
    scores = torch.tensor([0.3, -1.0, 2.0, 0.0, -30.0])
    n = 20_000
    draws = torch.from_numpy(np.random.default_rng(0).random(n).astype(np.float32))
    counts = torch.bincount(drawn_words(scores.expand(n, -1), draws), minlength=5)
    assert counts[4] == 0
    expected = scores[:4].double().softmax(0).numpy() * n
    assert chisquare(counts[:4].numpy(), expected / expected.sum() * n).pvalue > 1e-3
    edges = drawn_words(scores.expand(2, -1), torch.tensor([0.0, 1.0]))
    assert edges[0] == 0
    assert edges[1] < 5


@pytest.mark.parametrize("learnt", [MASKED_WORDS_AND_NEXT_SENTENCE, REPLACED_TOKENS], ids=["masked", "replaced"])
def test_held_out_scores_are_means_over_all_words(folder: Path, learnt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    held_out = text(folder)
    model = Toy(held_out.shards.n_vocab)
    objective = learnt.objective(model, CONFIG)
    found = learnt.score(objective, held_out, None, lambda: False)
    nats, right, pairs, n = 0.0, 0, [], 0
    for batch in held_out_batches(held_out, learnt._hiding, None):
        states = model.encode(batch["tokens"], batch["segments"], batch["mask"])
        scores = model.word_scores(states.flatten(0, 1)[batch["places"]])
        nats += float(F.cross_entropy(scores, batch["targets"], reduction="sum").detach())
        right += int((scores.argmax(-1) == batch["targets"]).sum())
        pairs += (model.pair_scores(states).argmax(-1) == batch["labels"]).tolist()
        n += len(batch["targets"])
    assert found["tokens"] == n
    assert found["loss"] == pytest.approx(nats / n, rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(nats / n), rel=1e-4)
    assert found["word_accuracy"] == pytest.approx(right / n)
    assert found["unigram_entropy"] == pytest.approx(np.log(held_out.shards.n_vocab - 4))  # each word occurs once
    if isinstance(learnt, MaskedWords):
        assert found["pair_accuracy"] == pytest.approx(np.mean(pairs))
    else:
        assert "pair_loss" not in found
    with pytest.raises(Interrupted):
        learnt.score(objective, held_out, None, lambda: True)
    if learnt is REPLACED_TOKENS:  # figures of one word that was replaced, and found, among three false alarms
        counts = {"word_loss": 1.0, "word_accuracy": 0.0, "replaced": 1.0, "replaced_found": 1.0, "false_alarms": 3.0}
        sums = counts | {"replaced_loss": 8.0}
        monkeypatch.setattr(
            "gptcore.objectives.replaced.summed_metrics", lambda _, batches, *rest: (list(batches), sums)[1]
        )
        shown = learnt.score(objective, held_out, None, lambda: False)
        assert (shown["replaced_recall"], shown["replaced_precision"]) == (1.0, 0.25)
        assert shown["replaced_share"] == pytest.approx(1 / n)
