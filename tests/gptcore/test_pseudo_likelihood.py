"""Pseudo-log-likelihood beside a plain twin, one masked piece a pass; windows, perplexity, what has no such head."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.evaluation.likelihood import PseudoLikelihood, encoder_likelihood, pseudo_perplexity
from gptcore.evaluation.ngram import UnigramModel
from gptcore.models.encoder import Encoder
from gptcore.objectives.replaced import Detection
from gptcore.text.wordpiece import WordPieceTokenizer
from tests.gptcore.test_ngram import shards_of
from tests.gptcore.tiny_encoders import CLS, PIECES, SEP, config

sentences = st.lists(st.lists(st.integers(0, 29), min_size=0, max_size=22), min_size=1, max_size=6)


@pytest.fixture(scope="module", params=["bert", "albert"])
def encoder(request: pytest.FixtureRequest) -> Encoder:
    torch.manual_seed(3)
    return Encoder(config(request.param)).eval()


def plain(encoder: Encoder, ids: list[int]) -> float:
    """One piece masked at a time, alone in its batch."""
    total = 0.0
    for at, piece in enumerate(ids):
        masked = [CLS, *ids[:at], PIECES.mask, *ids[at + 1 :], SEP]
        with torch.no_grad():
            logits = encoder(torch.tensor([masked]))[0, at + 1]
        total += float(logits.log_softmax(-1)[piece])
    return total


@settings(max_examples=15, deadline=None)
@given(sentences)
def test_sums_are_those_of_a_plain_twin(encoder: Encoder, given_sentences: list[list[int]]) -> None:
    found = PseudoLikelihood(encoder, PIECES).log_probabilities([[0, *ids] for ids in given_sentences])
    expected = [plain(encoder, ids) for ids in given_sentences]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_a_long_sequence_is_scored_in_windows_and_progress_is_told(encoder: Encoder) -> None:
    likelihood = PseudoLikelihood(encoder, PIECES)
    ids = [at % 29 for at in range(50)]  # n_ctx is 24: windows of 22
    steps: list[tuple[int, int]] = []
    (found,) = likelihood.log_probabilities([[0, *ids]], lambda *done: steps.append(done))
    expected = sum(plain(encoder, ids[start : start + 22]) for start in (0, 22, 44))
    assert found == pytest.approx(expected, abs=1e-3)
    assert steps[-1] == (3, 3)
    assert likelihood.log_probabilities([]).tolist() == []


def test_pseudo_perplexity_is_of_pieces_and_words(encoder: Encoder) -> None:
    words = WordPieceTokenizer.train(["the king rode to the mill"] * 3, 4)
    torch.manual_seed(0)
    own = Encoder(config("bert", n_vocab=words.n_vocab)).eval()
    likelihood = PseudoLikelihood(own, words.specials)
    found = pseudo_perplexity(likelihood, words, ["the king rode\n", "\n", "to the mill"])
    ids = [words.encode("the king rode"), words.encode("to the mill")]
    nats = -likelihood.log_probabilities([[0, *each] for each in ids]).sum()
    assert (found["pieces"], found["words"]) == (sum(map(len, ids)), 6)
    assert found["pseudo_perplexity"] == pytest.approx(math.exp(nats / found["pieces"]))
    assert found["pseudo_word_perplexity"] == pytest.approx(math.exp(nats / 6))
    with pytest.raises(InputError, match="text: found no word, expected one or more"):
        pseudo_perplexity(likelihood, words, ["\n"])


def test_of_electra_the_generator_is_asked(tmp_path: Path) -> None:
    torch.manual_seed(1)
    both = Detection(Encoder(config("electra")), 0.5)
    both.discriminator.save(tmp_path)
    with pytest.raises(InputError, match="found ELECTRA without a head for masked words, expected one that predicts"):
        encoder_likelihood(str(tmp_path), PIECES)
    both.generator.save(tmp_path / "generator")
    found = encoder_likelihood(str(tmp_path), PIECES).log_probabilities([[0, 1, 2]])
    assert found[0] == pytest.approx(plain(both.generator.eval(), [1, 2]), abs=1e-4)


def test_a_unigram_model_knows_counts_alone(tmp_path: Path) -> None:
    train = shards_of(tmp_path, [[1, 1, 2]])
    model = UnigramModel(train)
    total = 3 + train.n_vocab
    sums = model.log_probabilities([[0, 1, 2], [5, 2, 1], [0, 4]])
    assert sums[0] == sums[1] == pytest.approx(math.log(3 / total) + math.log(2 / total))
    assert sums[2] == pytest.approx(math.log(1 / total))
