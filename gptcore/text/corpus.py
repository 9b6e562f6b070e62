"""A raw corpus becomes cleaned Arrow text, split into train and validation by document, in two passes.

Pass 1 (`scan`) decodes every document and notes its hash, its length, how much of it is no text and what tells it from
others. From these alone, `decide` drops what is too short, unreadable, a duplicate or nearly one, and assigns the
splits. Pass 2 (`clean_documents`) cleans what is kept, or leaves it as it is for a
byte-level tokenizer. Both passes stream, run over groups of files in parallel, and give the same folder whatever the
parallelism:

    out/train/part-00000.arrow ...    out/validation/part-00000.arrow ...    out/report.json

(:mod:`gptcore.text.parts` has their format.)

Memory: that of the streams; in the caller some 200 bytes a file and 100 a document, whose 304 of pass 1 lie on disk.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from gptcore.base.errors import InputError
from gptcore.base.files import read_json, sha256_json, write_json_atomic
from gptcore.base.filesystems import is_synthetic
from gptcore.config import CorpusConfig
from gptcore.text.clean import Repairs, clean_stream
from gptcore.text.decoding import Read
from gptcore.text.parts import SPLITS, Parts, part_name, raw_rows
from gptcore.text.selection import (
    DIVIDED,
    DUPLICATE,
    HOLDS_ROWS,
    NEAR_DUPLICATE,
    NULL,
    TOO_SHORT,
    TRAIN,
    UNREADABLE,
    VALIDATION,
    Decisions,
    Scanned,
    cut_in_two,
    damaged,
    decide,
    hold_out_end,
    left_out,
    scan,
)
from gptcore.text.sources import RawCorpus, Source, read_documents
from gptcore.text.word_edges import other_scripts, set_apart

ROW = 1 << 19  # characters of a row, more by at most one line (or part of a very long one)
GROUP = 4 << 20  # bytes of source files that one job takes on: small beside a core's share, large beside its start


T = TypeVar("T")
Progress = Callable[[str, int, int], object]
"""Called with the pass ("scan" or "clean"), the bytes of source files done, and those in all."""


@dataclass
class Cleaned:
    """What pass 2 made of one source, or of several."""

    train: int = 0
    validation: int = 0
    """Documents; a divided one counts in both."""
    divided: int = 0
    wordless: int = 0
    """Documents in which no word was left."""
    words: int = 0
    other_scripts: int = 0
    """Words that hold letters of other scripts than the Latin one; where text stays as it is nobody counts them."""
    bytes: int = 0
    """UTF-8 bytes of the kept documents, before cleaning."""
    ftfy: int = 0
    """Characters that ftfy replaced or removed in them."""

    def __add__(self, other: Cleaned) -> Cleaned:
        return Cleaned(*map(add, vars(self).values(), vars(other).values()))


# --- the whole -------------------------------------------------------------------------------------------------------


def build_corpus(
    corpus: RawCorpus,
    out: Path,
    config: CorpusConfig,
    *,
    search: Callable[[], Any] | None = None,
    map: Callable[..., Iterable[Any]] = map,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Clean a raw corpus into the folder ``out`` and return the report, also written to ``out/report.json``.

    A build that was interrupted is taken up again where ``out`` holds parts of exactly this input and config.

    :param search: see :func:`gptcore.text.selection.scan`; travels to other processes.
    :param map: the built-in, or one that works elsewhere, gives results in order and reaches both sources and ``out``.
    :param progress: see :data:`Progress`; None draws a bar on a terminal.
    :returns: ``documents`` {read, kept, train, validation, dropped: {reason: n}}, ``bytes`` {read, kept} (UTF-8,
        decompressed), ``words``, ``characters_repaired`` {undecodable: bytes of all documents read, ftfy: characters
        of those kept}, ``sources``, ``left_out`` (the first 100 documents dropped as unreadable or as near duplicates,
        each in a line), ``damaged`` (so the first 100 sources with undecodable bytes), ``divided`` (which document's
        end is held out; empty: none's), ``synthetic`` (whether the books are generated).
    :raises InputError: nothing to read, something unreadable, or no training document left.
    """
    check_fraction(config)
    sources = corpus.sources
    groups = grouped(sources, lambda source: source.size)
    out.mkdir(parents=True, exist_ok=True)
    with _bar(progress, "scan", groups) as done:
        scanned = Scanned.together(done(map(partial(scan, config=config, search=search), groups)), out)
    decisions, nearly = decide(scanned.documents, config)
    held, cut = hold_out_end(scanned.documents, decisions, config) or (0, 0)
    require_training_text(corpus.url, _report(scanned, decisions), config)
    (out / _DONE).mkdir(exist_ok=True)
    (out / "report.json").unlink(missing_ok=True)
    jobs = _jobs(groups, scanned, decisions, config, cut)
    with _bar(progress, "clean", groups) as done:
        cleaned = sum(done(map(partial(_clean_group, out=out, config=config, cut=cut), jobs)), Cleaned())
    _remove_strangers(out, len(groups))
    names = [source.name for source in sources]
    report = {
        **_report(scanned, decisions, cleaned),
        "left_out": left_out(names, scanned, decisions, nearly),
        "damaged": damaged(names, scanned, decisions),
        "divided": f"{names[scanned.source(held)]}, from character {cut:,} on" if cut else "",
        "synthetic": is_synthetic(corpus.url),
    }
    require_training_text(corpus.url, report, config)
    write_json_atomic(out / "report.json", report)
    return report


