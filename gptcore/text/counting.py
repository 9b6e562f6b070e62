"""How often each word of a corpus comes, counted by many workers in bounded memory and without a word lost.

A worker counts some files of the corpus and writes what it found as a run: an Arrow file whose record batches are
buckets, which a checksum of the word tells. Then a bucket of all runs is added up by one job. How the corpus is cut
into runs and buckets follows from its size alone, so the same is counted whoever does it.

    work/run-00000-0.arrow ...    work/bucket-00000.arrow ... (words in order, each once)

Memory: a worker's, that of RUN_WORDS words or of one bucket; the caller's does not grow.
"""

from __future__ import annotations

import logging
import shutil
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from gptcore.base.arrays import numbers
from gptcore.base.types import Advance, Ints, Map, quiet
from gptcore.text.parts import part_files, read_part
from gptcore.text.spacy_words import Pieces

MAX_WORDS = 5_000_000
"""Distinct words that are learnt from: where a corpus has more, those that come most often."""
RUN_WORDS = 500_000
"""Distinct words that a worker holds before it writes them."""
RUN, LEAST_RUN, RUNS = 64 << 20, 4 << 20, 256
"""Bytes of cleaned text that one job counts: those of a corpus in RUNS jobs, but within these bounds."""
BUCKET = 256 << 20
"""Bytes of cleaned text for each bucket: their distinct words fit into memory also where every other word is new."""
_ROWS = 1 << 18  # of a record batch of words added up
_SCHEMA = pa.schema([("word", pa.string()), ("count", pa.int64())])

Words = Callable[[str], Mapping[str, int]]
"""Gives how often each word of a row comes."""

_log = logging.getLogger(__name__)


class Counts(Protocol):
    """Words and how often each comes, to be gone through as often as one likes: a dict, or files."""

    def items(self) -> Iterable[tuple[str, int]]: ...


def cleaned_words(cleaned: str) -> dict[str, int]:
    """How often each word of a cleaned text comes, in the order in which they first came."""
    return Pieces.of_clean(cleaned).counted()


def count_words(rows: Iterable[str], words: Words = cleaned_words) -> Counter[str]:
    """Words of cleaned rows (:func:`gptcore.text.clean.clean`), in memory.

    :param words: how often each word of a row comes, for rows that are not cleaned.
    """
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(words(row))
    return counts


