"""A model's answers to prompts, and what they are worth.

Three kinds of answers. Chosen: the likeliest of the candidates, by its log-probability behind the prompt; calibrated by
what the same answer gets behind a prompt about nothing (Zhao et al. 2021, for words; GPT-3's paper, section 2.4, for a
row's own choices). Graded: the mean of the grades 0, 1, ..., each by its probability. Written: drawn token by token.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gptcore.data.batches import choose_rows
from gptcore.errors import InputError
from gptcore.evaluation.generate import generate_ids
from gptcore.models.language_model import LanguageModel
from gptcore.nlu.metrics import METRICS
from gptcore.nlu.metrics import score as scores_of
from gptcore.nlu.registry import REGISTRY
from gptcore.prompting.assemble import Prompt, drawn, empty_prompt, prompts
from gptcore.prompting.items import SEED, Answered, Item, Rows, Writing
from gptcore.prompting.measures import sentences
from gptcore.prompting.tasks import PromptTask
from gptcore.prompting.words import answers_after, last_words
from gptcore.text.tokenizer import Tokenizer

Progress = Callable[[int, int], object]
"""Called with (prompts done, in all)."""
_AT_ONCE = 16  # texts that are written together
_SHOWN = 400  # characters of a prompt's end

Asked = Sequence[tuple[Item, list[Item]]]
"""Rows and the examples drawn for each."""


class _Run(NamedTuple):
    """What is asked of whom, and how."""

    model: LanguageModel
    tokenizer: Tokenizer
    task: PromptTask
    asked: Asked
    places: Sequence[int]
    """Of what is asked among all rows."""
    shots: int
    between: str
    progress: Progress | None


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
    :raises InputError: a tokenizer of another model, or a model with too few positions for the answers.
    """
    if model.config.n_vocab != tokenizer.n_vocab:
        raise InputError(f"model: found n_vocab = {model.config.n_vocab}, expected the tokenizer's {tokenizer.n_vocab}")
    task.check_room(model.config.n_ctx)
    places = [int(place) for place in choose_rows(len(rows.asked), max_rows, SEED)]
    asked = [(rows.asked[place], drawn(rows, place, shots, SEED)) for place in places]
    run = _Run(model, tokenizer, task, asked, places, shots, rows.between, progress)
    return _chosen(run) if task.writing is None else _written(run)


# --- chosen and graded ---


def _chosen(run: _Run) -> Answered:
    model, tokenizer, task, asked, _, shots, between, progress = run
    encode = functools.cache(tokenizer.encode_next)
    known: dict[tuple[tuple[int, ...], tuple[str, ...]], NDArray[np.float64]] = {}  # prompts about nothing are few
    plain, calibrated, kept, shown = [], [], [], []
    for done, (item, examples) in enumerate(asked, start=1):
        answers = [encode(text) for text in item.answers]
        lengths = np.asarray([max(1, len(ids)) for ids in answers])
        room = max(1, model.config.n_ctx - int(lengths.max()))
        found = prompts(tokenizer, item, examples, shots, room, between)
        own = np.concatenate([answers_after(model, prompt.ids, answers) for prompt in found])
        plain.append(own / lengths if task.per_token else own)
        if item.empty:
            empty = empty_prompt(tokenizer, item, examples, found[0].shots, room, between)
            if (key := (tuple(empty), item.answers)) not in known:
                known[key] = answers_after(model, empty, answers)
            own = own - known[key]
        calibrated.append(own)
        kept.append(found[0].shots)
        shown.append(tokenizer.decode(found[0].ids)[-_SHOWN:])
        if progress is not None:
            progress(done, len(asked))
    decide = _grade if task.metric in ("pearson", "spearman") else _likeliest
    right = np.asarray([item.right for item, _ in asked], dtype=np.float64)
    guesses = np.asarray([decide(values) for values in plain])
    measure = METRICS[task.metric]  # type: ignore[index]  # a chosen answer's metric is one of them
    scores = {"score": measure(guesses, right)}
    if task.name in REGISTRY:
        scores = scores_of(REGISTRY[task.name], guesses, right, [item.subset for item, _ in asked])
    if any(item.empty for item, _ in asked):
        scores["calibrated"] = measure(np.asarray([decide(values) for values in calibrated]), right)
    lines = [
        {"prompt": prompt, "answer": _named(item, guess), "right": _named(item, float(item.right or 0))}
        for prompt, (item, _), guess in zip(shown, asked, guesses, strict=True)
    ]
    return Answered(task.metric, scores, _chance(task, asked), statistics.fmean(kept), len(asked), lines)


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


