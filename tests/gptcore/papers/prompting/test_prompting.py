"""Prompts: what is put before a question, what fits, and answers against plain twins on a tiny random model."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.config import LSTMConfig, ModelConfig
from gptcore.models import incremental
from gptcore.models.network import LanguageModel
from gptcore.models.transformer import GPT
from gptcore.nlu.forms import form_of
from gptcore.nlu.readers import Example
from gptcore.nlu.registry import REGISTRY, PromptTemplate
from gptcore.papers.analyses.lstm import LSTM
from gptcore.papers.prompting.items import (
    FreeForm,
    Graded,
    MultipleChoice,
    Normalisation,
    PromptResult,
    Rows,
    WinogradSchema,
)
from gptcore.papers.prompting.likelihoods import answer_likelihoods
from gptcore.papers.prompting.rows import dataset_item, draw_examples, prompt_without_content, prompts, select
from gptcore.papers.prompting.score import answer
from gptcore.papers.prompting.tasks import PROMPT_TASKS, PromptTask, prompt_task
from gptcore.text.byte_bpe import ByteTokenizer

TEXT = "the cat sat on the mat\n\nQ: who sat? A: yes no maybe, the dog -> positive negative 0 1 2 3 4 5 N/A "
TOKENIZER = ByteTokenizer.train([TEXT * 3], 60)
words = st.text(alphabet="abc \n", min_size=1, max_size=12)


def model(n_ctx: int = 48) -> GPT:
    torch.manual_seed(3)
    shape = ModelConfig(
        n_vocab=TOKENIZER.n_vocab,
        n_ctx=n_ctx,
        n_layer=2,
        n_head=2,
        n_embd=16,
        n_inner=32,
        init_std=0.4,
        norm_first=True,
    )
    return GPT(shape).eval()


def lstm() -> LSTM:
    torch.manual_seed(3)
    return LSTM(LSTMConfig(n_vocab=TOKENIZER.n_vocab, n_ctx=48, n_embd=16, n_units=24, init_std=0.4)).eval()


def total(gpt: LanguageModel, context: list[int], continuation: list[int]) -> float:
    """Log-probability of a continuation, one token at a time."""
    ids, found = list(context), 0.0
    for token in continuation:
        with torch.no_grad():
            logits = gpt(torch.tensor([ids[-gpt.config.n_ctx :]]))[0, -1, : TOKENIZER.n_vocab]
        found += torch.log_softmax(logits.double(), -1)[token].item()
        ids.append(token)
    return found


def task(metric: str = "accuracy", **fields: Any) -> PromptTask:
    return PromptTask("made", "Made", metric, lambda url: Rows([]), **fields)


# --- templates ---


@pytest.mark.parametrize("name", REGISTRY)
def test_every_task_of_the_registry_has_a_prompt_for_its_classes(name: str) -> None:
    spec = REGISTRY[name]
    fields = tuple(f"field {number}" for number in range(len(spec.fields)))
    choices = tuple(f"choice {letter}" for letter in spec.labels) if spec.form == "choices" else ()
    item = dataset_item(spec, Example(fields, choices, 1.0, "", "file:1"))
    assert len(item.answers) == (len(choices) or form_of(spec).n_outputs(spec))
    assert len(set(item.answers)) == len(item.answers)
    whole = item.context + item.questions[0]
    assert all(field in whole for field in fields)
    assert not any(field in item.no_content for field in fields)
    assert "N/A" in item.no_content
    assert "{" not in whole + item.no_content


@pytest.mark.parametrize(
    ("name", "question", "answers"),
    [
        ("rte", "a\nb\nAnswer:", ("not_entailment", "entailment")),
        ("stsb", "a\nb\nFrom 0 to 5:", tuple("012345")),
        ("storycloze", "a\nAnswer:", ("one", "two")),
    ],
)
def test_a_task_without_a_prompt_has_a_plain_one(name: str, question: str, answers: tuple[str, ...]) -> None:
    spec = dataclasses.replace(REGISTRY[name], prompt=None)
    row = Example(("a", "b")[: len(spec.fields)], ("one", "two") if spec.form == "choices" else (), 1.0, "", "f:1")
    item = dataset_item(spec, row)
    assert item.question == question
    assert item.answers == answers


def test_a_field_with_braces_is_text() -> None:
    item = dataset_item(REGISTRY["sst2"], Example(("a {0} {x} play\nof  words",), (), 1.0, "", "f:1"))
    assert item.question == "Review: a {0} {x} play of words\nSentiment:"
    assert item.shown == (item.question, "positive")


def test_the_order_of_a_template_is_that_of_its_numbers() -> None:
    spec = REGISTRY["qnli"]
    assert isinstance(spec.prompt, PromptTemplate)
    item = dataset_item(spec, Example(("who?", "It was he."), (), 0.0, "", "f:1"))
    assert item.questions[0].startswith("It was he.\nQuestion: who?")
    assert item.shown[1] == "No"


def test_an_unknown_task_names_those_that_there_are() -> None:
    with pytest.raises(InputError, match=r"found 'lambda', did you mean lambada\? expected one of mnli, "):
        prompt_task("lambda")


# --- examples ---


@given(st.integers(1, 30), st.integers(0, 12), st.integers(0, 12), st.integers(0, 10**6), st.booleans())
def test_examples_of_fewer_shots_are_among_those_of_more(n: int, few: int, many: int, seed: int, own: bool) -> None:
    rows = Rows(
        [FreeForm(f"q{row}", ("a",)) for row in range(n)],
        [] if own else [FreeForm(f"p{row}", ("a",)) for row in range(3)],
    )
    few, many = sorted((few, many))
    for row in range(min(n, 4)):
        less, more = draw_examples(rows, row, few, seed), draw_examples(rows, row, many, seed)
        assert more[: len(less)] == less
        assert len(set(more)) == len(more) == min(many, n - 1 if own else 3)
        assert not own or rows.asked[row] not in more
        assert draw_examples(rows, row, many, seed) == more


@settings(max_examples=60)
@given(st.lists(st.tuples(words, words, words), max_size=6), st.tuples(words, words), st.integers(4, 60), st.booleans())
def test_as_many_examples_as_fit_the_nearest_ones(
    others: list[tuple[str, str, str]], own: tuple[str, str], room: int, grouped: bool
) -> None:
    context, question = own
    if grouped:
        earlier = tuple((f"\n{q}", a) for _, q, a in others)
        item, examples = FreeForm(f"\n{question}", ("yes",), context, earlier), []
    else:
        item = FreeForm(question, ("yes",), context)
        examples = [FreeForm(q, (a,), c) for c, q, a in others]
    (found,) = prompts(TOKENIZER, item, examples, len(others), room)
    assert 0 < len(found.ids) <= room

    def text(kept: int) -> str:  # the plain twin
        if grouped:
            shown = "".join(f"\n{q} {a}" for _, q, a in others[len(others) - kept :])
            return f"{context}{shown}\n{question}"
        shown = "".join(f"{c}{q} {a}\n\n" for c, q, a in reversed(others[:kept]))
        return f"{shown}{context}{question}"

    fitting = [kept for kept in range(len(others) + 1) if len(TOKENIZER.encode(text(kept))) <= room]
    if fitting:
        assert found.shots == max(fitting)
        assert found.ids == TOKENIZER.encode(text(found.shots))
    else:
        assert found.shots == 0
        behind = TOKENIZER.encode(item.questions[0])
        assert found.ids[-1] == behind[-1]


def test_a_twin_beside_a_row_is_no_example() -> None:
    rows = Rows([FreeForm(f"q{row}", ("a",)) for row in range(6)], excluded_neighbours=1)
    assert {item.questions[0] for item in draw_examples(rows, 2, 10, 0)} == {"q0", "q4", "q5"}
    assert len(draw_examples(rows, 0, 10, 0)) == 4


def test_examples_of_a_line_follow_line_by_line() -> None:
    item, other = FreeForm("the cat =", ("le chat",)), FreeForm("the dog =", ("le chien",))
    (found,) = prompts(TOKENIZER, item, [other], 1, 48, "\n")
    assert TOKENIZER.decode(found.ids) == "the dog = le chien\nthe cat ="


def test_what_does_not_fit_is_cut_from_the_end_of_the_context() -> None:
    item = FreeForm("\nQ: who?\nA:", ("he",), context="abcdefgh" * 20)
    (found,) = prompts(TOKENIZER, item, [], 3, 30)
    text = TOKENIZER.decode(found.ids)
    assert text.startswith("abcdefgh")
    assert text.endswith("\nQ: who?\nA:")
    assert len(found.ids) == 30


def test_readings_of_a_schema_have_the_same_examples() -> None:
    other = WinogradSchema(("the dog sat on the mat and the dog", "b"), "sat", right=0)
    item = WinogradSchema(("the cat sat and the cat", "the cat sat and the maybe dog cat"), "sat", right=1)
    lengths = [len(TOKENIZER.encode(f"the dog sat on the mat and the dog sat\n\n{q}")) for q in item.questions]
    assert lengths[0] < lengths[1]
    found = prompts(TOKENIZER, item, [other], 1, lengths[1] - 1)
    assert [prompt.shots for prompt in found] == [0, 0]
    assert [prompt.shots for prompt in prompts(TOKENIZER, item, [other], 1, lengths[1])] == [1, 1]


# --- chosen answers ---


LONG = "no maybe positive"  # several tokens, where "yes" has one
ITEMS = [
    MultipleChoice(f"{text}:", ("yes", LONG), right, no_content="N/A:")
    for text, right in (("the cat sat", 1), ("the dog sat", 0), ("on the mat", 1), ("who", 1), ("a dog", 0))
]


def put(
    gpt: GPT, task: PromptTask, rows: Rows, shots: int = 0, max_rows: int | None = None, drawn: int = 0
) -> PromptResult:
    """Answers to rows, for which ``drawn`` examples are drawn or as many as are shown."""
    return answer(gpt, TOKENIZER, task, select(rows, max(shots, drawn), max_rows), shots)


def test_what_is_likelier_depends_on_how_lengths_count() -> None:
    by_total, by_token = (
        put(model(), task(normalisation=each), Rows(ITEMS)).answers
        for each in (Normalisation.TOTAL, Normalisation.PER_TOKEN)
    )
    assert {line["answer"] for line in by_total} == {"yes"}  # short ones win by their sums
    assert LONG in {line["answer"] for line in by_token}


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 40), min_size=1, max_size=20),
            st.lists(st.lists(st.integers(0, 40), max_size=4), min_size=1, max_size=4),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([1, 4_000, 1 << 29]),
    st.booleans(),
)
def test_answers_of_many_prompts_are_scored_as_one_by_one(
    questions: list[tuple[list[int], list[list[int]]]], cache_bytes: int, recurrent: bool
) -> None:
    gpt = lstm() if recurrent else model(n_ctx=24)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gptcore.papers.prompting.likelihoods._CACHE_BYTES", cache_bytes)
        patch.setattr("gptcore.papers.prompting.likelihoods._LOGITS", 3 * gpt.tokens.num_embeddings)
        found = answer_likelihoods(gpt, questions)
    for (prompt, answers), nats in zip(questions, found, strict=True):
        assert nats == pytest.approx([total(gpt, prompt, ids) for ids in answers], abs=1e-3)


def test_a_prompt_is_read_once_whatever_its_answers_and_none_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes through the network: one for the prompts of a batch, one for the answers' further tokens."""
    passes: list[tuple[int, ...]] = []
    real = incremental.step

    def counted(gpt: GPT, tokens: torch.Tensor, cache: incremental.Cache, *more: Any) -> torch.Tensor:
        passes.append((*tokens.shape, cache.keys.shape[2]))
        return real(gpt, tokens, cache, *more)

    monkeypatch.setattr(incremental, "step", counted)
    questions = [(list(range(1, n)), [[1], [2, 3, 4], [5, 6]]) for n in (9, 12, 10, 15)]
    answer_likelihoods(model(), questions)
    assert passes == [(4, 14, 14), (8, 2, 16)]  # (texts, new ids, positions kept), where n_ctx is 48


