"""What a folder holds of each dataset beside what is published, and fetching what it lacks."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from gptcore.base.errors import InputError, without_password
from gptcore.base.filesystems import exists, file_system
from gptcore.base.synthetic import is_synthetic
from gptcore.evaluation.submission import SUBMISSION
from gptcore.nlu.blimp import BLIMP, PARADIGMS, has_blimp, read_paradigm
from gptcore.nlu.origins import ORIGINS, Origin, origins_named
from gptcore.nlu.readers import (
    available,
    fitted,
    has_folder,
    has_test_rows,
    iterate,
    iterate_test,
    labelled_splits,
    parquet_layout,
)
from gptcore.nlu.registry import BEYOND, REGISTRY, TaskSpec, task_spec
from gptcore.nlu.winograd import read_dprd

_SPLITS = ("train", "dev", "test")
_LAYOUTS = {"race": "json", "squad": "json"}
_NAMED = 4  # files, beyond which their number says more


class Count(NamedTuple):
    """Rows of one split."""

    read: int | None
    """None: not here."""
    published: int
    labelled: bool = True


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
    names = dict.fromkeys([*REGISTRY, *BEYOND, *ORIGINS])
    there |= {name for name in BEYOND if datasets_url and _has_files(BEYOND[name], datasets_url)}
    broken = []
    for name in names:
        try:
            layout, rows = _read(name, datasets_url, there)
        except InputError as error:
            broken.append(name)
            print(f"{name:<12} broken      {error}", flush=True)
            continue
        print(_line(name, layout, *(_cell(rows.get(split)) for split in _SPLITS)), flush=True)
    print(f"\nto fetch one: gptmill datasets get NAME --to FOLDER\n{'dataset':<12} {'download':>10}  licence; page")
    for name in names:
        if origin := ORIGINS.get(name):
            print(f"{name:<12} {_size(origin):>10}  {origin.licence}\n{'':<25}{origin.page}")
    if broken:
        raise InputError(f"{datasets_url}: {', '.join(broken)} cannot be read; the reasons stand above")


def get_datasets(names: list[str], to: str, mirror: str = "") -> None:
    """Fetch datasets one after the other, going on with the next where one fails.

    :param names: names of :data:`gptcore.nlu.origins.ORIGINS`, or ``all``.
    :param to: the folder of datasets, on this machine; made if it is not there.
    :param mirror: as for :func:`gptcore.fetch.datasets.get_dataset`.
    :raises InputError: an unknown name, a folder elsewhere, or only datasets that nobody may fetch.
    :raises FetchError: some could not be fetched.
    """
    from gptcore.fetch.datasets import get_dataset
    from gptcore.fetch.download import FetchError

    wanted = origins_named(names)
    if "://" in to:
        raise InputError(f"--to: found {to!r}, expected a folder on this machine")
    folder = Path(to)
    refused, failed = [], []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--to {to}: cannot be made ({error.strerror}), expected a folder") from None
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
        except (InputError, FetchError, OSError) as error:
            print(f"gptmill: {origin.name}: {without_password(str(error))}", file=sys.stderr, flush=True)
            failed.append(origin.name)
            continue
        state = "was there, unchanged since it was fetched" if done == "there" else _fetched(origin)
        print(f"{origin.name}: {folder / origin.folder}: {state}", flush=True)
    if failed:
        raise FetchError(f"{', '.join(failed)}: not fetched; the reasons stand above")
    if len(refused) == len(wanted):
        raise InputError(f"{', '.join(refused)}: has to be asked for; how stands above")


def _fetched(origin: Origin) -> str:
    known = [download for download in origin.downloads if download.sha256]
    names = [download.name for download in origin.downloads if not download.sha256]
    new = ", ".join(names) if len(names) <= _NAMED else f"the {len(names)} files"
    trusted = f"that of {new} is known from no source: the first one seen counts" if new else ""
    return "; ".join(["fetched", *(["SHA-256 as expected"] if known else []), *([trusted] if new else [])])


def _read(name: str, datasets_url: str, there: set[str]) -> tuple[str, dict[str, Count]]:
    """The layout found ("-": not here) and the rows of each split."""
    if name in REGISTRY or name in BEYOND:
        return _read_task(name, datasets_url, name in there)
    if name == "dprd":
        here = bool(datasets_url) and has_folder("DPRD", datasets_url)
        return "text" if here else "-", {
            split: Count(_count(read_dprd(datasets_url, split), name, split) if here else None, published)
            for split, published in ORIGINS[name].rows.items()
        }
    if name == BLIMP:
        here = bool(datasets_url) and has_blimp(datasets_url)
        pairs = (pair for paradigm in PARADIGMS for pair in read_paradigm(datasets_url, paradigm))
        read = _count(pairs, name, "test") if here else None
        return "jsonl" if here else "-", {"test": Count(read, ORIGINS[name].rows["test"])}
    layout, test = _unlabelled(name, ORIGINS[name].folder, datasets_url)
    return layout, {"test": test} if test else {}


def _has_files(spec: TaskSpec, datasets_url: str) -> bool:
    """Whether any file of a task is there: two versions of a dataset may share a folder."""
    paths = {source.path for sources in spec.splits.values() for source in sources}
    return any(exists(*file_system(spec.address(datasets_url, path))) for path in sorted(paths))


def _read_task(name: str, datasets_url: str, here: bool) -> tuple[str, dict[str, Count]]:
    spec = fitted(task_spec(name), datasets_url) if here else task_spec(name)
    splits = labelled_splits(spec, datasets_url) if here else []
    rows = {
        split: Count(
            _count(iterate(spec, datasets_url, split), name, split) if split in splits else None,
            spec.published_rows(split),
        )
        for split in spec.splits
    }
    _, test = _unlabelled(name, spec.folder, datasets_url if here else "")
    rows |= {"test": test} if test else {}
    if not here:
        return "-", rows
    return "parquet" if parquet_layout(spec.folder, datasets_url) else _LAYOUTS.get(spec.format, spec.format), rows


def _unlabelled(name: str, folder: str, datasets_url: str) -> tuple[str, Count | None]:
    """The layout and the rows of a folder's test files without labels; None: it has none that are published."""
    files = [file for file in SUBMISSION if file.path.partition("/")[0] == folder]
    here = [file for file in files if datasets_url and has_test_rows(datasets_url, file.path)]
    if not here:
        return "-", Count(None, sum(file.rows for file in files), labelled=False) if files else None
    read = sum(
        _count(iterate_test(task_spec(file.task), datasets_url, file.path, file.index), name, "test") for file in here
    )
    layout = "parquet" if parquet_layout(folder, datasets_url) else "tsv"
    return layout, Count(read, sum(file.rows for file in files), labelled=False)


def _count(rows: Iterable[object], name: str, split: str) -> int:
    return sum(1 for _ in tqdm(rows, desc=f"{name} {split}", unit="row", leave=False, disable=None))


def _cell(count: Count | None) -> str:
    if count is None:
        return "-"
    read = "-" if count.read is None else f"{count.read:,}"
    return f"{read}/{count.published:,}{'' if count.labelled else '*'}"


def _line(name: str, layout: str, train: str, dev: str, test: str) -> str:
    return f"{name:<12} {layout:<8} {train:>16} {dev:>16} {test:>16}"


def _size(origin: Origin) -> str:
    if origin.request:
        return "on request"
    return f"{origin.size / 1e6:,.2f} MB" if origin.size else ""
