"""How likely answers are behind prompts, and which word a model says at the end of a passage (LAMBADA).

Prompts of like length share a pass, and each one is read once. What the network keeps of a prompt is copied for those
of its answers that have several tokens, as far as it is read, and all their tokens are then read in one pass. (An
answer's first token follows from the prompt's own pass.)

Predictions often go on where a word should end the passage. A stop word can hardly do so, so that leaving those out
stands in for knowing that the passage ends (GPT-2's paper, section 3.3). Candidates are the first tokens that begin a
word, in the order of their probability, each continued greedily. A word's probability is that of all its tokens.

Legend of the shape comments: B prompts of a batch, N answers, T positions, V rows of the embedding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gptcore.base.tables import read_table
from gptcore.base.types import Floats, Progress, quiet
from gptcore.data.feed import by_length, evaluation_tokens
from gptcore.models.incremental import Reader, bytes_per_position, open_reader
from gptcore.models.network import LanguageModel
from gptcore.papers.prompting.items import FreeForm
from gptcore.papers.prompting.measures import first_word, is_word
from gptcore.text.tokenizer import Tokenizer

Ids = Sequence[int]
_CACHE_BYTES = 1 << 29  # of what is kept of the texts that are read together
_LOGITS = 1 << 22  # numbers held at once


@torch.inference_mode()
def answer_likelihoods(
    model: LanguageModel, questions: Sequence[tuple[Ids, Sequence[Ids]]], progress: Progress = quiet
) -> list[Floats]:
    """Summed log-probability of each answer behind its prompt, in nats: for each question float64 [its answers].

    An answer without ids has 0.

    :param model: in eval mode, in float32.
    :param questions: a prompt, one id at least, and the answers that may go on it; the model has positions for both.
    :param progress: called with (questions done, in all).
    """
    nats = [np.zeros(len(answers)) for _, answers in questions]
    done = 0
    for rows, reader, logits in read_batches(model, [prompt for prompt, _ in questions]):
        owners = [place for place, row in enumerate(rows) for _ in questions[row][1]]
        answers = [answer for row in rows for answer in questions[row][1]]
        sums = continuation_sums(model, reader, logits, owners, answers)
        for row in rows:
            nats[row], sums = sums[: len(nats[row])], sums[len(nats[row]) :]
        done += len(rows)
        progress(done, len(questions))
    return nats


def read_batches(
    model: LanguageModel, prompts: Sequence[Ids], copies: int = 1
) -> Iterator[tuple[list[int], Reader, Tensor]]:
    """Prompts read in batches of like length: (which prompts, what has read them, logits of what comes next [B, V]).

    :param copies: how many texts will be spread from each prompt, for which memory is left.
    """
    lengths = np.asarray([len(prompt) for prompt in prompts], dtype=np.int64)
    per_position = max(1, bytes_per_position(model)) * copies
    fitting = _CACHE_BYTES // per_position
    most = min(evaluation_tokens(model.tokens.weight.device), fitting)
    for chosen in by_length(lengths, most):
        rows = chosen.tolist()
        width = int(lengths[chosen].max())
        reader = open_reader(model, len(rows), width=width)
        yield rows, reader, reader.feed([prompts[row] for row in rows])


def continuation_sums(
    model: LanguageModel, reader: Reader, logits: Tensor, owners: Sequence[int], answers: Sequence[Ids]
) -> Floats:
    """Summed log-probability of answers behind the texts that a reader has read: float64 [N].

    :param logits: of what comes next behind each of the texts: [B, V].
    :param owners: which text each answer goes on.
    """
    nats = torch.log_softmax(logits.float(), dim=-1).double().cpu()  # (B, V)
    sums = np.asarray([float(nats[own, ids[0]]) if ids else 0.0 for own, ids in zip(owners, answers, strict=True)])
    longer = sorted((row for row, ids in enumerate(answers) if len(ids) > 1), key=lambda row: len(answers[row]))
    for some in _groups(model, reader, longer, answers):
        copies = reader.spread([owners[row] for row in some], max(len(answers[row]) for row in some) - 1)
        states = copies.states([answers[row][:-1] for row in some])  # (n, T, D)
        own = torch.tensor([place for place, row in enumerate(some) for _ in answers[row][1:]], device=states.device)
        at = torch.tensor([place for row in some for place in range(len(answers[row]) - 1)], device=states.device)
        targets = torch.tensor([token for row in some for token in answers[row][1:]], device=states.device)
        chosen = states[own, at]  # (tokens, D)
        step = max(1, _LOGITS // logits.shape[-1])
        nats = torch.cat(
            [
                -F.cross_entropy(copies.logits(chosen[part]).float(), targets[part], reduction="none")
                for part in (slice(first, first + step) for first in range(0, len(targets), step))
            ]
        )
        np.add.at(sums, np.asarray(some)[own.cpu().numpy()], nats.double().cpu().numpy())
    return sums


def _groups(
    model: LanguageModel, reader: Reader, rows: Sequence[int], answers: Sequence[Ids]
) -> Iterator[Sequence[int]]:
    """Answers in groups whose copies of what was read fit the memory, those of like length together."""
    first = 0
    while first < len(rows):
        longest = reader.longest + max(len(answers[row]) for row in rows[first:])
        size = max(1, _CACHE_BYTES // max(1, bytes_per_position(model) * longest))
        yield rows[first : first + size]
        first += size


# --- the word that ends a passage: how likely the right one is, and which one a model says ---


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
    """Perplexity of the right word, all its tokens together."""


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
    """(log-probability, word): the likeliest so far that is no stop word."""
    of_all: tuple[float, str] = (-math.inf, "")
    """(log-probability, word): the likeliest so far, whether it is a stop word or not."""
    seen: int = 0
    """How many tokens have been looked at."""
    firsts: list[tuple[float, int]] = field(default_factory=list)
    """(log-probability, id) of the tokens that are looked at next."""

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
        values, tokens = (best.tolist() for best in logits.max(dim=-1))
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
