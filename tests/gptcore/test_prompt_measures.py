"""How written answers are counted, against the libraries and by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore.prompting.items import FreeForm
from gptcore.prompting.measures import (
    always_unknown,
    article_baselines,
    bleu,
    first_word,
    last_word,
    lede,
    questions,
    random_sentences,
    rouge,
    sentences,
)


def items(*answers: tuple[str, ...]) -> list[FreeForm]:
    return [FreeForm("?", texts) for texts in answers]


def test_an_answer_is_compared_without_case_articles_and_marks() -> None:
    found = questions(["The Normans!", "in 1066", "no idea"], items(("normans",), ("1066", "in the year 1066"), ("a",)))
    assert found["exact match"] == pytest.approx(1 / 3)
    assert found["f1"] == pytest.approx((1 + 0.8 + 0) / 3)  # in 1066 beside in year 1066: 2 * 2 / 5
    assert questions(["in 1066"], items(("1066", "in the year 1066")))["f1"] == pytest.approx(0.8)


def test_nothing_matches_nothing() -> None:
    assert questions(["the"], items(("a",)))["f1"] == 1.0
    assert questions(["", "x"], items(("x",), ("",)))["f1"] == 0.0


@given(st.text(max_size=40))
def test_an_answer_that_is_right_is_right(text: str) -> None:
    found = questions([text], items((text,)))
    assert (found["f1"], found["exact match"]) == (1.0, 1.0)


def test_questions_without_an_answer_are_counted_by_themselves() -> None:
    asked = items(("unknown",), ("Rollo",), ("Rollo", "he"))
    found = questions(["unknown", "unknown", "Rollo"], asked)
    assert (found["f1"], found["f1, unanswerable"], found["f1, answerable"]) == (pytest.approx(2 / 3), 1.0, 0.5)
    ((name, guesses),) = always_unknown(asked)
    assert name == 'always "unknown"'
    assert questions(guesses, asked)["f1"] == pytest.approx(1 / 3)


def test_rouge_of_a_summary_by_hand() -> None:
    found = rouge(["The cat sat. The dog ran."], items(("The cat sat.\nA bird sang.",)))
    # six words each: "the", "cat", "sat" are shared; two of five pairs of words
    assert found["rouge-1"] == pytest.approx(0.5)
    assert found["rouge-2"] == pytest.approx(0.4)
    assert found["rouge-l"] == pytest.approx(0.5)
    assert found["rouge"] == pytest.approx((0.5 + 0.4 + 0.5) / 3)


def test_bleu_of_the_right_sentence_is_one() -> None:
    text = "Le chat est sur le tapis rouge."
    assert bleu([text], items((text,)))["bleu"] == pytest.approx(1.0)
    assert bleu(["Un chien"], items((text,)))["bleu"] < 0.05


def test_the_last_word_is_the_first_of_the_answer() -> None:
    assert last_word(["Mat, and", '"mat"', "the mat", ""], items(*[("mat",)] * 4)) == {"accuracy": 0.5}
    assert [first_word(text) for text in (" don't.", "\u201cOh", ", and", "mother-in-law x")] == [
        "don't",
        "oh",
        "",
        "mother-in-law",
    ]


def test_sentences_end_at_their_stops() -> None:
    text = 'He came. "Who?" she asked! It was\n3.5 miles. '
    assert sentences(text) == ["He came.", '"Who?', "she asked!", "It was 3.5 miles."]
    assert lede(text, 2) == 'He came. "Who?'


def test_a_blind_guess_of_a_summary_is_three_random_sentences_and_lede_stands_beside_it() -> None:
    article = "One came. Two came. Three came. Four came. Five came."
    asked = [FreeForm("", ("x",), context=article)] * 8
    (random_name, random_texts), (lede_name, lede_texts) = article_baselines(asked)
    assert (random_name, lede_name) == ("Random-3", "Lede-3")
    assert lede_texts == ["One came. Two came. Three came."] * 8
    assert len(set(random_texts)) > 1
    assert {len(sentences(text)) for text in random_texts} == {3}


def test_random_sentences_are_in_order_and_by_seed() -> None:
    article = " ".join(f"Sentence number {n}." for n in range(20))
    found = [random_sentences(article, row, 0) for row in range(5)]
    assert found == [random_sentences(article, row, 0) for row in range(5)]
    assert len(set(found)) > 1
    for text in found:
        numbers = [int(part.split()[2].rstrip(".")) for part in sentences(text)]
        assert numbers == sorted(numbers)
        assert len(numbers) == 3
    assert random_sentences("One. Two.", 0, 0) == "One. Two."
