"""A prompt read once, and what goes on it: the probability of given answers, and the word that a model says (LAMBADA).

Predictions often go on where a word should end the passage. A stop word can hardly do so, so that leaving those out
stands in for knowing that the passage ends (GPT-2's paper, section 3.3). Candidates: first tokens that begin a word, in
the order of their probability, each continued greedily; a word's probability is that of all its tokens.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gptcore.models.incremental import Reader, open_reader
from gptcore.models.language_model import LanguageModel
from gptcore.prompting.items import Item
from gptcore.prompting.measures import first_word, is_word
from gptcore.text.tokenizer import Tokenizer

_CANDIDATES = 10  # first tokens that are looked at together
_MOST = 200  # of them, where a word is found among those
_LONGEST = 5  # tokens of a word behind its first
_CLITICS = frozenset(("s", "t", "d", "ll", "m", "re", "ve", "n't"))  # of "it's", as a word tokenizer cuts it


@dataclass(frozen=True)
class LastWords:
    """Over all passages."""

    accuracy: float
    """Share of right words when stop words are left out."""
    perplexity: float
    """Of the right word, all its tokens together."""


@torch.inference_mode()
def answers_after(model: LanguageModel, prompt: Sequence[int], answers: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Summed log-probability of each answer behind a prompt, in nats: float64 [N]; 0 of an answer without ids.

    :param model: in eval mode, with positions for the prompt and any of the answers.
    """
    reader = open_reader(model)
    logits = torch.log_softmax(reader.feed([prompt]).double(), dim=-1).cpu()  # (1, V)
    sums = np.asarray([float(logits[0, ids[0]]) if ids else 0.0 for ids in answers])
    longest = max(map(len, answers))
    if longest > 1:
        reader = reader.copies(len(answers))
        for place in range(1, longest):
            before = [[ids[min(place, len(ids)) - 1] if ids else prompt[-1]] for ids in answers]
            logits = torch.log_softmax(reader.feed(before).double(), dim=-1).cpu()  # (N, V)
            sums += [
                float(row[ids[place]]) if place < len(ids) else 0.0 for row, ids in zip(logits, answers, strict=True)
            ]
    return sums


def last_words(
    model: LanguageModel, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], items: Sequence[Item]
) -> LastWords:
    """Score the last words of passages.

    :param prompts: ids of each passage without its last word.
    """
    pairs = list(zip(prompts, items, strict=True))
    sums = [answers_after(model, ids, [tokenizer.encode_next(item.answers[0])])[0] for ids, item in pairs]
    right = [is_word(said_word(model, tokenizer, ids), item) for ids, item in pairs]
    return LastWords(float(np.mean(right)), math.exp(-float(np.mean(sums))))


@torch.inference_mode()
def said_word(model: LanguageModel, tokenizer: Tokenizer, prompt: Sequence[int]) -> str:
    """The likeliest word behind a prompt that is no stop word; the likeliest of all where every one is."""
    reader = open_reader(model)
    logits = torch.log_softmax(reader.feed([prompt])[0, : tokenizer.n_vocab].double(), dim=-1)
    ranked = zip(*(found.tolist() for found in logits.sort(descending=True, stable=True)), strict=True)
    # the others go on the word before: "'s", "ing"
    begins = ((value, token) for value, token in ranked if tokenizer.following(prompt[-1])(token)[:1].isspace())
    of_all = best = (-math.inf, "")
    for seen in itertools.count(step=_CANDIDATES):
        some = list(itertools.islice(begins, _CANDIDATES))
        if not some or (best[1] and (some[0][0] <= best[0] or seen >= _MOST)):
            break  # no word is likelier than its first token
        for nats, word in _words_from(reader, tokenizer, some):
            of_all = max(of_all, (nats, word))
            if word and word not in stop_words():
                best = max(best, (nats, word))
    return best[1] or of_all[1]


def _words_from(reader: Reader, tokenizer: Tokenizer, firsts: Sequence[tuple[float, int]]) -> list[tuple[float, str]]:
    """The words that begin with some tokens, each continued greedily, with their log-probabilities.

    :param reader: of the text before them.
    :param firsts: tokens behind their log-probabilities.
    """
    texts, nats = [[token] for _, token in firsts], [[value] for value, _ in firsts]
    reader = reader.copies(len(texts))
    for _ in range(_LONGEST):
        logits = torch.log_softmax(reader.feed([[ids[-1]] for ids in texts])[:, : tokenizer.n_vocab].double(), dim=-1)
        for ids, its, value, token in zip(texts, nats, *(found.tolist() for found in logits.max(dim=-1)), strict=True):
            ids.append(token)
            its.append(value)
    ends = [_word_end(tokenizer, ids) for ids in texts]
    return [
        (sum(its[:end]), first_word(tokenizer.decode(ids[:end])))
        for ids, its, end in zip(texts, nats, ends, strict=True)
    ]


def _word_end(tokenizer: Tokenizer, ids: Sequence[int]) -> int:
    """How many ids the word has that a text begins with; 1 where it begins with none."""
    whole = first_word(tokenizer.decode(ids))
    return next(end for end in range(1, len(ids) + 1) if first_word(tokenizer.decode(ids[:end])) == whole)


@functools.cache
def stop_words() -> frozenset[str]:
    """Words that hardly end a passage: scikit-learn's list for English, and what is no whole word."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # a second: only where it is asked for

    return _CLITICS.union(ENGLISH_STOP_WORDS)