def test_normalisations_are_those_of_the_papers() -> None:
    """Each against a plain twin: GPT-3's paper, section 2.4, and Zhao et al. 2021."""
    gpt, shots, texts = model(), 1, ("yes", "no", LONG)
    stems = ("the cat", "the dog", "who", "a mat", "maybe", "on the", "sat", "5", "A", "N", "cat ->", "dog no")
    items = [MultipleChoice(f"{stem}:", texts, row % 3, no_content="N/A:") for row, stem in enumerate(stems)]
    rows, answers = Rows(items), [TOKENIZER.encode(f" {text}") for text in texts]
    assert len({len(ids) for ids in answers}) > 1
    answer_context = TOKENIZER.encode("Answer:")
    guesses: dict[str, list[int]] = {}
    for row, item in enumerate(items):
        examples = draw_examples(rows, row, shots, 0)
        room = 48 - max(map(len, answers))
        (prompt,) = prompts(TOKENIZER, item, examples, shots, room)
        empty = prompt_without_content(TOKENIZER, item, examples, prompt.shots, room)
        assert TOKENIZER.decode(empty).endswith("N/A:")
        nats = np.asarray([total(gpt, prompt.ids, ids) for ids in answers])
        scores = {
            "total": nats,
            "per token": nats / [len(ids) for ids in answers],
            "unconditional": nats - [total(gpt, answer_context, ids) for ids in answers],
            "contextual calibration": nats - [total(gpt, empty, ids) for ids in answers],
        }
        for name, values in scores.items():
            guesses.setdefault(name, []).append(int(values.argmax()))
    assert len(set(map(tuple, guesses.values()))) == 4, "or the test tells none from another"
    right = [item.right for item in items]
    means = {name: pytest.approx(np.mean(np.equal(each, right))) for name, each in guesses.items()}
    for normalisation in Normalisation:
        found = put(gpt, task(normalisation=normalisation), rows, shots)
        assert [line["answer"] for line in found.answers] == [texts[guess] for guess in guesses[normalisation.value]]
        assert found.scores == {"score": means[normalisation.value], **means}
        assert found.chance == pytest.approx(1 / 3)
        assert found.rows == len(items)
        assert found.shots <= shots
        assert [line["right"] for line in found.answers] == [texts[item.right] for item in items]
        assert all(line["prompt"].endswith(item.question) for line, item in zip(found.answers, items, strict=True))


