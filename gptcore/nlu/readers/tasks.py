"""The examples of a task's splits, from whichever files hold them: the public ones, or the hub's parquet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from gptcore.base.errors import InputError
from gptcore.base.filesystems import exists, file_system, misspelt
from gptcore.nlu.examples import Example, Record, example_of, show
from gptcore.nlu.findings import dropped_as
from gptcore.nlu.forms import form_of, label_text
from gptcore.nlu.readers.commonsense import read_commonsense
from gptcore.nlu.readers.layout import ParquetLayout, has_folder, parquet_layout
from gptcore.nlu.readers.mentions import read_fewrel, read_open_entity
from gptcore.nlu.readers.own_files import read_own
from gptcore.nlu.readers.parquet import arrow_files, read_parquet
from gptcore.nlu.readers.passages import read_squad
from gptcore.nlu.readers.superglue import read_superglue
from gptcore.nlu.readers.tagged import read_conll
from gptcore.nlu.readers.text_files import READERS, passage_names
from gptcore.nlu.registry import BEYOND, REGISTRY, Format, Source, TaskSpec, task_spec

_WHOLE_READERS: dict[Format, Callable[[TaskSpec, str, str, str], Iterator[Example]]] = {
    "squad": read_squad,
    "conll": read_conll,
    "commonsense": read_commonsense,
    "fewrel": read_fewrel,
    "open-entity": read_open_entity,
    "superglue": read_superglue,
}
"""Format -> the examples of a file, where these are more than a row of columns."""


def load_task(name: str, datasets_url: str, split: str = "dev") -> list[Example]:
    """Read and check one split of one task.

    :param name: a name of :data:`gptcore.nlu.registry.REGISTRY`.
    :param datasets_url: the folder that holds one sub-folder a dataset; any fsspec URL.
    :param split: ``train``, ``dev`` or, where the public test rows carry labels, ``test``.
    :raises InputError: unknown task or split, missing or unreadable file, broken row; names file, line and column.
    """
    return list(iterate(fitted(task_spec(name), datasets_url), datasets_url, split))


def fitted(spec: TaskSpec, datasets_url: str) -> TaskSpec:
    """A task as it can be read from the files that are there.

    Where only one of a task's train and dev files is there, both splits are cut from it if its entry says how, and its
    note says so.
    """
    if spec.cut is None or parquet_layout(spec.folder, datasets_url):
        return spec
    files = {split: spec.splits[split][0] for split in ("train", "dev")}
    there = {split: exists(*file_system(spec.address(datasets_url, file.path))) for split, file in files.items()}
    if all(there.values()) or not any(there.values()):  # and what is missing is told where it is read
        return spec
    kept = files["train" if there["train"] else "dev"]
    missing = files["dev" if there["train"] else "train"]
    splits = {split: (replace(file, path=kept.path),) for split, file in files.items()}
    note = f"{missing.path} is not there, so train and dev rows are cut from {kept.path}"
    return replace(spec, splits={**spec.splits, **splits}, holdout=spec.cut, note=note)


def iterate(spec: TaskSpec, datasets_url: str, split: str, dropped: Counter[str] | None = None) -> Iterator[Example]:
    """The examples of one split, one after the other; rows that are no examples are counted in ``dropped`` by label.

    :raises InputError: as :func:`load_task`, when the broken row is reached.
    """
    if split not in spec.splits:
        raise InputError(f"split: found {split!r}, expected one of {', '.join(spec.splits)} (those of {spec.name})")
    cut = spec.holdout is not None and split == "dev"  # of the rows of train, where they are counted
    counts = Counter[str]() if dropped is None or cut else dropped
    n_examples = 0
    layout = parquet_layout(spec.folder, datasets_url)
    for source in spec.splits[split]:
        examples = _examples(spec, datasets_url, source, layout, counts)
        for example in _held_out(spec, list(examples), split) if spec.holdout else examples:
            n_examples += 1
            yield example
    if not n_examples:
        where = spec.address(datasets_url, "").rstrip("/")
        raise InputError(f"{where}: found no example of the split {split} of {spec.name}, expected at least one")


def available(datasets_url: str, also: Sequence[str] = ()) -> list[str]:
    """Tasks whose folder is there: of the twelve, and of those beyond them that are asked for.

    :raises InputError: if the folder of datasets itself is not.
    """
    there = [
        name
        for name, spec in (REGISTRY | {name: BEYOND[name] for name in also if name in BEYOND}).items()
        if has_folder(spec.folder, datasets_url) or parquet_layout(spec.folder, datasets_url)
    ]
    if not there and not has_folder("", datasets_url):
        hint = misspelt(datasets_url) or f"; `gptmill datasets get NAME --to {datasets_url}` fetches one"
        raise InputError(f"{datasets_url}: found no such folder, expected one with a sub-folder for each dataset{hint}")
    return there


def labelled_splits(spec: TaskSpec, datasets_url: str) -> list[str]:
    """The splits to read: train and dev always, test where any of its files is there; what is missing is an error."""
    if layout := parquet_layout(spec.folder, datasets_url):
        test_is_there = any(layout.has(source.path) for source in spec.splits.get("test", ()))
    else:
        addresses = (spec.address(datasets_url, source.path) for source in spec.splits.get("test", ()))
        test_is_there = any(exists(*file_system(address)) for address in addresses)
    return [split for split in spec.splits if split != "test" or test_is_there]


def source_files(spec: TaskSpec, datasets_url: str) -> list[str]:
    """Addresses of every file that :func:`labelled_splits` reads, sorted, each once.

    :raises InputError: if one is missing.
    """
    sources = {source.path for split in labelled_splits(spec, datasets_url) for source in spec.splits[split]}
    if layout := parquet_layout(spec.folder, datasets_url):
        return sorted(url for path in sources for url in layout.urls(path))
    urls = [spec.address(datasets_url, path) for path in sorted(sources)]
    if spec.format == "arrow":
        return [file for url in urls for file in arrow_files(url)]
    return urls if spec.format != "race" else [f"{url}/{name}" for url in urls for name in passage_names(url)]


def _held_out(spec: TaskSpec, examples: list[Example], split: str) -> list[Example]:
    """Train or dev share of a file that holds both, in the very rows and order of the original code.

    This is what scikit-learn's ``train_test_split`` draws. Of rows in groups as many whole groups are drawn as
    hold that many rows.
    """
    if spec.holdout is None or split == "test":
        return examples
    n_dev = max(1, round(len(examples) * spec.holdout.dev / spec.holdout.of))
    if examples and examples[0].group:
        dev_groups = _groups_of(examples, n_dev, spec.holdout.seed)
        return [example for example in examples if (example.group in dev_groups) == (split == "dev")]
    if n_dev >= len(examples):
        raise InputError(
            f"{spec.folder or spec.name}: found {len(examples)} rows, expected enough for {n_dev} dev rows and a "
            "train row"
        )
    order = np.random.RandomState(spec.holdout.seed).permutation(len(examples))
    return [examples[row] for row in (order[n_dev:] if split == "train" else order[:n_dev])]


def _groups_of(examples: list[Example], n_rows: int, seed: int) -> set[str]:
    """Groups drawn one by one until they hold so many rows, all but one at most."""
    sizes = Counter(example.group for example in examples)
    names = list(sizes)
    drawn: set[str] = set()
    for group in np.random.RandomState(seed).permutation(len(names))[:-1]:
        if sum(sizes[name] for name in drawn) >= n_rows:
            break
        drawn.add(names[group])
    return drawn


def _examples(
    spec: TaskSpec, datasets_url: str, source: Source, layout: ParquetLayout | None, dropped: Counter[str]
) -> Iterator[Example]:
    if spec.format in _WHOLE_READERS:
        root = spec.root(datasets_url)
        yield from _WHOLE_READERS[spec.format](spec, spec.address(datasets_url, source.path), root, source.subset)
        return
    label_of = form_of(spec).label_of
    for row in _rows(spec, datasets_url, source.path, layout):
        label = label_text(row.value(spec.label))
        if label in spec.dropped_labels:
            dropped[dropped_as(label)] += 1
            continue
        yield example_of(spec, row, spec.root(datasets_url), label_of(spec, row), source.subset)


def unlabelled_rows(spec: TaskSpec, split: str) -> Iterator[Record]:
    """The rows of an own task's split before they are checked against its labels, which may not be known yet.

    :raises InputError: as :func:`load_task`.
    """
    for source in spec.splits[split]:
        yield from _rows(spec, "", source.path, None)


def _rows(spec: TaskSpec, datasets_url: str, path: str, layout: ParquetLayout | None) -> Iterator[Record]:
    if layout is None:
        url = spec.address(datasets_url, path)
        return read_own(url, spec) if spec.dialect else READERS[spec.format](url, spec)
    return (row for url in layout.urls(path) for row in read_parquet(url, spec, layout.hub))


def has_test_rows(datasets_url: str, path: str) -> bool:
    """Whether a file that :func:`iterate_test` reads is there."""
    folder, _, file = path.rpartition("/")
    if layout := parquet_layout(folder, datasets_url):
        return layout.has(file)
    fs, root = file_system(datasets_url)
    return exists(fs, f"{root.rstrip('/')}/{path}")


def iterate_test(spec: TaskSpec, datasets_url: str, path: str, index: str) -> Iterator[Example]:
    """The rows of one of GLUE's unlabelled test files, which have a header and a column that counts the rows.

    :param path: the file, relative to the folder of datasets; not always in the task's own (WNLI, the diagnostic set).
    :param index: the counting column, 0, 1, 2 ...: the server matches answers to rows by it.
    :raises InputError: missing or unreadable file, a header without the task's text columns, broken or miscounted row.
    """
    folder, _, file = path.rpartition("/")
    unlabelled = replace(spec, folder=folder, format="tsv", columns=(), label=index)
    layout = parquet_layout(folder, datasets_url)
    if layout:
        columns = {**layout.hub.columns, index: "idx"}
        layout = replace(layout, hub=replace(layout.hub, columns=columns, classes=(), labels={}))
    for number, row in enumerate(_rows(unlabelled, datasets_url, file, layout)):
        if row.columns[index] != str(number):
            raise row.error(index, show(row.columns[index]), f"{number}, as rows count from 0")
        yield example_of(spec, row, datasets_url)