def check_fraction(config: CorpusConfig) -> None:
    """:raises InputError: no share of documents that can be held out, or no similarity."""
    if not 0 <= config.validation_fraction < 1:
        raise InputError(f"corpus.validation_fraction = {config.validation_fraction}, expected 0 <= fraction < 1")
    if not 0 < config.near_duplicates <= 1:
        raise InputError(f"corpus.near_duplicates = {config.near_duplicates}, expected 0 < share <= 1")


# --- pass 2 ----------------------------------------------------------------------------------------------------------


def clean_documents(
    source: Source, hashes: npt.NDArray[np.void], decisions: Decisions, config: CorpusConfig, parts: Parts, cut: int = 0
) -> Iterator[tuple[int, Cleaned]]:
    """Clean the kept documents of one file into ``parts``: the number in the file of each, and what was made of it.

    :param hashes: of all its documents, from pass 1.
    :param cut: where a divided document's end begins.
    :raises InputError: the file changed since it was scanned.
    """
    documents = read_documents(source, config, Read())
    for number, decision in enumerate(decisions):
        text = next(documents, None)
        if decision not in (TRAIN, VALIDATION, DIVIDED):
            continue
        cleaned, repairs = Cleaned(), Repairs()
        expected = hashes[number].tobytes().hex()
        hashed = _Hashed(text if text is not None else ())
        pieces = (
            zip(SPLITS, cut_in_two(iter(hashed), cut), strict=True)
            if decision == DIVIDED
            else [(SPLITS[decision], iter(hashed))]
        )
        n_rows = 0
        for split, piece in pieces:
            rows = _raw(piece, cleaned) if config.raw else _rows(clean_stream(piece, repairs), cleaned)
            n_rows += parts.write(split, expected, source.name, rows)
        if hashed.digest.hexdigest() != expected:
            raise InputError(
                f"{source.name}: changed while it was being cleaned, expected the same text in both passes"
            )
        cleaned.ftfy = repairs.ftfy
        if n_rows:
            cleaned.bytes = hashed.bytes
            cleaned.train, cleaned.validation = int(decision != VALIDATION), int(decision != TRAIN)
            cleaned.divided = int(decision == DIVIDED)
        else:
            cleaned.wordless = 1
        yield number, cleaned


