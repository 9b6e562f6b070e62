"""The fast Kneser-Ney models against a plain twin made of dictionaries, pseudo-log-likelihood against one masked piece
a pass; windows, perplexity, what has no such head."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gptcore.evaluation.ngram as ngram
from gptcore.base.errors import InputError
from gptcore.data.shards import Shards, write_shards
from gptcore.evaluation.likelihood import PseudoLikelihood, pseudo_perplexity
from gptcore.evaluation.ngram import UnigramModel
from gptcore.models.encoder import Encoder
from gptcore.text.wordpiece import WordPieceTokenizer
from tests.gptcore.tiny_tasks import CLS, PIECES, SEP, config

N_VOCAB = 6
corpora = st.lists(st.lists(st.integers(0, N_VOCAB - 1), max_size=40), min_size=1, max_size=6)


def shards_of(folder: Path, rows: list[list[int]], n_vocab: int = N_VOCAB) -> Shards:
    write_shards(((f"d{i}", [row]) for i, row in enumerate(rows)), folder, n_vocab=n_vocab, max_tokens=10**6)
    return Shards(folder)


class PlainKneserNey:
    """The textbook recursion, one probability at a time."""

    def __init__(self, rows: list[list[int]], order: int, n_vocab: int) -> None:
        self.n_vocab = n_vocab
        self.counts: dict[int, Counter[tuple[int, ...]]] = {order: Counter()}
        for row in rows:
            for i in range(len(row) - order + 1):
                self.counts[order][tuple(row[i : i + order])] += 1
        for n in range(order - 1, 0, -1):
            self.counts[n] = Counter(gram[1:] for gram in self.counts[n + 1])
        self.by_context = {n: defaultdict(dict) for n in self.counts}
        for n, counts in self.counts.items():
            for gram, count in counts.items():
                self.by_context[n][gram[:-1]][gram[-1]] = count

    def discount(self, n: int, count: int) -> float:
        if count == 0:
            return 0.0
        seen = {k: max(1, sum(c == k for c in self.counts[n].values())) for k in (1, 2, 3, 4)}
        y = seen[1] / (seen[1] + 2 * seen[2])
        k = min(count, 3)
        return min(max(k - (k + 1) * y * seen[k + 1] / seen[k], 0.1), k)

    def probability(self, context: tuple[int, ...], token: int) -> float:
        n = len(context) + 1
        lower = self.probability(context[1:], token) if n > 1 else 1 / self.n_vocab
        followers = self.by_context[n].get(context)
        if followers is None:
            return lower
        return self.one_level(n, followers, token, lower)

    def one_level(self, n: int, followers: dict[int, int], token: int, lower: float) -> float:
        total = sum(followers.values())
        count = followers.get(token, 0)
        freed = sum(self.discount(n, c) for c in followers.values()) / total
        return (count - self.discount(n, count)) / total + freed * lower

    def perplexity(self, rows: list[list[int]], order: int) -> tuple[float, int]:
        logs = [
            math.log(self.probability(tuple(row[max(0, i - order + 1) : i]), row[i]))
            for row in rows
            for i in range(1, len(row))
        ]
        return math.exp(-sum(logs) / len(logs)), len(logs)


@given(corpora, corpora, st.sampled_from([2, 3, 4]), st.sampled_from([5, 10**6]))
@settings(max_examples=80)
def test_fast_and_plain_agree(tmp_path_factory, train, valid, order, chunk):
    folder = tmp_path_factory.mktemp("ngram")
    fast_train, fast_valid = shards_of(folder / "train", train), shards_of(folder / "valid", valid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram, "_CHUNK", chunk)  # small chunks exercise the seams between them
        if max(map(len, train)) < order or max(map(len, valid)) < 2:
            with pytest.raises(InputError, match="no row of"):
                ngram.ngram_perplexity(fast_train, fast_valid, order)
            return
        result = ngram.ngram_perplexity(fast_train, fast_valid, order)
    perplexity, tokens = PlainKneserNey(train, order, N_VOCAB).perplexity(valid, order)
    assert result["tokens"] == tokens
    assert result["perplexity"] == pytest.approx(perplexity, rel=1e-9)
    assert result["nats"] == pytest.approx(math.log(perplexity), abs=1e-9)


@pytest.mark.parametrize("order", [2, 3])
def test_probabilities_sum_to_one_in_seen_and_unseen_contexts(tmp_path, order):
    rng = np.random.default_rng(0)
    train = shards_of(tmp_path, [rng.integers(0, 5, 200).tolist()])
    model = ngram.NgramModel(train, order)
    for context in ([0, 1], [4, 2], [5, 5], [0, 5]):  # 5 never occurs
        total = sum(model.probabilities(np.array([*context, token], np.uint16))[-1] for token in range(N_VOCAB))
        assert total == pytest.approx(1.0, abs=1e-12)


def test_a_longer_context_helps_where_the_text_depends_on_it(tmp_path):
    rng = np.random.default_rng(1)
    row = [0, 0]
    for _ in range(6000):
        row.append((row[-1] + row[-2]) % 5 if rng.random() < 0.9 else int(rng.integers(0, 5)))
    train, valid = shards_of(tmp_path / "t", [row[:5000]]), shards_of(tmp_path / "v", [row[5000:]])
    bigram, trigram = (ngram.ngram_perplexity(train, valid, order)["perplexity"] for order in (2, 3))
    assert trigram < 2 < 4 < bigram


def test_what_does_not_fit_together(tmp_path):
    train, valid = shards_of(tmp_path / "t", [[1, 2, 3]]), shards_of(tmp_path / "v", [[1, 2]], n_vocab=9)
    with pytest.raises(InputError, match="n_vocab is 9, expected 6"):
        ngram.ngram_perplexity(train, valid, 2)
    with pytest.raises(InputError, match="n-gram order = 1"):
        ngram.ngram_perplexity(train, train, 1)


# --- pseudo-log-likelihood


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


@settings(max_examples=15)
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


def test_a_unigram_model_knows_counts_alone(tmp_path: Path) -> None:
    train = shards_of(tmp_path, [[1, 1, 2]])
    model = UnigramModel(train)
    total = 3 + train.n_vocab
    sums = model.log_probabilities([[0, 1, 2], [5, 2, 1], [0, 4]])
    assert sums[0] == sums[1] == pytest.approx(math.log(3 / total) + math.log(2 / total))
    assert sums[2] == pytest.approx(math.log(1 / total))
