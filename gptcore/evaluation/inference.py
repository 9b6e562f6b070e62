"""A fine-tuned model on a user's own rows, and a language model on a user's own text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import InputError, require
from gptcore.data.sampler import WindowBatch
from gptcore.evaluation.bits import bits_per_byte
from gptcore.evaluation.generate import generate_batch
from gptcore.evaluation.predict import TaskModel
from gptcore.machine.distributed import World
from gptcore.models.network import LanguageModel
from gptcore.nlu.forms import form_of
from gptcore.nlu.own_rows import NOTES, TYPED, asked_about, own_lines, passed_on, storable
from gptcore.nlu.readers import Record, decoded_lines
from gptcore.objectives.next_token import language_model_objective
from gptcore.objectives.objective import exponential, perplexity
from gptcore.text.tokenizer import Tokenizer
from gptcore.text.word_edges import set_apart

PREDICTION = "prediction"
_ROWS_AT_ONCE = 64  # few, as somebody may be waiting for the first
_TABLE_ROWS_AT_ONCE = 1024
_PROMPTS_AT_ONCE = 8  # a pass for eight takes little longer than for one, and their first lines are soon there
_BATCH_TOKENS = 8192  # of one forward pass


@dataclass
class Tally:
    """How rows are asked about, and what became of them.

    :param skip: answer any broken row blank, not only one without a text.
    """

    skip: bool = False
    rows: int = 0
    shares: list[float] = field(default_factory=list)
    """What was read of each row that has a note: nothing of one that was not answered, a part of one that was cut."""

    def __str__(self) -> str:
        """What is told at the end; empty where each row was read to its end and answered."""
        blank, cut = self.shares.count(0), [share for share in self.shares if share]
        told = [f"{blank:,} not answered"] if blank else []
        if cut:
            told.append(f"{len(cut):,} too long, of which on average {sum(cut) / len(cut):.0%} was read")
        return f"{self.rows:,} rows: {', '.join(told)}; each has a note" if told else ""


def _answered(
    model: TaskModel, records: Iterable[Record], tally: Tally, at_once: int
) -> Iterator[tuple[Record, dict[str, Any]]]:
    """:raises InputError: a broken row, once the rows of the batches before it are answered; or none has an answer."""
    first = ""
    if tally.skip:
        records = (storable(model.spec, row) for row in records)
    for row, answer in model.answered(records, partial(asked_about, model.spec, skip=tally.skip), at_once):
        tally.rows += 1
        if (note := answer.get(NOTES[0])) is not None:
            tally.shares.append(note.share)
            first = first or f"{row.file}, {row.unit} {row.line}, {note}"
        yield row, answer
    require(tally.shares.count(0) < max(1, tally.rows), f"{first}; found no row that can be answered")


def predict_jsonl(
    model: TaskModel, lines: Iterable[bytes], tally: Tally | None = None, name: str = TYPED
) -> Iterator[dict[str, Any]]:
    """Answer rows in the order given, in bounded memory; one without a text is answered blank, with a note.

    :param lines: JSON objects in UTF-8; their fields: :mod:`gptcore.nlu.own_rows`.
    :param tally: is kept; None: of no interest.
    :param name: what messages call the input.
    :return: for each row "line" (from 1), what it has beside its texts, and what the model's form says of its answer.
    :raises InputError: a broken row, once the rows of the batches before it are answered; names line and field.
    """
    tally = tally or Tally()
    answers = _answered(model, own_lines(model.spec, lines, tally.skip, name), tally, _ROWS_AT_ONCE)
    for number, (row, answer) in enumerate(answers, start=1):
        yield {"line": number, **passed_on(model.spec, row), **answer}


def predict_records(
    model: TaskModel, records: Iterable[Record], tally: Tally | None = None
) -> Iterator[dict[str, Any]]:
    """Each row's own columns, and "prediction" with its "probability", in the order given and in bounded memory.

    An answer that is more than one label is told in the cells that its form has for it
    (:meth:`gptcore.nlu.forms.form.Form.cells`). The parameters are those of :func:`predict_jsonl`.

    :raises InputError: a broken row, once the rows of the batches before it are answered; a column that the answers
        have as well, or text that no encoding can store.
    """
    for row, answer in _answered(model, records, tally or Tally(), _TABLE_ROWS_AT_ONCE):
        note = answer.pop(NOTES[0], None)
        if "label" in answer:
            label = answer["label"]
            cells = {PREDICTION: label, "probability": label and answer["probabilities"][label]}
        else:
            (_, first), *rest = form_of(model.spec).table_cells(model.spec, answer).items()
            cells = {PREDICTION: first, **dict(rest)}
        if taken := cells.keys() & row.columns.keys():
            raise row.error(min(taken), "this column", "none of its name, which the answers have")
        passed_on(model.spec, row)  # which looks at all of them
        if note is not None:
            cells[NOTES[NOTES[0] in row.columns]] = note
        yield {**row.columns, **cells}


def continue_lines(
    model: LanguageModel,
    tokenizer: Tokenizer,
    lines: Iterable[bytes],
    *,
    seed: int = 0,
    name: str = TYPED,
    **settings: Any,
) -> Iterator[dict[str, str]]:
    """Continue each line, several at a time and in their order.

    :param lines: prompts in UTF-8.
    :param seed: of the first line's draws; each line's is one more.
    :param name: what messages call the input.
    :param settings: those of :func:`gptcore.evaluation.generate.generate_batch`.
    :return: for each line "prompt" and "continuation".
    :raises InputError: a setting out of range; a line that is no UTF-8 or has no words, once those of the batches
        before it are continued; names it.
    """
    prompts = (_prompt(tokenizer, text.rstrip("\r\n"), f"{name}, line {n}") for n, text in decoded_lines(lines, name))
    while batch := list(itertools.islice(prompts, _PROMPTS_AT_ONCE)):
        continuations = generate_batch(model, tokenizer, batch, seed=seed, **settings)
        for prompt, continuation in zip(batch, continuations, strict=True):
            yield {"prompt": prompt, "continuation": continuation}
        seed += len(batch)


def _prompt(tokenizer: Tokenizer, text: str, place: str) -> str:
    if not tokenizer.encode(text):
        raise InputError(f"{place}: found {text!r}, expected a word or more to go on from")
    return text


def text_perplexity(model: LanguageModel, tokenizer: Tokenizer, lines: Iterable[bytes]) -> dict[str, float]:
    """How well a model predicts a text, which is one document whatever its lines.

    Windows of n_ctx tokens lie end to end, as in validation: every token but the first is predicted once, from those
    before it in its window; the first too where the tokenizer has an id that stands before a document, else it costs
    log V. What a word and a byte cost can be compared across vocabularies; of two kinds, the one of words says less.

    :param model: in eval mode.
    :param lines: UTF-8.
    :return: "tokens" (predicted), "words" (what white space sets apart; each letter of scripts that have none),
        "nats_per_token", "perplexity" (of a token), "word_perplexity" and "bits_per_byte" (both of the text as it was
        given; a word vocabulary says nothing of its capitals and blanks, and pays nothing for them).
    :raises InputError: no UTF-8, fewer than two tokens, or a tokenizer with another vocabulary than the model's.
    """
    tokenizer.require_rows(model.config.n_vocab, "model")
    n_words = n_bytes = 0

    def document() -> Iterator[str]:
        nonlocal n_words, n_bytes
        for _, text in decoded_lines(lines, TYPED):
            n_words += len(set_apart(text).split())
            n_bytes += len(text.encode())
            yield text

    parts = [np.asarray([] if tokenizer.beginning is None else [tokenizer.beginning], dtype=np.int32)]
    parts += map(tokenizer.encode_clean, tokenizer.rows(document()))
    ids = np.concatenate(parts).astype(np.int64)  # [N]
    if not n_words and len(ids) > 1:
        raise InputError(f"{TYPED}: found no word, expected one or more")
    require(len(ids) >= 2, f"{TYPED}: found {len(ids)} tokens, expected two or more, as the first is not predicted")
    alone = World(0, 1, model.tokens.weight.device)
    costs = perplexity(language_model_objective(model), _windows(ids, model.config.n_ctx), alone)
    text_ids = ids if tokenizer.beginning is None else ids[1:]
    scored, tokens = costs["tokens"], len(text_ids)
    nats = costs["loss"] * scored + (tokens - scored) * math.log(tokenizer.n_vocab)
    return {
        "tokens": int(costs["tokens"]),
        "words": n_words,
        "nats_per_token": costs["loss"],
        "perplexity": costs["perplexity"],
        "word_perplexity": exponential(nats / n_words),
        "bits_per_byte": bits_per_byte(costs["loss"], scored, tokens, tokenizer.n_vocab, n_bytes),
    }


def _windows(ids: NDArray[np.int64], n_ctx: int) -> Iterator[WindowBatch]:
    """(inputs, targets) [B, T] each: the whole windows of a document, then the rest of it as a shorter one."""
    n_targets = len(ids) - 1
    whole = n_targets - n_targets % n_ctx
    inputs, targets = ids[:whole].reshape(-1, n_ctx), ids[1 : whole + 1].reshape(-1, n_ctx)
    rows = max(1, _BATCH_TOKENS // n_ctx)
    for start in range(0, len(inputs), rows):
        yield inputs[start : start + rows], targets[start : start + rows]
    if whole < n_targets:
        yield ids[None, whole:-1], ids[None, whole + 1 :]
