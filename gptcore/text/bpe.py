"""Byte pair encoding over words that end in ``</w>``: train, encode, decode.

The scheme is the original release's (Sennrich et al. 2016, section 3.2 of their paper; 40 000 merges, section 4.1 of
ours). A word starts as its characters, the last one carrying ``</w>``; while some pair of neighbours is in the list
of merges, the pair that comes first in the list is joined wherever it occurs, left to right. What is left is looked
up in the vocabulary; a piece outside it becomes id 0, ``<unk>``, which is also the padding id (original code).

Layout of a vocabulary (original code): id 0 ``<unk>``; the characters; the same characters with ``</w>``; one piece a
merge, in order; last the newline token ``\\n</w>``.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.text.clean import clean_stream, repaired_lines, split_clean, splitter
from gptcore.text.pieces import BREAK, Pieces, lines_with
from gptcore.text.spacy_words import NEIGHBOURS
from gptcore.text.tokenizer import BytePairTokenizer
from gptcore.text.vocabulary import Merge, in_order

UNKNOWN = "<unk>"
WORD_END = "</w>"
NEWLINE = "\n" + WORD_END

_CACHED_WORDS = 1 << 20  # distinct words, and pieces of texts, remembered by one tokenizer (some 200 MB each, full)
_CACHED_LENGTH = 64  # longer words are hardly ever seen twice
_NEIGHBOURS = (-1,)  # the "ids" of a piece whose words its line alone can tell


class WordTokenizer(BytePairTokenizer):
    """GPT-1's kind: words of a cleaned text, in lower case."""

    kind = "word"
    _mark = UNKNOWN

    def _check(self, names: tuple[str, str]) -> None:
        if self.vocabulary.get(UNKNOWN) != 0:
            found = f"id {self.vocabulary[UNKNOWN]}" if UNKNOWN in self.vocabulary else "no such entry"
            raise InputError(f"{names[0]}: entry {UNKNOWN!r}: {found}, expected id 0")
        self._ids = _WordIds(self.vocabulary, self.merges)
        self._by_piece = _PieceIds(self._ids)

    # --- where tokenizers come from ---

    @classmethod
    def train(
        cls, texts: Iterable[str], n_merges: int, progress: Callable[[int], object] | None = None
    ) -> WordTokenizer:
        """Learn ``n_merges`` merges from cleaned rows; a corpus with fewer possible merges gives fewer.

        Equal rows give an equal tokenizer, on any machine. See :mod:`gptcore.text.bpe_train`.

        :param progress: called with the number of rows read since its last call.
        :raises InputError: no words to learn from, or a negative ``n_merges``.
        """
        from gptcore.text.bpe_train import count_words

        return cls.from_counts(count_words(texts, progress), n_merges)

    @classmethod
    def from_counts(cls, counts: Counter[str], n_merges: int) -> Self:
        """:meth:`train` on words that are counted already, in the order in which they first came."""
        from gptcore.text.bpe_train import learn

        characters, merges = learn(counts, n_merges)
        pieces = [UNKNOWN, *characters, *(character + WORD_END for character in characters)]
        pieces += dict.fromkeys(first + second for first, second in merges)
        pieces.append(NEWLINE)
        return cls({piece: index for index, piece in enumerate(pieces)}, merges)

    @classmethod
    def _counted(cls, text: str) -> Mapping[str, int]:
        from gptcore.text.bpe_train import cleaned_words

        return cleaned_words(text)

    # --- what a tokenizer is ---

    @property
    def end_of_text(self) -> None:
        """Always None, as documents are told apart by their rows alone (original code)."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the vocabulary and the merges, whatever the formatting of the files they came from."""
        return sha256_json({"vocabulary": self._pieces, "merges": self.merges})

    # --- text -> ids -> text ---

    def encode(self, text: str) -> list[int]:
        """Ids of a raw text: cleaned into words (:func:`gptcore.text.clean.words`), each word encoded by itself."""
        return list(chain.from_iterable(map(self._encode_lines, repaired_lines([text]))))

    def encode_next(self, text: str) -> list[int]:
        """See :meth:`gptcore.text.tokenizer.Tokenizer.encode_next`: a word's end is in its last piece."""
        return self.encode(text)

    @staticmethod
    def rows(document: Iterable[str]) -> Iterator[str]:
        """See :func:`gptcore.text.clean.clean_stream`."""
        return clean_stream(document)

    def encode_clean(self, text: str) -> NDArray[np.int32]:
        """Ids [N] of a cleaned row: those of ``encode``, without cleaning a second time."""
        found = Pieces.of_clean(text)
        return found.gathered([self._ids["\n" if word == BREAK else word] if word else () for word in found.distinct])

    def encode_words(self, words: Iterable[str]) -> list[int]:
        """Ids of words (lower-case, not empty), one after the other."""
        return list(chain.from_iterable(map(self._ids.__getitem__, words)))

    def _encode_lines(self, text: str) -> list[int]:
        """Ids of repaired lines, from those of their pieces: the words of a piece are worked out once."""
        if len(self._by_piece) > _CACHED_WORDS:
            self._by_piece = _PieceIds(self._ids)
        found = Pieces.of(text)
        ids = list(map(self._by_piece.__getitem__, found.distinct))
        if _NEIGHBOURS not in ids:
            return list(found.gathered(ids).tolist())
        if "\n" not in text:
            return self.encode_words(split_clean(splitter().line(text)))
        marked = {piece for piece, its in zip(found.distinct, ids, strict=True) if its == _NEIGHBOURS}
        return list(chain.from_iterable(map(self._encode_lines, lines_with(marked, text))))

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

    def following(self, last: int) -> Callable[[int], str]:
        """See :meth:`gptcore.text.tokenizer.Tokenizer.following`."""

        def add(index: int) -> str:
            nonlocal last
            # What a piece adds depends on the one before it: a word's end shows only when more follows.
            text = self.decode([last, index])[len(self.decode([last])) :]
            last = index
            return text

        return add


