"""Every task by its name: the paper's twelve, and those beyond them, which are in no average of the paper's.

The entries themselves are data: ``tasks.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from gptcore.base.errors import InputError, nearest, require
from gptcore.base.tables import as_tuples, read_table
from gptcore.nlu.spec import Dialect as Dialect
from gptcore.nlu.spec import Format as Format
from gptcore.nlu.spec import Holdout as Holdout
from gptcore.nlu.spec import Metric as Metric
from gptcore.nlu.spec import PromptTemplate as PromptTemplate
from gptcore.nlu.spec import Source as Source
from gptcore.nlu.spec import TaskSpec as TaskSpec

_nested = {"holdout": Holdout, "cut": Holdout, "prompt": PromptTemplate, "dialect": Dialect}


def _task(entry: Mapping[str, Any]) -> TaskSpec:
    """A task of what an entry of the registry, or the record of an own task, says of it.

    :param entry: fields of :class:`TaskSpec`, where ``labels`` may be the name of a table of them. What it leaves out
        is that of a task beyond the paper.
    """
    own = {"folder": "", "table": 0, "paper": {entry["name"]: None}, "context": None if entry.get("symmetric") else 0}
    parts = {**own, **entry}
    parts["splits"] = {name: tuple(Source(**file) for file in files) for name, files in entry["splits"].items()}
    if isinstance(labels := entry.get("labels"), str):
        parts["labels"] = tuple(_entries[labels].values())
    return TaskSpec(**parts | {field: kind(**parts[field]) for field, kind in _nested.items() if parts.get(field)})


_entries: Mapping[str, Any] = read_table(__file__, "tasks.toml")
TWELVE = tuple(map(_task, _entries["twelve"]))
BEYOND_THE_PAPER = tuple(map(_task, _entries["beyond"]))
FEWREL_RELATIONS: Mapping[str, str] = _entries["relations"]
"""Wikidata's property -> what it is called there."""

REGISTRY: dict[str, TaskSpec] = {spec.name: spec for spec in TWELVE}
"""Task name -> entry, in the order of Tables 2, 3 and 4."""

TASK_OF_COLUMN = {column: spec.name for spec in TWELVE for column in spec.paper}
COLUMNS = tuple(TASK_OF_COLUMN)
"""The leaderboard's columns, in the order of Tables 2, 3 and 4."""
_ROWS = re.compile(r"\.(csv|tsv|jsonl|json|parquet|arrow|xlsx)(\.(gz|zst|bz2|xz))?$", re.IGNORECASE)

BEYOND: dict[str, TaskSpec] = {spec.name: spec for spec in BEYOND_THE_PAPER}
"""Name -> entry of the tasks beyond the twelve: recorded and shown as a user's own tasks are, a column each."""


def recorded_task(config: Mapping[str, Any]) -> TaskSpec:
    """The task of a dataset or a model: an entry of the registry, or what was recorded of an own task.

    :param config: settings with "task", the name, and of an own task "spec" (:meth:`TaskSpec.record`).
    :raises InputError: neither.
    """
    if "spec" not in config:
        return task_spec(config["task"])
    return _task(as_tuples({"name": config["task"], "may_be_empty": True, **config["spec"]}))


def task_settings(spec: TaskSpec) -> dict[str, Any]:
    """What :func:`recorded_task` reads: the name alone of an entry of the registry."""
    return {"task": spec.name, **({"spec": spec.record()} if spec.own else {})}


def columns_of(task: str) -> tuple[str, ...]:
    """A task's columns on the leaderboard; of an own task its name."""
    return tuple(REGISTRY[task].paper) if task in REGISTRY else (task,)


def task_spec(name: str) -> TaskSpec:
    """The entry of one task.

    :raises InputError: if there is no such task; names the tasks that exist and the nearest one.
    """
    known = REGISTRY | BEYOND
    if name in known:
        return known[name]
    if _ROWS.search(name):
        hint = f"gptmill init-task {name} writes the file that describes them"
        raise InputError(f"{name}: found rows, expected a task; {hint}")
    raise InputError(f"task: found {name!r}, {nearest(name, known)}")


def check_source(source: str, tasks: Collection[str], setting: str = "--from-task") -> None:
    """Refuse a task from whose fine-tuned model other tasks cannot start.

    :param setting: what the message calls it.
    :raises InputError: it is none of the twelve, or one of ``tasks`` itself.
    """
    if source not in REGISTRY:
        raise InputError(f"{setting}: found {source!r}, {nearest(source, REGISTRY)}")
    require(source not in tasks, f"{setting}: {source} cannot start from itself; expected another task")
