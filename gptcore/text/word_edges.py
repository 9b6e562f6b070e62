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
    "[\u0e01-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u1b00-\u1b7f\u3005-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua48f\ua980-\ua9ff\uaa60-\uaadf\uf900-\ufaff\uff66-\uff9f]"
    "(?<=\\w)[^\\w\\s]*"
)
"""A letter of Thai, Lao, Tibetan, Burmese, Khmer, Tai, Balinese, Javanese, kana or Yi, or an ideograph, with the signs
behind it; none beyond 16 bits, for speed."""
_OTHER_SCRIPTS = re.compile(r"[^\W\d_A-Za-z\u00aa-\u024f\u1e00-\u1eff]\S*")
_MARKS = "".join(filter(lambda sign: unicodedata.category(sign)[0] == "M", map(chr, range(0x10000))))
MARKS = re.compile(f"[{_MARKS}]+")
"""Accents and vowel signs that are characters of their own."""
WORD = re.compile(f"[\\w{_MARKS}]+")
"""A word where words are set apart, with the signs that Python's ``\\w`` leaves out."""
_BEYOND = "\u0483-\u1dff\u2c00-\u2dff\u3041-\ud7ff\uf900-\ufdff\U00010000-\U0001fbff"  # letters, some unknown to spaCy
_CLOSING = "\"'\u2019\u201d\u00bb\u300b\u300d\u300f\u3011\uff09)\\]"
SENTENCE_ENDS = re.compile(
    "(?:[\u037e\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u0df4\u0f0d\u0f0e"
    "\u104a\u104b\u1362\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b5a\u1b5b"
    "\u1b5e\u1b5f\u1b7d-\u1b7f\u1c3b\u1c3c\u1c7e\u1c7f\u203c\u203d\u2047-\u2049\u2cf9-\u2cfb\u2e2e\u2e3c\u2e53\u2e54"
    "\u3002\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb"
    "\ufe12\ufe15\ufe16\ufe52\ufe56\ufe57\uff01\uff1f\uff61"
    f"]|\uff0e(?!\\d)|\\.(?<=[\\w{_BEYOND}][{_BEYOND}]\\.)\\.*(?=[{_CLOSING}]*\\s))+[{_CLOSING}]*"
)
"""What ends a sentence in other scripts than the Latin one (Unicode's Sentence_Terminal, and a full stop behind two of
their letters), with closing signs; spaCy's English wants blanks there, and letters that it knows."""


_ACCENTS = range(0x300, 0x370)
"""The marks of Latin, Greek and Cyrillic letters."""


def has_signs(word: str) -> bool:
    """Whether a word has vowel signs or other marks that are no accents, as those of Hindi, Thai, Arabic and Hebrew:
    what an uncased vocabulary of BERT's or ALBERT's drops with the accents."""
    if word.isascii():
        return False
    marks = (each for each in unicodedata.normalize("NFD", word) if unicodedata.category(each) == "Mn")
    return any(ord(mark) not in _ACCENTS for mark in marks)


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
