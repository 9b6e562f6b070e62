"""What the text of an option means to the field that it fills, and the other way round."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

from flows.servers.environment import absolute
from gptcore.base.errors import InputError


def as_typed(value: Any) -> str:
    """A value as a person types it: 6.25e-5, not 6.25e-05."""
    return re.sub(r"e-0+", "e-", f"{value:g}") if isinstance(value, float) else str(value)


def listed(comma_separated: str) -> list[str]:
    """The names in a list such as ``a,b``."""
    return [item.strip() for item in comma_separated.split(",") if item.strip()]


def task_name(text: str) -> str:
    """The name of a task that has an entry, or the address of the file of a user's own, from this folder.

    :raises InputError: an unknown task.
    """
    from gptcore.nlu.own_task import is_task_file
    from gptcore.nlu.registry import task_spec

    if is_task_file(text):
        return absolute(text)
    try:
        return task_spec(text).name
    except InputError as error:
        raise InputError(f"{error}{its_file(text)}") from None


def its_file(task: object) -> str:
    """What an error on the name of no task says where the file of such a task is in this folder."""
    there = f"./{task}.toml"
    return f"; {there} is there" if Path(there).is_file() else ""


def task_names(comma_separated: str) -> list[str]:
    """The tasks in a list, each as :func:`task_name` has it.

    :raises InputError: an unknown task.
    """
    return [task_name(name) for name in listed(comma_separated)]


def toml_file(file: str, option: str) -> dict[str, Any]:
    """An option's TOML file (:func:`gptcore.base.filesystems.read_toml`); errors begin with the option."""
    from gptcore.base.filesystems import read_toml

    try:
        return read_toml(file, "a TOML file")
    except InputError as error:
        raise InputError(f"{option}{error}") from None


config_file = partial(toml_file, option="--config ")
"""The settings in the TOML file that ``--config`` names."""


def numbers(comma_separated: str, option: str, example: str, kind: type[float] = float) -> list[float]:
    """The numbers in a list; ``kind`` is `int` where they are whole.

    :raises InputError: something else than a number.
    """
    try:
        return [kind(item) for item in listed(comma_separated)]
    except ValueError:
        raise InputError(f"{option}: found {comma_separated!r}, expected numbers, as {example}") from None


learning_rates = partial(numbers, option="--rates", example="2e-5,3e-5,5e-5")
budgets = partial(numbers, option="--operations", example="1e14,3e14")
"""The floating-point operations in a list."""