def test_examples_beyond_those_that_are_shown_change_nothing() -> None:
    gpt, rows = model(), Rows(ITEMS)
    assert put(gpt, task(), rows, 1, drawn=4) == put(gpt, task(), rows, 1)


def test_of_two_readings_the_one_is_right_that_makes_the_rest_likelier() -> None:
    gpt = model()
    items = [
        WinogradSchema(("the cat", "the dog"), "sat on the mat", 0),
        WinogradSchema(("the mat", "a dog"), "sat", 1),
    ]
    found = put(gpt, task(), Rows(items))
    rest = [TOKENIZER.encode(f" {item.rest}") for item in items]
    right = [
        np.argmax([total(gpt, TOKENIZER.encode(q), ids) for q in item.questions]) == item.right
        for item, ids in zip(items, rest, strict=True)
    ]
    assert found.scores == {"score": np.mean(right)}


def test_a_grade_is_the_mean_of_grades_by_their_probability() -> None:
    gpt = model()
    items = [Graded(f"the {name}:", tuple("012345"), grade) for name, grade in (("cat", 0.5), ("dog", 4.0), ("mat", 3))]
    found = put(gpt, task("pearson"), Rows(items))
    grades = []
    for item in items:
        ids = TOKENIZER.encode(item.question)
        scores = np.exp([total(gpt, ids, TOKENIZER.encode(f" {grade}")) for grade in "012345"])
        grades.append(scores @ np.arange(6) / scores.sum())
    assert found.scores["score"] == pytest.approx(np.corrcoef(grades, [0.5, 4, 3])[0, 1], abs=1e-5)
    assert found.answers[0]["answer"] == f"{grades[0]:.2f}"


def test_the_chance_of_f1_is_that_of_even_guesses() -> None:
    found = put(model(), prompt_task("mrpc"), Rows(ITEMS))
    rng = np.random.default_rng(0)
    right = np.tile([1, 0, 1, 1, 0], 20_000)
    guessed = rng.integers(0, 2, len(right))
    f1 = 2 * (guessed * right).sum() / (guessed.sum() + right.sum())
    assert found.chance == pytest.approx(f1, abs=0.01)


def test_rows_are_a_choice_that_grows() -> None:
    rows = Rows([MultipleChoice(f"the cat {n}:", ("yes", "no"), 1) for n in range(20)])
    few, more = (put(model(), task(), rows, max_rows=max_rows) for max_rows in (5, 9))
    assert few.rows == 5
    assert {line["prompt"] for line in few.answers} < {line["prompt"] for line in more.answers}


def test_names_of_tasks_are_their_own() -> None:
    assert list(REGISTRY) == list(PROMPT_TASKS)[: len(REGISTRY)]
    assert all(name == found.name for name, found in PROMPT_TASKS.items())
    assert all((found.decoding is None) == (found.measure is None) for found in PROMPT_TASKS.values())
