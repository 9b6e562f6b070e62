"""Answers that a model writes, and the last word of a passage, against plain twins."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from gptcore.errors import InputError
from gptcore.models.transformer import GPT
from gptcore.prompting.items import Item, Rows, Writing
from gptcore.prompting.measures import last_word
from gptcore.prompting.score import answer
from gptcore.prompting.words import said_word, stop_words
from gptcore.text.byte_bpe import ByteTokenizer
from tests.gptcore.test_prompting import ITEMS, TEXT, TOKENIZER, model, task, total


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

    items = [Item((f"the {name}",), ("x",)) for name in ("cat", "dog sat on the", "mat")]
    made = task("f1", writing=Writing(max_tokens=8), measure=measure)
    found = answer(gpt, TOKENIZER, made, Rows(items), 0)
    plain = [TOKENIZER.decode(greedy(gpt, TOKENIZER.encode(item.questions[0]), 8)) for item in items]
    ends = [text.partition("<|endoftext|>")[0].partition("\n")[0].strip() for text in plain]
    assert seen == ends
    assert found.scores == {"score": 0.25, "f1": 0.25}
    assert found.chance is None


def test_a_rows_draws_are_its_own_whichever_others_are_asked() -> None:
    gpt, rows = model(), Rows([Item((text,), ("x",)) for text in ("the cat", "the dog sat", "a mat on the mat", "who")])
    drawn = {}
    for max_rows in (None, 2):
        made = task("f1", writing=Writing(max_tokens=12, top_k=5), measure=lambda answers, items: {"f1": 0.0})
        drawn[max_rows] = {
            line["prompt"]: line["answer"] for line in answer(gpt, TOKENIZER, made, rows, 0, max_rows).answers
        }
    assert len(drawn[2]) == 2
    assert drawn[2].items() <= drawn[None].items()


def test_a_baseline_has_the_parts_of_a_mean_beside_it() -> None:
    def measure(answers: Any, items: Any) -> dict[str, float]:
        return {"rouge": 0.2, "rouge-1": 0.1, "rouge-2": 0.3, "of another kind": 0.0}

    made = task(
        "rouge",
        writing=Writing(max_tokens=2),
        measure=measure,
        baselines=lambda items: [("Lede-3", [""] * len(items))],
    )
    found = answer(model(), TOKENIZER, made, Rows([Item(("the cat",), ("x",))]), 0)
    assert found.chance == 0.2
    assert found.scores.keys() - measure(0, 0).keys() == {"score", "Lede-3", "Lede-3, rouge-1", "Lede-3, rouge-2"}


def test_a_last_word_counts_with_its_probability_and_without_stop_words() -> None:
    gpt = model()
    items = [Item((text,), (last,)) for text, last in (("the cat sat on the", "mat"), ("who", "sat"))]
    found = answer(gpt, TOKENIZER, task(writing=Writing(max_tokens=4), measure=last_word, word=True), Rows(items), 0)
    nats = [total(gpt, TOKENIZER.encode(item.questions[0]), TOKENIZER.encode(f" {item.answers[0]}")) for item in items]
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

    def copies(self, batch: int) -> Told:
        return Told(self.texts * batch)

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


@pytest.mark.parametrize(
    ("table", "said"),
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
    table: dict[str, dict[str, float]], said: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Told, "TABLE", {**Told.TABLE, **table})
    monkeypatch.setattr("gptcore.prompting.words.open_reader", lambda model: Told([""]))
    monkeypatch.setattr("gptcore.prompting.words._CANDIDATES", together)
    assert said_word(None, Vocabulary(), [0]) == said  # type: ignore[arg-type]


def test_where_there_are_stop_words_only_the_likeliest_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"the", "of", "and"} < stop_words()
    monkeypatch.setattr("gptcore.prompting.words.open_reader", lambda model: Told([""]))
    monkeypatch.setattr("gptcore.prompting.words.stop_words", lambda: {"the", "cat", "car", "s"})
    assert said_word(None, Vocabulary(), [0]) == "the"  # type: ignore[arg-type]


def test_a_model_with_too_few_positions_for_its_answers_is_refused() -> None:
    made = task("f1", writing=Writing(max_tokens=30), measure=last_word)
    with pytest.raises(
        InputError, match="made: found a model with n_ctx = 48, expected 60 or more, as answers have 30 tokens"
    ):
        answer(model(), TOKENIZER, made, Rows(ITEMS), 0)


def test_a_tokenizer_of_another_model_is_refused() -> None:
    with pytest.raises(InputError, match="expected the tokenizer's"):
        answer(model(), ByteTokenizer.train([TEXT], 5), task(), Rows(ITEMS), 0)
