"""The texts of every test set whose files are there: of the twelve tasks, of what is asked in prompts, and of BLiMP."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.nlu.blimp import BLIMP, PARADIGMS, blimp_fingerprint, has_blimp, read_paradigm
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.readers import available, has_folder, iterate, labelled_splits
from gptcore.nlu.registry import REGISTRY, TaskSpec
from gptcore.prompting.items import FreeForm, Item, MultipleChoice
from gptcore.prompting.rows import digest
from gptcore.prompting.tasks import PROMPT_TASKS

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


def evaluation_texts(datasets_url: str) -> list[EvaluationTexts]:
    """Every test set of a folder of datasets.

    :raises InputError: there is none.
    """
    found = []
    for name in available(datasets_url):
        spec = REGISTRY[name]
        train = functools.partial(_examples, spec, datasets_url, "train")
        for split in labelled_splits(spec, datasets_url):
            if split != "train":
                rows = functools.partial(_examples, spec, datasets_url, split)
                found.append(EvaluationTexts(f"{name} {split}", rows, train))
    for name in PROMPTED:
        if has_folder(PROMPT_TASKS[name].folder, datasets_url):
            asked, pool = (functools.partial(_items, name, datasets_url, part) for part in ("asked", "pool"))
            found.append(EvaluationTexts(name, asked, pool if name in _WITH_TRAIN_SPLIT else None))
    if has_blimp(datasets_url):
        found.append(EvaluationTexts(BLIMP, functools.partial(_pairs, datasets_url)))
    if not found:
        raise InputError(f"{datasets_url}: found no test set there, expected one sub-folder for each dataset")
    return found


def fingerprint(datasets_url: str) -> str:
    """SHA-256 of what :func:`evaluation_texts` finds.

    :raises InputError: a missing file or a broken row.
    """
    files = {name: dataset_fingerprint(REGISTRY[name], datasets_url) for name in available(datasets_url)}
    for name in PROMPTED:
        if has_folder(PROMPT_TASKS[name].folder, datasets_url):
            files[name] = digest(PROMPT_TASKS[name].read(datasets_url))
    if has_blimp(datasets_url):
        files[BLIMP] = blimp_fingerprint(datasets_url)
    return sha256_json(files)


def _examples(spec: TaskSpec, datasets_url: str, split: str) -> Texts:
    """The fields and choices of each row of one of the twelve."""
    return ((*row.fields, *row.choices) for row in iterate(spec, datasets_url, split))


def _items(name: str, datasets_url: str, part: str) -> Texts:
    """The texts of each row of a prompt task, without what only the prompt adds."""
    return (PROMPTED[name](item) for item in getattr(PROMPT_TASKS[name].read(datasets_url), part))


def _pairs(datasets_url: str) -> Texts:
    """The two sentences of each minimal pair."""
    return ((pair.good, pair.bad) for paradigm in PARADIGMS for pair in read_paradigm(datasets_url, paradigm))


def _continued(item: Item) -> tuple[str, ...]:
    """The right answer goes on the question's text."""
    return (" ".join(item.shown),)


def _beside(item: Item) -> tuple[str, ...]:
    """Context, question and right answers are texts of their own."""
    assert isinstance(item, FreeForm)
    question = item.question.removeprefix("\nQ: ").removesuffix("\nA:").removesuffix(" =")
    return tuple(text for text in (item.context, question, *item.answers) if text)


def _turns(item: Item) -> tuple[str, ...]:
    """All lines of a game are one text."""
    assert isinstance(item, MultipleChoice)
    return (" ".join(part for turn in (*(item.earlier or ()), item.shown) for part in turn),)


PROMPTED: dict[str, Callable[[Item], tuple[str, ...]]] = {
    "lambada": _continued,
    "cbt-cn": _continued,
    "cbt-ne": _continued,
    "dprd": _continued,
    "wsc273": _continued,
    "summaries": _beside,
    "en-fr": _beside,
    "squad": _beside,
    "recall": _turns,
    "sorting": _turns,
}
"""Prompt task -> the texts of one of its rows; of tasks that ask the same files, one."""
_WITH_TRAIN_SPLIT = ("dprd",)
