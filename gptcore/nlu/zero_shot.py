"""What is scored without fine-tuning, section 5's tasks and BLiMP, and what of it a folder has; without torch."""

from __future__ import annotations

from collections.abc import Sequence

from gptcore.base.errors import InputError
from gptcore.nlu.blimp import BLIMP, has_blimp
from gptcore.nlu.readers import available, has_folder

ZERO_SHOT_TASKS = ("cola", "sst2", "race", "dprd")
"""The tasks that section 5 has a heuristic for."""
WITHOUT_TRAINING = (*ZERO_SHOT_TASKS, BLIMP)
"""Everything that a pre-trained model is scored on without fine-tuning."""


def check_zero_shot(tasks: Sequence[str], known: Sequence[str] = ZERO_SHOT_TASKS) -> None:
    """Refuse a task that is not among ``known``; by default one without a heuristic of section 5.

    :raises InputError: naming it.
    """
    if unknown := [task for task in tasks if task not in known]:
        raise InputError(f"zero-shot task {unknown[0]!r} is unknown, expected one of {', '.join(known)}")


def available_zero_shot(datasets_url: str) -> list[str]:
    """The tasks of section 5 whose data is there, and ``blimp`` where its files are.

    :raises InputError: there is none.
    """
    there = [*available(datasets_url), *(["dprd"] if has_folder("DPRD", datasets_url) else [])]
    found = [*(task for task in ZERO_SHOT_TASKS if task in there), *([BLIMP] if has_blimp(datasets_url) else [])]
    if not found:
        raise InputError(f"{datasets_url}: no data for any of {', '.join(WITHOUT_TRAINING)}")
    return found
