"""Which documents of a corpus are kept, and for which split: decided from what a first pass notes of each.

The first pass decodes every document once, and notes its hash, its length and what tells it from others. No text is at
hand when it is decided, so the decisions of a corpus of any size are made at once.
"""

from __future__ import annotations

import hashlib
import tempfile
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gptcore.base.types import Ints
from gptcore.config import CorpusConfig
from gptcore.text.decoding import Read
from gptcore.text.sources import Source, read_documents

RUN = 64
"""Bytes of a run: 6 to 13 words. Documents that are nearly the same text are told by MinHash (Broder 1997) over runs of
letters and digits, compared by locality hashing, where white space, punctuation (typographic, too), accents and case do
not count. A letter in ASCII is one byte, as are vowel signs and parts of Hangul, another two, a wide one (Chinese,
Japanese) three. Two editions of a novel share almost all of their runs, two novels almost none. Which runs are looked
at follows from their own first letters, one in 32, so that the same passage gives the same runs wherever it stands."""
PERMUTATIONS = 64
"""Values of a signature, which is made in one pass and in bounded memory; it has 256 bytes. Only those that agree in
one of 16 bands are compared."""
_BANDS = 16  # of 4 values each: documents that share 8 of 10 runs agree in one of them with probability 0.9998
_SCHEME = "affine32"
_BATCH = 1 << 20  # letters
_AT_ONCE = 2048  # runs, whose values the processor's cache holds

_LOWER = bytes(byte + 32 if 65 <= byte <= 90 else byte for byte in range(256))
_DELETED = bytes(byte for byte in range(128) if not chr(byte).isalnum())
_OCTETS = np.zeros(0x110000, "<u4")
"""What each character beyond ASCII becomes: 4 bytes, of which ones are deleted; 0 until it is first met."""

DocumentStats = npt.NDArray[np.void]
"""One record a document, in order: of a source, or of all."""
STATS = np.dtype([("hash", "V32"), ("characters", "<i8"), ("unreadable", "<i8"), ("signature", "<u4", (PERMUTATIONS,))])
"""`characters` of a document that is left out for what was read of it is minus the decision."""

Decisions = npt.NDArray[np.uint8]
"""One of the numbers below for each document, in order."""
TRAIN, VALIDATION, TOO_SHORT, DUPLICATE, UNREADABLE, NEAR_DUPLICATE, DIVIDED, NULL, HOLDS_ROWS = range(9)
"""DIVIDED: the first part is trained on and the end held out, as all documents fall into one split. NULL: the row that
should hold the document's text holds null. HOLDS_ROWS: rows that models are evaluated on stand in the document."""
_UNREADABLE = 0.25  # of a document's characters; random bytes have half, a book in another encoding of Latin 5 %
_BORDER = 10_000  # characters before the place of a cut in which a paragraph's end is looked for, at most
_NOT_TEXT = bytes([*range(9), 11, *range(14, 32), 127])
_NOT_TEXT_EITHER = "".join(map(chr, range(0x80, 0xA0)))


class Sketch:
    """The signature of one document, given in pieces."""

    def __init__(self) -> None:
        from datasketch import MinHash  # brings SciPy, a third of a second, and who finds its corpus needs none

        self._minima = MinHash(PERMUTATIONS, seed=1, hashfunc=int, scheme=_SCHEME)
        self._letters = bytearray()
        self._looked_at = False

    def update(self, piece: bytes) -> None:
        """Take in the next piece, whole characters in UTF-8; how a document is cut into pieces does not show."""
        plain = piece if piece.isascii() else _narrowed(piece)
        self._letters += plain.translate(_LOWER, _DELETED)
        if len(self._letters) >= _BATCH:
            self._look()

    def signature(self) -> npt.NDArray[np.uint32]:
        """[PERMUTATIONS], of all pieces: the share of equal values estimates two documents' Jaccard similarity.

        A document in which no run is looked at counts as one run, all of it; one without a letter has the highest ones.
        """
        if 0 < len(self._letters) < RUN and not self._looked_at:
            self._letters += b" " * (RUN - len(self._letters))
        self._look()
        if self._letters and not self._looked_at:
            self._minima.update_batch([int(_hashed(self._letters, np.zeros(1, dtype=np.int64))[0])])
        return np.asarray(self._minima.hashvalues, dtype=np.uint32)

    def _look(self) -> None:
        """Enter the runs that begin in the letters at hand; those that begin in the last 63 wait for what follows."""
        n_runs = len(self._letters) - RUN + 1
        if n_runs < 1:
            return
        first = np.ndarray((n_runs,), dtype="<u4", buffer=self._letters, strides=(1,))  # 4 letters, at every place
        anchors = np.flatnonzero(first * np.uint32(0x9E3779B1) < np.uint32(1 << 27))  # one in 32
        runs = _hashed(self._letters, anchors).tolist()
        for start in range(0, len(runs), _AT_ONCE):
            self._minima.update_batch(runs[start : start + _AT_ONCE])
            self._looked_at = True
        if self._looked_at:
            self._letters = self._letters[n_runs:]


