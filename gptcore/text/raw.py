"""Text that stays as it is, cut into rows, for a tokenizer that takes any text.

A row ends where byte-level encoding (:mod:`gptcore.text.byte_bpe`) begins a new piece anyway, and WordPiece and
SentencePiece a new word, so that the ids of the rows, one after the other, are those of the whole document. Joined
without anything between them, the rows are it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gptcore.base.errors import InputError

ROW = 1 << 19  # characters of a row
SEGMENT = 1 << 16  # so many more, where no place to cut comes sooner

# GPT-2's pattern leaves the last white space of a run to what follows it, and cuts before it whatever stands before.
_CUT = re.compile(r"[ \n](?=\S)")


def raw_rows(chunks: Iterable[str]) -> Iterator[str]:
    """The rows of one document given in pieces, in bounded memory; how it was cut into pieces does not show.

    Where SEGMENT characters have neither a space nor a line break before a letter or mark, a row ends amid them.
    """
    pending = ""
    for chunk in chunks:
        pending += chunk
        while len(pending) > ROW + SEGMENT:
            cut = _CUT.search(pending, ROW, ROW + SEGMENT)
            end = cut.start() if cut else ROW + SEGMENT - 1
            yield pending[:end]
            pending = pending[end:]
    if pending:
        yield pending


def encodable(text: str) -> str:
    """The text itself.

    :raises InputError: the text holds half of a surrogate pair.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        place = f"text: character {error.start}"
        raise InputError(f"{place}: half of a surrogate pair, which UTF-8 cannot hold") from None
    return text
