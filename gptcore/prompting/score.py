"""A model's answers to prompts, and what they are worth.

Three kinds of answers. Chosen: the likeliest of the candidates, by its log-probability behind the prompt; calibrated by
what the same answer gets behind a prompt about nothing (Zhao et al. 2021; for choices it is GPT-3's normalisation, its
paper's section 2.4). Graded: the mean of the grades 0, 1, ..., each by its probability. Written: drawn token by token.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gptcore.errors import InputError
from gptcore.evaluation.generate import generate_ids
from gptcore.evaluation.likelihood import NetworkLikelihood
from gptcore.models.language_model import LanguageModel
from gptcore.nlu.metrics import METRICS
from gptcore.nlu.registry import REGISTRY
from gptcore.prompting.assemble import Pair, Prompt, drawn, empty_prompt, prompts
from gptcore.prompting.items import Item, Rows, Writing
from gptcore.prompting.measures import lede, random_sentences, sentences
from gptcore.prompting.tasks import PromptTask
from gptcore.prompting.words import last_words
from gptcore.text.tokenizer import Tokenizer
from gptcore.training.batches import choose_rows

Progress = Callable[[int, int], object]
"""Called with (parts done, in all)."""
SEED = 0
"""Names the rows that are asked, their examples and what is drawn."""
_AT_ONCE = 16  # texts that are written together


@dataclass(frozen=True)
class Answered:
    """What came of a task under one number of shots."""

    scores: dict[str, float]
    """``score`` (the headline, as a fraction), ``calibrated`` where answers are chosen or graded, others by name."""
    chance: float | None
    """The headline of a random guess; None where there is no such thing."""
    shots: float
    """Examples that found room before a question, on average."""
    rows: int
    answers: list[dict[str, Any]] = field(default_factory=list)
    """One a row: the end of its prompt, what was answered, what is right."""


def answer(
    model: LanguageModel,
    tokenizer: Tokenizer,
    task: PromptTask,
    rows: Rows,
    shots: int,
    max_rows: int | None = None,
    progress: Progress | None = None,
) -> Answered:
    """Put rows of a task to a model behind ``shots`` examples each.

    :param model: in eval mode.
    :param max_rows: at most so many rows, drawn by a seed; None: all.
    :raises InputError: a tokenizer of another model.
    """
    if model.config.n_vocab != tokenizer.n_vocab:
        raise InputError(f"model: found n_vocab = {model.config.n_vocab}, expected the tokenizer's {tokenizer.n_vocab}")
    places = [int(place) for place in choose_rows(len(rows.asked), max_rows, SEED)]
    asked = [(rows.asked[place], drawn(rows, place, shots, SEED)) for place in places]
    if task.writing is None:
        return _chosen(model, tokenizer, task, asked, shots, progress)
    return _written(model, tokenizer, task, asked, shots, progress)


Asked = Sequence[tuple[Item, list[Item]]]
"""Rows and the examples drawn for each."""


# --- chosen and graded ---


def _chosen(
    model: LanguageModel, tokenizer: Tokenizer, task: PromptTask, asked: Asked, shots: int, progress: Progress | None
) -> Answered:
    likelihood = NetworkLikelihood(model)
    pairs: list[Pair] = []
    kept: list[int] = []
    encode = functools.cache(tokenizer.encode_next)
    for item, examples in asked:
        answers = [encode(text) for text in item.answers]
        room = model.config.n_ctx - max(map(len, answers))
        found = prompts(tokenizer, item, examples, shots, max(1, room))
        kept.append(found[0].shots)
        pairs += _pairs(found, answers)
        if item.empty:
            empty = Prompt(empty_prompt(tokenizer, item, examples, found[0].shots, max(1, room)), found[0].shots)
            pairs += _pairs([empty], answers)
    values = iter(_log_probabilities(likelihood, pairs, task.per_token, progress))
    plain, calibrated = [], []
    for item, _ in asked:
        own = np.asarray([next(values) for _ in range(max(len(item.answers), len(item.questions)))])
        plain.append(own)
        calibrated.append(own - [next(values) for _ in item.answers] if item.empty else own)
    right = np.asarray([item.right for item, _ in asked], dtype=np.float64)
    graded = task.metric in ("pearson", "spearman")
    measure, decide = METRICS[task.metric], _grade if graded else _likeliest  # type: ignore[index]  # names of metrics
    guesses = np.asarray([decide(scores) for scores in plain])
    scores = {"score": measure(guesses, right)}
    if any(item.empty for item, _ in asked):
        scores["calibrated"] = measure(np.asarray([decide(scores) for scores in calibrated]), right)
    lines = [
        {
            "prompt": item.questions[0][-300:],
            "answer": _named(item, guess),
            "right": _named(item, float(item.right or 0)),
        }
        for (item, _), guess in zip(asked, guesses, strict=True)
    ]
    return Answered(scores, _chance(task, asked), statistics.fmean(kept), len(asked), lines)


def _pairs(found: Sequence[Prompt], answers: Sequence[list[int]]) -> list[Pair]:
    """Every prompt with every answer; either has one alone where the other has several."""
    return [(prompt.ids, answer) for prompt in found for answer in answers]


def _log_probabilities(
    likelihood: NetworkLikelihood, pairs: Sequence[Pair], per_token: bool, progress: Progress | None
) -> NDArray[np.float64]:
    """Of each pair's answer, each different pair computed once."""
    keys = [(tuple(prompt), tuple(answer)) for prompt, answer in pairs]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    sums, counts = likelihood.continuations([(list(prompt), list(answer)) for prompt, answer in places], progress)
    values = sums / np.maximum(1, counts) if per_token else sums
    return values[[places[key] for key in keys]]


