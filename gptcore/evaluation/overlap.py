"""How much of a test set stands in the training text, by 8-grams (GPT-2's paper, section 4).

Texts are normalised to lower-cased alphanumeric words with a single space between them. GPT-2's authors put the 8-grams
of their training text into Bloom filters. Here those of the test sets, which are few beside a corpus, are kept as exact
sorted hashes of 64 bits, and the corpus streams past them: memory is that of the test sets, whatever the corpus, and
nothing is found that is not there but for equal hashes (n test and m training 8-grams: about n * m / 2^64 of them).
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gptcore.base.types import Bools, Ints, Map, Progress, quiet
from gptcore.text.parts import read_part
from gptcore.text.word_edges import MARKS, set_apart

N = 8
"""Words of an n-gram."""
Hashes = NDArray[np.uint64]

_WORD = re.compile(r"[^\W_]+")
_SPLIT = re.compile(r"(?<=\w)\s+(?=n['\u2019]t\b)|(?<=\bcan)\s+(?=not\b)|(?<=\b(?:gon|wan))\s+(?=na\b)")
_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, and 5 modulo 8: differences of its powers keep 60 bits and more
_BUFFER = 1 << 16  # words of a corpus that are hashed together


def normalised(text: str) -> str:
    """Lower-cased alphanumeric words with a single space between them.

    What a tokenizer for words has cut apart ("do n't", "can not") is put together first, so that a cleaned corpus and
    running text have the same words. Accents and vowel signs that are characters of their own are left out, and every
    letter of a script without blanks between words counts as a word.
    """
    plain = _SPLIT.sub("", text.lower())
    return " ".join(_WORD.findall(plain if plain.isascii() else set_apart(MARKS.sub("", plain))))


@functools.lru_cache(maxsize=1 << 18)
def _word_hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def ngram_hashes(words: Sequence[str]) -> Hashes:
    """A hash of each 8-gram of normalised words, in their order; none where there are fewer words."""
    return stretch_hashes(np.fromiter(map(_word_hash, words), dtype=np.uint64, count=len(words)), N)


def stretch_hashes(ids: Hashes, n: int) -> Hashes:
    """A polynomial of each stretch of ``n`` ids, modulo 2^64."""
    count = max(0, len(ids) - n + 1)
    hashes = np.zeros(count, dtype=np.uint64)
    for place in range(n):
        hashes = hashes * _BASE + ids[place : place + count]
    return hashes


@dataclass(frozen=True)
class EvaluationSet:
    """The 8-grams of a test set; each of its different texts is counted once, however many rows have it."""

    name: str
    hashes: Hashes
    """The hashes of all texts' 8-grams, one text behind the other."""
    bounds: Ints
    """Text k has the hashes from ``bounds[k]`` to ``bounds[k + 1]``."""
    rows: Sequence[tuple[int, ...]]
    """For each row, the numbers of its texts."""


@dataclass(frozen=True)
class Overlap:
    """What of a test set stands elsewhere."""

    ngrams: int
    """8-grams of its texts, as often as they occur there."""
    found: int
    """How many of the 8-grams stand elsewhere, too."""
    rows: int
    rows_found: int
    """Rows any 8-gram of which stands elsewhere, too."""

    @property
    def share(self) -> float:
        """Share of the 8-grams that stand elsewhere; 0 where there is none."""
        return self.found / self.ngrams if self.ngrams else 0.0


def build_set(name: str, rows: Iterable[Sequence[str]]) -> EvaluationSet:
    """Hash the texts of a test set's rows."""
    numbers: dict[str, int] = {}
    hashes: list[Hashes] = []
    of_rows = []
    for texts in rows:
        for text in texts:
            if text not in numbers:
                numbers[text] = len(numbers)
                hashes.append(ngram_hashes(normalised(text).split()))
        of_rows.append(tuple(numbers[text] for text in texts))
    bounds = np.cumsum([0, *map(len, hashes)], dtype=np.int64)
    return EvaluationSet(name, np.concatenate([np.zeros(0, np.uint64), *hashes]), bounds, of_rows)


def wanted_hashes(sets: Iterable[EvaluationSet]) -> Hashes:
    """The different 8-grams of some test sets, sorted."""
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *(each.hashes for each in sets)]))


def overlap(test: EvaluationSet, wanted: Hashes, found: Bools) -> Overlap:
    """Count what of a test set was found.

    :param wanted: sorted 8-grams, the test set's among them.
    :param found: which of those stand elsewhere.
    """
    marks = found[np.searchsorted(wanted, test.hashes)] if len(test.hashes) else np.zeros(0, dtype=np.bool_)
    until = np.concatenate([[0], np.cumsum(marks)])
    of_texts = until[test.bounds[1:]] - until[test.bounds[:-1]]
    rows_found = sum(any(of_texts[text] for text in texts) for texts in test.rows)
    return Overlap(len(marks), int(marks.sum()), len(test.rows), rows_found)


def find_in_texts(wanted: Hashes, documents: Iterable[Iterable[str]]) -> Bools:
    """Which of the sorted 8-grams stand in some documents, none of them across two documents.

    :param documents: each in consecutive pieces, at whose borders words end.
    """
    there = np.zeros(len(wanted), dtype=np.bool_)
    for pieces in documents:
        for words in _windows(pieces):
            hashes = ngram_hashes(words)
            places = np.minimum(np.searchsorted(wanted, hashes), max(0, len(wanted) - 1))
            if len(wanted) and len(hashes):
                there[places[wanted[places] == hashes]] = True
    return there


def _windows(pieces: Iterable[str]) -> Iterator[list[str]]:
    """Words of a document in windows, each of which begins with the last N - 1 words of the one before."""
    words: list[str] = []
    for piece in pieces:
        words += normalised(piece).split()
        if len(words) >= _BUFFER:
            yield words
            words = words[-(N - 1) :]
    yield words


def find_in_corpus(
    wanted: Hashes, parts: Sequence[Path], scratch: Path, map: Map = map, progress: Progress = quiet
) -> Bools:
    """Which of the sorted 8-grams stand in a cleaned corpus.

    :param parts: files of :mod:`gptcore.text.parts`.
    :param scratch: a folder for what workers share.
    :param map: works on the parts; the built-in one, or one that is called like it.
    :param progress: called with (parts done, in all).
    """
    shared = scratch / "wanted.npy"
    np.save(shared, wanted)
    there = np.zeros(len(wanted), dtype=np.bool_)
    for done, places in enumerate(map(functools.partial(_places_in_part, shared), parts), start=1):
        there[places] = True
        progress(done, len(parts))
    shared.unlink()
    return there


def _places_in_part(shared: Path, part: Path) -> Ints:
    """Which of the 8-grams of a file stand in one part of a corpus."""
    wanted = np.load(shared, mmap_mode="r")
    documents = ((text for _, _, text in rows) for _, rows in groupby(read_part(part), key=lambda row: row[:2]))
    return np.flatnonzero(find_in_texts(wanted, documents))
