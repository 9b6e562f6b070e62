"""Measures of abstracts against plain counts and hand-made cases."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU

from gptcore.papers.abstracts import measures as module
from gptcore.papers.abstracts.measures import (
    Written,
    balanced,
    copied,
    has_latex,
    key_term,
    measures,
    self_bleu,
    tokens,
)
from tests.expected import expected as table_of

WORDS = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=12)


@settings(max_examples=200)
@given(texts=st.lists(WORDS, min_size=1, max_size=4), training=st.lists(WORDS, max_size=5), chunk=st.integers(1, 3))
def test_copies_agree_with_a_plain_search(texts: list[list[str]], training: list[list[str]], chunk: int) -> None:
    def grams(words: list[str], n: int) -> list[tuple[str, ...]]:
        return [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_CHUNK", chunk)
        found = copied(texts, (" ".join(words) for words in training))
    for n, shares in found.shares.items():
        held = {gram for words in training for gram in grams(words, n)}
        assert shares == [
            pytest.approx(sum(g in held for g in grams(words, n)) / len(grams(words, n)))
            for words in texts
            if len(words) >= n
        ]
    longest = []
    for words in texts:
        lengths = [n for n in range(1, 13) for held in training if set(grams(words, n)) & set(grams(held, n))]
        longest.append(max(lengths, default=0))
    assert found.longest == longest


@pytest.mark.parametrize(("text", "expected"), table_of(__file__, "test_a_price_is_no_latex"))
def test_a_price_is_no_latex(text: str, expected: bool) -> None:
    assert has_latex(text) is expected
    assert balanced(text)


@pytest.mark.parametrize(("text", "expected"), table_of(__file__, "test_latex_balances_or_not"))
def test_latex_balances_or_not(text: str, expected: bool) -> None:
    assert balanced(text) is expected


def test_the_key_term_of_a_title() -> None:
    assert key_term("BERT: Pre-training of Deep Bidirectional Transformers") == "BERT"
    assert key_term("Attention Is All You Need") is None
    assert key_term("Two words: not a name") is None


def test_what_is_counted() -> None:
    written = [
        Written("BERT: a thing", "We train a Neural Network (NN). The NN learns $x$. BERT wins."),
        Written("GPT: other", "A Language Model (LM) and a Parser (PP) do $y.", ended=False),
        Written("No name", "Nothing here"),
    ]
    found = measures(written, ["we train a neural network", "the nn learns"])
    assert found["ended"] == pytest.approx(2 / 3)
    assert found["words"] == pytest.approx((12 + 10 + 2) / 3)
    assert (found["introduced"], found["abbreviations"]) == (1.0, pytest.approx(1 / 3))
    assert (found["latex"], found["latex_balanced"]) == (pytest.approx(2 / 3), 0.5)
    assert found["key_term"] == 0.5
    assert found["longest_copy"] == pytest.approx((5 + 1 + 0) / 3)
    assert 0 < found["distinct_1"] < found["distinct_2"] <= 1
    grams = len(tokens(written[0].abstract)) - 3
    assert found["copied_4"] == pytest.approx((2 / grams + 0) / 2)  # the third is too short to have any


def test_abbreviations_in_the_plural_and_remarks_in_brackets() -> None:
    found = measures([Written("t", "Convolutional Nets (CNNs). A CNN is good. See it (IEEE).")], [])
    assert (found["introduced"], found["abbreviations"]) == (1.0, 1.0)


def test_marks_before_an_abbreviation_are_no_words() -> None:
    found = measures([Written("t", 'The "Vox Populi Algorithm" (VPA) and \\emph{Neural Nets} (NN). VPA.')], [])
    assert (found["introduced"], found["abbreviations"]) == (2.0, 0.5)


def test_a_key_term_is_a_word_of_its_own() -> None:
    assert measures([Written("ER: a thing", "We use BERT here")], [])["key_term"] == 0.0
    assert measures([Written("ER: a thing", "We use ER-like (ER) here")], [])["key_term"] == 1.0


def test_a_share_of_nothing_is_left_out() -> None:
    found = measures([Written("No name", "plain words only")], [])
    assert not {"abbreviations", "latex_balanced", "key_term", "self_bleu", "copied_4"} & set(found)


def test_texts_that_are_alike_score_high_against_each_other() -> None:
    alike = [tokens("we show that the thing works well")] * 3
    unlike = [tokens("we show that the thing works well"), tokens("cats eat fish on mats daily"), tokens("no one left")]
    assert self_bleu(alike) == pytest.approx(1.0)
    assert self_bleu(unlike) < 0.2


def test_many_texts_are_compared_with_a_hundred_others_each(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [tokens(f"word{n} of text {n % 7} says word{n % 3} again") for n in range(30)]
    every = self_bleu(texts)
    monkeypatch.setattr(module, "_OTHERS", 29)
    assert self_bleu(texts) == every, "where there are no more, with all"
    monkeypatch.setattr(module, "_OTHERS", 10)
    asked: list[int] = []
    score = BLEU.sentence_score

    def counted(bleu: BLEU, text: str, others: list[str]) -> Any:
        assert text not in others
        asked.append(len(set(others)))
        return score(bleu, text, others)

    monkeypatch.setattr(BLEU, "sentence_score", counted)
    assert 0 < self_bleu(texts) <= every
    assert asked == [10] * 30
