"""BLiMP by full-sentence log-probability, the paper's "simple LM method": is the good sentence the likelier one?

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

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from gptcore.base.errors import InputError
from gptcore.base.seeds import choose_rows
from gptcore.evaluation.likelihood import Likelihood
from gptcore.nlu.blimp import CHANCE, FIELDS, read_paradigm
from gptcore.text.tokenizer import Tokenizer

Progress = Callable[[str, int, int], object]
"""Called with (what is counted, sentences done, sentences in all)."""

_BEFORE = "."  # what a sentence follows
_ROW_SEED = 0  # which pairs `max_pairs` keeps


def score_pairs(
    model: Likelihood,
    tokenizer: Tokenizer,
    datasets_url: str,
    max_pairs: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Accuracies of one model on BLiMP.

    :param max_pairs: about so many pairs a field, drawn by a seed from its paradigms in equal numbers; None: all.
    :returns: "score" (mean of the fields), "paradigms_mean", "fields" and "paradigms" (name -> accuracy), "pairs",
        "ties" (pairs of equal log-probability, counted as wrong) and "chance".
    :raises InputError: a missing or broken file, or a tokenizer with another vocabulary than the model's.
    """
    if model.n_vocab != tokenizer.n_vocab:
        raise InputError(f"the model has n_vocab = {model.n_vocab}, the tokenizer {tokenizer.n_vocab}")
    names, texts = [], []  # of each pair; of its two sentences, the good one first
    for paradigms in FIELDS.values():
        share = None if max_pairs is None else -(-max_pairs // len(paradigms))
        for paradigm in paradigms:
            pairs = list(read_paradigm(datasets_url, paradigm))
            for row in choose_rows(len(pairs), share, _ROW_SEED):
                names.append(paradigm)
                texts += [pairs[row].good, pairs[row].bad]
    before = tokenizer.encode(_BEFORE)[-1:]  # an encoder's sentence begins the sequence, and needs nothing before it
    sequences = [(*before, *tokenizer.encode_next(text)) for text in texts]
    places = {ids: place for place, ids in enumerate(dict.fromkeys(sequences))}
    report = None if progress is None else lambda done, total: progress("blimp", done, total)
    found = model.log_probabilities(list(places), report)
    sums = found[[places[ids] for ids in sequences]].reshape(-1, 2)  # (pairs, 2)
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
