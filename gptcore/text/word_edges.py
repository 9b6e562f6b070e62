"""Where words begin and end: those of a sequence of ids, as a vocabulary's pieces tell it, and those of a text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

BEGINS, ENDS = 1, 2
# Behind GPT-1's last pieces; before the first ones of GPT-2's and SentencePiece's; before WordPiece's others.
_END, _SPACE, _WORD_MARK, _TAIL_MARK = "</w>", "\u0120", "\u2581", "##"

_WITHOUT_BLANKS = re.compile(
    "[\u0e01-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua000-\ua48f\uf900-\ufaff](?<=\\w)[^\\w\\s]*"
)
"""A letter of Thai, Lao, Tibetan, Burmese, Khmer, kana or Yi, or an ideograph, with the signs behind it; none beyond 16
bits, for speed."""
_OTHER_SCRIPTS = re.compile(r"[^\W\d_A-Za-z\u00aa-\u024f\u1e00-\u1eff]\S*")
MARKS = re.compile(f"[{''.join(filter(lambda sign: unicodedata.category(sign)[0] == 'M', map(chr, range(0x10000))))}]+")
"""Accents and vowel signs that are characters of their own."""


def set_apart(text: str) -> str:
    """The text with blanks around each letter of a script that has none between its words.

    So each of these letters is a word, as where no dictionary is at hand (Unicode Standard Annex 29).
    """
    return _WITHOUT_BLANKS.sub(r" \g<0> ", text)


def other_scripts(text: str) -> int:
    """How many words of a text, set apart by blanks, hold letters of other scripts than the Latin one."""
    return 0 if text.isascii() else len(_OTHER_SCRIPTS.findall(text))


def word_edges(kind: str, pieces: Sequence[str], special: Collection[int] = ()) -> NDArray[np.uint8]:
    """[V] of each piece 1 if it begins a word, 2 if it ends one, their sum for both, 0 for neither.

    GPT-1's pieces say which are the last ones, others which are the first. Of GPT-2's and SentencePiece's those are the
    first that have a space before them, and signs (of the latter as in ALBERT's original code).

    :param kind: of tokenizer, see :attr:`gptcore.text.tokenizer.Tokenizer.kind`.
    :param special: ids of pieces that stand for no text, which are words of their own.
    """
    if kind == "word":
        codes = [ENDS * piece.endswith(_END) for piece in pieces]
    elif kind == "byte-level":
        codes = [BEGINS * (piece[:1] == _SPACE or not piece[:1].isalnum()) for piece in pieces]
    elif kind == "SentencePiece":
        codes = [BEGINS * (piece[:1] == _WORD_MARK or not any(map(str.isalnum, piece))) for piece in pieces]
    else:
        codes = [BEGINS * (piece == _TAIL_MARK or not piece.startswith(_TAIL_MARK)) for piece in pieces]
    edges = np.array(codes, np.uint8)
    edges[list(special)] = BEGINS | ENDS
    return edges