def _narrowed(piece: bytes) -> bytearray:
    """UTF-8 in which each character beyond ASCII has given way, at its place, to the bytes that count of it."""
    narrowed = bytearray(piece)
    octets = np.frombuffer(narrowed, np.uint8)
    beyond = np.flatnonzero(octets > 127)
    utf8 = octets[beyond]
    characters = np.frombuffer(utf8.tobytes().decode().encode("utf-32-le"), "<u4")
    for new in set(characters[_OCTETS[characters] == 0].tolist()):
        _OCTETS[new] = int.from_bytes(_octets(chr(new))[:4].ljust(4, b"\1"), "little")
    lengths = np.diff(np.flatnonzero(utf8 >= 0xC0), append=len(utf8))  # of the characters in UTF-8, and none has more
    octets[beyond] = _OCTETS[characters].view(np.uint8).reshape(-1, 4)[np.arange(4) < lengths[:, None]]
    return narrowed


def _octets(character: str) -> bytes:
    """What counts of a character beyond ASCII: its letters, without accents and case (see RUN)."""
    octets = b""
    for letter in "".join(filter(_counts, unicodedata.normalize("NFD", character))).casefold():
        part = "\u1100" <= letter <= "\u11ff" or unicodedata.category(letter)[0] == "M"
        if letter.isascii() or (unicodedata.east_asian_width(letter) == "W" and not part):
            octets += letter.encode()[-3:]
        elif _counts(letter):
            low, high = 0x80 | ord(letter) & 0x7F, 0x80 | ord(letter) >> 7 & 0x7F
            octets += bytes([low] if part else [low, high])
    return octets


def _counts(character: str) -> bool:
    """Whether it is a letter, digit or vowel sign; those of Braille and the like are symbols in Unicode."""
    kind = unicodedata.category(character)
    writing = kind[0] in "LMN" or kind in ("Co", "Cn") or (kind == "So" and character >= "\u2800")
    return writing and not unicodedata.combining(character)


def _hashed(letters: bytearray, places: Ints) -> npt.NDArray[np.uint64]:
    """Hashes of 32 bits of the runs that begin at ``places``."""
    words = np.ndarray((len(letters) - 7,), dtype="<u8", buffer=letters, strides=(1,))  # 8 letters, at every place
    runs = np.zeros(len(places), dtype=np.uint64)
    for at in range(0, RUN, 8):
        runs = (runs ^ words[places + at]) * np.uint64(0x9E3779B97F4A7C15)
        runs ^= runs >> np.uint64(29)
    return runs >> np.uint64(32)


@dataclass(frozen=True)
class NearDuplicate:
    """A document and an earlier one that it nearly repeats, by their numbers."""

    document: int
    earlier: int
    similarity: float
    """Estimated share of the runs that the two have in common, of all runs of either."""


def near_duplicates(signatures: npt.NDArray[np.uint32], numbers: Ints, least: float) -> list[NearDuplicate]:
    """Documents that nearly repeat an earlier one, in order; each with the earliest found for it.

    Of documents that agree in a band each is compared with the first and with the one before it.

    :param signatures: [documents, PERMUTATIONS], in order; they may lie in a file.
    :param numbers: of the documents that are compared, ascending.
    :param least: similarity from which on two documents count as nearly the same.
    """
    width = PERMUTATIONS // _BANDS
    earliest: dict[int, tuple[int, float]] = {}
    for band in range(_BANDS):
        keys = signatures[:, band * width : (band + 1) * width].view(f"V{4 * width}")[:, 0][numbers]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        changes = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        borders = np.concatenate([[0], changes, [len(order)]])
        several = np.flatnonzero(np.diff(borders) > 1)  # documents that agree with no other are most of them
        for start, end in zip(borders[several], borders[several + 1], strict=True):
            group = numbers[order[start:end]].tolist()
            for before, later in pairwise(group):
                for earlier in {group[0], before}:
                    similarity = float((signatures[earlier] == signatures[later]).mean())
                    known = earliest.get(later)
                    if similarity >= least and (known is None or earlier < known[0]):
                        earliest[later] = (earlier, similarity)
    return [NearDuplicate(later, *earlier) for later, earlier in sorted(earliest.items())]


