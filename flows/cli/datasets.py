"""What a folder holds of each dataset beside what is published, fetching what it lacks, and what one task holds."""

from __future__ import annotations

import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, TypeVar

from tqdm import tqdm

from flows.forms.readers import task_name
from gptcore.base.addresses import refuse_password, without_password
from gptcore.base.errors import InputError, require
from gptcore.base.filesystems import exists, file_system, is_synthetic
from gptcore.evaluation.submission import SUBMISSION
from gptcore.nlu.blimp import BLIMP, PARADIGMS, has_blimp, read_paradigm
from gptcore.nlu.findings import Findings, texts_of
from gptcore.nlu.forms import form_of
from gptcore.nlu.origins import ORIGINS, Origin, origins_named
from gptcore.nlu.own_task import Task, is_task_file, read_own_task
from gptcore.nlu.readers import (
    Example,
    available,
    fitted,
    has_folder,
    has_test_rows,
    iterate,
    iterate_test,
    labelled_splits,
    parquet_layout,
)
from gptcore.nlu.readers.winograd import read_dprd
from gptcore.nlu.registry import BEYOND, REGISTRY, TaskSpec, task_spec

_SPLITS = ("train", "dev", "test")
_LAYOUTS = {"race": "json", "squad": "json"}
_NAMED = 4  # files, beyond which their number says more
_LABELS = 30  # lines; a task may have a thousand
_SHOWN = 160  # characters of a text

_Row = TypeVar("_Row")


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
    require(not broken, f"{datasets_url}: {', '.join(broken)} cannot be read; the reasons stand above")


def get_datasets(names: list[str], to: str, mirror: str = "") -> None:
    """Fetch datasets one after the other, going on with the next where one fails.

    :param names: names of :data:`gptcore.nlu.origins.ORIGINS`, or ``all``.
    :param to: the folder of datasets, on this machine; made if it is not there.
    :param mirror: as for :func:`gptcore.fetch.datasets.get_dataset`.
    :raises InputError: an unknown name, a password in the mirror's address, a folder elsewhere, or only datasets that
        nobody may fetch.
    :raises FetchError: some could not be fetched.
    """
    from gptcore.fetch.datasets import get_dataset
    from gptcore.fetch.download import FetchError

    wanted = origins_named(names)
    refuse_password(mirror)
    require("://" not in to, f"--to: found {to!r}, expected a folder on this machine")
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
    require(len(refused) < len(wanted), f"{', '.join(refused)}: has to be asked for; how stands above")


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


def _counted(rows: Iterable[_Row], name: str, split: str) -> Iterable[_Row]:
    """The rows; how many there were so far is on the terminal."""
    counted: Iterable[_Row] = tqdm(rows, desc=f"{name} {split}", unit="row", leave=False, disable=None)
    return counted


def _count(rows: Iterable[object], name: str, split: str) -> int:
    return sum(1 for _ in _counted(rows, name, split))


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


# --- one task


def check_task(url: str, datasets_url: str) -> None:
    """Read every row of a task, and print rows, labels, lengths, duplicates and an example.

    :param url: the name of a task that has an entry, or the address of the file of a user's own.
    :raises InputError: no such task, the file is no task's, or a row is broken; names file and field, or line and
        column.
    """
    url = task_name(url)
    if is_task_file(url):
        task = read_own_task(url, datasets_url)
    elif datasets_url:
        task = Task(fitted(task_spec(url), datasets_url))
    else:
        raise InputError(f"--datasets: none given, expected the folder that holds {task_spec(url).folder}")
    spec = task.spec
    dropped: dict[str, Counter[str]] = defaultdict(Counter)
    rows = {
        split: list(_counted(iterate(spec, datasets_url, split, dropped[split]), spec.name, split))
        for split in labelled_splits(spec, datasets_url)
    }
    parts = [_head(task, datasets_url), _lengths(spec, rows), _labels(spec, rows), _left_out(spec, dropped, rows)]
    print("\n\n".join("\n".join(part) for part in parts) + "\n")
    print("\n".join(_example(spec, rows["train"][0])))
    found = Findings(spec)
    for split, examples in rows.items():
        found.dropped.update(dropped[split])
        for row in examples:
            found.add(split, row)
    for note in (*([spec.note] if spec.note else []), *found.notes()):
        print(f"note: {note}")
    sys.stdout.flush()


