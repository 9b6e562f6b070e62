"""Cut Project Gutenberg's header, credits and licence from a document, streamed; other documents pass untouched.

A header is what precedes the start marker, if that comes within HEADER characters and the text before it names the
project; a licence is what follows the end marker, up to its known last line or the document's end. Both markers went
through several wordings, all of which are followed. Right behind a header those paragraphs go that say who made the
file or where else it is to be had; right behind a licence, the addresses of files that some go on with. Files that hold
several books one after another work as well: what follows a licence is looked at like a new file. Where a marker's
surroundings are not as expected, text is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gptcore.base.tables import read_table

HEADER = 25_000  # characters; the longest real headers, with the "small print" of the 1990s, have about 15 000
CREDITS = 4_000  # characters; the longest real ones have 1 500
LICENCE = 40_000  # characters; real ones have 19 000

_START = re.compile(
    r"^[ \t]*\*\*\* ?START OF TH(?:E|IS) PROJECT GUTENBERG"
    r"(?:[^\n]*\*\*\*|[^\n]*(?:\n[^\n]+){1,4}?\*\*\*|[^\n]*)[ \t]*$"  # a long title may run over some lines
    r"(?:\s*^[ \t]*\*\*\*[ \t]*$)?"  # and its last asterisks stand alone
    r"|^[^\n]*\*END ?\*? ?THE SMALL PRINT[^\n]*$",
    re.MULTILINE | re.IGNORECASE,
)
_MAKERS, _HINTS = map("|".join, read_table(__file__, "gutenberg.toml").values())
"""How a paragraph begins that says who made the file; what stands in the first lines of one that is about it, too."""
_CREDITS = re.compile(
    rf"\s*^(?=[ \t]*(?:{_MAKERS})|(?:[^\n]*\S[^\n]*\n){{0,2}}?[^\n]*(?:{_HINTS}))(?:[^\n]*\S[^\n]*(?:\n|\Z))+",
    re.MULTILINE | re.IGNORECASE,
)
_STARRED_END = r"^[ \t]*\*\*\* ?END OF TH(?:E|IS) PROJECT GUTENBERG"
_PLAIN_END = r"^[ \t]*(?:This is the )?End of (?:The |This )?Project Gutenb[eu]rg(?:'s|’s| E-?(?:text|book)| Edition)"
_END = re.compile(_STARRED_END, re.MULTILINE | re.IGNORECASE)
_END_AFTER_HEADER = re.compile(f"{_PLAIN_END}|{_STARRED_END}", re.MULTILINE | re.IGNORECASE)
_LICENCE_ENDS = re.compile(
    r"^[^\n]*subscribe to our email newsletter to hear about new e-?books\.?[^\n]*\s*"
    r"(?:^E-?books posted prior to November 2003(?:[^\n]*\n){1,60}?[^\n]*GUTINDEX\.ALL[ \t]*\s*)?"
    r"(?:^\*\*\* ?END: FULL LICENSE ?\*\*\*\s*)?",
    re.MULTILINE | re.IGNORECASE,
)


def strip_gutenberg(chunks: Iterable[str]) -> Iterator[str]:
    r"""The text of one document, given in pieces with "\n" line ends, without Gutenberg headers and licences.

    Holds at most HEADER or LICENCE characters beside one piece.
    """
    text = _Ahead(chunks)
    while text.look(1):
        licensed = _skip_header(text)
        yield from _body(text, _END_AFTER_HEADER if licensed else _END)
        _skip_licence(text)


class _Ahead:
    """A stream of text that can be looked ahead into; pieces end with whole lines, so that a line is never missed."""

    def __init__(self, chunks: Iterable[str]) -> None:
        self._blocks = _whole_lines(chunks)
        self.text = ""

    def look(self, size: int) -> str:
        """At least ``size`` characters, or all that are left."""
        while len(self.text) < size and (block := next(self._blocks, "")):
            self.text += block
        return self.text

    def skip(self, size: int) -> None:
        self.text = self.text[size:]


def _skip_header(text: _Ahead) -> bool:
    """Drop a header, and the credits right behind it. Whether there was one."""
    head = text.look(HEADER + CREDITS)
    start = _START.search(head, 0, HEADER)
    if not start or not re.search("Project Gutenberg", head[: start.end()], re.IGNORECASE):
        return False
    end = start.end()
    while credits_ := _CREDITS.match(head, end, HEADER + CREDITS):  # a paragraph each
        end = credits_.end()
    text.skip(end)
    return True


def _body(text: _Ahead, end: re.Pattern[str]) -> Iterator[str]:
    """Everything before the end marker, which is left in ``text`` with what follows."""
    while block := text.look(1):
        named = b"project guten" in block.encode("utf-8", "surrogatepass").lower()  # a sixth of what the search takes
        if named and (marker := end.search(block)):
            yield block[: marker.start()]
            text.skip(marker.start())
            return
        yield block
        text.skip(len(block))


def _skip_licence(text: _Ahead) -> None:
    """Drop a licence, which begins with the end marker; at a document's end it needs no known last line."""
    licence = text.look(LICENCE)
    if end := _LICENCE_ENDS.search(licence, 0, LICENCE):
        text.skip(end.end())
    elif len(licence) < LICENCE:
        text.skip(len(licence))
    else:  # no licence that we know: only the marker goes
        text.skip(licence.find("\n") + 1 or 1)


def _whole_lines(chunks: Iterable[str]) -> Iterator[str]:
    """Regroup pieces so that each ends with a newline, except the last and very long lines."""
    pending: list[str] = []
    size = 0
    for chunk in chunks:
        end = chunk.rfind("\n") + 1
        if not end and size + len(chunk) > HEADER:
            end = len(chunk)
        if end:
            yield "".join([*pending, chunk[:end]])
            pending, size = [], 0
        if chunk[end:]:
            pending.append(chunk[end:])
            size += len(chunk) - end
    if pending:
        yield "".join(pending)
