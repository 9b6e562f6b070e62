r"""Raw text to words: ftfy -> standardise -> spaCy's English tokenizer -> lower case (original code; section 4.1).

Cleaned text is the words joined by single spaces. A line break survives as the word "\n". (Behind a line break spaCy
yields "\n " with its space; the original's byte pair encoding maps both to the same id, so one spelling is kept.)
No other word holds white space, so `split_clean` undoes the joining exactly.

Everything works on documents of any size: `clean_stream` holds the piece it was given, and works on BLOCK characters
of it at once. A line longer than LINE characters is processed in parts, cut before a plain word, where nothing that
spaCy looks for can reach across. Only a stretch of SEGMENT characters without any such word is cut elsewhere; the
original release refuses such texts.

What ftfy does is streamed, and about 50 times faster than one call on the whole text. `ftfy.fix_text` works segment by
segment: a segment is a line, or 1 000 000 characters of a longer one. Only one thing passes from a segment to the next:
once a "<" was seen, HTML entities are left alone. So a document can be repaired in pieces, as long as the pieces end
where segments end. Most lines of real books need nothing but straight quotes and, in files from the world of DOS, line
ends without their carriage returns. Lines without a character for which more may be needed (`_odd`) take the short way
together, one with accents too (`_latin`) if ftfy's own test finds no mojibake; any other goes through ftfy itself. The
tests hold the ways against each other. On the short way quotes stay as they are: :class:`Pieces` has fewer of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np

from gptcore.text.spacy_words import CURLY, LineSplitter, straight

SEGMENT = 1_000_000  # characters; ftfy's max_decode_length, and spaCy's bound on one text

_QUOTES = "".join(CURLY.values())
_DASHES = "\u2013\u2014\u2015\u2026"  # frequent in books, left alone by ftfy


@dataclass
class Repairs:
    """How much had to be repaired."""

    ftfy: int = 0
    """Characters that ftfy replaced or removed, curly quotes included."""


def repair(chunks: Iterable[str], repairs: Repairs) -> Iterator[str]:
    """Repair one document given in pieces.

    The joined output is ``ftfy.fix_text`` of the joined input but for curly quotes, which may stay, and for white space
    beyond ASCII, which becomes spaces.

    Holds at most one segment and one piece at a time. Adds to ``repairs.ftfy``.
    """
    repairer = _Repairer(repairs)
    pending = ""
    for chunk in chunks:
        pending += chunk
        end = pending.rfind("\n") + 1
        end += (len(pending) - end) // SEGMENT * SEGMENT
        if end:
            yield repairer.segments(pending[:end])
            pending = pending[end:]
    if pending:
        yield repairer.segments(pending)


class _Repairer:
    """The state of one document: whether HTML entities are still unescaped."""

    def __init__(self, repairs: Repairs) -> None:
        self.repairs = repairs
        self.unescape = True

    def segments(self, text: str) -> str:
        return "".join(chain.from_iterable(map(self._lines, _split(text))))

    def _lines(self, text: str) -> Iterator[str]:
        """Repair whole lines of SEGMENT characters at most together, or so much of a longer one."""
        unix = text.replace("\r\n", "\n")
        ends = len(text) - len(unix)
        dos = 0 < ends == unix.count("\n") and "\r" not in unix  # all line ends are, and no other return is there
        text = unix if dos else text
        start = 0
        for odd in _odd(text):
            if odd < start or (text[odd] in "&<" and not self.unescape):
                continue
            begin = max(start, text.rfind("\n", start, odd) + 1)
            end = text.find("\n", odd) + 1 or len(text)
            yield self._plain(text[start:begin], dos)
            line = text[begin:end]
            yield _BLANKS.sub(" ", self._line(line[:-1] + "\r\n" if dos and line.endswith("\n") else line))
            start = end
        yield self._plain(text[start:], dos)

    def _line(self, line: str) -> str:
        """Repair one line that holds an odd character."""
        import ftfy
        from ftfy.badness import is_bad

        if "<" in line:
            self.unescape = False
        unix = line.replace("\r\n", "\n")
        if _latin(self.unescape).fullmatch(unix) and not is_bad(unix) and not is_bad(straight(unix)):
            return self._plain(line)
        fixed: str = ftfy.fix_text(line, unescape_html=self.unescape, explain=False)
        if fixed != line:
            self.repairs.ftfy += (Counter(line) - Counter(fixed)).total()
        return fixed

    def _plain(self, text: str, dos: bool = False) -> str:
        """Plain line ends; ``dos``: all ends have lost their returns already, and count as repairs, as quotes do."""
        if dos:
            self.repairs.ftfy += text.count("\n")
        elif "\r" in text:
            self.repairs.ftfy += text.count("\r")
            text = text.replace("\r\n", "\n")
        if not text.isascii():
            self.repairs.ftfy += sum(map(text.count, _QUOTES))
        return text


@cache
def _latin(unescape: bool) -> re.Pattern[str]:
    """Plain text with Latin letters and signs (no ligatures): only its quotes change, unless ftfy sees mojibake."""
    return re.compile(f"[{_plain_characters(unescape)}\xa0-\u0131\u0134-\u0148\u014a-\u017f]*")


def _plain_characters(unescape: bool) -> str:
    return ("\n\t\x0c -%'-;=-~" if unescape else "\n\t\x0c -~") + _QUOTES + _DASHES


_MARKS = bytes(
    byte >= 0xC0 or (byte < 0x80 and not re.match(f"[{_plain_characters(True)}]", chr(byte))) for byte in range(256)
)
"""Bytes that are no plain ASCII; of other characters the first byte."""
_PLAIN_ENDS = np.isin(np.arange(256), [mark.encode()[-1] for mark in _QUOTES[1:] + _DASHES])
"""Third bytes of marks whose first two are 0xE2 and 0x80."""


def _odd(text: str) -> list[int]:
    """Where characters are that stand outside the text in which ftfy changes curly quotes and nothing else.

    That text is printable ASCII, newline, tab, form feed, curly quotes and dashes: no mojibake pattern of ftfy consists
    of these alone, and they have no other width, ligature or normal form. "&" may begin an entity, while those are
    unescaped; "<" ends that.
    """
    data = text.encode("utf-8", "surrogatepass")
    marks = np.flatnonzero(np.frombuffer(data.translate(_MARKS), np.uint8))
    codes = np.frombuffer(data + b"..", np.uint8)
    first, second, third = (codes[marks + byte] for byte in range(3))
    plain = (first == 0xE2) & (second == 0x80) & _PLAIN_ENDS[third]
    plain |= ((first == 0xCA) & (second == 0xBC)) | ((first == 0x0D) & (second == 0x0A))  # U+02BC; an end of DOS
    wide = np.sum([first >= lead for lead in (0xC0, 0xE0, 0xF0)], axis=0)
    characters = marks - np.cumsum(wide) + wide
    places: list[int] = characters[~plain].tolist()
    return places


def _split(text: str) -> Iterator[str]:
    """Cut where ftfy does, though not everywhere: whole lines together, or SEGMENT characters of a longer one."""
    start = 0
    while len(text) - start > SEGMENT:
        end = text.rfind("\n", start, start + SEGMENT) + 1 or start + SEGMENT
        yield text[start:end]
        start = end
    yield text[start:]


# --- raw text to words ---


BLOCK = 1 << 20  # characters worked on at once
LINE = 65_536  # characters of one line among them, where the line allows it

# No special case of spaCy's has a word of six letters behind another token, so none can reach across this place.
_PLAIN_WORD = re.compile(r"\s(?=[A-Za-z]{6,}\s)")
_BLANK = re.compile(r"\s")
_BLANKS = re.compile(r"[^\S\n]")
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
    """The splitter of this process, which remembers the words that it has met."""
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
