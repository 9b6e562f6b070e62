"""Whether a model has positions enough for a task; known without torch."""

from __future__ import annotations

from gptcore.errors import InputError
from gptcore.prompting.tasks import PromptTask


def has_room(task: PromptTask, n_ctx: int) -> bool:
    """Whether there are positions for a task's written answers, and as many for what it is asked."""
    return task.writing is None or n_ctx >= 2 * task.writing.max_tokens


def check_room(task: PromptTask, n_ctx: int) -> None:
    """The same as an error.

    :raises InputError: there are not.
    """
    if task.writing is not None and not has_room(task, n_ctx):
        raise InputError(
            f"{task.name}: found a model with n_ctx = {n_ctx}, expected {2 * task.writing.max_tokens} or more, "
            f"as answers have up to {task.writing.max_tokens} tokens"
        )
