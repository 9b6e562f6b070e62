"""`gptmill datasets check TASK`: what a task's entry or file says and its rows hold, before anything is trained."""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterator

from tqdm import tqdm

from gptcore.base.errors import InputError
from gptcore.nlu.label_sets import from_number
from gptcore.nlu.own_task import Task, is_task_file, read_own_task
from gptcore.nlu.readers import Example, fitted, iterate, labelled_splits
from gptcore.nlu.registry import TaskSpec, task_spec

_LABELS = 30  # lines; a task may have a thousand
_SHOWN = 160  # characters of a text
_SHORTEST_DEV = 50


def check_task(url: str, datasets_url: str) -> None:
    """Read every row of a task, and print rows, labels, lengths, duplicates and an example.

    :param url: the name of a task that has an entry, or the address of the file of a user's own.
    :raises InputError: no such task, the file is no task's, or a row is broken; names file and field, or line and
        column.
    """
    if is_task_file(url):
        task = read_own_task(url, datasets_url)
    elif datasets_url:
        task = Task(fitted(task_spec(url), datasets_url))
    else:
        raise InputError(f"--datasets: none given, expected the folder that holds {task_spec(url).folder}")
    spec = task.spec
    rows = {split: _read(spec, split, datasets_url) for split in labelled_splits(spec, datasets_url)}
    print(
        "\n".join(
            [*_head(task, datasets_url), "", *_lengths(rows), "", *_labels(spec, rows), "", *_duplicates(rows), ""]
        )
    )
    print("\n".join(_example(spec, rows["train"][0])))
    for warning in _warnings(spec, rows):
        print(f"note: {warning}")
    sys.stdout.flush()


def _read(spec: TaskSpec, split: str, datasets_url: str) -> list[Example]:
    rows = iterate(spec, datasets_url, split)
    return list(tqdm(rows, desc=f"{spec.name} {split}", unit="row", leave=False, disable=None))


def _head(task: Task, datasets_url: str) -> Iterator[str]:
    """What the entry or the file says."""
    spec = task.spec
    kind = f"a graded score from {spec.score_range[0]:g} to {spec.score_range[1]:g}" if spec.score_range else ""
    yield f"{spec.name}: {spec.form}, {kind or f'{len(spec.labels)} labels'}, scored by {', '.join(spec.metrics)}"
    yield f"files in {'/'.join(part for part in (spec.root(datasets_url), spec.folder) if part)}"
    what = "articles or passages" if spec.format == "squad" else "rows"
    for split, sources in spec.splits.items():
        cut = ""
        if spec.holdout and split != "test":
            share = spec.holdout.dev / spec.holdout.of
            cut = f" ({share if split == 'dev' else 1 - share:.0%} of its {what}, drawn by seed {spec.holdout.seed})"
        yield f"  {split:<6} {', '.join(source.path for source in sources)}{cut}"
    if task.finetune:
        yield f"  settings {', '.join(f'{name} = {value}' for name, value in task.finetune.items())}"


def _lengths(rows: dict[str, list[Example]]) -> Iterator[str]:
    """Rows of each split, and how many words they have."""
    yield f"{'split':<8}{'rows':>10}{'words, median':>16}{'longest':>10}"
    for split, examples in rows.items():
        words = [sum(len(text.split()) for text in (*row.fields, *row.choices)) for row in examples]
        yield f"{split:<8}{len(examples):>10,}{statistics.median(words):>16,.0f}{max(words):>10,}"


def _labels(spec: TaskSpec, rows: dict[str, list[Example]]) -> Iterator[str]:
    """How often each label stands in each split; of a graded score the whole numbers that it lies between."""
    counts = {split: Counter(_all_labels(spec, examples)) for split, examples in rows.items()}
    names = list(spec.labels) or sorted({name for found in counts.values() for name in found}, key=_grade)
    width = min(40, max(8, *(len(name) + 2 for name in names)))
    yield f"{'label':<{width}}" + "".join(f"{split:>10}" for split in rows)
    for name in names[:_LABELS]:
        yield f"{name[: width - 2]:<{width}}" + "".join(f"{found[name]:>10,}" for found in counts.values())
    if len(names) > _LABELS:
        yield f"... and {len(names) - _LABELS} more labels"


def _all_labels(spec: TaskSpec, examples: list[Example]) -> Iterator[str]:
    """The label or labels of each row, or of each word where words have them."""
    for row in examples:
        yield from (word.name for word in row.annotations) if spec.form == "tags" else _labels_of(spec, row)


def _labels_of(spec: TaskSpec, row: Example) -> list[str]:
    """The row's label; any number of them where the task says so."""
    assert row.label is not None, "labelled splits"
    if spec.form == "labels":
        return [spec.labels[label] for label in from_number(row.label)]
    if not spec.score_range:
        return [spec.labels[int(row.label)]]
    below = math.floor(row.label)
    return [f"{below}" if row.label == below else f"{below} to {below + 1}"]


def _grade(name: str) -> tuple[int, str]:
    return int(name.partition(" ")[0]), name


def _duplicates(rows: dict[str, list[Example]]) -> Iterator[str]:
    """Rows with equal texts: within a split, and in two of them, where a model is asked what it has seen."""
    texts = {split: Counter((row.fields, row.choices) for row in examples) for split, examples in rows.items()}
    for split, found in texts.items():
        again = sum(found.values()) - len(found)
        yield f"duplicates within {split}: {again:,}"
    splits = list(texts)
    for first, second in ((a, b) for n, a in enumerate(splits) for b in splits[n + 1 :]):
        both = sum(count for text, count in texts[second].items() if text in texts[first])
        yield f"rows of {second} that are in {first}, too: {both:,}"


def _example(spec: TaskSpec, row: Example) -> Iterator[str]:
    """A row as it was read."""
    yield f"for example {row.row}:"
    for name, text in zip(spec.fields, row.fields, strict=True):
        yield f"  {name if isinstance(name, str) else ' + '.join(name)}: {_short(text)}"
    for name, text in zip(spec.choices, row.choices, strict=True):
        yield f"  {name}: {_short(text)}"
    if spec.form in ("span", "tags"):
        parts = (f"{row.fields[-1][start:end]} {name}".strip() for start, end, name in row.annotations)
        yield f"  {spec.label}: {_short(' | '.join(parts) or 'none')}"
    else:
        said = f"{row.label:g}" if spec.score_range else ", ".join(_labels_of(spec, row)) or "none"
        yield f"  {spec.label} = {said}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."


def _warnings(spec: TaskSpec, rows: dict[str, list[Example]]) -> Iterator[str]:
    """What a user would want to know before hours of training."""
    if spec.note:
        yield spec.note
    if spec.form == "labels":
        for split, found in rows.items():
            if not any(row.label for row in found):
                yield f"no row of {split} has a label: every score on it is 0"
    if len(rows["dev"]) < _SHORTEST_DEV:
        yield f"{len(rows['dev'])} dev rows: a score moves by {100 / len(rows['dev']):.1f} with each of them"
    seen = {(row.fields, row.choices) for row in rows["train"]}
    if again := sum((row.fields, row.choices) in seen for row in rows["dev"]):
        yield f"{again:,} of {len(rows['dev']):,} dev rows are trained on, too: their score is higher than on new rows"
    trained, asked = (set(_all_labels(spec, rows[split])) for split in ("train", "dev"))
    missing = sorted(asked - trained)
    if missing and not spec.score_range:
        yield f"no training row has the label {', '.join(missing[:5])}, which dev rows have"
