"""Which documents of a corpus are kept, and for which split: decided from what a first pass notes of each.

The first pass decodes every document once, and notes its hash, its length and what tells it from others. No text is at
hand when it is decided, so the decisions of a corpus of any size are made at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from gptcore.config import CorpusConfig
from gptcore.text.decoding import Read
from gptcore.text.sources import Source, read_documents

RUN = 64
"""Letters of a run. Documents that are nearly the same text are told by MinHash (Broder 1997) over runs of letters and
digits, compared by locality hashing: some 13 words, where white space, punctuation (typographic, too) and case do not
count. Two editions of a novel share almost all of their runs, two novels almost none. Which runs are looked at follows
from their own first letters, one in 32, so that the same passage gives the same runs wherever it stands."""
PERMUTATIONS = 64
"""Values of a signature, which is made in one pass and in bounded memory; it has 256 bytes. Only those that agree in
one of 16 bands are compared."""
_BANDS = 16  # of 4 values each: documents that share 8 of 10 runs agree in one of them with probability 0.9998
_SCHEME = "affine32"
_BATCH = 1 << 20  # letters

_LOWER = bytes(byte + 32 if 65 <= byte <= 90 else byte for byte in range(256))
# Of letters beyond ASCII the first byte in UTF-8 stays, which tells enough in a run; typographic marks go whole.
_DELETED = bytes(byte for byte in range(128) if not chr(byte).isalnum()) + bytes([*range(0x80, 0xC0), 0xC2, 0xE2, 0xEF])

Signature = npt.NDArray[np.uint32]
"""[PERMUTATIONS]; the share of equal values estimates the Jaccard similarity of two documents' runs."""

DocumentStats = npt.NDArray[np.void]
"""One record a document of a source, in order."""
STATS = np.dtype([("hash", "V32"), ("characters", "<i8"), ("unreadable", "<i8"), ("signature", "<u4", (PERMUTATIONS,))])

Decisions = npt.NDArray[np.uint8]
"""One of the numbers below for each document of a source, in order."""
TRAIN, VALIDATION, TOO_SHORT, DUPLICATE, UNREADABLE, NEAR_DUPLICATE, DIVIDED = range(7)
"""DIVIDED: the first part is trained on and the end held out, as all documents fall into one split."""
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
        """Take in the next piece, in UTF-8; how a document is cut into pieces does not show."""
        self._letters += piece.translate(_LOWER, _DELETED)
        if len(self._letters) >= _BATCH:
            self._look()

    def signature(self) -> Signature:
        """That of all pieces; a document in which no run is looked at counts as one run, all of it."""
        if len(self._letters) < RUN and not self._looked_at:
            self._letters += b" " * (RUN - len(self._letters))
        self._look()
        if not self._looked_at:
            self._minima.update_batch([int(_hashed(self._letters, np.zeros(1, dtype=np.int64))[0])])
        return np.asarray(self._minima.hashvalues, dtype=np.uint32)

    def _look(self) -> None:
        """Enter the runs that begin in the letters at hand; those that begin in the last 63 wait for what follows."""
        n_runs = len(self._letters) - RUN + 1
        if n_runs < 1:
            return
        first = np.ndarray((n_runs,), dtype="<u4", buffer=self._letters, strides=(1,))  # 4 letters, at every place
        anchors = np.flatnonzero((first * np.uint32(0x9E3779B1)) >> np.uint32(27) == 0)  # one in 32
        if len(anchors):
            self._minima.update_batch(_hashed(self._letters, anchors).tolist())
            self._looked_at = True
        if self._looked_at:
            self._letters = self._letters[n_runs:]


