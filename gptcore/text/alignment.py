"""Which characters of a text each of its pieces stands for, so that what a network points at can be shown in the text.

A tokenizer changes what it reads (case, accents, marks), so the characters of a word are matched with those of its
pieces one by one. Where that does not come out, as for an unknown word, each piece stands for the whole word.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gptcore.text.tokenizer import Tokenizer

_WORD = re.compile(r"\S+")
_KEPT_WORDS = 1 << 18

_Piece = tuple[int, int, int]
"""Id, first character, and the one behind the last."""


class AlignedText(NamedTuple):
    """The pieces of a text."""

    ids: NDArray[np.int64]  # (N,)
    starts: NDArray[np.int32]  # (N,): the first character of the text that a piece stands for
    ends: NDArray[np.int32]  # (N,): the one behind the last


class Aligner:
    """Cuts texts word by word, as white space parts them, with a memory for words that come again.

    :param tokenizer: one whose pieces never cross white space (:meth:`Tokenizer.normalised`).
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._words: dict[str, list[_Piece]] = {}

    def align(self, text: str) -> AlignedText:
        """The pieces of a text: those of ``encode_clean``."""
        pieces = self._tokenizer.located(text)
        if pieces is None:
            pieces = [
                (index, match.start() + start, match.start() + end)
                for match in _WORD.finditer(text)
                for index, start, end in self._pieces(match.group())
            ]
        ids, starts, ends = np.asarray(pieces, dtype=np.int64).reshape(-1, 3).T
        return AlignedText(ids, starts.astype(np.int32), ends.astype(np.int32))

    def _pieces(self, word: str) -> list[_Piece]:
        if len(self._words) > _KEPT_WORDS:
            self._words.clear()
        if word not in self._words:
            self._words[word] = list(self._aligned(word))
        return self._words[word]

    def _aligned(self, word: str) -> list[_Piece]:
        ids = [int(index) for index in self._tokenizer.encode_clean(word)]
        added = self._tokenizer.following(0)
        spelled = [added(index).strip() for index in ids]
        characters = [self._tokenizer.normalised(character) for character in word]
        if "".join(spelled) != "".join(characters):
            return [(index, 0, len(word)) for index in ids]
        # owners[k]: which character of the word the k-th of the spelled ones comes from
        owners = [at for at, normal in enumerate(characters) for _ in normal]
        pieces = []
        for index, piece, end in zip(ids, spelled, accumulate(map(len, spelled)), strict=True):
            if not piece:  # a mark of a word's beginning, by itself
                at = owners[end] if end < len(owners) else len(word)
                pieces.append((index, at, at))
                continue
            last = owners[end - 1] + 1
            while (
                last < len(word) and not characters[last]
            ):  # accents and what else is dropped belong to what they are on
                last += 1
            pieces.append((index, owners[end - len(piece)], last))
        return pieces
