"""What WordPiece and SentencePiece share, whose pieces never cross the white space between words."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from gptcore.text.raw import raw_rows
from gptcore.text.tokenizer import Specials, Tokenizer

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


class WordByWordTokenizer(Tokenizer):
    """A kind that learns from counted words and has a piece for each role of a sequence.

    What stands around a text is up to the sequence that it becomes part of, so that none of its pieces ends a text.
    """

    _specials: Specials

    @property
    def specials(self) -> Specials:
        """The ids of the special pieces by role."""
        return self._specials

    @property
    def end_of_text(self) -> None:
        """Always None, as no piece stands before or behind a document."""

    def encode_next(self, text: str) -> list[int]:
        """See :meth:`gptcore.text.tokenizer.Tokenizer.encode_next`: a word's beginning is in its first piece."""
        return self.encode(text)

    @staticmethod
    def rows(document: Iterable[str]) -> Iterator[str]:
        """See :func:`gptcore.text.raw.raw_rows`."""
        return raw_rows(document)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids: pieces joined, words set apart by one space, special pieces by their names.

        What a text lost when it was encoded (case, accents, white space, unknown text) does not come back.

        :raises InputError: an id outside the vocabulary.
        """
        return "".join(map(self._added, self._known(ids))).removeprefix(" ")

    def following(self, last: int) -> Callable[[int], str]:
        """See :meth:`gptcore.text.tokenizer.Tokenizer.following`."""
        return lambda index: "".join(map(self._added, self._known([index])))

    @abstractmethod
    def _added(self, index: int) -> str:
        """What a piece adds to a text, with a space before it where it begins a word."""
