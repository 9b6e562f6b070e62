r"""Raw text to words: ftfy -> standardise -> spaCy's English tokenizer -> lower case (original code; section 4.1).

Cleaned text is the words joined by single spaces. A line break survives as the word "\n". (Behind a line break spaCy
yields "\n " with its space; the original's byte pair encoding maps both to the same id, so one spelling is kept.)
No other word holds white space, so `split_clean` undoes the joining exactly.

Everything works on documents of any size: `clean_stream` holds the piece it was given, and works on BLOCK characters
of it at once. A line longer than LINE characters is processed in parts, cut before a plain word, where nothing that
spaCy looks for can reach across. Only a stretch of SEGMENT characters without any such word is cut elsewhere; the
original release refuses such texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from gptcore.text.repair import SEGMENT, Repairs, repair
from gptcore.text.spacy_words import LineSplitter, standardise

__all__ = ["Repairs", "clean", "clean_stream", "repaired_lines", "split_clean", "splitter", "standardise", "words"]

BLOCK = 1 << 20  # characters worked on at once
LINE = 65_536  # characters of one line among them, where the line allows it

# No special case of spaCy's has a word of six letters behind another token, so none can reach across this place.
_PLAIN_WORD = re.compile(r"\s(?=[A-Za-z]{6,}\s)")
_BLANK = re.compile(r"\s")
_BLANK_LINES = re.compile(r"\n\s*\n")


def words(text: str) -> list[str]:
    r"""The lower-case words of a raw text, "\n" for line breaks: what the byte pair encoding gets to see."""
    return split_clean(clean(text))


def clean(text: str) -> str:
    """The words of a raw text, joined by single spaces."""
    return " ".join(clean_stream([text]))


def split_clean(text: str) -> list[str]:
    """Words of a cleaned text: ``split_clean(clean(text)) == words(text)``."""
    return text.split(" ") if text else []


def clean_stream(chunks: Iterable[str], repairs: Repairs | None = None) -> Iterator[str]:
    r"""Clean one document given in pieces, in bounded memory.

    Yields cleaned text, some lines at a time (empty ones left out); joined by single spaces, the parts are ``clean``
    of the whole document, however it was cut into pieces. A part that follows a line break begins with "\n ".

    :param repairs: counts repaired characters, where given.
    """
    return map(splitter().words, repaired_lines(chunks, repairs))


def repaired_lines(chunks: Iterable[str], repairs: Repairs | None = None) -> Iterator[str]:
    r"""The lines of one document given in pieces, repaired, some at a time, without those that are blank.

    A "\n" stands between two lines, within a part or at its beginning; a line longer than LINE comes in several parts.
    """
    broken = first = True  # a line break since the last part; none yet
    for text, ends_line in _blocks(repair(chunks, Repairs() if repairs is None else repairs)):
        if lines := text.strip():
            lines = _BLANK_LINES.sub("\n", lines)
            inside = not first and (broken or "\n" in text[: len(text) - len(text.lstrip())])
            yield "\n" + lines if inside else lines
            first = False
            broken = ends_line or "\n" in text[len(text.rstrip()) :]
        else:
            broken = broken or ends_line or "\n" in text


@cache
def splitter() -> LineSplitter:
    """This process' own: it remembers the words that it has met."""
    return LineSplitter()


def _blocks(chunks: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Whole lines, about BLOCK characters of them together, and longer ones in parts; with whether a line ends there.

    That line's own newline is left out.
    """
    pending = ""
    for chunk in chunks:
        pending += chunk
        start, last = 0, pending.rfind("\n") + 1
        while start < last:
            end = start
            while end < last and end - start < BLOCK and (newline := pending.rfind("\n", end, end + LINE)) >= 0:
                end = newline + 1
            if end == start:
                end = pending.index("\n", start + LINE) + 1
                *parts, line = _parts(pending[start : end - 1])
                yield from ((part, False) for part in parts)
                yield line, True
            else:
                yield pending[start : end - 1], True
            start = end
        pending = pending[last:]
        if len(pending) > LINE:
            *parts, pending = _parts(pending)
            yield from ((part, False) for part in parts)
    if len(pending) > LINE:
        *parts, pending = _parts(pending)
        yield from ((part, False) for part in parts)
    yield pending, False


def _parts(line: str) -> Iterator[str]:
    """Cut a long line, of which more may come.

    Where it is cut depends on the line's text alone, never on how much of it is there yet.
    """
    window = LINE + SEGMENT
    while len(line) > LINE:
        cut = _PLAIN_WORD.search(line, LINE, window)
        if not cut and len(line) < window:
            break  # short enough to stay whole, or the rest must come first
        cut = cut or _BLANK.search(line, LINE, window)
        end = cut.start() if cut else window
        yield line[:end]
        line = line[end:]
    yield line
