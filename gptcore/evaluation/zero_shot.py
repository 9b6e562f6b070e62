"""What a pre-trained model can do before any fine-tuning: the four heuristics of section 5.

    task   heuristic                                                                            headline
    cola   average token log-probability of the sentence, thresholded                           Matthews
    sst2   append "very"; is "positive" or "negative" the likelier next word?                   accuracy
    race   the answer of highest average log-probability, given document and question          accuracy
    dprd   the referent that, in the pronoun's place, makes the rest of the sentence likeliest  accuracy

The paper does not say where CoLA's threshold comes from; here it is the one that is best on training rows. DPRD is
the definite pronoun resolution set (Rahman and Ng, 2012), not one of the twelve tasks.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.base.seeds import choose_rows
from gptcore.evaluation.likelihood import NetworkLikelihood
from gptcore.models.build import load_language_model
from gptcore.models.network import LanguageModel
from gptcore.nlu import load_task
from gptcore.nlu.blimp import ZERO_SHOT_TASKS, check_zero_shot
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.readers import Example
from gptcore.nlu.readers.winograd import read_dprd
from gptcore.nlu.registry import task_spec
from gptcore.text.tokenizer import Tokenizer

Progress = Callable[[str, int, int], None]
"""Called with (task, sequences scored, sequences in all)."""

_ROW_SEED = 0  # which rows `max_rows` keeps


class _Scorer:
    """Log-probabilities of continuations under one model, and how far a task has got."""

    def __init__(self, model: LanguageModel, progress: Progress | None) -> None:
        self._likelihood = NetworkLikelihood(model)
        self._progress = progress

    def totals(self, task: str, pairs: Sequence[tuple[list[int], list[int]]]) -> NDArray[Any]:
        """Summed log-probability of each continuation behind its context: float64 [N]."""
        return self._scored(task, pairs)[0]

    def means(self, task: str, pairs: Sequence[tuple[list[int], list[int]]]) -> NDArray[Any]:
        """Average log-probability of the tokens of each continuation: float64 [N]; 0 where it has none."""
        sums, counts = self._scored(task, pairs)
        return np.asarray(sums / np.maximum(1, counts))

    def _scored(self, task: str, pairs: Sequence[tuple[list[int], list[int]]]) -> tuple[NDArray[Any], NDArray[Any]]:
        counted = functools.partial(self._progress, task) if self._progress is not None else None
        return self._likelihood.continuations(pairs, counted)


def zero_shot(
    model_folder: str | Path,
    tokenizer: Tokenizer,
    datasets_url: str,
    tasks: Sequence[str] = ZERO_SHOT_TASKS,
    max_rows: int | None = None,
    progress: Progress | None = None,
) -> dict[str, dict[str, Any]]:
    """Score a pre-trained model on section 5's tasks without training it.

    :param model_folder: anything that :meth:`gptcore.GPT.load` opens.
    :param max_rows: at most so many rows a task (a seeded choice; for CoLA also of the rows that set the threshold).
    :returns: task -> {"score", "metric", "chance" (score of a random guess), "rows", and "threshold" for cola}.
    :raises InputError: for an unknown task, a missing or broken file, or a tokenizer with another vocabulary.
    """
    check_zero_shot(tasks)
    model = load_language_model(str(model_folder))
    if model.config.n_vocab != tokenizer.n_vocab:
        raise InputError(
            f"{model_folder}: the model has n_vocab = {model.config.n_vocab}, the tokenizer {tokenizer.n_vocab}"
        )
    run = {"cola": _cola, "sst2": _sst2, "race": _race, "dprd": _dprd}
    scorer = _Scorer(model, progress)
    return {task: run[task](scorer, tokenizer, datasets_url, max_rows) for task in tasks}


def sources_fingerprint(datasets_url: str, tasks: Sequence[str]) -> str:
    """SHA-256 of what :func:`zero_shot` would read for ``tasks``.

    :raises InputError: if a file is missing.
    """
    files: dict[str, str] = {}
    for task in tasks:
        if task == "dprd":
            path = f"{datasets_url.rstrip('/')}/DPRD/test.c.txt"
            try:
                with fsspec.open(path, "rb") as file:
                    files[task] = hashlib.sha256(file.read()).hexdigest()
            except FileNotFoundError:
                raise InputError(f"{path}: no such file; expected the definite pronoun resolution set") from None
        else:
            files[task] = dataset_fingerprint(task_spec(task), datasets_url)
    return sha256_json(files)


def _cola(scorer: _Scorer, tokenizer: Tokenizer, url: str, max_rows: int | None) -> dict[str, Any]:
    scores, labels = {}, {}
    for split in ("train", "dev"):
        rows = _labelled(load_task("cola", url, split=split), max_rows)
        encoded = tokenizer.encode_batch([row.fields[0] for row in rows])
        scores[split] = scorer.means("cola", [([], ids) for ids in encoded])
        labels[split] = np.asarray([row.label for row in rows], dtype=np.int64)
    threshold = best_threshold(scores["train"], labels["train"])
    matthews = _matthews(scores["dev"] > threshold, labels["dev"])
    return _result(matthews, "matthews", 0.0, len(labels["dev"])) | {"threshold": threshold}


def _sst2(scorer: _Scorer, tokenizer: Tokenizer, url: str, max_rows: int | None) -> dict[str, Any]:
    rows = _labelled(load_task("sst2", url, split="dev"), max_rows)
    very, negative, positive = map(tokenizer.encode_next, ("very", "negative", "positive"))
    contexts = [ids + very for ids in tokenizer.encode_batch([row.fields[0] for row in rows])]
    # Sums, not averages: a small vocabulary may cut either word into pieces, and its probability is their product.
    sums = scorer.totals("sst2", [(context, word) for context in contexts for word in (negative, positive)])
    return _accuracy(sums.reshape(-1, 2).argmax(axis=1), [row.label for row in rows], 0.5)


def _race(scorer: _Scorer, tokenizer: Tokenizer, url: str, max_rows: int | None) -> dict[str, Any]:
    rows = _labelled(load_task("race", url, split="dev"), max_rows)
    contexts = tokenizer.encode_batch([" ".join(row.fields) for row in rows])
    answers = iter([tokenizer.encode_next(choice) for row in rows for choice in row.choices])
    means = scorer.means(
        "race", [(context, next(answers)) for row, context in zip(rows, contexts, strict=True) for _ in row.choices]
    )
    n_choices = len(rows[0].choices)
    return _accuracy(means.reshape(-1, n_choices).argmax(axis=1), [row.label for row in rows], 1 / n_choices)


def _dprd(scorer: _Scorer, tokenizer: Tokenizer, url: str, max_rows: int | None) -> dict[str, Any]:
    schemas = list(read_dprd(url, "test"))
    schemas = [schemas[row] for row in choose_rows(len(schemas), max_rows, _ROW_SEED)]
    contexts = iter(tokenizer.encode_batch([schema.resolved(referent) for schema in schemas for referent in range(2)]))
    rests = [tokenizer.encode_next(schema.after) for schema in schemas]
    means = scorer.means("dprd", [(next(contexts), rest) for rest in rests for _ in range(2)])
    return _accuracy(means.reshape(-1, 2).argmax(axis=1), [schema.label for schema in schemas], 0.5)


def best_threshold(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """The cut, half-way between two scores, whose rule "score above the cut: label 1" has the highest Matthews value.

    One sort; the confusion counts at every cut follow by cumulative sums.
    """
    order = np.argsort(scores, kind="stable")
    ordered, ones = scores[order], labels[order].astype(np.float64)
    if len(ordered) < 2:
        return float(ordered[0]) if len(ordered) else 0.0
    below_ones, below = np.cumsum(ones)[:-1], np.arange(1.0, len(ones))  # the rows up to each cut are called 0
    tp, fn = ones.sum() - below_ones, below_ones
    tn, fp = below - below_ones, (len(ones) - below) - (ones.sum() - below_ones)
    scale = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    values = np.divide(tp * tn - fp * fn, scale, out=np.zeros_like(scale), where=scale > 0)
    values[ordered[1:] == ordered[:-1]] = -np.inf  # no cut separates equal scores
    best = int(values.argmax())
    return float((ordered[best] + ordered[best + 1]) / 2)


def _matthews(predicted: NDArray[Any], labels: NDArray[Any]) -> float:
    """Matthews correlation of two 0/1 vectors; 0 where either is constant."""
    predicted = predicted.astype(np.float64)
    if predicted.std() == 0.0 or labels.std() == 0.0:
        return 0.0
    return float(np.corrcoef(predicted, labels)[0, 1])  # for 0/1 values Pearson's formula is Matthews'


def _labelled(rows: list[Example], max_rows: int | None) -> list[Example]:
    rows = [row for row in rows if row.label is not None]
    return [rows[at] for at in choose_rows(len(rows), max_rows, _ROW_SEED)]


def _accuracy(predicted: NDArray[Any], labels: Sequence[int | float | None], chance: float) -> dict[str, Any]:
    return _result(float(np.mean(predicted == np.asarray(labels))), "accuracy", chance, len(labels))


def _result(score: float, metric: str, chance: float, rows: int) -> dict[str, Any]:
    return {"score": score, "metric": metric, "chance": chance, "rows": rows}
