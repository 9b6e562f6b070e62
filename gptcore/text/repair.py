"""ftfy over documents of any size: the same repairs as one call on the whole text, streamed and about 50 times faster.

`ftfy.fix_text` works segment by segment: a segment is a line, or 1 000 000 characters of a longer one. Only one thing
passes from a segment to the next: once a "<" was seen, HTML entities are left alone. So a document can be repaired in
pieces, as long as the pieces end where segments end.

Most lines of real books need nothing but straight quotes and, in files from the world of DOS, line ends without their
carriage returns. Lines without a character for which more may be needed (`_odd`) take
the short way together, one with accents too (`_latin`) if ftfy's own test finds no mojibake; any other goes through
ftfy itself. The tests hold the ways against each other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain

SEGMENT = 1_000_000  # characters; ftfy's max_decode_length, and spaCy's bound on one text

_CURLY = {"'": "\u02bc\u2018\u2019\u201a\u201b", '"': "\u201c\u201d\u201e\u201f"}  # what ftfy makes straight
_DASHES = "\u2013\u2014\u2015\u2026"  # frequent in books, left alone by ftfy


@dataclass
class Repairs:
    """How much had to be repaired."""

    ftfy: int = 0
    """Characters that ftfy replaced or removed, curly quotes included."""


def repair(chunks: Iterable[str], repairs: Repairs) -> Iterator[str]:
    """Repair one document given in pieces: the joined output is ``ftfy.fix_text`` of the joined input.

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
        """Repair whole segments."""
        return "".join(chain.from_iterable(map(self._lines, _split(text))))

    def _lines(self, text: str) -> Iterator[str]:
        """Repair whole lines of SEGMENT characters at most together, or so much of a longer one."""
        unix = text.replace("\r\n", "\n")
        ends = len(text) - len(unix)
        dos = 0 < ends == unix.count("\n") and "\r" not in unix  # all line ends are, and no other return is there
        text = unix if dos else text
        start = 0
        while odd := (_odd if dos or not ends else _odd_or_return)(self.unescape).search(text, start):
            begin = max(start, text.rfind("\n", start, odd.start()) + 1)
            end = text.find("\n", odd.start()) + 1 or len(text)
            yield self._straighten(text[start:begin], dos)
            line = text[begin:end]
            yield self._line(line[:-1] + "\r\n" if dos and line.endswith("\n") else line)
            start = end
        yield self._straighten(text[start:], dos)

    def _line(self, line: str) -> str:
        """Repair one line that holds an odd character."""
        import ftfy
        from ftfy.badness import is_bad

        if "<" in line:
            self.unescape = False
        unix = line.replace("\r\n", "\n")
        if _latin(self.unescape).fullmatch(unix) and not is_bad(unix) and not is_bad(_straight(unix)):
            return self._straighten(line)
        fixed: str = ftfy.fix_text(line, unescape_html=self.unescape, explain=False)
        if fixed != line:
            self.repairs.ftfy += (Counter(line) - Counter(fixed)).total()
        return fixed

    def _straighten(self, text: str, dos: bool = False) -> str:
        """Straight quotes, plain line ends; ``dos``: all ends have lost their returns already, and count as repairs."""
        if dos:
            self.repairs.ftfy += text.count("\n")
        elif "\r" in text:
            self.repairs.ftfy += text.count("\r")
            text = text.replace("\r\n", "\n")
        if text.isascii():
            return text
        self.repairs.ftfy += sum(map(text.count, "".join(_CURLY.values())))
        return _straight(text)


def _straight(text: str) -> str:
    for straight, curly in _CURLY.items():
        for character in curly:
            text = text.replace(character, straight)
    return text


@cache
def _odd(unescape: bool) -> re.Pattern[str]:
    """A character outside the text in which ftfy changes curly quotes and nothing else.

    That text is printable ASCII, newline, tab, form feed, curly quotes and dashes: no mojibake pattern of ftfy consists
    of these alone, and they have no other width, ligature or normal form. "&" may begin an entity, while those are
    unescaped; "<" ends that.
    """
    return re.compile(f"[^{_plain_characters(unescape)}]")


@cache
def _odd_or_return(unescape: bool) -> re.Pattern[str]:
    """What is odd in text with several kinds of line ends: a carriage return is, too, where no newline follows."""
    return re.compile(f"[^{_plain_characters(unescape)}\\r]|\\r(?!\\n)")


@cache
def _latin(unescape: bool) -> re.Pattern[str]:
    """Such text and Latin letters and signs (no ligatures): still only quotes change, unless ftfy sees mojibake."""
    return re.compile(f"[{_plain_characters(unescape)}\xa0-\u0131\u0134-\u0148\u014a-\u017f]*")


def _plain_characters(unescape: bool) -> str:
    return ("\n\t\x0c -%'-;=-~" if unescape else "\n\t\x0c -~") + "".join(_CURLY.values()) + _DASHES


def _split(text: str) -> Iterator[str]:
    """Cut where ftfy does, though not everywhere: whole lines together, or SEGMENT characters of a longer one."""
    start = 0
    while len(text) - start > SEGMENT:
        end = text.rfind("\n", start, start + SEGMENT) + 1 or start + SEGMENT
        yield text[start:end]
        start = end
    yield text[start:]
