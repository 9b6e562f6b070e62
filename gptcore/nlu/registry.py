"""Every task by its name: the paper's twelve, and those beyond them, which are in no average of the paper's."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from gptcore.base.errors import InputError
from gptcore.nlu.beyond import BEYOND_THE_PAPER
from gptcore.nlu.spec import (
    ONE_TEXT_FORMS,
    PLACE_FORMS,
    Form,
    Format,
    Holdout,
    Metric,
    PromptTemplate,
    Source,
    TaskSpec,
)
from gptcore.nlu.twelve import TWELVE

__all__ = [
    "BEYOND",
    "COLUMNS",
    "ONE_TEXT_FORMS",
    "PLACE_FORMS",
    "REGISTRY",
    "TASK_OF_COLUMN",
    "Form",
    "Format",
    "Holdout",
    "Metric",
    "PromptTemplate",
    "Source",
    "TaskSpec",
    "check_source",
    "columns_of",
    "recorded_task",
    "task_settings",
    "task_spec",
]

REGISTRY: dict[str, TaskSpec] = {spec.name: spec for spec in TWELVE}
"""Task name -> entry, in the order of Tables 2, 3 and 4."""

TASK_OF_COLUMN = {column: spec.name for spec in TWELVE for column in spec.paper}
COLUMNS = tuple(TASK_OF_COLUMN)
"""The leaderboard's columns, in the order of Tables 2, 3 and 4."""

BEYOND: dict[str, TaskSpec] = {spec.name: spec for spec in BEYOND_THE_PAPER}
"""Name -> entry of the tasks beyond the twelve: recorded and shown as a user's own tasks are, a column each."""


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def recorded_task(config: Mapping[str, Any]) -> TaskSpec:
    """The task of a dataset or a model: an entry of the registry, or what was recorded of an own task.

    :param config: settings with "task", the name, and of an own task "spec" (:meth:`TaskSpec.record`).
    :raises InputError: neither.
    """
    if "spec" not in config:
        return task_spec(config["task"])
    parts = dict(config["spec"])
    splits = {split: tuple(Source(**source) for source in sources) for split, sources in parts.pop("splits").items()}
    holdout = parts.pop("holdout")
    name = config["task"]
    return TaskSpec(
        name=name,
        folder="",
        splits=splits,
        holdout=Holdout(**holdout) if holdout else None,
        table=0,
        paper={name: None},
        **{part: _as_tuples(value) for part, value in parts.items()},
    )


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
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise InputError(f"task: found {name!r}, expected one of {', '.join(known)}{hint}")


def check_source(source: str, tasks: Collection[str], setting: str = "--from-task") -> None:
    """See that other tasks can start from a model that is fine-tuned on ``source``.

    :param setting: what the message calls it.
    :raises InputError: it is none of the twelve, or one of ``tasks`` itself.
    """
    if source not in REGISTRY:
        raise InputError(f"{setting}: found {source!r}, expected one of {', '.join(REGISTRY)}")
    if source in tasks:
        raise InputError(f"{setting}: {source} cannot start from itself; expected another task")