class _Hashed:
    """A stream of text that is hashed and measured as it passes."""

    def __init__(self, text: Iterable[str]) -> None:
        self.text = text
        self.digest = hashlib.sha256()
        self.bytes = 0

    def __iter__(self) -> Iterator[str]:
        for piece in self.text:
            encoded = piece.encode()
            self.digest.update(encoded)
            self.bytes += len(encoded)
            yield piece


def _rows(texts: Iterable[str], cleaned: Cleaned) -> Iterator[str]:
    """Join cleaned lines, some of which come together, to rows that end with a line, and count their words."""
    row: list[str] = []
    size = 0
    for text in texts:
        cleaned.words += text.count(" ") + 1 - text.count("\n")  # a line break is no word here
        cleaned.other_scripts += other_scripts(text)
        while size + len(text) + 1 > ROW:
            end = text.find(" \n ", max(0, ROW - size))
            row.append(text if end < 0 else text[:end])
            yield " ".join(row)
            row, size = [], 0
            text = "" if end < 0 else text[end + 1 :]
        if text:
            row.append(text)
            size += len(text) + 1
    if row:
        yield " ".join(row)


def _raw(text: Iterable[str], cleaned: Cleaned) -> Iterator[str]:
    for row in raw_rows(text):
        cleaned.words += len(set_apart(row).split())
        yield row


# --- groups of sources, the unit of work -----------------------------------------------------------------------------

_DONE = ".done"  # folder of the records by which an interrupted build is taken up again


@dataclass(frozen=True)
class _Job:
    """What pass 2 needs to know about one group; travels to another process."""

    index: int
    sources: tuple[Source, ...]
    borders: npt.NDArray[np.int64]
    """Documents before each source, and in all."""
    hashes: npt.NDArray[np.void]
    """The hashes of all documents."""
    decisions: Decisions
    key: str
    """Digest of all that the group's files depend on."""


def grouped(items: Iterable[T], size: Callable[[T], int], most: int = 0) -> list[tuple[T, ...]]:
    """Consecutive items, about ``most`` bytes together: neither a job a tiny file nor a whole corpus in one.

    :param most: 0: :data:`GROUP`.
    """
    groups: list[list[T]] = []
    room = 0
    for item in items:
        if not groups or size(item) > room:
            groups.append([])
            room = most or GROUP
        groups[-1].append(item)
        room -= size(item)
    return [tuple(group) for group in groups]


def _jobs(
    groups: Sequence[tuple[Source, ...]], scanned: Scanned, decisions: Decisions, config: CorpusConfig, cut: int
) -> Iterator[_Job]:
    end = 0
    for index, group in enumerate(groups):
        borders = scanned.borders[end : (end := end + len(group)) + 1]
        mine, borders = slice(borders[0], borders[-1]), borders - borders[0]
        documents, decided = scanned.documents[mine], decisions[mine]
        content = hashlib.sha256(borders.tobytes() + documents.tobytes() + decided.tobytes()).hexdigest()
        names = [(source.name, source.size) for source in group]
        key = sha256_json({"sources": names, "content": content, "config": asdict(config), "cut": cut})
        yield _Job(index, group, borders, np.array(documents["hash"]), decided, key)


def _clean_group(job: _Job, out: Path, config: CorpusConfig, cut: int) -> Cleaned:
    """Clean a group into its parts, or recognise those that an interrupted build has left complete."""
    record = out / _DONE / f"{job.index:05d}.json"  # written when the group is finished
    if record.exists() and (known := read_json(record))["key"] == job.key:
        return Cleaned(**known["cleaned"])
    record.unlink(missing_ok=True)
    cleaned = Cleaned()
    parts = Parts(out, part_name(job.index))
    for source, (first, end) in zip(job.sources, pairwise(job.borders), strict=True):
        own = slice(first, end)
        for _, made in clean_documents(source, job.hashes[own], job.decisions[own], config, parts, cut):
            cleaned += made
    parts.close()
    write_json_atomic(record, {"key": job.key, "cleaned": asdict(cleaned)})
    return cleaned


