"""The last word of a passage (LAMBADA): how likely it is, and what a model says in its place when it must be a word.

Predictions often go on where a word should end the passage. A stop word can hardly do so, so that leaving those out
stands in for knowing that the passage ends (GPT-2's paper, section 3.3). Candidates: the likeliest first tokens, each
continued greedily; a word's probability is that of all its tokens.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gptcore.evaluation.generate import generate_ids
from gptcore.evaluation.likelihood import NetworkLikelihood
from gptcore.models.incremental import open_reader
from gptcore.models.language_model import LanguageModel
from gptcore.prompting.items import Item
from gptcore.prompting.measures import first_word, is_word
from gptcore.text.tokenizer import Tokenizer

_CANDIDATES = 10
_LONGEST = 5  # tokens of a word behind its first
_AT_ONCE = 8  # passages


@dataclass(frozen=True)
class LastWords:
    """Over all passages."""

    accuracy: float
    """Share of right words when stop words are left out."""
    perplexity: float
    """Of the right word, all its tokens together."""


def last_words(
    model: LanguageModel, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], items: Sequence[Item]
) -> LastWords:
    """Score the last words of passages.

    :param prompts: ids of each passage without its last word.
    """
    right = [(ids, tokenizer.encode_next(item.answers[0])) for ids, item in zip(prompts, items, strict=True)]
    sums, _ = NetworkLikelihood(model).continuations(right)
    said = said_words(model, tokenizer, prompts)
    accuracy = float(np.mean([is_word(word, item) for word, item in zip(said, items, strict=True)]))
    return LastWords(accuracy, math.exp(-float(sums.mean())))


def said_words(model: LanguageModel, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]]) -> list[str]:
    """The likeliest word behind each prompt that is no stop word; the likeliest of all where each candidate is one."""
    found: list[str] = []
    likelihood = NetworkLikelihood(model)
    for first in range(0, len(prompts), _AT_ONCE):
        some = prompts[first : first + _AT_ONCE]
        starts = [[*ids, token] for ids in some for token in _likeliest(model, tokenizer, ids)]
        texts = generate_ids(model, starts, n_vocab=tokenizer.n_vocab, max_tokens=_LONGEST, temperature=0.0)
        said = [_word_of(tokenizer, [start[-1], *more]) for start, more in zip(starts, texts, strict=True)]
        words = [first_word(tokenizer.decode(ids)) for ids in said]
        sums, _ = likelihood.continuations([(start[:-1], ids) for start, ids in zip(starts, said, strict=True)])
        for row in range(len(some)):
            its = range(row * _CANDIDATES, (row + 1) * _CANDIDATES)
            ordered = sorted(its, key=lambda place: -sums[place])
            ending = [words[place] for place in ordered if words[place] and words[place] not in stop_words()]
            found.append(ending[0] if ending else words[ordered[0]])
    return found


def _word_of(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """The ids of the word that a text begins with; the first id where it begins with none."""
    whole = first_word(tokenizer.decode(ids))
    return next(ids[:end] for end in range(1, len(ids) + 1) if first_word(tokenizer.decode(ids[:end])) == whole)


def _likeliest(model: LanguageModel, tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """The likeliest next tokens."""
    with torch.inference_mode():
        logits = open_reader(model).feed([ids])[0, : tokenizer.n_vocab]
    return [int(index) for index in logits.topk(_CANDIDATES).indices]


@functools.cache
def stop_words() -> frozenset[str]:
    """Words that hardly end a passage: scikit-learn's list for English."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # a second: only where it is asked for

    return frozenset(ENGLISH_STOP_WORDS)
