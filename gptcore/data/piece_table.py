"""What a vocabulary's ids are to a masked language model: the specials by role, what is no word, what goes on one.

Shards with sentence borders carry it in ``pieces.json``, so that training reads no tokenizer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gptcore.base.errors import InputError
from gptcore.base.files import read_object, write_json_atomic
from gptcore.text.tokenizer import Tokenizer

PIECES_FILE = "pieces.json"
_ROLES = ("pad", "cls", "sep", "mask")
_WHAT = "what the vocabulary of a folder of shards with sentence borders is made of"
_UNUSED = re.compile(r"\[unused\d+\]")  # rows that BERT's released vocabulary keeps free
_WORD_MARK, _TAIL_MARK = "\u2581", "##"  # of SentencePiece, before a word; of WordPiece, before what goes on a word


@dataclass(frozen=True, eq=False)
class PieceTable:
    """The ids of a vocabulary by what they are."""

    n_vocab: int
    pad: int
    cls: int
    sep: int
    mask: int
    special: npt.NDArray[np.bool_] = field(repr=False)
    """[V] whether an id stands for no text: it is neither masked nor drawn in the place of a word."""
    tail: npt.NDArray[np.bool_] = field(repr=False)
    """[V] whether an id belongs to the word of the id before it."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> PieceTable:
        """The table of a tokenizer.

        :raises InputError: it has no special pieces of its own.
        """
        specials = tokenizer.specials
        if specials is None:
            raise InputError(
                f"tokenizer {tokenizer.digest[:12]}: a {tokenizer.kind} vocabulary has no [SEP] and [MASK]"
            )
        pieces = list(tokenizer.vocabulary)
        special = np.array([bool(_UNUSED.fullmatch(piece)) for piece in pieces])
        special[list(specials)] = True
        roles = {role: int(getattr(specials, role)) for role in _ROLES}
        return cls(len(pieces), **roles, special=special, tail=_tails(pieces) & ~special)

    def save(self, folder: Path) -> None:
        """Write ``pieces.json`` into a local folder that is there."""
        listed = {name: np.flatnonzero(getattr(self, name)).tolist() for name in ("special", "tail")}
        roles = {role: getattr(self, role) for role in _ROLES}
        write_json_atomic(folder / PIECES_FILE, {"n_vocab": self.n_vocab, **roles, **listed})

    @classmethod
    def read(cls, folder: Path) -> PieceTable:
        """The table of a local folder of shards.

        :raises InputError: these shards have no sentence borders, or the file is none of this kind.
        """
        path = folder / PIECES_FILE
        if not path.is_file():
            raise InputError(f"{folder}: no {PIECES_FILE} here, expected shards with sentence borders")
        types = {"n_vocab": int, **dict.fromkeys(_ROLES, int), "special": list, "tail": list}
        found = read_object(path, _WHAT, types)
        n_vocab = found["n_vocab"]
        special, tail = (_flags(found[name], n_vocab, f"{path}: {name}") for name in ("special", "tail"))
        for role in _ROLES:
            if not (0 <= found[role] < n_vocab and special[found[role]]):
                raise InputError(f"{path}: {role} = {found[role]}, expected one of the special ids")
        return cls(n_vocab, **{role: found[role] for role in _ROLES}, special=special, tail=tail)


def _flags(listed: list[Any], n_vocab: int, where: str) -> npt.NDArray[np.bool_]:
    if not all(type(index) is int and 0 <= index < n_vocab for index in listed):
        raise InputError(f"{where}: expected ids in 0..{n_vocab - 1}")
    flags = np.zeros(n_vocab, bool)
    flags[listed] = True
    return flags


def _tails(pieces: list[str]) -> npt.NDArray[np.bool_]:
    """[V] which pieces go on a word. Of SentencePiece's those without a mark that hold a letter or a digit: signs alone
    are words of their own (ALBERT's original code)."""
    if any(piece.startswith(_WORD_MARK) for piece in pieces):
        found = [piece[:1] != _WORD_MARK and any(map(str.isalnum, piece)) for piece in pieces]
    else:
        found = [piece.startswith(_TAIL_MARK) and piece != _TAIL_MARK for piece in pieces]
    return np.array(found, bool)
