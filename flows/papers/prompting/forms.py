"""The form of answers from prompts, what its options mean, and the tasks that models have positions for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from flows.forms.fields import OR_OWN_TASK, Form, field
from flows.forms.readers import listed, numbers
from flows.servers.environment import absolute
from gptcore.base.errors import InputError
from gptcore.config.sizes import PROMPT_SETTINGS, SIZES, shape_given, sized_preset
from gptcore.nlu.own_task import is_task_file
from gptcore.papers.prompting.tasks import PROMPT_TASKS, PromptTask, available_prompt_tasks, prompt_task

if TYPE_CHECKING:
    from flows.forms.requests import Given
    from tasks.store.artifact import Artifact
    from tasks.store.store import Store

SizedPresetName = StrEnum("SizedPresetName", {name: name for name in SIZES})  # type: ignore[misc]  # known at run time
PromptTaskName = StrEnum("PromptTaskName", {name: name for name in PROMPT_TASKS})  # type: ignore[misc]  # as above
PromptTaskChoice = Annotated[PromptTaskName, OR_OWN_TASK]
"""One of the tasks that are put as prompts, or the address of a task's file."""


@dataclass(frozen=True)
class FewShotRequest:
    """What the form's names stand for."""

    store: Store
    models: tuple[Artifact, ...]
    """Empty: each of the preset's sizes is pre-trained."""
    tokenizer: Given | None
    room: int
    """The fewest positions of these sizes."""


class FewShotParameters(Form):
    """Answers from prompts, without fine-tuning: zero-shot and behind examples."""

    preset: SizedPresetName = field("few-shot-preset", 0)
    store: str = field("store", 1)
    checkpoints: list[str] = field("few-shot-checkpoints", 2)
    datasets: str = field("datasets", 3)
    corpus: str = field("few-shot-corpus", 4)
    tasks: list[PromptTaskChoice] = field("few-shot-tasks", 5)
    shots: list[Annotated[int, Field(ge=0, le=100)]] = field("few-shot-shots", 6)
    max_rows: int = field("few-shot-max_rows", 7)
    overrides: dict[str, Any] = field("few-shot-overrides", 8)
    nproc: int = field("nproc", 9)
    out: str = field("few-shot-out", 10)
    dask: str = field("dask", 11)
    tokenizer: str = field("tokenizer", 12)

    def resolve(self, store: Store) -> FewShotRequest:
        from flows.forms import checks
        from flows.forms.references import pretrained_model

        tokenizer = checks.given_tokenizer(store, self.tokenizer)
        checks.digest_of(store, tokenizer)
        checks.check_dask(self.dask)
        if self.checkpoints and (self.corpus or self.tokenizer or self.overrides):
            idle = "--tokenizer" if self.tokenizer else "--corpus and no --config"
            raise InputError(f"--checkpoint: nothing is pre-trained then; expected no {idle} beside it")
        models = tuple(pretrained_model(store, ref, generates=True) for ref in self.checkpoints)
        room = self.least_room()
        checks.check_corpus(self.corpus)
        tasks = self.tasks if self.datasets else [name for name in self.tasks if is_task_file(name)]
        if self.datasets or tasks:  # the generated world's are there once it is made
            tasks_with_room(tasks, self.datasets, None if models else room)
        return FewShotRequest(store, models, tokenizer, room)

    def least_room(self) -> int:
        """The fewest positions of the sizes that would be pre-trained.

        :raises InputError: settings that do not fit, or that would make the sizes one.
        """
        if same := shape_given(self.overrides):
            raise InputError(f"overrides: {same[0]}: expected none, as each of the preset's sizes has its own")
        if self.overrides.get("family", "gpt2") != "gpt2":
            raise InputError(f"overrides: family = {self.overrides['family']!r}; expected gpt2")
        more = PROMPT_SETTINGS[self.preset]
        return min(sized_preset(self.preset, size, more, self.overrides).model.n_ctx for size in SIZES[self.preset])


def tasks_with_room(wanted: Sequence[str], datasets_url: str, n_ctx: int | None) -> list[PromptTask]:
    """The tasks to ask: those wanted, else every one whose data is there and whose answers a model has positions for.

    :param wanted: names, and addresses of files with users' own tasks.
    :raises InputError: one that is wanted has no data or too little room; or none is wanted and all have too little.
    """
    named = [name for name in wanted if not is_task_file(name)]
    there = available_prompt_tasks(datasets_url) if named or not wanted else []
    if missing := [name for name in named if name not in there]:
        raise InputError(f"{datasets_url}: no data for {', '.join(missing)}; found {', '.join(there)}")
    tasks = [prompt_task(name, datasets_url) for name in wanted or there]
    if n_ctx is None:
        return tasks
    found = tasks if wanted else [task for task in tasks if task.has_room(n_ctx)]
    for task in tasks if wanted or not found else ():
        task.check_room(n_ctx)
    return found


def prompt_task_names(comma_separated: str) -> list[str]:
    """The tasks in a list, by name or by the address of a user's own task's file."""
    return [absolute(name) if is_task_file(name) else name for name in listed(comma_separated)]


shot_counts = partial(numbers, option="--shots", example="0,1,4", kind=int)
"""The numbers in a list of numbers of examples."""
