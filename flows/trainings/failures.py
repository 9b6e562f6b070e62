"""When some tasks fail: the others' results stand, and the flow ends as failed, naming those."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gptcore.base.errors import InputError
from tasks.tracking.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gptcore.nlu.own_task import Task
    from tasks.report.analysis import Analysis
    from tasks.report.leaderboard import Leaderboard

Made = TypeVar("Made")
Failures = dict[str, Exception]
"""Task -> what went wrong first."""


class SomeFailed(RuntimeError):
    """Some tasks have no result; the others' stand in ``board``. The same command does only the missing ones."""

    board: Leaderboard


class SomeInputsBad(InputError):
    """Some tasks have no result, and each of them had bad input; the others' results stand in ``board``."""

    board: Leaderboard


class CellsFailed(RuntimeError):
    """Some trainings behind a sweep's tables have no result; the others' stand in ``tables``."""

    def __init__(self, failures: Mapping[str, Exception], tables: Sequence[Analysis]) -> None:
        said = "; ".join(f"{cell}: {first_line(error)}" for cell, error in failures.items())
        super().__init__(f"{len(failures)} of the trainings failed, the tables have the others: {said}")
        self.tables = tables


def leave_out(failures: Failures, task: str, error: Exception) -> None:
    """Note that a task goes no further, and say so."""
    failures[task] = error
    logger().warning("%s is left out: %s", task, first_line(error))


def raise_if_all(failures: Failures, tasks: list[str]) -> None:
    """Raise the first failure where there is nothing to go on with."""
    if failures and len(failures) == len(tasks):
        raise next(iter(failures.values()))


def raise_for(failures: Failures, board: Leaderboard) -> None:
    """End a flow whose other results are told.

    :raises SomeFailed: naming each task with its reason; :class:`SomeInputsBad` where bad input was all there was.
    """
    if not failures:
        return
    kind = SomeInputsBad if all(isinstance(error, InputError) for error in failures.values()) else SomeFailed
    said = "; ".join(f"{task}: {first_line(error)}" for task, error in failures.items())
    error = kind(f"{len(failures)} of the tasks failed, the others stand: {said}")
    error.board = board
    raise error


def first_line(error: Exception) -> str:
    """An error in one line, without the log that may follow."""
    words = str(error).partition("\n")[0]
    return words if isinstance(error, InputError) else f"{type(error).__name__}: {words}"


def each_apart(tasks: Sequence[Task], make: Callable[[Task], Made]) -> tuple[dict[str, Made], Failures]:
    """Task -> what is made of it, and the tasks whose input is bad.

    :raises InputError: the first one's, where all of them have bad input.
    """
    made: dict[str, Made] = {}
    left_out: Failures = {}
    for task in tasks:
        try:
            made[task.name] = make(task)
        except InputError as error:
            leave_out(left_out, task.name, error)
    raise_if_all(left_out, [task.name for task in tasks])
    return made, left_out
