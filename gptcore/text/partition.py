"""A corpus cleaned file by file: each file by itself, and what they make together decided afterwards.

A partition is one source file, cleaned as :mod:`gptcore.text.corpus` cleans a corpus of that file alone; it depends on
nothing else, so it stays what it is when books come or go. Which of equal documents in two files counts is no matter of
the partitions: `compose` drops, of all documents that they hold, all but the first in the sorted order of the sources,
as an undivided build does, and what nearly repeats an earlier one. So a new book that sorts first and repeats an old
one takes its place in the whole, and changes no partition. The documents, their order, their splits and the report are
those of `build_corpus`, but for a corpus whose documents all fall into one split (one or two books): `build_corpus`
divides one of them, for which the whole has to be known before it is cleaned.

    out/train/part-00000.arrow    out/validation/part-00000.arrow    out/documents.npy (what is kept, in order)

Memory: that of the streams, plus 620 bytes a document.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gptcore.config import CorpusConfig
from gptcore.text.corpus import SELDOM, Cleaned, check_fraction, clean_documents, report_of
from gptcore.text.decoding import Read
from gptcore.text.parts import Parts, part_name
from gptcore.text.selection import (
    DUPLICATE,
    NAMED,
    PERMUTATIONS,
    STATS,
    TOO_SHORT,
    TRAIN,
    UNREADABLE,
    VALIDATION,
    Scanned,
    damaged,
    decide,
    left_out,
    scan,
)
from gptcore.text.sources import Source

DOCUMENTS = "documents.npy"
_DROPPED = {"too_short": TOO_SHORT, "unreadable": UNREADABLE, "duplicate": DUPLICATE, **SELDOM}
_COUNTED = ("read", *_DROPPED, "bytes_read", "undecodable", "other_scripts")
_KEPT = np.dtype(
    [("hash", "V32"), ("words", "<i8"), ("bytes", "<i8"), ("ftfy", "<i8"), ("signature", "<u4", (PERMUTATIONS,))]
)
"""A document that is neither too short nor a duplicate in its file; bytes are 0 where no word was left of it."""


@dataclass(frozen=True)
class Partition:
    """What is known of a cleaned partition without its text."""

    counts: dict[str, Any]
    """The partition's counts as :func:`clean_partition` gives them."""
    documents: npt.NDArray[np.void]
    """The records of the kept documents, in order."""

    @classmethod
    def read(cls, counts: dict[str, int], documents: bytes) -> Partition:
        """Read a partition from its counts and the bytes of the file DOCUMENTS."""
        return cls(counts, np.load(io.BytesIO(documents), allow_pickle=False))


def clean_partition(
    source: Source, out: Path, config: CorpusConfig, search: Callable[[], Any] | None = None
) -> dict[str, Any]:
    """Clean one file into the folder ``out``.

    Documents that nearly repeat each other are all kept here: which of them counts is seen where all are known.

    :returns: numbers of documents (``read``, ``too_short``, ``unreadable``, ``duplicate``) and of bytes
        (``bytes_read``, ``undecodable``), ``left_out``: the first unreadable documents, each in a line, and
        ``damaged``: so the file, if bytes of it are.
    :raises InputError: something unreadable, or a file that changes meanwhile.
    """
    check_fraction(config)
    out.mkdir(parents=True, exist_ok=True)
    scanned = scan([source], config, search)
    decisions, _ = decide(scanned.documents, dataclasses.replace(config, near_duplicates=1.0))
    parts, kept, others = Parts(out, part_name(0)), [], 0
    for number, cleaned in clean_documents(source, scanned.documents["hash"], decisions, config, parts):
        known = scanned.documents[number]
        others += cleaned.other_scripts
        kept.append((known["hash"].tobytes(), cleaned.words, cleaned.bytes, cleaned.ftfy, known["signature"]))
    parts.close()
    np.save(out / DOCUMENTS, np.array(kept, _KEPT), allow_pickle=False)
    decided = np.bincount(decisions, minlength=9).tolist()
    return {
        "read": len(decisions),
        **{name: decided[decision] for name, decision in _DROPPED.items()},
        "bytes_read": scanned.read.bytes,
        "undecodable": scanned.read.undecodable,
        "other_scripts": others,
        "left_out": left_out([source.name], scanned, decisions, []),
        "damaged": damaged([source.name], scanned, decisions),
    }


def compose(
    partitions: Sequence[Partition], names: Sequence[str], config: CorpusConfig
) -> tuple[list[list[str]], dict[str, Any]]:
    """What partitions, in the sorted order of their sources, make together.

    :param names: of their sources.
    :returns: of each partition the hashes of the documents that are dropped as duplicates of earlier ones, and the
        report of :func:`gptcore.text.corpus.build_corpus` but for ``synthetic``.
    """
    total = {name: sum(partition.counts.get(name, 0) for partition in partitions) for name in _COUNTED}
    documents = np.concatenate([np.empty(0, _KEPT), *(partition.documents for partition in partitions)])
    borders = np.cumsum([0, *(len(partition.documents) for partition in partitions)])
    stats = np.zeros(len(documents), STATS)
    stats["hash"], stats["characters"] = documents["hash"], config.min_characters  # long enough, all
    stats["signature"] = documents["signature"]
    decided, nearly = decide(stats, config)
    scanned = Scanned(stats, borders, Read(total["bytes_read"], total["undecodable"]), {})
    dropped = [
        [document["hash"].tobytes().hex() for document in partition.documents[mine > VALIDATION]]
        for partition, mine in zip(partitions, np.split(decided, borders[1:-1]), strict=True)
    ]
    kept, worded = decided <= VALIDATION, documents["bytes"] > 0
    train, validation = (int((worded & (decided == split)).sum()) for split in (TRAIN, VALIDATION))
    unreadable = [line for partition in partitions for line in partition.counts["left_out"]]
    counted = np.bincount(decided, minlength=9).tolist()
    for name, decision in _DROPPED.items():
        counted[decision] += total[name]
    report = {
        **report_of(
            scanned.read,
            counted,
            Cleaned(
                train,
                validation,
                wordless=int((kept & ~worded).sum()),
                words=int(documents["words"][kept].sum()),
                other_scripts=total["other_scripts"],
                bytes=int(documents["bytes"][kept].sum()),
                ftfy=int(documents["ftfy"][kept].sum()),
            ),
            len(partitions),
        ),
        "left_out": [*unreadable, *left_out(names, scanned, decided, nearly)][:NAMED],
        "divided": "",
        "damaged": [line for partition in partitions for line in partition.counts.get("damaged", ())][:NAMED],
    }
    return dropped, report
