"""Merges learnt from counted words with the `tokenizers` library, reproducibly."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from gptcore.base.errors import require
from gptcore.text.counting import Counts
from gptcore.text.word_edges import set_apart

MAX_CHARACTERS, COVERAGE = 1000, 0.999
"""The most frequent characters get ids, so many or what makes up this share of the text, if these are more, as in
Chinese; the rest are unknown (the released vocabulary has 238)."""
MAX_LENGTH = 100
"""Longer "words" (rules, encoded files) take no part; those of a script without blanks between words, in parts."""
MIN_PAIRS = 2
"""A pair seen once makes no merge: it would compress nothing."""

_log = logging.getLogger(__name__)


def check_merges_asked(n_merges: int) -> None:
    """:raises InputError: a negative number."""
    require(n_merges >= 0, f"tokenizer.n_merges = {n_merges}: expected 0 or more")


def tell_fewer(learnt: int, asked: int, what: str = "merges", where: str = "corpus has") -> None:
    """Warn where fewer were learnt than asked for."""
    if learnt < asked:
        _log.warning("tokenizer: %d %s asked for, the %s only %d", asked, what, where, learnt)


def learn(counts: Counts, n_merges: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Characters, most frequent first, and at most ``n_merges`` merges, most important first.

    The newline token and words with a character outside the alphabet take no part in merges.

    :param counts: of words (:mod:`gptcore.text.counting`), in any order.
    :raises InputError: no words, or a negative ``n_merges``.
    """
    characters = alphabet(counts, n_merges)
    merges = _learn_merges(usable_words(counts, characters), characters, n_merges)
    tell_fewer(len(merges), n_merges)
    return characters, merges


def usable_words(counts: Counts, characters: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The counted words that are learnt from: none longer than :data:`MAX_LENGTH`, nor with another character."""
    known = set(characters)
    parts = ((part, n) for word, n in counts.items() for part in bounded(word))
    return ((part, n) for part, n in parts if len(part) <= MAX_LENGTH and known.issuperset(part))


def bounded(word: str, most: int = MAX_LENGTH) -> list[str]:
    """A word, in parts where it has more than ``most`` characters because its script has no blanks between words."""
    if len(word) <= most or set_apart(word) == word:
        return [word]
    return [word[start : start + MAX_LENGTH] for start in range(0, len(word), MAX_LENGTH)]


def alphabet(counts: Counts, n_merges: int) -> list[str]:
    """The most frequent of :func:`ranked_characters`, as many as :data:`MAX_CHARACTERS` says."""
    return most_frequent(ranked_characters(counts, n_merges), MAX_CHARACTERS, COVERAGE)


def most_frequent(ranked: Mapping[str, int], least: int, coverage: float) -> list[str]:
    """The first ``least`` of ranked characters, or those that make up a share of all that they stand for."""
    covered = accumulate(ranked.values(), initial=0)
    most = coverage * sum(ranked.values())
    needed = sum(before < most for before in covered)
    return [*ranked][: max(least, needed)]


def ranked_characters(counts: Counts, n_merges: int) -> dict[str, int]:
    """How often each character of counted words comes, the most frequent first; no white space.

    :raises InputError: no words to learn from, or a negative ``n_merges``.
    """
    check_merges_asked(n_merges)
    times: Counter[str] = Counter()
    for word, n in counts.items():
        for character in word:
            if not character.isspace():  # a merges file could not name it
                times[character] += n
    require(times, "tokenizer: the corpus holds no words to learn from")
    return dict(sorted(times.items(), key=lambda entry: (-entry[1], entry[0])))


def _learn_merges(counts: Iterable[tuple[str, int]], characters: list[str], n_merges: int) -> list[tuple[str, str]]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # The trainer gives out ids to "x</w>" in the order of a hash map seeded anew in each process, and breaks ties
    # between equally frequent pairs by id. Naming those pieces as special tokens fixes their ids.
    trainer = trainers.BpeTrainer(
        vocab_size=2 * len(characters) + n_merges,
        min_frequency=MIN_PAIRS,
        special_tokens=[character + "</w>" for character in sorted(characters)],
        initial_alphabet=sorted(characters),
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(repeated(counts), trainer)
    merges = [(first, second) for first, second in json.loads(tokenizer.to_str())["model"]["merges"]]
    return merges[:n_merges]  # two merges may give one piece, so the list can outgrow the vocabulary


def repeated(counts: Iterable[tuple[str, int]], chunk: int = 1000) -> Iterator[str]:
    """Every word as often as it was counted, in texts of bounded size: the trainer takes no counts."""
    for word, n in counts:
        for start in range(0, n, chunk):
            yield (word + " ") * min(chunk, n - start)