# --- what is decided ---


@dataclass(frozen=True)
class Scanned:
    """What pass 1 found in some sources."""

    documents: DocumentStats
    borders: Ints
    """How many documents there are before each source, and in all."""
    read: Read
    """What was read of all sources."""
    damaged: dict[int, Read]
    """What was read of the sources with undecodable bytes, by their numbers."""

    @classmethod
    def together(cls, groups: Iterable[Scanned], folder: Path) -> Scanned:
        """One of many, as they come; the documents' records go to a file without a name in ``folder``."""
        borders, read, damaged = array("q", [0]), Read(), dict[int, Read]()
        with tempfile.TemporaryFile(dir=folder) as file:
            for group in groups:
                damaged |= {len(borders) - 1 + number: own for number, own in group.damaged.items()}
                borders.extend((borders[-1] + group.borders[1:]).tolist())
                read += group.read
                file.write(group.documents.tobytes())
            file.flush()
            documents = np.memmap(file, STATS, "r") if borders[-1] else np.empty(0, STATS)
        return cls(documents, np.array(borders), read, damaged)

    def of_source(self, number: int) -> slice:
        """Where the documents of a source are."""
        return slice(*self.borders[number : number + 2].tolist())

    def source(self, document: int) -> int:
        """The number of the source that holds a document."""
        return int(np.searchsorted(self.borders, document, side="right")) - 1