def count_corpus(
    corpus: Path, work: Path, map: Map = map, progress: Advance = quiet, words: Words = cleaned_words
) -> Counts:
    """:func:`count_words` of a cleaned corpus' training documents, its files in parallel, in no particular order.

    Of more than MAX_WORDS words those that come most often, and of equally frequent ones all or none.

    :param work: a folder for what is counted; it is read as long as the result is, and left to the caller.
    :param map: the built-in, or one that gives results in order and whose workers see both folders.
    :param progress: called with the number of files that have been counted since its last call.
    :param words: as of :func:`count_words`; has to reach the workers of ``map``.
    """
    shutil.rmtree(work, ignore_errors=True)  # left by a counting that was interrupted
    work.mkdir(parents=True)
    files = part_files(corpus, "train")
    sizes = np.cumsum([0, *(path.stat().st_size for path in files)])  # before each file, and in all
    n_buckets = 1 + int(sizes[-1]) // BUCKET
    most = min(RUN, max(LEAST_RUN, int(sizes[-1]) // RUNS))
    borders = np.flatnonzero(np.diff(sizes[:-1] // most)) + 1
    jobs = [[files[n] for n in group] for group in np.split(np.arange(len(files)), borders)]
    counted = map(partial(_count_run, work=work, n_buckets=n_buckets, words=words), enumerate(jobs))
    for paths, _ in zip(jobs, counted, strict=True):
        progress(len(paths))
    buckets = [work / f"bucket-{number:05d}.arrow" for number in range(n_buckets)]
    frequencies = [*map(_add_up, enumerate(buckets))]
    for run in work.glob("run-*"):
        run.unlink()
    return Spilled(buckets, _least(frequencies))


@dataclass(frozen=True)
class Spilled:
    """Words that were counted, in files."""

    files: Sequence[Path]
    least: int
    """Words that come less often are left out."""

    def items(self) -> Iterator[tuple[str, int]]:
        """Every word, once."""
        for path in self.files:
            with pa.memory_map(str(path)) as file:
                reader = pa.ipc.open_file(file)
                for number in range(reader.num_record_batches):
                    rows = reader.get_batch(number)
                    frequent = rows.filter(pa.array(numbers(rows.column("count")) >= self.least))
                    yield from zip(*(column.to_pylist() for column in frequent.columns), strict=True)


# --- what workers do ---


def _count_run(job: tuple[int, list[Path]], work: Path, n_buckets: int, words: Words) -> None:
    """Count some files of the corpus, and write the words whenever there are many."""
    number, paths = job
    written = 0
    counts: Counter[str] = Counter()
    for text in (text for path in paths for _, _, text in read_part(path)):
        counts.update(words(text))
        if len(counts) > RUN_WORDS:
            _write(work / f"run-{number:05d}-{written}.arrow", _by_bucket(counts, n_buckets))
            written, counts = written + 1, Counter()
    _write(work / f"run-{number:05d}-{written}.arrow", _by_bucket(counts, n_buckets))


def _by_bucket(counts: Counter[str], n_buckets: int) -> Iterator[pa.RecordBatch]:
    bucket = np.fromiter((zlib.crc32(word.encode()) % n_buckets for word in counts), np.int64, len(counts))
    order = np.argsort(bucket, kind="stable")
    rows = pa.record_batch([pa.array(counts.keys()), pa.array(counts.values())], schema=_SCHEMA).take(pa.array(order))
    ends = np.cumsum(np.bincount(bucket, minlength=n_buckets))
    for first, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        yield rows.slice(first, end - first)


def _add_up(bucket: tuple[int, Path]) -> tuple[Ints, Ints]:
    """Add up a bucket of all runs; returns each number of times that a word comes, and how many words come so often."""
    number, out = bucket
    table, waiting = _SCHEMA.empty_table(), []
    for run in sorted(out.parent.glob("run-*.arrow")):
        with pa.memory_map(str(run)) as file:
            waiting.append(pa.ipc.open_file(file).get_batch(number))
        if sum(map(len, waiting)) > max(_ROWS, len(table)):  # seldom enough that the work stays linear
            table, waiting = _summed(table, waiting), []
    table = _summed(table, waiting).sort_by("word")
    _write(out, table.to_batches(max_chunksize=_ROWS))
    times, words = np.unique(numbers(table.column("count").combine_chunks()), return_counts=True)
    return times, words


def _summed(table: pa.Table, batches: list[pa.RecordBatch]) -> pa.Table:
    every = pa.concat_tables([table, pa.Table.from_batches(batches, _SCHEMA)])
    summed = every.group_by("word", use_threads=False).aggregate([("count", "sum")])
    return summed.select(["word", "count_sum"]).rename_columns(_SCHEMA.names)


def _write(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """Whole or not there, whoever else writes the same file."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    with pa.OSFile(str(aside), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
    aside.replace(path)


def _least(frequencies: Iterable[tuple[Ints, Ints]]) -> int:
    """How often a word has to come so that at most MAX_WORDS do."""
    words_of: Counter[int] = Counter()
    for times, words in frequencies:
        words_of.update(dict(zip(times.tolist(), words.tolist(), strict=True)))
    least, kept, total = 1, 0, sum(words_of.values())
    for n in sorted(words_of, reverse=True):
        if kept + words_of[n] > MAX_WORDS:
            least = n + 1
            told = "tokenizer: %d distinct words; learnt from the %d that come %d times or more"
            _log.warning(told, total, kept, least)
            break
        kept += words_of[n]
    return least
