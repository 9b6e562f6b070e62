"""A fine-tuned model on rows: every number of the task's metrics on an encoded split, and answers to rows of text.

Of rows of text any number is answered in bounded memory, without an encoded dataset.

N rows, K classes, C choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gptcore.base.errors import InputError, require
from gptcore.base.files import read_json
from gptcore.base.types import Advance, quiet
from gptcore.data.feed import by_length, evaluation_tokens
from gptcore.evaluation.predictions import Predictions, RowPredictions
from gptcore.families import FAMILIES
from gptcore.machine.device import autocast, pick_device, pick_dtype
from gptcore.models.classifier import Classifier
from gptcore.nlu.encoded import encoded_task
from gptcore.nlu.examples import Example
from gptcore.nlu.forms import form_of
from gptcore.nlu.inputs import RowReader
from gptcore.nlu.metrics import score
from gptcore.nlu.own_rows import NOTES, Note
from gptcore.nlu.registry import TaskSpec, recorded_task
from gptcore.nlu.rows import Rows, split_rows
from gptcore.text.tokenizer import Tokenizer

EVAL_ROW_SEED = 0
"""Which rows `max_rows` keeps: the same for every fine-tuning seed, so that all are scored on the same rows."""


def reader_for(model: Classifier, spec: TaskSpec, part_tokens: int | None = None) -> RowReader:
    """How a network that is fine-tuned reads the rows of a task.

    :param part_tokens: of its settings, where it was fine-tuned as released.
    """
    config = model.network.config
    kind: type[RowReader] = FAMILIES[config.family].part("inputs")
    return kind(spec, config.n_ctx, config.n_vocab, part_tokens, words=model.words)


@torch.inference_mode()
def passes(
    model: nn.Module, rows: Rows, device: torch.device, dtype: torch.dtype = torch.float32
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Rows of like lengths by their numbers, and the logits that the model, which is in eval mode, gives them."""
    for chosen in by_length(rows.sizes, evaluation_tokens(device)):
        batch = rows.batch(chosen).to(device)
        with autocast(device, dtype):
            logits, _ = model(batch.tokens, batch.clf_position, **batch.marks)
        yield chosen, logits.float().cpu().numpy()


def logits_of(
    model: nn.Module,
    rows: Rows,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    progress: Advance = quiet,
) -> list[NDArray[np.float32]]:
    """The logits of each row in eval mode, whichever mode ``model`` is in; the language model's head is left out.

    :param model: a :class:`Classifier`, or what stands in for one.
    :param dtype: type of the matrix products.
    :param progress: called with the number of rows (of windows, where texts are read in these) done since the last
        call.
    """
    if training := model.training:  # both go through all parts, which takes as long as a layer of a short row
        model.eval()
    logits: list[NDArray[np.float32]] = [np.empty(0, dtype=np.float32)] * len(rows)
    for chosen, outputs in passes(model, rows, device, dtype):
        for row, values in zip(chosen, outputs, strict=True):
            logits[row] = values
        progress(len(chosen))
    if training:
        model.train()
    return logits


def predict_rows(
    model: nn.Module,
    spec: TaskSpec,
    rows: Rows,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    progress: Advance = quiet,
) -> RowPredictions:
    """What a model answers all rows with; the parameters are those of :func:`logits_of`."""
    return answers_of(spec, rows, logits_of(model, rows, device, dtype, progress))


def answers_of(spec: TaskSpec, rows: Rows, logits: Sequence[NDArray[np.float32]]) -> RowPredictions:
    """What rows are answered with by these logits of theirs."""
    made: Callable[[TaskSpec, Rows, Sequence[NDArray[np.float32]]], RowPredictions]
    made = form_of(spec).part("predictions")
    return made(spec, rows, logits)


def mean_loss(spec: TaskSpec, rows: Rows, logits: Sequence[NDArray[np.float32]], device: torch.device) -> float:
    """The mean of the task's loss over labelled rows (over windows, where texts are read in these), nats.

    :param logits: what :func:`logits_of` gave on ``device``.
    """
    loss_of: Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor] = form_of(spec).part("loss")
    total = 0.0
    for chosen in by_length(rows.sizes, evaluation_tokens(device)):  # batches as then, so logits are of one width
        batch = torch.from_numpy(np.stack([logits[row] for row in chosen]))
        total += len(chosen) * float(loss_of(batch, rows.batch(chosen).labels))
    return total / len(rows)