def _hashed(letters: bytearray, places: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
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


def near_duplicates(
    signatures: npt.NDArray[np.uint32], numbers: Sequence[int] | npt.NDArray[np.int64], least: float
) -> list[NearDuplicate]:
    """Documents that nearly repeat an earlier one, in order; each with the earliest found for it.

    Of documents that agree in a band each is compared with the first and with the one before it.

    :param signatures: [N, PERMUTATIONS], in the order of the documents.
    :param numbers: what the N documents are called, ascending.
    :param least: similarity from which on two documents count as nearly the same.
    """
    width = PERMUTATIONS // _BANDS
    found: dict[int, tuple[int, float]] = {}
    for band in range(_BANDS):
        keys = np.ascontiguousarray(signatures[:, band * width : (band + 1) * width]).view(f"V{4 * width}")[:, 0]
        order = np.argsort(keys, kind="stable")
        changes = np.flatnonzero(keys[order[1:]] != keys[order[:-1]]) + 1
        borders = np.concatenate([[0], changes, [len(order)]])
        several = np.flatnonzero(np.diff(borders) > 1)  # documents that agree with no other are most of them
        for start, end in zip(borders[several], borders[several + 1], strict=True):
            group = order[start:end]
            for before, later in pairwise(group):
                for earlier in {int(group[0]), int(before)}:
                    similarity = float((signatures[earlier] == signatures[later]).mean())
                    known = found.get(int(later))
                    if similarity >= least and (known is None or earlier < known[0]):
                        found[int(later)] = (earlier, similarity)
    return [
        NearDuplicate(int(numbers[later]), int(numbers[earlier]), similarity)
        for later, (earlier, similarity) in sorted(found.items())
    ]


# --- what is decided ---


@dataclass
class Scan:
    """What pass 1 found in one source."""

    documents: DocumentStats
    read: Read


def scan(source: Source, config: CorpusConfig) -> Scan:
    """Hash and measure every document of one file, in bounded memory.

    A document's hash is the SHA-256 of its text after decoding and stripping, in UTF-8.

    :raises InputError: see :func:`gptcore.text.sources.read_documents`.
    """
    read, found = Read(), bytearray()
    compared = config.drop_duplicates and config.near_duplicates < 1
    for text in read_documents(source, config, read):
        digest, characters, unreadable, sketch = hashlib.sha256(), 0, 0, Sketch()
        for piece in text:
            encoded = piece.encode()
            digest.update(encoded)
            characters += len(piece)
            unreadable += len(encoded) - len(encoded.translate(None, _NOT_TEXT)) + piece.count("\ufffd")
            if 4 * encoded.count(b"\xc2") > len(piece):  # before most control characters beyond ASCII
                unreadable += sum(map(piece.count, _NOT_TEXT_EITHER))
            if compared:
                sketch.update(encoded)
        found += digest.digest() + characters.to_bytes(8, "little") + unreadable.to_bytes(8, "little")
        found += sketch.signature().astype("<u4").tobytes() if compared else bytes(4 * PERMUTATIONS)
    return Scan(np.frombuffer(bytes(found), STATS), read)


def decide(stats: Sequence[DocumentStats], config: CorpusConfig) -> tuple[list[Decisions], list[NearDuplicate]]:
    """What becomes of each document, from what pass 1 noted alone; and the near duplicates, numbered over all sources.

    Too short comes first, then unreadable (more than a quarter undecodable bytes and control characters); of equal
    documents the first in order is kept, and none that nearly repeats an earlier one; of the rest, a document is held
    out if its hash, as a fraction of all hashes, lies below ``validation_fraction``. So no document's split depends on
    others.
    """
    documents = np.concatenate([np.empty(0, STATS), *stats])
    hashes = np.frombuffer(documents["hash"].tobytes(), ">u8").reshape(-1, 4)  # [documents, 4]
    decisions = np.full(len(documents), TRAIN, np.uint8)
    decisions[hashes[:, 0] < np.uint64(int(config.validation_fraction * 2**64))] = VALIDATION
    if config.drop_duplicates:
        order = np.lexsort(hashes.T)  # stable: among equals the first in order stays first
        ordered = hashes[order]
        decisions[order[1:][(ordered[1:] == ordered[:-1]).all(axis=1)]] = DUPLICATE
    decisions[documents["unreadable"] > _UNREADABLE * documents["characters"]] = UNREADABLE
    decisions[documents["characters"] < config.min_characters] = TOO_SHORT
    nearly: list[NearDuplicate] = []
    if config.drop_duplicates and config.near_duplicates < 1:
        kept = np.flatnonzero(decisions <= VALIDATION)
        nearly = near_duplicates(documents["signature"][kept], kept, config.near_duplicates)
        decisions[[pair.document for pair in nearly]] = NEAR_DUPLICATE
    return np.split(decisions, np.cumsum([len(part) for part in stats])[:-1]), nearly


@dataclass(frozen=True)
class Held:
    """The end of a document that is held out."""

    source: int
    start: int
    """The character before which a paragraph's end is looked for, to cut there."""


def hold_out_end(stats: Sequence[DocumentStats], decisions: Sequence[Decisions], config: CorpusConfig) -> Held | None:
    """Where all documents fall into one split, mark the longest as :data:`DIVIDED`, so that its end alone is held out.

    As many characters as ``validation_fraction`` of all, half of that document at most. One book is the first thing
    that people try. Where there are documents of both splits, nothing changes.
    """
    decided = np.concatenate([np.empty(0, np.uint8), *decisions])
    n_train, n_validation = int((decided == TRAIN).sum()), int((decided == VALIDATION).sum())
    if not config.validation_fraction or bool(n_train) == bool(n_validation):
        return None
    for decision in decisions:
        decision[decision == VALIDATION] = TRAIN
    characters = [
        np.where(decision == TRAIN, part["characters"], 0) for part, decision in zip(stats, decisions, strict=True)
    ]
    source = max(range(len(stats)), key=lambda n: int(characters[n].max(initial=0)))
    document = int(characters[source].argmax())
    longest, every = int(characters[source][document]), sum(int(part.sum()) for part in characters)
    decisions[source][document] = DIVIDED
    return Held(source, longest - min(round(config.validation_fraction * every), longest // 2))


NAMED = 100
"""Documents that a report names; the others are counted."""


def left_out(
    names: Sequence[str],
    stats: Sequence[DocumentStats],
    decisions: Sequence[Decisions],
    nearly: Sequence[NearDuplicate],
) -> list[str]:
    """The first documents that were dropped for what they hold, each in a line that says why.

    :param names: of the sources; a document of a source with several is called by its number, too.
    """
    called = [
        name if len(part) == 1 else f"{name}, document {number}"
        for name, part in zip(names, stats, strict=True)
        for number in range(1, len(part) + 1)
    ]
    documents = np.concatenate([np.empty(0, STATS), *stats])
    unreadable = np.flatnonzero(np.concatenate([np.empty(0, np.uint8), *decisions]) == UNREADABLE)
    lines = [
        f"{called[n]}: no text: {documents['unreadable'][n] / documents['characters'][n]:.0%} of it are undecodable "
        "bytes and control characters"
        for n in unreadable[:NAMED]
    ]
    for pair in nearly[: NAMED - len(lines)]:
        alike = f"nearly the same as {called[pair.earlier]} ({pair.similarity:.0%} of the runs of 13 words)"
        lines.append(f"{called[pair.document]}: {alike}")
    return lines


def damaged(names: Sequence[str], scans: Sequence[Scan], decisions: Sequence[Decisions]) -> list[str]:
    """The first sources with kept documents that have bytes which are no UTF-8, each in a line with an example."""
    return [
        f"{name}: no UTF-8 in {read.undecodable:,} of {read.bytes:,} bytes ({read.undecodable / read.bytes:.2%}), "
        f"which became U+FFFD, as in {read.example!r}"
        for name, read, decided in zip(names, (scan.read for scan in scans), decisions, strict=True)
        if read.undecodable and np.isin(decided, (TRAIN, VALIDATION, DIVIDED)).any()
    ][:NAMED]


def cut_in_two(text: Iterator[str], cut: int) -> tuple[Iterator[str], Iterator[str]]:
    """The first part of a document and the rest, to be read in this order; neither is empty if ``cut`` lies in it.

    Cut at the last end of a paragraph before the character ``cut``, or of a line, or of a word, where there is none
    nearby; else at the character itself.
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
        found = ((window.rfind(border), len(border)) for border in ("\n\n", "\n", " "))
        end = next((place + size for place, size in found if place >= 0), len(window))
        rest.append(held[end:])
        yield held[:end]

    def end() -> Iterator[str]:
        yield from rest
        yield from text

    return first(), end()