def _chance(task: PromptTask, asked: Asked) -> float:
    """The headline of guessing evenly: for accuracy one of n, for a correlation 0, for F1 that of even guesses."""
    if task.metric == "accuracy":
        return statistics.fmean(1 / max(len(item.answers), len(item.questions)) for item, _ in asked)
    if task.metric == "f1":
        ones = statistics.fmean(float(item.right or 0) for item, _ in asked)
        return ones / (ones + 0.5)  # precision is the share of ones, recall a half
    return 0.0


# --- written ---


def _written(run: _Run) -> Answered:
    model, tokenizer, task, asked, places, shots, between, progress = run
    writing, measure = task.writing, task.measure
    assert writing is not None
    assert measure is not None
    room = model.config.n_ctx - writing.room(model.config.n_ctx)
    found = [prompts(tokenizer, item, examples, shots, room, between)[0] for item, examples in asked]
    items = [item for item, _ in asked]
    texts = [""] * len(items)
    order = sorted(range(len(items)), key=lambda row: len(found[row].ids))  # like lengths together
    stops = _line_ends(tokenizer) if writing.one_line else frozenset[int]()
    for first in range(0, len(order), _AT_ONCE):
        some = order[first : first + _AT_ONCE]
        seeds = [SEED + places[row] for row in some]  # a row's draws are its own, whichever others are asked
        ids = _continued(model, tokenizer, [found[row] for row in some], writing, stops, seeds)
        for row, drawn_ids in zip(some, ids, strict=True):
            texts[row] = _answer_text(tokenizer.decode(drawn_ids), writing)
        if progress is not None:
            progress(min(first + _AT_ONCE, len(order)), len(order))
    scores = measure(texts, items)
    if task.word:
        words = last_words(model, tokenizer, [prompt.ids for prompt in found], items)
        scores |= {"accuracy, no stop words": words.accuracy, "perplexity of the word": words.perplexity}
    chance = None
    for name, guesses in task.baselines(items) if task.baselines else ():
        blind = measure(guesses, items)
        scores[name] = blind[task.metric]
        parts = (part for part in blind if part.startswith(f"{task.metric}-"))  # of a mean, as ROUGE's
        scores |= {f"{name}, {part}": blind[part] for part in parts}
        chance = scores[name] if chance is None else chance
    lines = [
        {"prompt": tokenizer.decode(prompt.ids)[-_SHOWN:], "answer": text, "right": item.answers[0]}
        for prompt, item, text in zip(found, items, texts, strict=True)
    ]
    shots_found = statistics.fmean(prompt.shots for prompt in found)
    scores = {"score": scores[task.metric], **scores}
    return Answered(task.metric, scores, chance, shots_found, len(items), lines)


def _continued(
    model: LanguageModel,
    tokenizer: Tokenizer,
    found: Sequence[Prompt],
    writing: Writing,
    stops: frozenset[int],
    seeds: Sequence[int],
) -> list[list[int]]:
    """What the model writes on prompts."""
    settings: dict[str, Any] = {"temperature": 0.0} if writing.top_k == 1 else {"top_k": writing.top_k}
    return generate_ids(
        model,
        [prompt.ids for prompt in found],
        n_vocab=tokenizer.n_vocab,
        max_tokens=writing.room(model.config.n_ctx),
        stop=stops | ({tokenizer.end_of_text} if tokenizer.end_of_text is not None else set()),
        seed=seeds,
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
