"""Answers that a model writes, the last word of a passage, and how they are counted, against plain twins or by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.models.transformer import GPT
from gptcore.papers.prompting import reading
from gptcore.papers.prompting.items import Decoding, FreeForm, Rows
from gptcore.papers.prompting.likelihoods import STOP_WORDS, said_words
from gptcore.papers.prompting.measures import (
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
from gptcore.papers.prompting.rows import select
from gptcore.papers.prompting.score import answer
from gptcore.text.byte_bpe import ByteTokenizer
from tests.gptcore.papers.prompting.test_prompting import ITEMS, TEXT, TOKENIZER, model, put, task, total
from tests.realdata import real_data


def greedy(gpt: GPT, ids: list[int], n: int) -> list[int]:
    ids, found = list(ids), []
    for _ in range(n):
        with torch.no_grad():
            found.append(int(gpt(torch.tensor([ids]))[0, -1, : TOKENIZER.n_vocab].argmax()))
        ids.append(found[-1])
    return found


def test_a_written_answer_is_greedy_and_ends_with_its_line() -> None:
    gpt = model()
    seen: list[str] = []

    def measure(answers: Any, items: Any) -> dict[str, float]:
        seen.extend(answers)
        return {"f1": 0.25}

    items = [FreeForm(f"the {name}", ("x",)) for name in ("cat", "dog sat on the", "mat")]
    made = task("f1", decoding=Decoding(max_tokens=8), measure=measure)
    found = put(gpt, made, Rows(items))
    plain = [TOKENIZER.decode(greedy(gpt, TOKENIZER.encode(item.question), 8)) for item in items]
    ends = [text.partition("<|endoftext|>")[0].partition("\n")[0].strip() for text in plain]
    assert seen == ends
    assert found.scores == {"score": 0.25, "f1": 0.25}
    assert found.chance is None


def test_a_rows_draws_are_its_own_whichever_others_are_asked() -> None:
    gpt, rows = (
        model(),
        Rows([FreeForm(text, ("x",)) for text in ("the cat", "the dog sat", "a mat on the mat", "who")]),
    )
    drawn = {}
    for max_rows in (None, 2):
        made = task("f1", decoding=Decoding(max_tokens=12, top_k=5), measure=lambda answers, items: {"f1": 0.0})
        drawn[max_rows] = {line["prompt"]: line["answer"] for line in put(gpt, made, rows, max_rows=max_rows).answers}
    assert len(drawn[2]) == 2
    assert drawn[2].items() <= drawn[None].items()


def test_a_baseline_has_the_parts_of_a_mean_beside_it() -> None:
    def measure(answers: Any, items: Any) -> dict[str, float]:
        return {"rouge": 0.2, "rouge-1": 0.1, "rouge-2": 0.3, "of another kind": 0.0}

    made = task(
        "rouge",
        decoding=Decoding(max_tokens=2),
        measure=measure,
        baselines=lambda items: [("Lede-3", [""] * len(items))],
    )
    found = put(model(), made, Rows([FreeForm("the cat", ("x",))]))
    assert found.chance == 0.2
    assert found.scores.keys() - measure(0, 0).keys() == {"score", "Lede-3", "Lede-3, rouge-1", "Lede-3, rouge-2"}


def test_a_last_word_counts_with_its_probability_and_without_stop_words() -> None:
    gpt = model()
    items = [FreeForm(text, (last,)) for text, last in (("the cat sat on the", "mat"), ("who", "sat"))]
    found = put(gpt, task(decoding=Decoding(max_tokens=4), measure=last_word, word=True), Rows(items))
    nats = [total(gpt, TOKENIZER.encode(item.question), TOKENIZER.encode(f" {item.answers[0]}")) for item in items]
    assert found.scores["perplexity of the word"] == pytest.approx(math.exp(-np.mean(nats)), rel=1e-4)


class Told:
    """A reader whose next tokens are known: text so far -> token -> probability."""

    TABLE: ClassVar[dict[str, dict[str, float]]] = {
        "": {" the": 0.5, " cat": 0.2, " ca": 0.25, ",": 0.05},
        " ca": {"r": 0.9, "t": 0.1},
        " car": {".": 1.0},
        " cat": {".": 1.0},
        " the": {" cat": 1.0},
    }

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def spread(self, rows: list[int], room: int) -> Told:
        return Told([self.texts[row] for row in rows])

    def feed(self, ids: list[list[int]]) -> torch.Tensor:
        self.texts = [
            text + "".join(WORDS[index] for index in more) for text, more in zip(self.texts, ids, strict=True)
        ]
        rows = [self.TABLE.get(text.removeprefix("?"), {".": 1.0}) for text in self.texts]
        return torch.tensor([[math.log(row.get(word, 1e-9)) for word in WORDS] for row in rows])


WORDS = ["?", " the", " cat", " ca", "r", "t", ",", ".", " 's"]


class Vocabulary:
    n_vocab = len(WORDS)

    def decode(self, ids: list[int]) -> str:
        return "".join(WORDS[index] for index in ids)

    def following(self, last: int) -> Callable[[int], str]:
        return WORDS.__getitem__


def said(*prompts: list[int]) -> list[str]:
    reader = Told([""] * len(prompts))
    return said_words(reader, Vocabulary(), prompts, reader.feed(list(prompts)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({}, "car"),  # "the" is a stop word; "car" has 0.25 * 0.9, "cat" 0.2
        ({" ca": {"r": 0.7, "t": 0.3}}, "cat"),  # 0.175
        ({"": {" the": 0.9, ",": 0.06, " cat": 0.04}}, "cat"),  # however unlikely
        ({"": {"r": 0.7, " cat": 0.3}}, "cat"),  # "r" goes on the word before
        ({"": {" 's": 0.7, " cat": 0.3}}, "cat"),  # so does "'s", which GPT-1 reads as a word of its own
    ],
)
@pytest.mark.parametrize("together", [1, 2, 10])
def test_the_likeliest_word_that_is_no_stop_word(
    table: dict[str, dict[str, float]], word: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Told, "TABLE", {**Told.TABLE, **table})
    monkeypatch.setattr("gptcore.papers.prompting.likelihoods._CANDIDATES", together)
    assert said([0]) == [word]
    assert said([0], [0, 1], [0]) == [word, "cat", word]  # each as if it were alone


def test_where_there_are_stop_words_only_the_likeliest_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptcore.papers.prompting.likelihoods.STOP_WORDS", {"the", "cat", "car", "s"})
    assert said([0]) == ["the"]


def test_stop_words_are_those_that_lean_on_a_word_behind_them() -> None:
    assert {"the", "of", "and", "was", "he", "s"} < STOP_WORDS
    content = {"fire", "cry", "name", "move", "bill", "top", "either", "though", "will", "mine", "him", "for", "down"}
    assert not STOP_WORDS & content
    assert all(word == word.lower() for word in STOP_WORDS)


def test_every_last_word_of_lambada_can_be_said() -> None:
    rows = reading.lambada(str(real_data("LAMBADA").parent)).asked
    words = [first_word(item.answers[0]) for item in rows if isinstance(item, FreeForm)]
    assert len(words) == 4869
    assert not [word for word in words if word in STOP_WORDS]


def test_a_model_with_too_few_positions_for_its_answers_is_refused() -> None:
    made = task("f1", decoding=Decoding(max_tokens=30), measure=last_word)
    with pytest.raises(
        InputError, match="made: found a model with n_ctx = 48, expected 60 or more, as answers have 30 tokens"
    ):
        put(model(), made, Rows(ITEMS))


def test_a_tokenizer_of_another_model_is_refused() -> None:
    with pytest.raises(InputError, match="expected the tokenizer's"):
        answer(model(), ByteTokenizer.train([TEXT], 5), task(), select(Rows(ITEMS), 0), 0)


# --- how written answers are counted, against the libraries and by hand ---


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