def _head(task: Task, datasets_url: str) -> Iterator[str]:
    spec = task.spec
    kind = f"a graded score from {spec.score_range[0]:g} to {spec.score_range[1]:g}" if spec.score_range else ""
    metrics = ", ".join(map(spec.title_of, spec.metrics))
    yield f"{spec.name}: {spec.form}, {kind or f'{len(spec.labels)} labels'}, scored by {metrics}"
    yield f"files in {'/'.join(part for part in (spec.root(datasets_url), spec.folder) if part)}"
    what = "articles or passages" if spec.format == "squad" else "rows"
    for split, sources in spec.splits.items():
        cut = ""
        if spec.holdout and split != "test":
            share = spec.holdout.dev / spec.holdout.of
            cut = f" ({share if split == 'dev' else 1 - share:.0%} of its {what}, drawn by seed {spec.holdout.seed})"
        yield f"  {split:<6} {', '.join(source.path for source in sources)}{cut}"
    for what, settings in (("settings", task.finetune), ("settings of small models", task.small)):
        if settings:
            yield f"  {what} {', '.join(f'{name} = {value}' for name, value in settings.items())}"


def _lengths(spec: TaskSpec, rows: dict[str, list[Example]]) -> Iterator[str]:
    yield f"{'split':<8}{'rows':>10}{'words, median':>16}{'longest':>10}"
    for split, examples in rows.items():
        words = [form_of(spec).n_words(row) for row in examples]
        yield f"{split:<8}{len(examples):>10,}{statistics.median(words):>16,.0f}{max(words):>10,}"


def _labels(spec: TaskSpec, rows: dict[str, list[Example]]) -> Iterator[str]:
    """How often each label stands in each split; of a graded score the whole numbers that it lies between."""
    labels_in = form_of(spec).labels_in
    counts = {split: Counter(label for row in its for label in labels_in(spec, row)) for split, its in rows.items()}
    names = list(spec.labels) or sorted(
        {name for found in counts.values() for name in found}, key=lambda name: (int(name.partition(" ")[0]), name)
    )
    width = min(40, max(8, *(len(name) + 2 for name in names)))
    yield f"{'label':<{width}}" + "".join(f"{split:>10}" for split in rows)
    for name in names[:_LABELS]:
        yield f"{name[: width - 2]:<{width}}" + "".join(f"{found[name]:>10,}" for found in counts.values())
    if len(names) > _LABELS:
        yield f"... and {len(names) - _LABELS} more labels"


def _left_out(spec: TaskSpec, dropped: dict[str, Counter[str]], rows: dict[str, list[Example]]) -> Iterator[str]:
    """Rows that are no examples, and those with equal texts: within a split, and in two of them."""
    for split, labels in dropped.items():
        cut = ", before dev rows are cut from it" if spec.holdout and split == "train" else ""
        yield from (f"left out of {split}: {count:,} with {label}{cut}" for label, count in sorted(labels.items()))
    texts = {split: Counter(texts_of(spec, row) for row in examples) for split, examples in rows.items()}
    for split, found in texts.items():
        again = sum(found.values()) - len(found)
        yield f"duplicates within {split}: {again:,}"
    for first, second in combinations(texts, 2):
        both = sum(count for text, count in texts[second].items() if text in texts[first])
        yield f"rows of {second} that are in {first}, too: {both:,}"


def _example(spec: TaskSpec, row: Example) -> Iterator[str]:
    yield f"for example {row.row}:"
    for name, text in zip(spec.fields, row.fields, strict=True):
        yield f"  {name if isinstance(name, str) else ' + '.join(name)}: {_short(text)}"
    for name, text in zip(spec.choices, row.choices, strict=True):
        yield f"  {name}: {_short(text)}"
    answer = form_of(spec).shown(spec, row)
    yield f"  {spec.label}: {_short(answer)}" if form_of(spec).places else f"  {spec.label} = {answer}"
    if row.choices and row.label is not None:
        yield f"  right: {_short(row.choices[int(row.label)])}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."