def scan(sources: Iterable[Source], config: CorpusConfig, search: Callable[[], Any] | None = None) -> Scanned:
    """Hash and measure every document of some files, in bounded memory.

    A document's hash is the SHA-256 of its text after decoding and stripping, in UTF-8.

    :param search: gives a :class:`gptcore.evaluation.held_rows.RowSearch` for each document; None: none is searched.
    :raises InputError: see :func:`gptcore.text.sources.read_documents`.
    """
    records, borders, total, broken = bytearray(), [0], Read(), dict[int, Read]()
    compared = config.drop_duplicates and config.near_duplicates < 1
    for number, source in enumerate(sources):
        read = Read()
        for text in read_documents(source, config, read):
            digest, characters, unreadable, sketch = hashlib.sha256(), 0, 0, Sketch()
            rows = search() if search else None
            for piece in text or ():
                encoded = piece.encode()
                digest.update(encoded)
                characters += len(piece)
                unreadable += len(encoded) - len(encoded.translate(None, _NOT_TEXT)) + piece.count("\ufffd")
                if 4 * encoded.count(b"\xc2") > len(piece):  # before most control characters beyond ASCII
                    unreadable += sum(map(piece.count, _NOT_TEXT_EITHER))
                if compared:
                    sketch.update(encoded)
                if rows:
                    rows.update(piece)
            if text is None or (rows and rows.holds()):
                characters = -NULL if text is None else -HOLDS_ROWS
            records += digest.digest() + characters.to_bytes(8, "little", signed=True)
            records += unreadable.to_bytes(8, "little")
            records += sketch.signature().astype("<u4").tobytes() if compared else bytes(4 * PERMUTATIONS)
        if read.undecodable:
            broken[number] = read
        total += read
        borders.append(len(records) // STATS.itemsize)
    return Scanned(np.frombuffer(bytes(records), STATS), np.array(borders), total, broken)


def decide(documents: DocumentStats, config: CorpusConfig) -> tuple[Decisions, list[NearDuplicate]]:
    """What becomes of each document, from what pass 1 noted alone; and the near duplicates by their numbers.

    What is null is no document, nor is what holds rows of tasks; too short comes next, then unreadable (more than a
    quarter undecodable bytes and control characters); of equal documents the first in order is kept, and none that
    nearly repeats an earlier one; of the rest, a document is held out if its hash, as a fraction of all hashes, lies
    below ``validation_fraction``. So no document's split depends on others.
    """
    fractions = documents["hash"][:, None].view(">u8")[:, 0].astype(np.uint64)  # of 2**64
    decisions = np.full(len(documents), TRAIN, np.uint8)
    decisions[fractions < np.uint64(int(config.validation_fraction * 2**64))] = VALIDATION
    if config.drop_duplicates:
        order = np.argsort(fractions)
        again = np.flatnonzero(fractions[order[1:]] == fractions[order[:-1]])
        alike = np.sort(order[np.union1d(again, again + 1)])
        first = np.unique(documents["hash"][alike], return_index=True)[1]
        decisions[np.delete(alike, first)] = DUPLICATE
    decisions[documents["unreadable"] > _UNREADABLE * documents["characters"]] = UNREADABLE
    decisions[documents["characters"] < config.min_characters] = TOO_SHORT
    decided = documents["characters"] < 0
    decisions[decided] = -documents["characters"][decided]
    nearly: list[NearDuplicate] = []
    if config.drop_duplicates and config.near_duplicates < 1:
        kept = np.flatnonzero((decisions <= VALIDATION) & (documents["signature"][:, 0] < 0xFFFFFFFF))  # has letters
        nearly = near_duplicates(documents["signature"], kept, config.near_duplicates)
        decisions[[pair.document for pair in nearly]] = NEAR_DUPLICATE
    return decisions, nearly


def hold_out_end(documents: DocumentStats, decisions: Decisions, config: CorpusConfig) -> tuple[int, int] | None:
    """Where all documents fall into one split, mark the longest as :data:`DIVIDED`, so that its end alone is held out.

    As many characters as ``validation_fraction`` of all, half of that document at most. One book is the first thing
    that people try. Where there are documents of both splits, nothing changes.

    :returns: its number, and the character before which a paragraph's end is looked for, to cut there.
    """
    n_train, n_validation = int((decisions == TRAIN).sum()), int((decisions == VALIDATION).sum())
    if not config.validation_fraction or bool(n_train) == bool(n_validation):
        return None
    decisions[decisions == VALIDATION] = TRAIN
    characters = np.where(decisions == TRAIN, documents["characters"], 0)
    document = int(characters.argmax())
    longest = int(characters[document])
    decisions[document] = DIVIDED
    return document, longest - min(round(config.validation_fraction * int(characters.sum())), longest // 2)


NAMED = 100
"""Documents that a report names; the others are counted."""


def left_out(
    names: Sequence[str], scanned: Scanned, decisions: Decisions, nearly: Sequence[NearDuplicate]
) -> list[str]:
    """The first documents that were dropped for what they hold, each in a line that says why.

    :param names: of the sources; a document of a source with several is called by its number, too.
    """

    def called(document: int) -> str:
        own = scanned.of_source(source := scanned.source(document))
        several = f", document {document - own.start + 1}" if own.stop - own.start > 1 else ""
        return names[source] + several

    documents = scanned.documents
    unreadable = np.flatnonzero(decisions == UNREADABLE)
    lines = [
        f"{called(n)}: no text: {documents['unreadable'][n] / documents['characters'][n]:.0%} of it are undecodable "
        "bytes and control characters"
        for n in unreadable[:NAMED]
    ]
    held = np.flatnonzero(decisions == HOLDS_ROWS)[: NAMED - len(lines)]
    lines += [f"{called(n)}: holds rows of the tasks' dev or test sets" for n in held]
    for pair in nearly[: NAMED - len(lines)]:
        alike = f"nearly the same as {called(pair.earlier)} ({pair.similarity:.0%} of the runs of some ten words)"
        lines.append(f"{called(pair.document)}: {alike}")
    return lines


def damaged(names: Sequence[str], scanned: Scanned, decisions: Decisions) -> list[str]:
    """The first sources with kept documents that have bytes which are no UTF-8, each in a line with an example."""
    return [
        f"{names[n]}: no UTF-8 in {read.undecodable:,} of {read.bytes:,} bytes ({read.undecodable / read.bytes:.2%}), "
        f"which became U+FFFD, as in {read.example!r}"
        for n, read in scanned.damaged.items()
        if np.isin(decisions[scanned.of_source(n)], (TRAIN, VALIDATION, DIVIDED)).any()
    ][:NAMED]


def cut_in_two(text: Iterator[str], cut: int) -> tuple[Iterator[str], Iterator[str]]:
    """The first part of a document and the rest, to be read in this order; neither is empty if ``cut`` lies in it.

    Cut at the last end of a paragraph before the character ``cut``, or of a line, or of a word, or, in scripts without
    blanks between words, of a sentence, where there is none nearby; else at the character itself.
    """
    near = cut - min(_BORDER, cut // 20)
    rest: list[str] = []

    def first() -> Iterator[str]:
        passed, held = 0, ""
        for piece in text:
            held += piece
            if (free := min(len(held), near - passed)) > 0:
                yield held[:free]
                held, passed = held[free:], passed + free
            if passed + len(held) > cut:
                break
        window = held[: cut - passed]
        cuts = ((window.rfind(border), len(border)) for border in ("\n\n", "\n", " ", *"\u3002\u104b\u17d4\u0f0d"))
        end = next((place + size for place, size in cuts if place >= 0), len(window))
        rest.append(held[end:])
        yield held[:end]

    def end() -> Iterator[str]:
        yield from rest
        yield from text

    return first(), end()
