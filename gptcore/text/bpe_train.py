"""Words of a corpus counted, and merges learnt from them with the `tokenizers` library, reproducibly."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from gptcore.base.errors import InputError
from gptcore.text.parts import part_files, read_part
from gptcore.text.spacy_words import Pieces

MAX_CHARACTERS = 1000
"""The most frequent characters get ids, the rest are unknown (the released vocabulary has 238)."""
MAX_WORDS = 5_000_000
"""Distinct words counted at once: with more, the rarest so far are forgotten, so that memory stays bounded."""
MAX_LENGTH = 100
"""Longer "words" (rules, encoded files) take no part."""
MIN_PAIRS = 2
"""A pair seen once makes no merge: it would compress nothing."""

Words = Callable[[str], Mapping[str, int]]
"""Of a row: how often each of its words comes."""

_log = logging.getLogger(__name__)


def check_merges_asked(n_merges: int) -> None:
    """:raises InputError: a negative number."""
    if n_merges < 0:
        raise InputError(f"tokenizer.n_merges = {n_merges}: expected 0 or more")


def tell_fewer(learnt: int, asked: int, what: str = "merges", where: str = "corpus has") -> None:
    """Warn where fewer were learnt than asked for."""
    if learnt < asked:
        _log.warning("tokenizer: %d %s asked for, the %s only %d", asked, what, where, learnt)


def learn(counts: Counter[str], n_merges: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Characters, most frequent first, and at most ``n_merges`` merges, most important first.

    The newline token and words with a character outside the alphabet take no part in merges.

    :param counts: of words, by :func:`count_words` or :func:`count_corpus`.
    :raises InputError: no words, or a negative ``n_merges``.
    """
    characters = alphabet(counts, n_merges)
    known = set(characters)
    counts = Counter({word: n for word, n in counts.items() if len(word) <= MAX_LENGTH and known.issuperset(word)})
    merges = _learn_merges(counts, characters, n_merges)
    tell_fewer(len(merges), n_merges)
    return characters, merges


def cleaned_words(cleaned: str) -> dict[str, int]:
    """How often each word of a cleaned text comes, in the order in which they first came."""
    return Pieces.of_clean(cleaned).counted()


def count_words(rows: Iterable[str], words: Words = cleaned_words) -> Counter[str]:
    """Words of cleaned rows (:func:`gptcore.text.clean.clean`), in the order in which they first came.

    :param words: how often each word of a row comes, for rows that are not cleaned.
    """
    counts: Counter[str] = Counter()
    forgotten = 0  # words counted this often or less have been dropped
    for row in rows:
        counts.update(words(row))
        while len(counts) > MAX_WORDS:
            forgotten += 1
            counts = Counter({word: n for word, n in counts.items() if n > forgotten})
    return counts


def count_corpus(
    corpus: Path,
    map: Callable[..., Iterable[Counter[str] | None]] = map,
    progress: Callable[[int], object] | None = None,
    words: Words = cleaned_words,
) -> Counter[str]:
    """:func:`count_words` of a cleaned corpus' training documents, its files in parallel.

    Equal to it in everything, the order of words too: where there are so many words that some have to be forgotten,
    which ones depends on the rows before, and all are counted one after the other.

    :param map: the built-in, or one that gives results in order and whose workers see the folder ``corpus``.
    :param progress: called with 1 for each file counted.
    :param words: as of :func:`count_words`; has to reach the workers of ``map``.
    """
    files = part_files(corpus, "train")
    counts: Counter[str] = Counter()
    for found in map(partial(_count_part, words=words), files):
        if found is not None:
            counts.update(found)
        if found is None or len(counts) > MAX_WORDS:
            return count_words((text for path in files for _, _, text in read_part(path)), words)
        if progress is not None:
            progress(1)
    return counts


def _count_part(path: Path, words: Words) -> Counter[str] | None:
    """The words of one file; None where they are too many."""
    counts: Counter[str] = Counter()
    for _, _, text in read_part(path):
        counts.update(words(text))
        if len(counts) > MAX_WORDS:
            return None
    return counts


def alphabet(counts: Mapping[str, int], n_merges: int) -> list[str]:
    """The :data:`MAX_CHARACTERS` most frequent of :func:`ranked_characters`."""
    return [*ranked_characters(counts, n_merges)][:MAX_CHARACTERS]


def ranked_characters(counts: Mapping[str, int], n_merges: int) -> dict[str, int]:
    """How often each character of counted words comes, the most frequent first; no white space.

    :raises InputError: no words to learn from, or a negative ``n_merges``.
    """
    check_merges_asked(n_merges)
    found: Counter[str] = Counter()
    for word, n in counts.items():
        for character in word:
            if not character.isspace():  # a merges file could not name it
                found[character] += n
    if not found:
        raise InputError("tokenizer: the corpus holds no words to learn from")
    return dict(sorted(found.items(), key=lambda entry: (-entry[1], entry[0])))


def _learn_merges(counts: Counter[str], characters: list[str], n_merges: int) -> list[tuple[str, str]]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

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


def repeated(counts: Mapping[str, int], chunk: int = 1000) -> Iterator[str]:
    """Every word as often as it was counted, in texts of bounded size: the trainer takes no counts."""
    for word, n in counts.items():
        for start in range(0, n, chunk):
            yield (word + " ") * min(chunk, n - start)
