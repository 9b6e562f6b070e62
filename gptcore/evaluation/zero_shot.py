"""What a pre-trained model can do before any fine-tuning: the four heuristics of section 5, and BLiMP.

    task   heuristic                                                                            headline
    cola   average token log-probability of the sentence, thresholded                           Matthews
    sst2   append "very"; is "positive" or "negative" the likelier next word?                   accuracy
    race   the answer of highest average log-probability, given document and question          accuracy
    dprd   the referent that, in the pronoun's place, makes the rest of the sentence likeliest  accuracy

The paper does not say where CoLA's threshold comes from; here it is the one that is best on training rows. DPRD is
the definite pronoun resolution set (Rahman and Ng, 2012), not one of the twelve tasks.

BLiMP is scored by full-sentence log-probability, its paper's "simple LM method": is the good sentence the likelier one?

Whichever the model, both sentences are scored alike:

- Text goes through the tokenizer's own cleaning, lower-casing included.
- A sentence stands after a full stop. GPT-1 has no token for the beginning of a text, yet the first word counts: 12 %
  of the pairs differ in it. What comes before a sentence in a book is the end of another one, so every model has often
  met a word after a full stop; harnesses put the beginning-of-text token of other models there.
- Summed is every token of the sentence, its own full stop included, and not divided by their number. An encoder's sum
  is its pseudo-log-likelihood (:mod:`gptcore.evaluation.likelihood`), of the sentence without that full stop.
- The good sentence has to be the likelier: equal ones count as wrong, as in the harness of BabyLM's baselines. Equal
  ids get equal sums; the published files have seven pairs of one and the same sentence.

A field's score is the mean of its paradigms; the score of all is the mean of the 12 fields, as BabyLM reports it. The
BLiMP paper's own overall figure is the mean of the 67 paradigms, kept beside it: large fields weigh more there.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.base.seeds import choose_rows
from gptcore.base.types import quiet
from gptcore.evaluation.likelihood import Likelihood, NetworkLikelihood
from gptcore.models.network import load_language_model
from gptcore.nlu import load_task
from gptcore.nlu.blimp import BLIMP, CHANCE, FIELDS, ZERO_SHOT_TASKS, check_zero_shot, read_paradigm
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.metrics import matthews_of_counts
from gptcore.nlu.readers import Example
from gptcore.nlu.readers.winograd import read_dprd
from gptcore.nlu.registry import task_spec
from gptcore.text.tokenizer import Tokenizer

Progress = Callable[[str, int, int], object]
"""Called with (task, sequences scored, sequences in all)."""

_ROW_SEED = 0  # which rows `max_rows`, and which pairs `max_pairs` keeps
_BEFORE = "."  # what a sentence of BLiMP follows


_Pairs = Sequence[tuple[list[int], list[int]]]
_Scored = Callable[[_Pairs], tuple[NDArray[Any], NDArray[Any]]]
"""Summed log-probability of each continuation behind its context, and of how many tokens it is: [N] each."""


def _means(scored: _Scored, pairs: _Pairs) -> NDArray[Any]:
    """Average log-probability of the tokens of each continuation: float64 [N]; 0 where it has none."""
    sums, counts = scored(pairs)
    return np.asarray(sums / np.maximum(1, counts))


def zero_shot(
    model_folder: str | Path,
    tokenizer: Tokenizer,
    datasets_url: str,
    tasks: Sequence[str] = ZERO_SHOT_TASKS,
    max_rows: int | None = None,
    progress: Progress = quiet,
) -> dict[str, dict[str, Any]]:
    """Score a pre-trained model on section 5's tasks without training it.

    :param model_folder: anything that :meth:`gptcore.GPT.load` opens.
    :param max_rows: at most so many rows a task (a seeded choice; for CoLA also of the rows that set the threshold).
    :returns: task -> {"score", "metric", "chance" (score of a random guess), "rows", and "threshold" for cola}.
    :raises InputError: for an unknown task, a missing or broken file, or a tokenizer with another vocabulary.
    """
    check_zero_shot(tasks)
    model = load_language_model(str(model_folder))
    tokenizer.require_rows(model.config.n_vocab, str(model_folder))
    run = {"cola": _cola, "sst2": _sst2, "race": _race, "dprd": _dprd}
    scored = NetworkLikelihood(model, tokenizer.opening).continuations
    return {
        task: run[task](partial(scored, progress=partial(progress, task)), tokenizer, datasets_url, max_rows)
        for task in tasks
    }


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


def _cola(scored: _Scored, tokenizer: Tokenizer, url: str, max_rows: int | None) -> dict[str, Any]:
    scores, labels = {}, {}
    for split in ("train", "dev"):
        rows = _labelled(load_task("cola", url, split=split), max_rows)
        encoded = tokenizer.encode_batch([row.fields[0] for row in rows])
        scores[split] = _means(scored, [([], ids) for ids in encoded])
        labels[split] = np.asarray([row.label for row in rows], dtype=np.int64)
    threshold = best_threshold(scores["train"], labels["train"])
    matthews = _matthews(scores["dev"] > threshold, labels["dev"])
    return _result(matthews, "matthews", 0.0, len(labels["dev"])) | {"threshold": threshold}


def _sst2(scored: _Scored, tokenizer: Tokenizer, url: str, max_rows: int | None) -> dict[str, Any]:
    rows = _labelled(load_task("sst2", url, split="dev"), max_rows)
    very, negative, positive = map(tokenizer.encode_next, ("very", "negative", "positive"))
    contexts = [ids + very for ids in tokenizer.encode_batch([row.fields[0] for row in rows])]
    # Sums, not averages: a small vocabulary may cut either word into pieces, and its probability is their product.
    sums, _ = scored([(context, word) for context in contexts for word in (negative, positive)])
    return _accuracy(sums.reshape(-1, 2).argmax(axis=1), [row.label for row in rows], 0.5)


def _race(scored: _Scored, tokenizer: Tokenizer, url: str, max_rows: int | None) -> dict[str, Any]:
    rows = _labelled(load_task("race", url, split="dev"), max_rows)
    contexts = tokenizer.encode_batch([" ".join(row.fields) for row in rows])
    answers = iter([tokenizer.encode_next(choice) for row in rows for choice in row.choices])
    means = _means(
        scored, [(context, next(answers)) for row, context in zip(rows, contexts, strict=True) for _ in row.choices]
    )
    n_choices = len(rows[0].choices)
    return _accuracy(means.reshape(-1, n_choices).argmax(axis=1), [row.label for row in rows], 1 / n_choices)


def _dprd(scored: _Scored, tokenizer: Tokenizer, url: str, max_rows: int | None) -> dict[str, Any]:
    schemas = list(read_dprd(url, "test"))
    schemas = [schemas[row] for row in choose_rows(len(schemas), max_rows, _ROW_SEED)]
    contexts = iter(tokenizer.encode_batch([schema.resolved(referent) for schema in schemas for referent in range(2)]))
    rests = [tokenizer.encode_next(schema.after) for schema in schemas]
    means = _means(scored, [(next(contexts), rest) for rest in rests for _ in range(2)])
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
    tp = ones.sum() - below_ones
    values = matthews_of_counts(below - below_ones, below_ones, (len(ones) - below) - tp, tp)
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


def score_pairs(
    model: Likelihood,
    tokenizer: Tokenizer,
    datasets_url: str,
    max_pairs: int | None = None,
    progress: Progress = quiet,
) -> dict[str, Any]:
    """Accuracies of one model on BLiMP.

    :param max_pairs: about so many pairs a field, drawn by a seed from its paradigms in equal numbers; None: all.
    :returns: "score" (mean of the fields), "paradigms_mean", "fields" and "paradigms" (name -> accuracy), "pairs",
        "ties" (pairs of equal log-probability, counted as wrong) and "chance".
    :raises InputError: a missing or broken file, or a tokenizer with another vocabulary than the model's.
    """
    tokenizer.require_rows(model.n_vocab, "the model")
    names, texts = [], []  # of each pair; of its two sentences, the good one first
    for paradigms in FIELDS.values():
        share = None if max_pairs is None else -(-max_pairs // len(paradigms))
        for paradigm in paradigms:
            pairs = list(read_paradigm(datasets_url, paradigm))
            for row in choose_rows(len(pairs), share, _ROW_SEED):
                names.append(paradigm)
                texts += [pairs[row].good, pairs[row].bad]
    # An encoder's sentence begins the sequence, and needs nothing before it.
    before = [*tokenizer.opening, *tokenizer.encode(_BEFORE)[-1:]]
    sequences = [(*before, *tokenizer.encode_next(text)) for text in texts]
    places = {ids: place for place, ids in enumerate(dict.fromkeys(sequences))}
    log_likelihoods = model.log_probabilities(list(places), partial(progress, BLIMP))
    sums = log_likelihoods[[places[ids] for ids in sequences]].reshape(-1, 2)  # (pairs, 2)
    right, paradigm_of = sums[:, 0] > sums[:, 1], np.asarray(names)
    accuracies = {
        field: {paradigm: float(right[paradigm_of == paradigm].mean()) for paradigm in paradigms}
        for field, paradigms in FIELDS.items()
    }
    fields = {field: statistics.fmean(of.values()) for field, of in accuracies.items()}
    every = {paradigm: accuracy for of in accuracies.values() for paradigm, accuracy in of.items()}
    return {
        "score": statistics.fmean(fields.values()),
        "paradigms_mean": statistics.fmean(every.values()),
        "fields": fields,
        "paradigms": every,
        "pairs": len(names),
        "ties": int((sums[:, 0] == sums[:, 1]).sum()),
        "chance": CHANCE,
    }