def evaluate(
    model_folder: Path,
    dataset: Path,
    split: str,
    *,
    max_rows: int | None = None,
    precision: str = "auto",
    predictions: Path | None = None,
    progress: Advance = quiet,
) -> dict[str, Any]:
    """Score a saved fine-tuned model on one split of the encoded dataset of its task.

    :param model_folder: what :meth:`Classifier.save` wrote.
    :param dataset: what :func:`gptcore.nlu.encoded.encode_task` wrote, with the same tokenizer.
    :param predictions: also write the predictions there, as JSON lines.
    :returns: the task's metrics ("score" first among equals), "task", "split", "rows", "truncated" (rows cut to fit)
        and "majority_collapse" (every row got the same answer).
    :raises InputError: if model and dataset belong to different tasks or tokenizers, or the split is not there.
    """
    model, config = Classifier.load(model_folder)
    spec = recorded_task(config)
    check_dataset(dataset, spec, config["tokenizer_digest"], model.network.config.n_vocab, str(model_folder))
    device = pick_device(0)
    rows = split_rows(reader_for(model, spec, config.get("part_tokens")), dataset, split, max_rows, EVAL_ROW_SEED)
    answers = predict_rows(model.to(device), spec, rows, device, pick_dtype(precision, device), progress).using(config)
    if predictions is not None:
        answers.write(spec, predictions)
    return {
        **answers.scores(spec),
        "task": spec.name,
        "split": split,
        "rows": rows.n_rows,
        "truncated": rows.truncated,
        "majority_collapse": answers.collapsed,
    }


def check_dataset(
    dataset: Path, spec: TaskSpec, tokenizer_digest: str | None, n_vocab: int, model: str
) -> dict[str, Any]:
    """The ``meta.json`` of an encoded dataset, once it is sure that the model can read it.

    :param tokenizer_digest: of the model; None where it is not known (an imported or an untrained one).
    :param model: how to name the model in a message.
    :raises InputError: if the folder is no encoded dataset, or one of another task, tokenizer or vocabulary size.
    """
    path = dataset / "meta.json"
    task = encoded_task(dataset, spec.name)
    if task.own and task.labels != spec.labels:
        raise InputError(f"{path}: found the labels {', '.join(task.labels)}, expected {', '.join(spec.labels)}")
    meta: dict[str, Any] = read_json(path)
    if tokenizer_digest not in (None, meta["tokenizer_digest"]):
        raise InputError(
            f"{path}: encoded with tokenizer {meta['tokenizer_digest']}, the model {model} expects {tokenizer_digest}"
        )
    require(meta["n_vocab"] == n_vocab, f"{path}: n_vocab = {meta['n_vocab']}, the model {model} has {n_vocab}")
    return meta


_ROWS = 1024  # rows held at a time: enough to sort by length with little padding, few enough to see progress
Row = TypeVar("Row")