class _WordIds(dict[str, tuple[int, ...]]):
    """Word -> its ids, worked out when first asked for, remembered within bounds.

    By the library `tokenizers` where it gives the same ids: for ASCII, and merges in order of known pieces. Its model
    holds no half surrogates, and loses a space.
    """

    def __init__(self, vocabulary: Mapping[str, int], merges: Sequence[Merge]) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self._merges = merges
        self._ranks = {merge: rank for rank, merge in enumerate(merges)}
        known = all(piece in vocabulary for merge in merges for piece in merge)
        self._library = _library_model(vocabulary, merges) if known and in_order(merges) else None

    def __missing__(self, word: str) -> tuple[int, ...]:
        if word in (
            "\n ",
            BREAK,
        ):  # spaCy's newline token carries the space after it; the original maps it to a newline
            return self["\n"]
        # The original code joins the pieces by " " and splits them there again, so a space inside a word is a piece
        # border, and one more unknown piece. No merge holds a space: a merges file could not name it.
        if self._library and word.isascii() and " " not in word:
            ids = tuple([token.id for token in self._library.tokenize(word)])
        else:
            pieces = " ".join(_merge(word, self._merges, self._ranks)).split(" ")
            ids = tuple([self._vocabulary.get(piece, 0) for piece in pieces])
        if len(word) <= _CACHED_LENGTH and len(self) < _CACHED_WORDS:
            self[word] = ids
        return ids


class _PieceIds(dict[str, tuple[int, ...]]):
    """Piece of a text -> the ids of its words."""

    def __init__(self, words: _WordIds) -> None:
        super().__init__({"": ()})
        self._words = words

    def __missing__(self, piece: str) -> tuple[int, ...]:
        found = splitter().piece(piece)
        if found == NEIGHBOURS:
            ids: tuple[int, ...] = _NEIGHBOURS
        else:
            ids = tuple(chain.from_iterable(map(self._words.__getitem__, found.split(" "))))
        if len(piece) <= _CACHED_LENGTH:
            self[piece] = ids
        return ids


def _library_model(vocabulary: Mapping[str, int], merges: Sequence[Merge]) -> Any:
    """The same encoding by the library `tokenizers`: five times as fast."""
    from tokenizers.models import BPE

    return BPE(vocab=dict(vocabulary), merges=list(merges), end_of_word_suffix=WORD_END, unk_token=UNKNOWN)


def _merge(word: str, merges: Sequence[Merge], ranks: Mapping[Merge, int]) -> list[str]:
    """Pieces of one word, in O(n log n) for n characters and any list of merges.

    The pieces are a doubly linked list; a heap holds (rank, position of the left piece) of every pair that may be
    joined. As in the original code all occurrences of the best pair are joined, left to right, before the pairs that
    this creates are looked at.
    """
    pieces = list(word)  # "" marks a piece that its left neighbour has taken in
    pieces[-1] += WORD_END
    end = len(pieces)
    before = list(range(-1, end - 1))
    after = list(range(1, end + 1))
    heap = [(ranks[pair], left) for left, pair in enumerate(pairwise(pieces)) if pair in ranks]
    heapq.heapify(heap)
    while heap:
        rank = heap[0][0]
        first, second = merges[rank]
        joined = []
        while heap and heap[0][0] == rank:
            left = heapq.heappop(heap)[1]
            right = after[left]
            if pieces[left] != first or right == end or pieces[right] != second:
                continue  # one of the two has been joined to another piece since this entry was made
            pieces[left], pieces[right] = first + second, ""
            after[left] = after[right]
            if after[right] != end:
                before[after[right]] = left
            joined.append(left)
        for right in joined:
            for left in (before[right], right):
                if left >= 0 and after[left] != end:
                    pair = pieces[left], pieces[after[left]]
                    if pair in ranks:
                        heapq.heappush(heap, (ranks[pair], left))
    return [piece for piece in pieces if piece]
