"""What replaced tokens cost, and the controls beside them: compared with plain sums over the sequences one by one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chisquare
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.config import EncoderConfig, PretrainConfig
from gptcore.data.masking import Masking
from gptcore.data.shards import Shards
from gptcore.families import FAMILIES
from gptcore.models.encoder import Encoder
from gptcore.objectives.masked_data import Hiding
from gptcore.papers.electra.config import DiscriminatorConfig, generator_config
from gptcore.papers.electra.folders import generator_likelihood
from gptcore.papers.electra.replaced import (
    REPLACED_TOKENS,
    Detection,
    copied,
    drawn_words,
    replaced_token_losses,
    told_word_losses,
)
from tests.expected import expected as table_of
from tests.gptcore.hidden_words import CONFIG, Toy, books, micro_batches, scored_held_out, text, without_hidden_words
from tests.gptcore.test_encoder import T, V, sequences
from tests.gptcore.test_ngram import plain
from tests.gptcore.tiny_tasks import PIECES, config


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return books(tmp_path)


def test_a_part_without_hidden_words_costs_nothing(folder: Path) -> None:
    loss, _ = replaced_token_losses(Toy(Shards(folder).n_vocab), 0.0, False, without_hidden_words(folder))
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
    loss, metrics = replaced_token_losses(model, 50.0, False, batch)
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
        replaced_token_losses(model, 50.0, False, part)[1]
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
    loss, metrics = replaced_token_losses(model, 50.0, True, batch)
    torch.testing.assert_close(metrics["replaced_loss"], detection)
    torch.testing.assert_close(loss, generator + 50 * detection)

    told = model.told_scores(tokens, segments, mask, places)
    loss, metrics = told_word_losses(model, 1.0, False, batch)
    torch.testing.assert_close(loss, generator + F.cross_entropy(told, batch["targets"]))
    assert metrics["told_accuracy"] == pytest.approx(float((told.argmax(-1) == batch["targets"]).float().mean()))

    real = mask.flatten().nonzero().squeeze(-1)
    logits, told = model.both_scores(tokens, segments, mask, real)
    copies = F.one_hot(tokens.flatten()[real], told.shape[-1]).float()
    replaced = logits.sigmoid()[:, None]
    probabilities = (1 - replaced) * copies + replaced * told.softmax(-1)
    loss, metrics = told_word_losses(model, 1.0, True, batch)
    torch.testing.assert_close(metrics["told_loss"], F.nll_loss(probabilities.log(), own[real]), rtol=1e-4, atol=0)
    torch.testing.assert_close(loss, generator + metrics["told_loss"])
    right = (probabilities.argmax(-1) == own[real]).float().mean()
    assert metrics["told_accuracy"] == pytest.approx(float(right))
    for objective in (
        partial(replaced_token_losses, model, 50.0, True),
        *(partial(told_word_losses, model, 1.0, every) for every in (False, True)),
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
        assert replaced_token_losses(model, 1.0, False, batch)[1]["replaced"] == expected


def test_no_gradient_goes_through_the_words_drawn(folder: Path) -> None:
    [batch] = micro_batches(folder, Hiding("none", Masking()))
    generator, discriminator = Toy(Shards(folder).n_vocab), Toy(Shards(folder).n_vocab)

    class Both(nn.Module):
        word_scores = staticmethod(generator.word_scores)
        replaced_scores = staticmethod(discriminator.replaced_scores)

    found = []
    for weight in (0.0, 50.0):
        generator.zero_grad()
        replaced_token_losses(Both(), weight, False, batch)[0].backward()
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


def test_held_out_scores_are_means_over_all_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = scored_held_out(folder, REPLACED_TOKENS)
    assert "pair_loss" not in found
    # Figures of one word that was replaced, and found, among three false alarms:
    counts = {"word_loss": 1.0, "word_accuracy": 0.0, "replaced": 1.0, "replaced_found": 1.0, "false_alarms": 3.0}
    sums = counts | {"replaced_loss": 8.0}
    monkeypatch.setattr(
        "gptcore.papers.electra.replaced.summed_metrics", lambda _, batches, *rest: (list(batches), sums)[1]
    )
    held_out = text(folder)
    objective = REPLACED_TOKENS.objective(Toy(held_out.shards.n_vocab), CONFIG)
    shown = REPLACED_TOKENS.score(objective, held_out, None, lambda: False)
    assert (shown["replaced_recall"], shown["replaced_precision"]) == (1.0, 0.25)
    assert shown["replaced_share"] == pytest.approx(1 / found["tokens"])


def test_a_generator_shares_its_discriminators_embeddings() -> None:
    electra = FAMILIES["electra"]
    sizes = {**electra.settings["model"], **electra.shapes["electra-small"], "n_layer": 2}
    small = DiscriminatorConfig(n_vocab=V, n_ctx=16, **sizes)
    narrow = generator_config(small, 0.25)
    assert (narrow.n_head, narrow.n_embd, narrow.n_inner, narrow.n_layer, narrow.n_embd_words) == (1, 64, 256, 2, 128)
    both = Detection(Encoder(small), 0.25).eval()
    assert both.generator.embeddings is both.discriminator.embeddings
    given = sequences(V, T)
    both.replaced_scores(**given).sum().backward()
    gradient = both.generator.embeddings.words.weight.grad
    assert gradient.abs().sum() > 0
    places = torch.tensor([1, 5])
    assert both.word_scores(**given, places=places).shape == (2, V)
    ids = {id(parameter) for parameter in both.parameters()}
    counted = sum(p.numel() for p in both.parameters())
    apart = both.generator.num_parameters + both.discriminator.num_parameters
    assert len(ids) == len(list(both.parameters()))
    assert counted == apart - sum(p.numel() for p in both.discriminator.embeddings.parameters())


def test_of_electra_the_generator_is_asked(tmp_path: Path) -> None:
    torch.manual_seed(1)
    both = Detection(Encoder(config("electra")), 0.5)
    both.discriminator.save(tmp_path)
    with pytest.raises(InputError, match="found ELECTRA without a head for masked words, expected one that predicts"):
        generator_likelihood(str(tmp_path), PIECES)
    both.generator.save(tmp_path / "generator")
    found = generator_likelihood(str(tmp_path), PIECES).log_probabilities([[0, 1, 2]])
    assert found[0] == pytest.approx(plain(both.generator.eval(), [1, 2]), abs=1e-4)


def test_of_the_hidden_words_85_in_100_are_masked_and_none_becomes_another(folder: Path) -> None:
    """Of 15 % of all words (original code)."""
    assert REPLACED_TOKENS._hiding.pairs == "none"
    hidden = REPLACED_TOKENS._hiding.masking
    assert (hidden.share, hidden.masked, hidden.random) == (0.15, 0.85, 0.0)
