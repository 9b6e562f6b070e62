"""The tasks of section 5, scored without fine-tuning, and which of them a folder has; without torch, to check early."""

from __future__ import annotations

from collections.abc import Sequence

from gptcore.errors import InputError
from gptcore.nlu.readers import available, has_folder

ZERO_SHOT_TASKS = ("cola", "sst2", "race", "dprd")


def check_zero_shot(tasks: Sequence[str]) -> None:
    """Refuse a task that has no heuristic.

    :raises InputError: naming it.
    """
    if unknown := [task for task in tasks if task not in ZERO_SHOT_TASKS]:
        raise InputError(f"zero-shot task {unknown[0]!r} is unknown, expected one of {', '.join(ZERO_SHOT_TASKS)}")


def available_zero_shot(datasets_url: str) -> list[str]:
    """Those of section 5's tasks whose data is there.

    :raises InputError: there is none.
    """
    there = [*available(datasets_url), *(["dprd"] if has_folder("DPRD", datasets_url) else [])]
    if not (found := [task for task in ZERO_SHOT_TASKS if task in there]):
        raise InputError(f"{datasets_url}: no data for any of {', '.join(ZERO_SHOT_TASKS)}")
    return found
