"""Byte pair encoding over words that end in ``</w>``: train, encode, decode.

The scheme is the original release's (Sennrich et al. 2016, section 3.2 of their paper; 40 000 merges, section 4.1 of
ours). A word starts as its characters, the last one carrying ``</w>``; while some pair of neighbours is in the list
of merges, the pair that comes first in the list is joined wherever it occurs, left to right. What is left is looked
up in the vocabulary; a piece outside it becomes id 0, ``<unk>``, which is also the padding id (original code).

Layout of a vocabulary (original code): id 0 ``<unk>``; the characters; the same characters with ``</w>``; one piece a
merge, in order; last the newline token ``\\n</w>``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray
from tokenizers.models import BPE

from gptcore.base.errors import InputError
from gptcore.text.bpe_train import learn
from gptcore.text.clean import clean_stream, repaired_lines, split_clean, splitter
from gptcore.text.counting import Counts, cleaned_words
from gptcore.text.spacy_words import NEIGHBOURS, Pieces
from gptcore.text.tokenizer import BytePairTokenizer, WordIds
from gptcore.text.vocabulary import Merge, in_order

UNKNOWN = "<unk>"
WORD_END = "</w>"
NEWLINE = "\n" + WORD_END

_MARKED = array("i", [-1]).tobytes()  # the "ids" of a piece whose words its line alone can tell


class WordTokenizer(BytePairTokenizer):
    """GPT-1's kind: words of a cleaned text, in lower case."""

    kind = "word"
    _mark = UNKNOWN

    def _check(self, names: tuple[str, str]) -> None:
        if self.vocabulary.get(UNKNOWN) != 0:
            found = f"id {self.vocabulary[UNKNOWN]}" if UNKNOWN in self.vocabulary else "no such entry"
            raise InputError(f"{names[0]}: entry {UNKNOWN!r}: {found}, expected id 0")
        self._ranks = {merge: rank for rank, merge in enumerate(self.merges)}
        known = all(piece in self.vocabulary for merge in self.merges for piece in merge)
        # The same encoding five times as fast, where the library comes upon merges in the order of the list.
        self._library: BPE | None = None
        if known and in_order(self.merges):
            self._library = BPE(self.vocabulary, list(self.merges), end_of_word_suffix=WORD_END, unk_token=UNKNOWN)
        self._ids = WordIds(self._encode_word)
        self._by_piece = WordIds(self._encode_piece)

    @classmethod
    def from_counts(cls, counts: Counts, n_merges: int) -> Self:
        """Learn merges from counted words, in any order; see :mod:`gptcore.text.bpe_train`."""
        characters, merges = learn(counts, n_merges)
        pieces = [UNKNOWN, *characters, *(character + WORD_END for character in characters)]
        pieces += dict.fromkeys(first + second for first, second in merges)
        pieces.append(NEWLINE)
        return cls({piece: index for index, piece in enumerate(pieces)}, merges)

    @classmethod
    def _counted(cls, text: str) -> Mapping[str, int]:
        return cleaned_words(text)

    # --- text -> ids -> text ---

    def encode(self, text: str) -> list[int]:
        """Ids of a raw text: cleaned into words (:func:`gptcore.text.clean.words`), each word encoded by itself."""
        parts = [ids for lines in repaired_lines([text]) for ids in self._encode_lines(lines)]
        ids: list[int] = np.concatenate(parts).tolist() if parts else []
        return ids

    @staticmethod
    def rows(document: Iterable[str]) -> Iterator[str]:
        return clean_stream(document)

    def encode_clean(self, text: str) -> NDArray[np.int32]:
        """Ids [N] of a cleaned row: those of ``encode``, without cleaning a second time."""
        pieces = Pieces.of_clean(text)
        return pieces.gathered(list(map(self._ids.__getitem__, pieces.distinct)))

    def _encode_lines(self, text: str) -> Iterator[NDArray[np.int32]]:
        """Ids of repaired lines, from those of their pieces: the words of a piece are worked out once."""
        pieces = Pieces.of(text)
        ids = list(map(self._by_piece.__getitem__, pieces.distinct))
        if _MARKED not in ids:
            yield pieces.gathered(ids)
            return
        marked = [place for place, its in enumerate(ids) if its == _MARKED]
        for before, line in pieces.lines_apart(marked):
            yield before.gathered(ids)
            yield self._ids.of(split_clean(splitter().line(line)))

    def _encode_piece(self, piece: str) -> bytes:
        words = splitter().piece(piece)
        return _MARKED if words == NEIGHBOURS else b"".join(map(self._ids.__getitem__, words.split(" ")))

    def _encode_word(self, word: str) -> Iterable[int]:
        """Ids of a word; spaCy's newline token carries the space after it, which the original maps to a newline.

        The library `tokenizers` gives them, but for half surrogates, which its model does not hold, and for spaces,
        which it loses.
        """
        if word == "\n ":
            return self._encode_word("\n")
        # The original code joins the pieces by " " and splits them there again, so a space inside a word is a piece
        # border, and one more unknown piece. No merge holds a space: a merges file could not name it.
        if self._library and " " not in word:
            with suppress(UnicodeEncodeError):
                return [token.id for token in self._library.tokenize(word)]
        pieces = " ".join(_merge(word, self._ranks)).split(" ")
        return [self.vocabulary.get(piece, 0) for piece in pieces]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids: pieces joined, words set apart by one space, lines by a newline without spaces around it.

        ``<unk>`` stands for each unknown piece and ends its word: whether the word went on is not in the ids.

        :raises InputError: an id outside the vocabulary (the specials of fine-tuning, for one).
        """
        text = []
        for piece in map(self._pieces.__getitem__, self._known(ids)):
            if piece == NEWLINE:
                text.append("\n")
            else:
                text.append(UNKNOWN + " " if piece == UNKNOWN else piece.replace(WORD_END, " "))
        return "\n".join(line.removesuffix(" ") for line in "".join(text).split("\n"))


def _merge(word: str, ranks: Mapping[Merge, int]) -> list[str]:
    """The pieces of one word by any list of merges, as the original code finds them.

    All occurrences of the best pair are joined, left to right, before the pairs that this creates are looked at. That
    takes a pass over the word for each merge; only lists that no training gives need it.
    """
    pieces = [*word[:-1], word[-1] + WORD_END]
    while known := [pair for pair in pairwise(pieces) if pair in ranks]:
        best = min(known, key=ranks.__getitem__)
        joined, at = [], 0
        while at < len(pieces):
            size = 2 if tuple(pieces[at : at + 2]) == best else 1
            joined.append("".join(pieces[at : at + size]))
            at += size
        pieces = joined
    return pieces