def _likeliest(scores: NDArray[np.float64]) -> float:
    return float(scores.argmax())


def _grade(scores: NDArray[np.float64]) -> float:
    """The expected grade."""
    weights = np.exp(scores - scores.max())
    return float(weights @ np.arange(len(scores)) / weights.sum())


def _named(item: Item, value: float) -> str:
    """An answer in words; a grade between two of them as a number."""
    if len(item.questions) > 1:
        return item.questions[round(value)][-100:]
    return item.answers[round(value)] if value == round(value) else f"{value:.2f}"


def _chance(task: PromptTask, asked: Asked) -> float | None:
    """The headline of guessing evenly: for accuracy one of n, for a correlation 0, for F1 that of even guesses."""
    if task.metric == "accuracy":
        return statistics.fmean(1 / max(len(item.answers), len(item.questions)) for item, _ in asked)
    if task.metric == "f1" and task.name in REGISTRY:
        ones = statistics.fmean(float(item.right or 0) for item, _ in asked)
        return ones / (ones + 0.5)  # precision is the share of ones, recall a half
    return 0.0


# --- written ---


def _written(
    model: LanguageModel, tokenizer: Tokenizer, task: PromptTask, asked: Asked, shots: int, progress: Progress | None
) -> Answered:
    writing, measure = task.writing, task.measure
    assert writing is not None
    assert measure is not None
    room = model.config.n_ctx - writing.max_tokens
    if room < writing.max_tokens:
        raise InputError(
            f"model: found n_ctx = {model.config.n_ctx}, expected {2 * writing.max_tokens} or more: "
            f"{task.name} has answers of up to {writing.max_tokens} tokens"
        )
    found = [prompts(tokenizer, item, examples, shots, room)[0] for item, examples in asked]
    items = [item for item, _ in asked]
    texts = [""] * len(items)
    order = sorted(range(len(items)), key=lambda row: len(found[row].ids))  # like lengths together
    stops = _line_ends(tokenizer) if writing.one_line else frozenset[int]()
    for first in range(0, len(order), _AT_ONCE):
        some = order[first : first + _AT_ONCE]
        ids = _continued(model, tokenizer, [found[row].ids for row in some], writing, stops, first)
        for row, drawn_ids in zip(some, ids, strict=True):
            texts[row] = _answer_text(tokenizer.decode(drawn_ids), writing)
        if progress is not None:
            progress(min(first + _AT_ONCE, len(order)), len(order))
    scores = measure(texts, items)
    extra: dict[str, float] = {}
    if task.word:
        words = last_words(model, tokenizer, [prompt.ids for prompt in found], items)
        extra = {"accuracy, no stop words": words.accuracy, "perplexity of the word": words.perplexity}
    if items[0].context and task.folder == "CNNDM":
        for name, made in (
            ("Lede-3", [lede(item.context) for item in items]),
            ("Random-3", [random_sentences(item.context, row, SEED) for row, item in enumerate(items)]),
        ):
            extra[name] = measure(made, items)[task.metric]
    lines = [
        {"prompt": f"{item.context}{item.questions[0]}"[-300:], "answer": text, "right": item.answers[0]}
        for item, text in zip(items, texts, strict=True)
    ]
    shots_found = statistics.fmean(prompt.shots for prompt in found)
    return Answered({"score": scores[task.metric], **scores, **extra}, None, shots_found, len(items), lines)


def _continued(
    model: LanguageModel,
    tokenizer: Tokenizer,
    ids: Sequence[list[int]],
    writing: Writing,
    stops: frozenset[int],
    seed: int,
) -> list[list[int]]:
    """What the model writes on prompts."""
    settings: dict[str, Any] = {"temperature": 0.0} if writing.top_k == 1 else {"top_k": writing.top_k}
    return generate_ids(
        model,
        ids,
        n_vocab=tokenizer.n_vocab,
        max_tokens=writing.max_tokens,
        stop=stops | ({tokenizer.end_of_text} if tokenizer.end_of_text is not None else set()),
        seed=SEED + seed,
        **settings,
    )


@functools.lru_cache(maxsize=8)
def _line_ends(tokenizer: Tokenizer) -> frozenset[int]:
    """Ids whose text holds a line break."""
    return frozenset(index for index in range(tokenizer.n_vocab) if "\n" in tokenizer.decode([index]))


def _answer_text(text: str, writing: Writing) -> str:
    """The part of what was written that is the answer."""
    if writing.one_line:
        return text.partition("\n")[0].strip()
    return " ".join(sentences(text)[: writing.sentences or None])
