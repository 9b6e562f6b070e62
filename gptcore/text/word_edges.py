"""Where the words of a sequence of ids begin and end, as a vocabulary's pieces tell it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

BEGINS, ENDS = 1, 2
# Behind GPT-1's last pieces; before the first ones of GPT-2's and SentencePiece's; before WordPiece's others.
_END, _SPACE, _WORD_MARK, _TAIL_MARK = "</w>", "\u0120", "\u2581", "##"


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
