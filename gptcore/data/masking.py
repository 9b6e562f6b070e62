"""Which words of a sequence are hidden, and what stands in their place: masked language modelling (BERT, section 3.1).

What a vocabulary's ids are to it (the specials by role, what is no word, what goes on one) is a table that shards with
sentence borders carry in ``pieces.json``, so that training reads no tokenizer.

The rules are those of the released programs: the number of positions counts the marks, which themselves are never
chosen; whole words and runs of up to three (ALBERT) are taken in random order as long as they fit. Two things differ
from them. A run of words never reaches from one segment into the next. And a random word is one of all that a text can
hold, while the release draws its [unused] rows, too, of which nothing is ever learnt otherwise.

Legend of shape comments: B sequences in a batch, T positions, N sizes of n-grams.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gptcore.base.errors import InputError, require
from gptcore.base.files import read_object, write_json_atomic
from gptcore.base.seeds import below, derive_seed, sample_bits, uniforms
from gptcore.text.tokenizer import Tokenizer
from gptcore.text.word_edges import BEGINS, word_edges

PIECES_FILE = "pieces.json"
_ROLES = ("pad", "cls", "sep", "mask")
_WHAT = "what the vocabulary of a folder of shards with sentence borders is made of"
_UNUSED = re.compile(r"\[unused\d+\]")  # rows that BERT's released vocabulary keeps free
Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_PLANES = 4  # numbers drawn for each position: order, size, what it becomes, which word


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
        special[list(specials.ids)] = True
        roles = {role: int(getattr(specials, role)) for role in _ROLES}
        edges = word_edges(tokenizer.kind, pieces, np.flatnonzero(special))
        return cls(len(pieces), **roles, special=special, tail=edges & BEGINS == 0)

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
        require(path.is_file(), f"{folder}: no {PIECES_FILE} here, expected shards with sentence borders")
        types = {"n_vocab": int, **dict.fromkeys(_ROLES, int), "special": list, "tail": list}
        listed = read_object(path, _WHAT, types)
        n_vocab = listed["n_vocab"]
        special, tail = (_flags(listed[name], n_vocab, f"{path}: {name}") for name in ("special", "tail"))
        for role in _ROLES:
            if not (0 <= listed[role] < n_vocab and special[listed[role]]):
                raise InputError(f"{path}: {role} = {listed[role]}, expected one of the special ids")
        return cls(n_vocab, **{role: listed[role] for role in _ROLES}, special=special, tail=tail)


def _flags(listed: list[Any], n_vocab: int, where: str) -> npt.NDArray[np.bool_]:
    if not all(type(index) is int and 0 <= index < n_vocab for index in listed):
        raise InputError(f"{where}: expected ids in 0..{n_vocab - 1}")
    flags = np.zeros(n_vocab, bool)
    flags[listed] = True
    return flags


@dataclass(frozen=True)
class Masking:
    """How words are chosen and hidden; the defaults are BERT's."""

    share: float = 0.15
    """The share of a sequence's positions, its marks counted, that are chosen; one at least is."""
    masked: float = 0.8
    """The share of the chosen positions that become [MASK]."""
    random: float = 0.1
    """The share of the chosen positions that become a random word; the rest stay what they are."""
    whole_words: bool = False
    """Whether all pieces of a word are chosen together."""
    ngrams: int = 1
    """Words chosen together at most, n of them with a probability proportional to 1/n (ALBERT, section 4.1)."""
    copies: int | None = None
    """Each sequence comes back with the same masks after so many others (`dupe_factor` of the original code); None:
    every sequence is drawn anew, masks included."""


class Masked(NamedTuple):
    """Sequences with hidden words."""

    tokens: Ids
    """[B, T] what the network sees."""
    chosen: Flags
    """[B, T] which positions it has to tell."""


