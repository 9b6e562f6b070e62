"""A model's answers to prompts, and their scores.

Answers are chosen, graded or generated. A chosen one is the likeliest of the candidates by the task's normalisation;
the scores by every other :class:`gptcore.papers.prompting.items.Normalisation` stand beside it. A grade is the mean of
the grades 0, 1, ..., each weighted by its probability.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gptcore.base.types import Floats, Progress, quiet
from gptcore.evaluation.generate import generate_ids
from gptcore.models.network import LanguageModel
from gptcore.nlu.metrics import METRICS
from gptcore.nlu.metrics import score as scores_of
from gptcore.papers.prompting.items import (
    ANSWER_CONTEXT,
    SEED,
    Decoding,
    FreeForm,
    Graded,
    MultipleChoice,
    Normalisation,
    PromptResult,
    WinogradSchema,
)
from gptcore.papers.prompting.likelihoods import answer_likelihoods, last_words
from gptcore.papers.prompting.measures import sentences
from gptcore.papers.prompting.rows import AskedRow, EncodedPrompt, Selection, prompt_without_content, prompts
from gptcore.papers.prompting.tasks import NO_STOP_WORDS, WORD_PERPLEXITY, PromptTask
from gptcore.text.tokenizer import Tokenizer

_AT_ONCE = 16  # answers that are generated together
_SHOWN = 400  # characters of a prompt's end

Ids = tuple[int, ...]
Question = tuple[Ids, tuple[Ids, ...]]
"""A prompt, and the answers that may go on it."""


class _Run(NamedTuple):
    """What is asked of whom, and how."""

    model: LanguageModel
    tokenizer: Tokenizer
    task: PromptTask
    selection: Selection
    shots: int
    progress: Progress


def answer(
    model: LanguageModel,
    tokenizer: Tokenizer,
    task: PromptTask,
    selection: Selection,
    shots: int,
    progress: Progress = quiet,
) -> PromptResult:
    """Put rows of a task to a model behind ``shots`` examples each.

    :param model: in eval mode.
    :param selection: the rows, with ``shots`` examples or more.
    :raises InputError: a tokenizer of another model, or a model with too few positions for the answers.
    """
    tokenizer.require_rows(model.config.n_vocab, "model")
    task.check_room(model.config.n_ctx)
    run = _Run(model, tokenizer, task, selection, shots, progress)
    return _chosen(run) if task.decoding is None else _generated(run, task.decoding)


# --- chosen and graded answers ---


class _Questions(NamedTuple):
    """One row, as what its candidates go on."""

    row: AskedRow
    prompts: list[EncodedPrompt]
    answers: tuple[Ids, ...]
    without_content: Ids
    """The prompt that says nothing, behind the same examples; empty where the task has none."""

    @property
    def item(self) -> MultipleChoice | Graded | WinogradSchema:
        assert not isinstance(self.row.item, FreeForm)
        return self.row.item


def _chosen(run: _Run) -> PromptResult:
    asked = [_questions(run, row) for row in run.selection.rows]
    answer_context = tuple(run.tokenizer.encode(ANSWER_CONTEXT))
    wanted: dict[Question, int] = {}  # prompts without content are few: each is scored once
    for each in asked:
        for ids in (*(tuple(prompt.ids) for prompt in each.prompts), each.without_content, answer_context):
            if ids:
                wanted.setdefault((ids, each.answers), len(wanted))
    likelihoods = answer_likelihoods(run.model, list(wanted), run.progress)
    by_normalisation: dict[Normalisation, list[float]] = {}
    graded = run.task.metric in ("pearson", "spearman")
    for each in asked:
        nats = np.concatenate([likelihoods[wanted[tuple(prompt.ids), each.answers]] for prompt in each.prompts])
        unconditional = likelihoods[wanted[answer_context, each.answers]]
        no_content = likelihoods[wanted[each.without_content, each.answers]] if each.without_content else None
        for name, values in _normalised(each, nats, unconditional, no_content):
            by_normalisation.setdefault(name, []).append(_grade(values) if graded else float(values.argmax()))
    return _result(run, asked, {name: np.asarray(guesses) for name, guesses in by_normalisation.items()})


def _questions(run: _Run, row: AskedRow) -> _Questions:
    item, tokenizer, separator = row.item, run.tokenizer, run.selection.separator
    assert not isinstance(item, FreeForm)
    texts = (item.rest,) if isinstance(item, WinogradSchema) else item.answers
    answers = tuple(tuple(tokenizer.encode_next(text)) for text in texts)
    room = max(1, run.model.config.n_ctx - max(map(len, answers)))
    asked = prompts(tokenizer, item, row.examples, run.shots, room, separator)
    if isinstance(item, WinogradSchema) or not item.no_content:
        return _Questions(row, asked, answers, ())
    kept = asked[0].shots
    return _Questions(
        row, asked, answers, tuple(prompt_without_content(tokenizer, item, row.examples, kept, room, separator))
    )


def _normalised(
    each: _Questions, nats: Floats, unconditional: Floats, no_content: Floats | None
) -> Iterator[tuple[Normalisation, Floats]]:
    """The scores of a row's candidates by every normalisation that means something for it.

    :param nats: log-probabilities behind the row's prompt; of a schema, of its rest behind each reading.
    :param unconditional: the same behind :data:`gptcore.papers.prompting.items.ANSWER_CONTEXT`.
    :param no_content: the same behind the prompt without content; None where there is no such prompt.
    """
    yield Normalisation.TOTAL, nats
    if isinstance(each.item, WinogradSchema):
        return  # both readings have the same rest: the others would change nothing
    if isinstance(each.item, MultipleChoice):
        yield Normalisation.PER_TOKEN, nats / [max(1, len(ids)) for ids in each.answers]
    yield Normalisation.UNCONDITIONAL, nats - unconditional
    if no_content is not None:
        yield Normalisation.CONTEXTUAL, nats - no_content


def _result(run: _Run, asked: Sequence[_Questions], guesses: dict[Normalisation, Floats]) -> PromptResult:
    """Scores of guesses by each normalisation; the task's own is the headline."""
    task = run.task
    right = np.asarray([each.item.right for each in asked], dtype=np.float64)
    measure = METRICS[task.metric]  # type: ignore[index]  # a chosen answer's metric is one of them
    headline = guesses[task.normalisation]
    if task.spec is not None:
        subsets = ["" if isinstance(each.item, WinogradSchema) else each.item.subset for each in asked]
        scores = scores_of(task.spec, headline, right, subsets)
    else:
        scores = {"score": measure(headline, right)}
    if len(guesses) > 1:
        scores |= {name.value: measure(values, right) for name, values in guesses.items()}
    lines = [
        {
            "prompt": run.tokenizer.decode(each.prompts[0].ids)[-_SHOWN:],
            "answer": _in_words(each.item, guess),
            "right": _in_words(each.item, float(each.item.right)),
        }
        for each, guess in zip(asked, headline, strict=True)
    ]
    shots = statistics.fmean(each.prompts[0].shots for each in asked)
    return PromptResult(
        task.metric, scores, _chance(task, asked), shots, len(asked), run.selection.examples_from, lines
    )


