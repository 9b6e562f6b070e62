"""What a folder holds of each dataset beside what is published, and fetching what it lacks."""

from __future__ import annotations

import sys
from pathlib import Path

from gptcore.errors import InputError
from gptcore.nlu.dprd import read_dprd
from gptcore.nlu.origins import ORIGINS, Origin, origins_named
from gptcore.nlu.readers import (
    available,
    has_folder,
    has_test_rows,
    iterate,
    iterate_test,
    labelled_splits,
    parquet_layout,
)
from gptcore.nlu.registry import REGISTRY, task_spec
from gptcore.nlu.submission import SUBMISSION, SubmissionFile
from gptcore.synthetic import is_synthetic

_SPLITS = ("train", "dev", "test")
_LAYOUTS = {"race": "json"}
_PUBLISHED_DPRD = {"train": 1322, "test": 564}
Rows = dict[str, tuple[int | None, int]]
"""Split -> rows read (None: not here) and rows published."""


def list_datasets(datasets_url: str) -> None:
    """Print a table of every dataset's rows, read beside published, and one of licences and addresses.

    Every row is read and checked; each line of the table appears when its dataset is done.

    :param datasets_url: the folder of datasets; empty: only what is published.
    :raises InputError: no such folder; or, after everything is printed, a dataset that cannot be read.
    """
    there = set(available(datasets_url)) if datasets_url else set()
    synthetic = ", synthetic" if datasets_url and is_synthetic(datasets_url) else ""
    print(f"rows read/published{synthetic}; GLUE's test rows (*) carry no labels")
    print(_line("dataset", "layout", *_SPLITS), flush=True)
    names = dict.fromkeys([*REGISTRY, *ORIGINS])
    broken = []
    for name in names:
        try:
            layout, rows = _read(name, datasets_url, there)
        except InputError as error:
            broken.append(name)
            print(f"{name:<12} broken      {error}", flush=True)
            continue
        print(_line(name, layout, *(_cell(name, split, rows) for split in _SPLITS)), flush=True)
    print(f"\nto fetch one: gptmill datasets get NAME --to FOLDER\n{'dataset':<12} {'download':>10}  licence; page")
    for name in names:
        if origin := ORIGINS.get(name):
            print(f"{name:<12} {_size(origin):>10}  {origin.licence}\n{'':<25}{origin.page}")
    if broken:
        raise InputError(f"{datasets_url}: {', '.join(broken)} cannot be read; the reasons stand above")


def get_datasets(names: list[str], folder: Path, mirror: str = "") -> None:
    """Fetch datasets one after the other, going on with the next where one fails.

    :param names: names of :data:`gptcore.nlu.origins.ORIGINS`, or ``all``.
    :param folder: the folder of datasets, made if it is not there.
    :param mirror: as for :func:`gptcore.fetch.datasets.get_dataset`.
    :raises InputError: an unknown name, or only datasets that nobody may fetch.
    :raises FetchError: some could not be fetched.
    """
    from gptcore.fetch.datasets import get_dataset
    from gptcore.fetch.download import FetchError

    wanted = origins_named(names)
    refused, failed = [], []
    folder.mkdir(parents=True, exist_ok=True)
    for origin in wanted:
        print(f"{origin.name}: licence: {origin.licence} ({origin.page})", flush=True)
        if origin.request:
            print(f"{origin.name}: {origin.request}", flush=True)
            refused.append(origin.name)
            continue
        if origin.note:
            print(f"{origin.name}: {origin.note}", flush=True)
        try:
            done = get_dataset(origin, folder, mirror)
        except (InputError, FetchError) as error:
            print(f"gptmill: {origin.name}: {error}", file=sys.stderr, flush=True)
            failed.append(origin.name)
            continue
        state = "was there, unchanged since it was fetched" if done == "there" else _unpinned(origin)
        print(f"{origin.name}: {folder / origin.folder}: {state}", flush=True)
    if failed:
        raise FetchError(f"{', '.join(failed)}: not fetched; the reasons stand above")
    if len(refused) == len(wanted):
        raise InputError(f"{', '.join(refused)}: has to be asked for; how stands above")


def _unpinned(origin: Origin) -> str:
    new = [download.name for download in origin.downloads if not download.sha256]
    trusted = f"; SHA-256 of {', '.join(new)} not known before, trusted and recorded" if new else ""
    return f"fetched, SHA-256 as expected{trusted}" if len(new) < len(origin.downloads) else f"fetched{trusted}"


def _read(name: str, datasets_url: str, there: set[str]) -> tuple[str, Rows]:
    """The layout found ("-": not here) and the rows of each split."""
    if name in REGISTRY:
        return _read_task(name, datasets_url, name in there)
    if name == "dprd":
        here = bool(datasets_url) and has_folder("DPRD", datasets_url)
        counted = {s: sum(1 for _ in read_dprd(datasets_url, s)) if here else None for s in _PUBLISHED_DPRD}
        return "text" if here else "-", {split: (rows, _PUBLISHED_DPRD[split]) for split, rows in counted.items()}
    files = [file for file in SUBMISSION if file.path.partition("/")[0] == ORIGINS[name].folder]
    return _unlabelled(files, datasets_url)


def _read_task(name: str, datasets_url: str, here: bool) -> tuple[str, Rows]:
    spec = task_spec(name)
    splits = labelled_splits(spec, datasets_url) if here else []
    rows: Rows = {
        split: (sum(1 for _ in iterate(spec, datasets_url, split)) if split in splits else None, published)
        for split in spec.splits
        if (published := spec.published_rows(split))
    }
    files = [file for file in SUBMISSION if file.path.startswith(f"{spec.folder}/")]
    if files:
        rows["test"] = _unlabelled(files, datasets_url if here else "")[1]["test"]
    if not here:
        return "-", rows
    return "parquet" if parquet_layout(spec.folder, datasets_url) else _LAYOUTS.get(spec.format, spec.format), rows


def _unlabelled(files: list[SubmissionFile], datasets_url: str) -> tuple[str, Rows]:
    """The layout and the rows of test files without labels."""
    here = [file for file in files if datasets_url and has_test_rows(datasets_url, file.path)]
    rows = sum(1 for file in here for _ in iterate_test(task_spec(file.task), datasets_url, file.path, file.index))
    layout = "-" if not here else "parquet" if parquet_layout(here[0].path.partition("/")[0], datasets_url) else "tsv"
    return layout, {"test": (rows if here else None, sum(file.rows for file in files))}


def _cell(name: str, split: str, rows: Rows) -> str:
    if split not in rows:
        return "-"
    read, published = rows[split]
    star = "*" if split == "test" and "test" not in (REGISTRY[name].splits if name in REGISTRY else ()) else ""
    star = "" if name == "dprd" else star
    return f"{'-' if read is None else f'{read:,}'}/{published:,}{star}"


def _line(name: str, layout: str, train: str, dev: str, test: str) -> str:
    return f"{name:<12} {layout:<8} {train:>16} {dev:>16} {test:>16}"


def _size(origin: Origin) -> str:
    if origin.request:
        return "on request"
    return f"{origin.size / 1e6:,.2f} MB" if origin.size else ""