class WordMasker:
    """Hides words; what is drawn for a sequence is a pure function of (seed, its number, its copy)."""

    def __init__(self, table: PieceTable, rule: Masking, seed: int) -> None:
        self._table, self._rule, self._seed = table, rule, seed
        self._words = np.flatnonzero(~table.special)
        self._sizes = np.cumsum(1.0 / np.arange(1, rule.ngrams + 1))
        self._sizes /= self._sizes[-1]  # [N] probability of so many words or fewer

    def __call__(self, tokens: Ids, mask: Ids, numbers: Ids, copy: int = 0) -> Masked:
        """Hide words of sequences.

        :param tokens: [B, T], padded at the end.
        :param mask: [B, T] 1 for a word or a mark, 0 for padding.
        :param numbers: [B] of the sequences.
        """
        n_rows, length = tokens.shape
        bits = sample_bits(derive_seed(self._seed, "masks", length, copy), numbers, _PLANES * length)
        order, size, becomes, word = bits.reshape(n_rows, _PLANES, length).swapaxes(0, 1)  # [B, T] each
        candidate = (mask > 0) & ~self._table.special[tokens]
        # Halves are rounded to even, as Python does (original code).
        wanted = np.maximum(1, np.round(mask.sum(1) * self._rule.share)).astype(np.int64)  # [B]
        wanted = np.minimum(wanted, candidate.sum(1))
        begins = candidate.copy()
        if self._rule.whole_words:
            begins[:, 1:] &= ~(self._table.tail[tokens[:, 1:]] & candidate[:, :-1])
        if self._rule.ngrams == 1 and begins.sum() == candidate.sum():
            chosen = _single(candidate, order, wanted)
        else:
            sizes = np.searchsorted(self._sizes, uniforms(size), side="right")  # [B, T] words more than one
            chosen = _together(begins, candidate, order, sizes, self._rule.ngrams, wanted)
        u = uniforms(becomes)
        hidden, drawn = chosen & (u < self._rule.masked), self._words[below(word, len(self._words))]
        replaced = chosen & ~hidden & (u < self._rule.masked + self._rule.random)
        return Masked(np.where(hidden, self._table.mask, np.where(replaced, drawn, tokens)), chosen)


def _single(candidate: Flags, order: npt.NDArray[np.uint64], wanted: Ids) -> Flags:
    """The ``wanted`` candidates of each row that come first: [B, T]."""
    places = np.argsort(np.where(candidate, order, np.iinfo(np.uint64).max), axis=1, kind="stable")
    chosen = np.zeros_like(candidate)
    np.put_along_axis(chosen, places, np.arange(candidate.shape[1]) < wanted[:, None], axis=1)
    return chosen & candidate


def _together(
    begins: Flags, candidate: Flags, order: npt.NDArray[np.uint64], sizes: Ids, ngrams: int, wanted: Ids
) -> Flags:
    """Whole words, or runs of them, in random order: each as long as it fits into what is ``wanted``, else shorter.

    One that overlaps with what is chosen already is passed over; so is a word that is too long.

    :param begins: [B, T] the first pieces of words.
    :param sizes: [B, T] how many words more than one a run that begins there is to have.
    :returns: the chosen positions, [B, T].
    """
    n_rows, length = begins.shape
    rows = np.arange(n_rows)
    stops = _stops(begins, candidate, ngrams)  # [N, B, T]
    places = np.argsort(np.where(begins, order, np.iinfo(np.uint64).max), axis=1, kind="stable")
    n_words = begins.sum(1)
    chosen = np.zeros((n_rows, length + 1), bool)  # the last one: behind the end
    n_chosen = np.zeros(n_rows, np.int64)
    positions = np.arange(length + 1)
    for turn in range(int(n_words.max(initial=0))):
        open_ = (n_chosen < wanted) & (turn < n_words)
        if not open_.any():
            break
        start = places[:, turn]
        ends = stops[:, rows, start]  # [N, B]
        fits = (ends - start <= wanted - n_chosen) & (np.arange(ngrams)[:, None] <= sizes[rows, start])
        longest = fits.sum(0) - 1  # ends only grow, so what fits comes first
        open_ &= longest >= 0
        end = ends[np.maximum(longest, 0), rows]
        taken = chosen[rows, start]
        for number in range(ngrams - 1):  # an end is the beginning of the next word of the run
            taken |= (ends[number] < end) & chosen[rows, ends[number]]
        end = np.where(open_ & ~taken, end, start)
        chosen |= (positions >= start[:, None]) & (positions < end[:, None])
        n_chosen += end - start
    return chosen[:, :-1]


def _stops(begins: Flags, candidate: Flags, ngrams: int) -> Ids:
    """Where the runs of 1, 2, ... words end that begin at each position, within a segment: [N, B, T]."""
    n_rows, length = begins.shape
    border = np.where(begins | ~candidate, np.arange(length), length)  # [B, T]
    after = np.full((n_rows, length + 1), length)
    after[:, :-1] = np.minimum.accumulate(border[:, ::-1], axis=1)[:, ::-1]  # the border at or after a position
    ends = after[:, 1:]  # of the word that begins at a position
    is_word = np.concatenate([begins, np.zeros((n_rows, 1), bool)], axis=1)
    following = np.concatenate([ends, np.full((n_rows, 1), length)], axis=1)
    stops = [ends]
    for _ in range(ngrams - 1):
        last = stops[-1]
        more = np.take_along_axis(is_word, last, axis=1)
        stops.append(np.where(more, np.take_along_axis(following, last, axis=1), last))
    return np.stack(stops)