def _grade(scores: Floats) -> float:
    weights = np.exp(scores - scores.max())
    return float(weights @ np.arange(len(scores)) / weights.sum())


def _in_words(item: MultipleChoice | Graded | WinogradSchema, value: float) -> str:
    if isinstance(item, WinogradSchema):
        return item.readings[round(value)][-100:]
    return item.answers[round(value)] if value == round(value) else f"{value:.2f}"


def _chance(task: PromptTask, asked: Sequence[_Questions]) -> float:
    """The headline of guessing evenly: for accuracy one of n, for a correlation 0, for F1 that of even guesses."""
    if task.metric == "accuracy":
        return statistics.fmean(1 / max(len(each.answers), len(each.prompts)) for each in asked)
    if task.metric == "f1":
        ones = statistics.fmean(each.item.right for each in asked)
        return ones / (ones + 0.5)  # precision is the share of ones, recall a half
    return 0.0


# --- generated answers ---


def _generated(run: _Run, decoding: Decoding) -> PromptResult:
    model, tokenizer, task, selection, shots, progress = run
    measure = task.measure
    assert measure is not None
    room = model.config.n_ctx - decoding.room(model.config.n_ctx)
    items = [row.item for row in selection.rows if isinstance(row.item, FreeForm)]
    asked = [prompts(tokenizer, row.item, row.examples, shots, room, selection.separator)[0] for row in selection.rows]
    texts = [""] * len(items)
    order = sorted(range(len(items)), key=lambda row: len(asked[row].ids))  # like lengths together
    stops = _line_ends(tokenizer) if decoding.one_line else frozenset[int]()
    ends = {tokenizer.end_of_text} if tokenizer.end_of_text is not None else set()
    drawn: dict[str, Any] = {"temperature": 0.0} if decoding.top_k == 1 else {"top_k": decoding.top_k}
    for first in range(0, len(order), _AT_ONCE):
        some = order[first : first + _AT_ONCE]
        ids = generate_ids(
            model,
            [asked[row].ids for row in some],
            n_vocab=tokenizer.n_vocab,
            max_tokens=decoding.room(model.config.n_ctx),
            stop=stops | ends,
            seed=[SEED + selection.rows[row].number for row in some],  # its own, whichever others are asked
            **drawn,
        )
        for row, written in zip(some, ids, strict=True):
            texts[row] = _answer_text(tokenizer.decode(written), decoding)
        progress(min(first + _AT_ONCE, len(order)), len(order))
    scores = measure(texts, items)
    if task.word:
        words = last_words(model, tokenizer, [prompt.ids for prompt in asked], items)
        scores |= {NO_STOP_WORDS: words.accuracy, WORD_PERPLEXITY: words.perplexity}
    blind, chance = _baselines(task, items)
    lines = [
        {"prompt": tokenizer.decode(prompt.ids)[-_SHOWN:], "answer": text, "right": item.answers[0]}
        for prompt, item, text in zip(asked, items, texts, strict=True)
    ]
    return PromptResult(
        task.metric,
        {"score": scores[task.metric], **scores, **blind},
        chance,
        statistics.fmean(prompt.shots for prompt in asked),
        len(items),
        selection.examples_from,
        lines,
    )


def _baselines(task: PromptTask, items: Sequence[FreeForm]) -> tuple[dict[str, float], float | None]:
    """Scores of answers that are given without a model, and the first of them, which is a blind guess's."""
    assert task.measure is not None
    scores: dict[str, float] = {}
    chance = None
    for name, guesses in task.baselines(items) if task.baselines else ():
        blind = task.measure(guesses, items)
        parts = {part: value for part, value in blind.items() if part.startswith(f"{task.metric}-")}  # of a mean
        scores |= {name: blind[task.metric], **{f"{name}, {part}": value for part, value in parts.items()}}
        chance = blind[task.metric] if chance is None else chance
    return scores, chance


@functools.lru_cache(maxsize=8)
def _line_ends(tokenizer: Tokenizer) -> frozenset[int]:
    """Ids whose text holds a line break."""
    return frozenset(index for index in range(tokenizer.n_vocab) if "\n" in tokenizer.decode([index]))


def _answer_text(text: str, decoding: Decoding) -> str:
    if decoding.one_line:
        return text.partition("\n")[0].strip()
    return " ".join(sentences(text)[: decoding.sentences or None])
