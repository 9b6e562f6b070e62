"""The word that ends a passage: how likely the right one is, and which one a model says (LAMBADA).

Predictions often go on where a word should end the passage. A stop word can hardly do so, so that leaving those out
stands in for knowing that the passage ends (GPT-2's paper, section 3.3). Candidates are the first tokens that begin a
word, in the order of their probability, each continued greedily. A word's probability is that of all its tokens.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gptcore.base.tables import read_table
from gptcore.models.incremental import Reader
from gptcore.models.network import LanguageModel
from gptcore.prompting.items import FreeForm
from gptcore.prompting.likelihoods import continuation_sums, read_batches
from gptcore.prompting.measures import first_word, is_word
from gptcore.text.tokenizer import Tokenizer

_CANDIDATES = 10  # first tokens of a passage that are looked at together
_MOST = 200  # of them, where a word is found among those
_LONGEST = 5  # tokens of a word behind its first

STOP_WORDS = frozenset(word for words in read_table(__file__, "stop_words.toml").values() for word in words.split())
"""Words of closed classes, in lower case, which lean on a word that follows them and so can hardly end a passage.

GPT-2's paper does not print its list. None of the 4,869 passages of LAMBADA's development file ends with one of these;
with 99 of them a word of scikit-learn's list does ("fire", "cry", "name", "either").
"""


@dataclass(frozen=True)
class LastWords:
    """Scores over all passages."""

    accuracy: float
    """Share of right words when stop words are left out."""
    perplexity: float
    """Of the right word, all its tokens together."""


@torch.inference_mode()
def last_words(
    model: LanguageModel, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], items: Sequence[FreeForm]
) -> LastWords:
    """Score the last words of passages, each of which is read once.

    :param model: in eval mode.
    :param prompts: ids of each passage without its last word.
    """
    sums, right = np.zeros(len(items)), np.zeros(len(items), dtype=bool)
    for rows, reader, logits in read_batches(model, prompts, copies=1 + _CANDIDATES):
        answers = [tokenizer.encode_next(items[row].answers[0]) for row in rows]
        sums[rows] = continuation_sums(model, reader, logits, range(len(rows)), answers)
        said = said_words(reader, tokenizer, [prompts[row] for row in rows], logits)
        right[rows] = [is_word(word, items[row]) for word, row in zip(said, rows, strict=True)]
    return LastWords(float(np.mean(right)), math.exp(-float(np.mean(sums))))


@dataclass
class _Search:
    """What has been found of the likeliest word behind one prompt."""

    begins: Iterator[tuple[float, int]]
    """(log-probability, id) of the tokens that begin a word, the likeliest first."""
    best: tuple[float, str] = (-math.inf, "")
    """Of the words that are no stop words."""
    of_all: tuple[float, str] = (-math.inf, "")
    seen: int = 0
    """Tokens that were looked at."""
    firsts: list[tuple[float, int]] = field(default_factory=list)
    """Those to look at next."""

    def advance(self) -> bool:
        """Take the next tokens; False where none of them can begin a likelier word than the one found."""
        self.firsts = list(itertools.islice(self.begins, _CANDIDATES))
        if not self.firsts:
            return False
        # no word is likelier than its first token
        return not (self.best[1] and (self.firsts[0][0] <= self.best[0] or self.seen >= _MOST))

    def take(self, words: Sequence[tuple[float, str]]) -> None:
        """Compare the words that begin with the tokens that were taken."""
        self.seen += len(words)
        for nats, word in words:
            self.of_all = max(self.of_all, (nats, word))
            if word and word not in STOP_WORDS:
                self.best = max(self.best, (nats, word))


@torch.inference_mode()
def said_words(reader: Reader, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], logits: Tensor) -> list[str]:
    """The likeliest word behind each prompt that is no stop word; the likeliest of all where every one is.

    :param reader: has read the prompts.
    :param logits: of what comes next: [B, V].
    """
    nats = torch.log_softmax(logits[:, : tokenizer.n_vocab].double(), dim=-1)  # (B, V)
    searches = [_Search(_word_beginnings(tokenizer, ids[-1], row)) for ids, row in zip(prompts, nats, strict=True)]
    active = dict(enumerate(searches))
    while active := {row: search for row, search in active.items() if search.advance()}:
        owners = [row for row, search in active.items() for _ in search.firsts]
        words = iter(_words_from(reader, tokenizer, owners, [first for s in active.values() for first in s.firsts]))
        for search in active.values():
            search.take(list(itertools.islice(words, len(search.firsts))))
    return [search.best[1] or search.of_all[1] for search in searches]


def _word_beginnings(tokenizer: Tokenizer, last: int, nats: Tensor) -> Iterator[tuple[float, int]]:
    """The tokens that begin a word behind the token ``last``, the likeliest first; others go on it: "'s", "ing"."""
    values, tokens = nats.sort(descending=True, stable=True)
    following = tokenizer.following(last)
    for first in range(0, len(tokens), 256):  # seldom more than the first
        some = zip(values[first : first + 256].tolist(), tokens[first : first + 256].tolist(), strict=True)
        yield from ((value, token) for value, token in some if following(token)[:1].isspace())


def _words_from(
    reader: Reader, tokenizer: Tokenizer, owners: Sequence[int], firsts: Sequence[tuple[float, int]]
) -> list[tuple[float, str]]:
    """The words that begin with some tokens, each continued greedily, with their log-probabilities.

    :param reader: has read the texts before them.
    :param owners: which of the texts each token goes on.
    :param firsts: tokens behind their log-probabilities.
    """
    texts, nats = [[token] for _, token in firsts], [[value] for value, _ in firsts]
    copies = reader.spread(owners, _LONGEST)
    for _ in range(_LONGEST):
        logits = torch.log_softmax(copies.feed([[ids[-1]] for ids in texts])[:, : tokenizer.n_vocab].double(), dim=-1)
        values, tokens = (found.tolist() for found in logits.max(dim=-1))
        for ids, own, value, token in zip(texts, nats, values, tokens, strict=True):
            ids.append(token)
            own.append(value)
    ends = [_word_end(tokenizer, ids) for ids in texts]
    return [
        (sum(own[:end]), first_word(tokenizer.decode(ids[:end])))
        for ids, own, end in zip(texts, nats, ends, strict=True)
    ]


def _word_end(tokenizer: Tokenizer, ids: Sequence[int]) -> int:
    """How many ids the word has that a text begins with; 1 where it begins with none."""
    whole = first_word(tokenizer.decode(ids))
    return next(end for end in range(1, len(ids) + 1) if first_word(tokenizer.decode(ids[:end])) == whole)