class TaskModel:
    """A fine-tuned model, the task that it was fine-tuned on, and its tokenizer.

    It answers in float32 whatever it was trained in: in bfloat16 a row's probabilities would depend, in their third
    decimal, on the rows that it happens to be answered with.

    :param folder: what :meth:`Classifier.save` wrote.
    :raises InputError: no fine-tuned model, one with other labels than the registry's, or of another tokenizer.
    """

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        model, config = Classifier.load(folder)
        self.spec: TaskSpec = recorded_task(config)
        if config["labels"] != list(self.spec.labels):
            raise InputError(f"{folder / 'config.json'}: labels = {config['labels']}, expected {self.spec.labels}")
        if config["tokenizer_digest"] != tokenizer.digest:
            expected = config["tokenizer_digest"][:12]
            raise InputError(f"{folder}: found the tokenizer {tokenizer.digest[:12]}, expected the model's, {expected}")
        self._tokenizer = tokenizer
        self._settings = config
        self._device = pick_device(0)
        self._model = model.to(self._device)
        self._reader = replace(reader_for(model, self.spec, config.get("part_tokens")), pieces=tokenizer.specials)

    @cached_property
    def n_multiplied(self) -> int:
        """Weights that every position is multiplied with."""
        return sum(part.weight.numel() for part in self._model.modules() if isinstance(part, nn.Linear))

    def logits(self, examples: Iterable[Example], at_once: int = _ROWS) -> Iterator[NDArray[np.float32]]:
        """The logits of every row, in the order given: (K,) classes, or (C,) choices."""
        rows = iter(examples)
        while chunk := list(islice(rows, at_once)):
            yield from logits_of(self._model, self._rows(chunk), self._device)

    def answered(
        self,
        rows: Iterable[Row],
        read: Callable[[Row], Example | Note],
        at_once: int = _ROWS,
        progress: Advance = quiet,
    ) -> Iterator[tuple[Row, dict[str, Any]]]:
        """Each row of any kind, and what it is answered with, in bounded memory.

        :param read: a row as an example, or why it cannot be answered: a note beside an answer that is blank.
        :param at_once: as in :meth:`described`; so is ``progress``.
        """
        left, names = iter(rows), form_of(self.spec).signature(self.spec)
        blank = dict.fromkeys(name for name in names if not name.startswith("probability "))
        while chunk := list(islice(left, at_once)):
            taken = [read(row) for row in chunk]
            told = self.described([each for each in taken if not isinstance(each, Note)], at_once, progress)
            for row, each in zip(chunk, taken, strict=True):
                yield row, {**blank, NOTES[0]: each} if isinstance(each, Note) else next(told)

    def described(
        self, examples: Iterable[Example], at_once: int = _ROWS, progress: Advance = quiet
    ) -> Iterator[dict[str, Any]]:
        """What each row is answered with, as :meth:`RowPredictions.described` tells it, and a note if it is cut.

        :param at_once: rows read before the first of them is answered.
        :param progress: as in :func:`logits_of`; what it raises ends the work.
        """
        for predictions in self._predicted(examples, at_once, progress):
            answers = predictions.described(self.spec)
            for number, (n_read, n_tokens) in predictions.rows.cut.items():
                answers[number][NOTES[0]] = note = Note(f"{n_read:,} of {n_tokens:,} tokens were read")
                note.share = n_read / n_tokens
            yield from answers

    def _predicted(
        self, examples: Iterable[Example], at_once: int = _ROWS, progress: Advance = quiet
    ) -> Iterator[RowPredictions]:
        rows = iter(examples)
        while chunk := list(islice(rows, at_once)):
            predictions = predict_rows(self._model, self.spec, self._rows(chunk), self._device, progress=progress)
            yield predictions.using(self._settings)

    def scored(self, examples: Iterable[Example]) -> dict[str, float]:
        """The task's metrics over labelled rows, as :func:`gptcore.nlu.metrics.score`, and "rows".

        :raises InputError: no row, or answers that are places of a text, whose labels stand in no column.
        """
        values, labels = np.empty(0), np.empty(0)
        for predictions in self._predicted(examples):
            if not isinstance(predictions, Predictions):
                raise InputError(f"{self.spec.name}: found answers that are places of a text, expected labels")
            values, labels = np.append(values, predictions.values), np.append(labels, predictions.rows.labels)
        require(len(values), f"{self.spec.name}: found no labelled row, expected one or more")
        return {**score(self.spec, values, labels), "rows": len(values)}

    def summaries(self, examples: Sequence[Example]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What the linear layer reads of each choice of some rows, and their logits: (N, C, D) and (N, C).

        :raises InputError: a task whose rows have no choices.
        """
        if not form_of(self.spec).choices:
            raise InputError(f"{self.spec.name}: found the form {self.spec.form}, expected rows with choices")
        seen: list[torch.Tensor] = []
        handle = self._model.head.register_forward_pre_hook(lambda _, given: seen.append(given[0].cpu()))
        states: dict[int, NDArray[np.float32]] = {}
        logits: dict[int, NDArray[np.float32]] = {}
        try:
            for chosen, outputs in passes(self._model, self._rows(examples), self._device):
                states |= zip(chosen.tolist(), seen.pop().numpy(), strict=True)
                logits |= zip(chosen.tolist(), outputs, strict=True)
        finally:
            handle.remove()
        order = range(len(examples))
        return np.stack([states[row] for row in order]), np.stack([logits[row] for row in order])

    def _rows(self, examples: Sequence[Example]) -> Rows:
        made: Callable[[RowReader, Tokenizer, Sequence[Example]], Rows] = form_of(self.spec).part("asked_rows")
        return made(self._reader, self._tokenizer, examples)
