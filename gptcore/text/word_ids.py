"""Ids of the words that white space sets apart, for the kinds of tokenizers whose pieces never cross it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

_KEPT_WORDS = 1 << 20  # distinct words remembered by one tokenizer (some 200 MB, full)
_KEPT_LENGTH = 64  # longer words are hardly ever seen twice


class WordIds(dict[str, tuple[int, ...]]):
    """Word -> its ids, worked out when first asked for, remembered within bounds: texts repeat their words."""

    def __init__(self, encode: Callable[[str], Iterable[int]]) -> None:
        """:param encode: gives the ids of a word, which holds no white space."""
        super().__init__()
        self._encode = encode

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = tuple(self._encode(word))
        if len(word) <= _KEPT_LENGTH:
            self[word] = ids
        return ids

    def of(self, text: str) -> Iterator[int]:
        """Ids of a text's words, one after the other."""
        if len(self) > _KEPT_WORDS:
            self.clear()
        return chain.from_iterable(map(self.__getitem__, text.split()))
