r"""Repaired text as pieces: what stands between spaces once punctuation is set off (original code).

A short text becomes a list. A long one becomes an Arrow column of numbers, and the few distinct pieces that they stand
for: cutting a text of 256 KB and looking its pieces up takes half the time, joining them or their ids again a third.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gptcore.base.arrays import numbers

BREAK = "\x00"
"""The piece that stands for a line break: ftfy leaves no such character in a text."""
LONG = 4096
"""Characters from which on a column pays."""

_FEW = 30  # different pieces

SIGNS = '-~!";?+,)(/*[]}{|_'
RUNS = re.compile(rf"([{re.escape(SIGNS)}])\1*")
"""One sign, once or several times in a row."""
_SIGNS_TOGETHER = rf"([{re.escape(SIGNS)}]+)"
_BLANKS = re.compile(r"[^\S\n]+")
_NEWLINES = re.compile(r" ?\n\s*")


def standardise(text: str) -> str:
    r"""Set punctuation off by spaces and make white space uniform (original code, `text_standardize`).

    Dashes become "-", the ellipsis "...", the acute accent "'". Each run of one character of
    ``- ~ ! " ; ? + , ) ( / * [ ] } { | _`` is set off; a backslash is not, because the original's pattern misses a raw
    string prefix, and the released vocabulary was made that way. White space with a newline becomes `` \n ``, other
    white space one space, and the ends are stripped. Takes linear time, which the original's ``\s*\n\s*`` does not.
    """
    text = _BLANKS.sub(" ", RUNS.sub(r" \g<0> ", plain_dashes(text)))
    return _NEWLINES.sub(" \n ", text).strip()


def plain_dashes(text: str) -> str:
    """Every dash a "-", the ellipsis "...", the acute accent "'"."""
    if text.isascii():
        return text
    for dash in "\u2014\u2013\u2015":
        text = text.replace(dash, "-")
    return text.replace("\u2026", "...").replace("\u00b4", "'")


class Pieces:
    """The pieces of a text: a list of them, or the distinct ones and a column of their numbers.

    :ivar distinct: what :meth:`joined` and :meth:`gathered` want to know the words or the ids of.
    """

    def __init__(self, pieces: list[str] | pa.DictionaryArray) -> None:
        self._numbers = None if isinstance(pieces, list) else pieces.indices
        self.distinct: list[str] = pieces if isinstance(pieces, list) else pieces.dictionary.to_pylist()

    @classmethod
    def of(cls, text: str) -> Pieces:
        r"""Of repaired text, :data:`BREAK` for each "\n". Some may be empty, or several runs of signs together."""
        text = plain_dashes(text).replace("\n", f" {BREAK} ")
        if len(text) < LONG:
            return cls(RUNS.sub(r" \g<0> ", text).split())
        import pyarrow.compute as pc

        apart = pc.replace_substring_regex(pa.array([text]), _SIGNS_TOGETHER, r" \1 ")
        return cls(_split(apart))

    @classmethod
    def of_clean(cls, text: str) -> Pieces:
        """The words of a cleaned text, :data:`BREAK` for each line break."""
        text = text.replace("\n", f" {BREAK} ")
        if len(text) < LONG:
            return cls(text.split())
        return cls(_split(pa.array([text])))

    def counted(self) -> dict[str, int]:
        """How often each piece comes, in the order in which they first came."""
        if self._numbers is None:
            return Counter(self.distinct)
        times = np.bincount(numbers(self._numbers), minlength=len(self.distinct))
        return dict(zip(self.distinct, times.tolist(), strict=True))

    def joined(self, words: list[str]) -> str:
        """Text of the words of each distinct piece, piece after piece, with spaces between."""
        if self._numbers is None:
            return " ".join(words)
        import pyarrow.compute as pc

        column = pa.array(words).take(self._numbers)
        text: str = pc.binary_join(pa.ListArray.from_arrays([0, len(column)], column), " ")[0].as_py()
        return text.strip(" ")

    def gathered(self, ids: list[tuple[int, ...]]) -> NDArray[np.int32]:
        """The ids of each distinct piece, piece after piece: [N]."""
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        flat = np.fromiter(chain.from_iterable(ids), np.int32, int(lengths.sum()))
        if self._numbers is None:
            return flat
        entries = numbers(self._numbers)
        counts = lengths[entries]
        starts = (np.cumsum(lengths) - lengths)[entries]
        shifts = np.repeat(starts - (np.cumsum(counts) - counts), counts)
        return flat[shifts + np.arange(len(shifts))]


def _split(text: pa.StringArray) -> pa.DictionaryArray:
    """One text at its white space.

    None is left at the ends: Arrow 25 looks behind the last character of a text that ends with some, and what it finds
    there decides whether it splits that off.
    """
    import pyarrow.compute as pc

    return pc.utf8_split_whitespace(pc.utf8_trim_whitespace(text)).values.dictionary_encode()


def lines_with(marked: Collection[str], text: str) -> Iterator[str]:
    """Parts of some lines, in order: each that holds one of ``marked`` is one by itself; so is what stands between."""
    if len(marked) > _FEW:  # a search for so many would take longer than looking at each line
        yield from re.split("(\n)", text)
        return
    text, start = plain_dashes(text), 0
    anywhere = re.compile("|".join(map(re.escape, marked)))
    while found := anywhere.search(text, start):
        begin = max(start, text.rfind("\n", start, found.start()) + 1)
        end = text.find("\n", found.end())
        yield text[start:begin]
        start = end if end >= 0 else len(text)
        yield text[begin:start]
    yield text[start:]
