"""The rows that models are evaluated on, and whether a document of a corpus holds one of them.

A document holds a row where 70 % of the 8-grams of one of the row's texts stand in it (Chowdhery et al. 2022, PaLM,
section 8, call such a row contaminated). A text of fewer than 13 words (GPT-3's length, Brown et al. 2020, appendix C)
may stand anywhere by chance, and is not looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import require
from gptcore.base.files import sha256_json
from gptcore.evaluation.overlap import Hashes, N, build_set, ngram_hashes, normalised
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.own_task import is_task_file, read_own_task
from gptcore.nlu.readers import available, iterate, labelled_splits
from gptcore.nlu.registry import BEYOND, TaskSpec, task_spec

_SHARE, _SHORTEST = 0.7, 13
_BUFFER = 1 << 18  # characters of a document that are hashed together

Texts = Iterator[tuple[str, ...]]
"""The texts of each row."""


@dataclass(frozen=True)
class EvaluationTexts:
    """One test set."""

    name: str
    """The task, and behind a blank the split where the task has several."""
    rows: Callable[[], Texts]
    """Reads its rows.

    :raises InputError: a missing file or a broken row.
    """
    train: Callable[[], Texts] | None = None
    """Reads the rows that a model of the task is trained on; None where the task has no such rows."""


def sets_of_task(spec: TaskSpec, datasets_url: str) -> Iterator[EvaluationTexts]:
    """The labelled dev and test sets of a task."""
    train = partial(_examples, spec, datasets_url, "train")
    for split in labelled_splits(spec, datasets_url):
        if split != "train":
            yield EvaluationTexts(f"{spec.name} {split}", partial(_examples, spec, datasets_url, split), train)


def _examples(spec: TaskSpec, datasets_url: str, split: str) -> Texts:
    return ((*row.fields, *row.choices) for row in iterate(spec, datasets_url, split))


def _tasks(addresses: str) -> Iterator[tuple[TaskSpec, str]]:
    """The tasks of the datasets' folders and tasks' files that a setting lists, each with the address of its data."""
    for address in addresses.split(","):
        if is_task_file(address):
            yield read_own_task(address).spec, address
        else:
            names = available(address, tuple(BEYOND))
            require(names, f"corpus.decontaminate: found no dataset in {address}, expected a sub-folder for each")
            yield from ((task_spec(name), address) for name in names)


def rows_fingerprint(addresses: str) -> str:
    """SHA-256 of the datasets whose rows :func:`search_at` looks for.

    :raises InputError: a folder of datasets, a task's file or a file that one of them names is missing.
    """
    return sha256_json([dataset_fingerprint(spec, url) for spec, url in _tasks(addresses)])


@dataclass(frozen=True)
class _Rows:
    hashes: Hashes
    """The hashes of all texts' 8-grams, sorted."""
    texts: NDArray[np.int64]
    """The number of the text that each hash is from."""
    lengths: NDArray[np.int64]
    """How many hashes each text has."""


@lru_cache(maxsize=1)
def _rows_at(addresses: str, _: str) -> _Rows:
    sets = (each for spec, url in _tasks(addresses) for each in sets_of_task(spec, url))
    built = [build_set(each.name, each.rows()) for each in sets]
    lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(each.bounds) for each in built)])
    hashes = np.concatenate([np.zeros(0, np.uint64), *(each.hashes for each in built)])
    texts = np.repeat(np.arange(len(lengths)), lengths)
    order = np.argsort(hashes, kind="stable")
    order = order[lengths[texts[order]] > _SHORTEST - N]
    return _Rows(hashes[order], texts[order], lengths)


class RowSearch:
    """Whether one document, given in pieces, holds a row."""

    def __init__(self, rows: _Rows) -> None:
        self._rows, self._pending, self._found = rows, "", np.zeros(0, np.uint64)
        self._words: list[str] = []

    def update(self, piece: str) -> None:
        """Take in the next piece; how a document is cut into pieces does not show but in a word of 250,000 letters."""
        self._pending += piece
        if len(self._pending) > _BUFFER:
            end = 1 + max(map(self._pending.rfind, " \n")) or len(self._pending)
            self._look(self._pending[:end])
            self._pending = self._pending[end:]

    def _look(self, text: str) -> None:
        words = [*self._words, *normalised(text).split()]
        hashes = np.unique(ngram_hashes(words))
        known = self._rows.hashes
        there = hashes[np.searchsorted(known, hashes) < np.searchsorted(known, hashes, "right")]
        self._found, self._words = np.union1d(self._found, there), words[-(N - 1) :]

    def holds(self) -> bool:
        """Whether the pieces that were given hold a row."""
        self._look(self._pending)
        borders = (np.searchsorted(self._rows.hashes, self._found, side) for side in ("left", "right"))
        places = [np.arange(*border) for border in zip(*borders, strict=True)]
        texts, counts = np.unique(self._rows.texts[np.concatenate([np.zeros(0, int), *places])], return_counts=True)
        return bool((counts >= _SHARE * self._rows.lengths[texts]).any())


def search_at(addresses: str, fingerprint: str = "") -> RowSearch:
    """A search for the rows of some datasets, which are read once in each process, and again where they have changed.

    :param fingerprint: see :func:`rows_fingerprint`.
    """
    return RowSearch(_rows_at(addresses, fingerprint))


def rows_and_search(addresses: str | None) -> tuple[dict[str, str], partial[RowSearch] | None]:
    """What stands for the rows of datasets among a stage's inputs, and what begins a search; nothing without datasets.

    :raises InputError: as :func:`rows_fingerprint`.
    """
    if not addresses:
        return {}, None
    fingerprint = rows_fingerprint(addresses)
    return {"rows": fingerprint}, partial(search_at, addresses, fingerprint)