def _remove_strangers(out: Path, n_groups: int) -> None:
    """Leave nothing in the folder that an earlier build of another corpus, or an interrupted one, put there."""
    names = set(map(part_name, range(n_groups)))
    for split in SPLITS:
        for path in (out / split).glob("part-*"):
            if path.name not in names:
                path.unlink()
    shutil.rmtree(out / _DONE)


@contextmanager
def _bar(
    progress: Progress | None, name: str, groups: Sequence[tuple[Source, ...]]
) -> Iterator[Callable[[Iterable[Any]], Iterator[Any]]]:
    """A pass-through for the results of ``groups`` that shows how many bytes of sources are behind them."""
    sizes = [sum(source.size for source in group) for group in groups]
    hidden = True if progress else None  # None: unless on a terminal
    with tqdm(total=sum(sizes), desc=name, unit="B", unit_scale=True, disable=hidden) as bar:

        def passing(results: Iterable[Any]) -> Iterator[Any]:
            done = 0
            for size, result in zip(sizes, results, strict=True):
                done += size
                bar.update(size)
                if progress is not None:
                    progress(name, done, sum(sizes))
                yield result

        yield passing


# --- the report ------------------------------------------------------------------------------------------------------


def _report(scanned: Scanned, decisions: Decisions, cleaned: Cleaned | None = None) -> dict[str, Any]:
    """The report of the build; before pass 2, with nothing kept but the expected number of training documents."""
    decided = np.bincount(decisions, minlength=9).tolist()
    expected = Cleaned(decided[TRAIN] + decided[DIVIDED], decided[VALIDATION] + decided[DIVIDED], decided[DIVIDED])
    return report_of(scanned.read, decided, cleaned or expected, len(scanned.borders) - 1)


SELDOM = {"null": NULL, "holds rows of tasks": HOLDS_ROWS}
"""Reasons that a report has where there are such documents."""


def report_of(read: Read, decided: Sequence[int], cleaned: Cleaned, sources: int) -> dict[str, Any]:
    """The report of a corpus; ``decided``: how many documents there are of each decision."""
    return {
        "documents": {
            "read": sum(decided),
            "kept": cleaned.train + cleaned.validation - cleaned.divided,
            "train": cleaned.train,
            "validation": cleaned.validation,
            "dropped": {
                "too short": decided[TOO_SHORT],
                "unreadable": decided[UNREADABLE],
                "duplicate": decided[DUPLICATE],
                "near duplicate": decided[NEAR_DUPLICATE],
                "no words": cleaned.wordless,
                **{name: decided[number] for name, number in SELDOM.items() if decided[number]},
            },
        },
        "bytes": {"read": read.bytes, "kept": cleaned.bytes},
        "words": cleaned.words,
        **({"words in other scripts": cleaned.other_scripts} if cleaned.other_scripts else {}),
        "characters_repaired": {"undecodable": read.undecodable, "ftfy": cleaned.ftfy},
        "sources": sources,
    }


def require_training_text(url: str, report: dict[str, Any], config: CorpusConfig) -> None:
    """:raises InputError: no training document is left; the line says what became of them all."""
    documents = report["documents"]
    if documents["train"]:
        return
    dropped = documents["dropped"]
    raise InputError(
        f"corpus {url}: no training document left of {documents['read']} read in {report['sources']} files: "
        f"{dropped['too short']} under {config.min_characters} characters (corpus.min_characters), "
        f"{dropped['unreadable']} no text (undecodable bytes, control characters), "
        f"{dropped['duplicate'] + dropped['near duplicate']} duplicates, {dropped['no words']} without a word, "
        f"{dropped.get('null', 0)} null, {dropped.get('holds rows of tasks', 0)} with rows of tasks, "
        f"{documents['validation']} held out "
        f"(corpus.validation_fraction = {config.validation_fraction})"
    )
