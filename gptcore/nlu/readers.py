"""The public file formats of the datasets, read strictly: any broken row is an error that names its place.

Three things that general-purpose readers get wrong here. Quotes in the tab-separated sets are text, not syntax. Lines
end at LF only: U+2028, U+0085 and their like occur inside fields. And what is not UTF-8 is an error with its byte
offset, not a replacement character. Files stream; a passage file of RACE is read whole.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import fsspec
import numpy as np

from gptcore.errors import InputError
from gptcore.nlu.registry import REGISTRY, Format, Source, TaskSpec, task_spec

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
_FILES_AT_ONCE = 256  # passage files fetched together, so that a remote folder of thousands is not one trip each


@dataclass(frozen=True)
class Example:
    """One row of a dataset as text."""

    fields: tuple[str, ...]
    choices: tuple[str, ...]
    label: float | None
    """Class index, index of the right choice, or score; None where the row carries no label."""
    subset: str
    row: str
    """``file:line``, relative to the folder of datasets."""


@dataclass(frozen=True)
class Record:
    """One row before it is checked against the task: where it stands, and its columns."""

    file: str
    """Full address, for messages."""
    line: str
    columns: Mapping[str, Any]

    def error(self, column: str, found: str, expected: str) -> InputError:
        return InputError(f"{self.file}, line {self.line}, column {column!r}: found {found}, expected {expected}")

    def value(self, column: str) -> Any:
        """What stands in a column that must be there."""
        if column not in self.columns:
            raise self.error(column, f"only the columns {', '.join(self.columns)}", "this column")
        return self.columns[column]

    def text(self, column: str) -> str:
        """The text of a column that must hold some."""
        value = self.value(column)
        if not isinstance(value, str) or not value.strip():
            raise self.error(column, show(value), "text that is not empty")
        if not value.isascii() and _SURROGATE.search(value):  # JSON can escape half a pair; no encoding can store it
            raise self.error(column, show(value), "text without unpaired surrogates")
        return value


def load_task(name: str, datasets_url: str, split: str = "dev") -> list[Example]:
    """Read and check one split of one task.

    :param name: a name of :data:`gptcore.nlu.registry.REGISTRY`.
    :param datasets_url: the folder that holds one sub-folder a dataset; any fsspec URL.
    :param split: ``train``, ``dev`` or, where the public test rows carry labels, ``test``.
    :raises InputError: unknown task or split, missing or unreadable file, broken row; names file, line and column.
    """
    return list(iterate(task_spec(name), datasets_url, split))


def iterate(spec: TaskSpec, datasets_url: str, split: str, dropped: Counter[str] | None = None) -> Iterator[Example]:
    """The examples of one split, one after the other; rows that are no examples are counted in ``dropped`` by label.

    :raises InputError: as :func:`load_task`, when the broken row is reached.
    """
    if split not in spec.splits:
        raise InputError(f"split: found {split!r}, expected one of {', '.join(spec.splits)} (those of {spec.name})")
    counts = Counter[str]() if dropped is None else dropped
    found = 0
    for source in spec.splits[split]:
        examples = _examples(spec, datasets_url, source, counts)
        for example in _held_out(spec, list(examples), split) if spec.holdout else examples:
            found += 1
            yield example
    if not found:
        where = f"{datasets_url.rstrip('/')}/{spec.folder}"
        raise InputError(f"{where}: found no example of the split {split} of {spec.name}, expected at least one")


def available(datasets_url: str) -> list[str]:
    """Tasks whose folder is there.

    :raises InputError: if the folder of datasets itself is not.
    """
    fs, root = fsspec.url_to_fs(datasets_url)
    if not fs.isdir(root):
        raise InputError(f"{datasets_url}: no such folder, expected one with a sub-folder for each dataset")
    return [name for name, spec in REGISTRY.items() if fs.isdir(f"{root.rstrip('/')}/{spec.folder}")]


def labelled_splits(spec: TaskSpec, datasets_url: str) -> list[str]:
    """The splits to read: train and dev always, test where any of its files is there; what is missing is an error."""
    fs, root = fsspec.url_to_fs(datasets_url)
    folder = f"{root.rstrip('/')}/{spec.folder}"
    test_is_there = any(fs.exists(f"{folder}/{source.path}") for source in spec.splits.get("test", ()))
    return [split for split in spec.splits if split != "test" or test_is_there]


def source_files(spec: TaskSpec, datasets_url: str) -> list[str]:
    """Addresses of every file that :func:`labelled_splits` reads, sorted, each once.

    :raises InputError: if one is missing.
    """
    sources = {source.path for split in labelled_splits(spec, datasets_url) for source in spec.splits[split]}
    urls = [f"{datasets_url.rstrip('/')}/{spec.folder}/{path}" for path in sorted(sources)]
    return urls if spec.format != "race" else [f"{url}/{name}" for url in urls for name in _passage_names(url)]


def _held_out(spec: TaskSpec, examples: list[Example], split: str) -> list[Example]:
    """Train or dev share of a file that holds both, in the very rows and order of the original code.

    This is what scikit-learn's ``train_test_split`` draws, without its two seconds of import.
    """
    if spec.holdout is None or split == "test":
        return examples
    n_dev = max(1, round(len(examples) * spec.holdout.dev / spec.holdout.of))
    if n_dev >= len(examples):
        raise InputError(
            f"{spec.folder}: found {len(examples)} rows, expected enough for {n_dev} dev rows and a train row"
        )
    order = np.random.RandomState(spec.holdout.seed).permutation(len(examples))
    return [examples[row] for row in (order[n_dev:] if split == "train" else order[:n_dev])]


def _examples(spec: TaskSpec, datasets_url: str, source: Source, dropped: Counter[str]) -> Iterator[Example]:
    url = f"{datasets_url.rstrip('/')}/{spec.folder}/{source.path}"
    for row in _READERS[spec.format](url, spec):
        found = row.value(spec.label)
        if found in spec.dropped_labels:
            dropped[f"label {found}"] += 1
            continue
        yield example_of(spec, row, datasets_url, _label(spec, row), source.subset)


def iterate_test(spec: TaskSpec, datasets_url: str, path: str, index: str) -> Iterator[Example]:
    """The rows of one of GLUE's unlabelled test files: tab-separated, with a header and a column that counts the rows.

    :param path: the file, relative to the folder of datasets; not always in the task's own (WNLI, the diagnostic set).
    :param index: the counting column, 0, 1, 2 ...: the server matches answers to rows by it.
    :raises InputError: missing or unreadable file, a header without the task's text columns, broken or miscounted row.
    """
    unlabelled = replace(spec, columns=(), label=index)
    for number, row in enumerate(_read_tsv(f"{datasets_url.rstrip('/')}/{path}", unlabelled)):
        if row.columns[index] != str(number):
            raise row.error(index, show(row.columns[index]), f"{number}, as rows count from 0")
        yield example_of(spec, row, datasets_url)


def example_of(
    spec: TaskSpec, row: Record, datasets_url: str = "", label: float | None = None, subset: str = ""
) -> Example:
    """A row's texts in the task's input order.

    :raises InputError: a column is missing, or does not hold text.
    """
    return Example(
        fields=tuple(
            row.text(field) if isinstance(field, str) else " ".join(row.text(column) for column in field)
            for field in spec.fields
        ),
        choices=tuple(row.text(column) for column in spec.choices),
        label=label,
        subset=subset,
        row=f"{row.file.removeprefix(datasets_url.rstrip('/') + '/')}:{row.line}",
    )


def _label(spec: TaskSpec, row: Record) -> float:
    found = row.value(spec.label)
    if spec.score_range:
        low, high = spec.score_range
        if not (isinstance(found, str) and _NUMBER.fullmatch(found) and low <= float(found) <= high):
            raise row.error(spec.label, show(found), f"a number from {low:g} to {high:g}")
        return float(found)
    if found not in spec.labels:
        raise row.error(spec.label, show(found), f"one of {', '.join(spec.labels)}")
    return spec.labels.index(found)


# --- formats -----------------------------------------------------------------------------------------------------


def _lines(url: str) -> Iterator[tuple[int, str]]:
    try:
        with fsspec.open(url, "rb") as file:
            yield from decoded_lines(file, url)
    except OSError as error:
        raise unreadable(url, error) from error


def decoded_lines(lines: Iterable[bytes], name: str) -> Iterator[tuple[int, str]]:
    """Line number (from 1) and text of each line, its line end included; a leading byte order mark is not text.

    :param name: of the file, for messages.
    :raises InputError: bytes that are not UTF-8; names line and byte offset.
    """
    offset = 0
    for number, line in enumerate(lines, start=1):
        text = _decode(line, name, offset, number)
        yield number, text.removeprefix("\ufeff") if number == 1 else text
        offset += len(line)


def _decode(data: bytes, url: str, offset: int, line: int) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{url}, line {line}, byte offset {offset + error.start}: "
            f"found byte 0x{data[error.start]:02x}, expected UTF-8 text"
        ) from error


def _read_tsv(url: str, spec: TaskSpec) -> Iterator[Record]:
    """Tab-separated lines without quoting."""
    return _table(url, spec, ((n, line.removesuffix("\n").removesuffix("\r").split("\t")) for n, line in _lines(url)))


def _read_csv(url: str, spec: TaskSpec) -> Iterator[Record]:
    """Comma-separated rows with quotes; a quoted cell may span lines."""
    return _table(url, spec, _csv_rows(url))


def _csv_rows(url: str) -> Iterator[tuple[int, list[str]]]:
    rows = csv.reader((line for _, line in _lines(url)), strict=True)
    while True:
        line = rows.line_num + 1  # where the row starts, though a broken quote may run to the end of the file
        try:
            yield line, next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{url}, line {line}: found {error}, expected comma-separated values") from error


def _table(url: str, spec: TaskSpec, rows: Iterator[tuple[int, list[str]]]) -> Iterator[Record]:
    """Rows of cells as records, named by the header line, or by the task where the file has none."""
    names = list(spec.columns)
    for line, cells in rows:
        if not names:
            names = cells
            for column in sorted(spec.required_columns):
                if names.count(column) != 1:
                    raise InputError(
                        f"{url}, line {line}, column {column!r}: found {names.count(column)} times in the header "
                        f"{show(names)}, expected once"
                    )
        elif len(cells) != len(names):
            raise InputError(
                f"{url}, line {line}, number of columns: found {len(cells)}, expected {len(names)} ({', '.join(names)})"
            )
        else:
            yield Record(url, str(line), dict(zip(names, cells, strict=True)))


def _read_jsonl(url: str, spec: TaskSpec) -> Iterator[Record]:
    """One JSON object a line."""
    for line, text in _lines(url):
        yield Record(url, str(line), parse_object(text, url, line))


def _read_race(url: str, spec: TaskSpec) -> Iterator[Record]:
    """A folder of passages, one JSON object a file, each with several questions: one row a question."""
    for file, data in _passages(url):
        passage = parse_object(_decode(data, file, 0, 1).removeprefix("\ufeff"), file, 1)
        whole = Record(file, "1", passage)
        questions, options, answers = (whole.value(column) for column in ("questions", "options", "answers"))
        for column, value in (("questions", questions), ("options", options), ("answers", answers)):
            if not isinstance(value, list):
                raise whole.error(column, show(value), "a list")
            if len(value) != len(questions):
                raise whole.error(column, f"{len(value)} entries", f"{len(questions)}, one for each question")
        for number, (question, choices, answer) in enumerate(zip(questions, options, answers, strict=True), start=1):
            row = Record(file, f"1, question {number}", {**passage, "questions": question, "answers": answer})
            if not isinstance(choices, list) or len(choices) != len(spec.choices):
                raise row.error("options", show(choices), f"a list of {len(spec.choices)} options")
            yield replace(row, columns={**row.columns, **dict(zip(spec.choices, choices, strict=True))})


_READERS: dict[Format, Callable[[str, TaskSpec], Iterator[Record]]] = {
    "tsv": _read_tsv,
    "csv": _read_csv,
    "jsonl": _read_jsonl,
    "race": _read_race,
}


def _passage_names(url: str) -> list[str]:
    fs, root = fsspec.url_to_fs(url)
    try:
        names = sorted(path.rsplit("/", 1)[-1] for path in fs.ls(root, detail=False) if path.endswith(".txt"))
    except OSError as error:
        raise unreadable(url, error) from error
    if not names:
        raise InputError(f"{url}: found no .txt file, expected one for each passage")
    return names


def _passages(url: str) -> Iterator[tuple[str, bytes]]:
    """Address and bytes of each passage file of a folder, sorted by name."""
    fs, root = fsspec.url_to_fs(url)
    names = _passage_names(url)
    for start in range(0, len(names), _FILES_AT_ONCE):
        group = names[start : start + _FILES_AT_ONCE]
        try:
            contents = fs.cat([f"{root}/{name}" for name in group])  # address -> bytes
        except OSError as error:
            raise unreadable(url, error) from error
        yield from ((f"{url}/{name}", contents[f"{root}/{name}"]) for name in group)


def parse_object(text: str, url: str, line: int) -> dict[str, Any]:
    """The JSON object that stands in a line of a file.

    :raises InputError: no JSON, or no object; names line and column.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{url}, line {line + error.lineno - 1}, column {error.colno}"
        raise InputError(f"{place}: found {error.msg}, expected JSON") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets thousands deep
        raise InputError(f"{url}, line {line}: found {error}, expected JSON") from error
    if not isinstance(value, dict):
        raise InputError(f"{url}, line {line}: found {show(value)}, expected a JSON object")
    return value


def unreadable(url: str, error: OSError) -> InputError:
    """The error that names a file which is missing or cannot be read."""
    found = "nothing there" if isinstance(error, FileNotFoundError) else f"{type(error).__name__}: {error}"
    return InputError(f"{url}: found {found}, expected the dataset's file under its public name")


def show(value: Any) -> str:
    """A value on one line, shortened."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
