"""BLiMP (Warstadt et al. 2020): minimal pairs of English sentences, of which one is well formed; zero-shot only.

67 paradigms, a file of JSON lines each, make up 12 fields (the paper's "phenomena"). A language model is right on a
pair where it finds the good sentence the likelier one: :mod:`gptcore.evaluation.zero_shot`.

It is listed here beside the tasks of section 5, which are scored without fine-tuning, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gptcore.base.errors import InputError, nearest, require
from gptcore.base.files import sha256_json
from gptcore.base.filesystems import file_fingerprint
from gptcore.base.tables import read_table
from gptcore.nlu.readers import Record, available, has_folder, lines, parse_object, show, unreadable

BLIMP = "blimp"
FOLDER = "BLiMP"
PAIRS = 1000
"""Minimal pairs that each paradigm has, as published."""
CHANCE = 0.5

FIELDS: dict[str, tuple[str, ...]] = read_table(__file__, "blimp.toml")
"""The name of each field and the paradigms that make it up, which are the files' names.

These are the paper's 12 fields; the files have a 13th `linguistics_term`, see :data:`_MERGED`."""

PARADIGMS = tuple(paradigm for paradigms in FIELDS.values() for paradigm in paradigms)
"""The names of all 67 paradigms."""

_MERGED = {"s-selection": "argument_structure"}  # as the paper's 12 phenomena and BabyLM's 12 columns have it

COLUMNS = (BLIMP, *(f"{BLIMP}/{field}" for field in FIELDS))
"""The leaderboard's zero-shot columns: the mean of the 12 fields, then each of them."""


@dataclass(frozen=True)
class Pair:
    """A minimal pair: two sentences that differ in little, of which only the first is well formed."""

    good: str
    bad: str


def has_blimp(datasets_url: str) -> bool:
    """Whether the folder of datasets has BLiMP's."""
    return has_folder(FOLDER, datasets_url)


def read_paradigm(datasets_url: str, paradigm: str) -> Iterator[Pair]:
    """The pairs of ``BLiMP/<paradigm>.jsonl``, in the file's order.

    :raises InputError: naming file, line and field, if the file is missing, empty, or a row is broken or stands in
        another paradigm's file.
    """
    url = f"{datasets_url.rstrip('/')}/{FOLDER}/{paradigm}.jsonl"
    field = next(field for field, paradigms in FIELDS.items() if paradigm in paradigms)
    line = 0
    for line, text in lines(url):
        row = Record(url, str(line), parse_object(text, url, line))
        if (uid := row.value("UID")) != paradigm:
            raise row.error("UID", show(uid), f"{paradigm!r}, as the file is called")
        if _MERGED.get(str(term := row.value("linguistics_term")), term) != field:
            raise row.error("linguistics_term", show(term), repr(field))
        yield Pair(row.text("sentence_good"), row.text("sentence_bad"))
    require(line, f"{url}: found no line, expected a minimal pair in each")


def blimp_fingerprint(datasets_url: str) -> str:
    """SHA-256 of what the 67 files hold.

    :raises InputError: one is missing.
    """
    prints = {}
    for name in (f"{FOLDER}/{paradigm}.jsonl" for paradigm in PARADIGMS):
        url = f"{datasets_url.rstrip('/')}/{name}"
        try:
            prints[name] = file_fingerprint(url)
        except OSError as error:
            raise unreadable(url, error) from error
    return sha256_json(prints)


ZERO_SHOT_TASKS = ("cola", "sst2", "race", "dprd")
"""The tasks that section 5 has a heuristic for."""
WITHOUT_TRAINING = (*ZERO_SHOT_TASKS, BLIMP)
"""Everything that a pre-trained model is scored on without fine-tuning."""


def check_zero_shot(tasks: Sequence[str], known: Sequence[str] = ZERO_SHOT_TASKS) -> None:
    """Refuse a task that is not among ``known``; by default one without a heuristic of section 5.

    :raises InputError: naming it.
    """
    if unknown := [task for task in tasks if task not in known]:
        raise InputError(f"--tasks: found {unknown[0]!r}, {nearest(unknown[0], known)}")


def available_zero_shot(datasets_url: str) -> list[str]:
    """The tasks of section 5 whose data is there, and ``blimp`` where its files are.

    :raises InputError: there is none.
    """
    there = [*available(datasets_url), *(["dprd"] if has_folder("DPRD", datasets_url) else [])]
    tasks = [*(task for task in ZERO_SHOT_TASKS if task in there), *([BLIMP] if has_blimp(datasets_url) else [])]
    require(tasks, f"{datasets_url}: no data for any of {', '.join(WITHOUT_TRAINING)}")
    return tasks
