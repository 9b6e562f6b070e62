"""What every form is, and the kinds of values that fields choose from."""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidatorFunctionWrapHandler, WrapValidator

from gptcore.abstracts.config import PRESETS as ABSTRACTS
from gptcore.abstracts.config import TABLES
from gptcore.config import PRESETS
from gptcore.config.sizes import SIZES
from gptcore.families import offered, students
from gptcore.nlu.own_task import is_task_file
from gptcore.nlu.registry import BEYOND, REGISTRY
from gptcore.prompting.tasks import PROMPT_TASKS

if TYPE_CHECKING:
    from tasks.store.store import Store

TaskName = StrEnum("TaskName", {name: name for name in REGISTRY | BEYOND})  # type: ignore[misc]  # known at run time
PromptTaskName = StrEnum("PromptTaskName", {name: name for name in PROMPT_TASKS})  # type: ignore[misc]  # as above
FamilyName = StrEnum("FamilyName", {name: name for name in offered()})  # type: ignore[misc]  # as above
StudentName = StrEnum("StudentName", {name: name for name in students()})  # type: ignore[misc]  # as above
PresetName = StrEnum("PresetName", {name: name for name in PRESETS})  # type: ignore[misc]  # as above
AbstractsPresetName = StrEnum("AbstractsPresetName", {name: name for name in ABSTRACTS})  # type: ignore[misc]  # as above
AbstractsTableName = StrEnum("AbstractsTableName", {name: name for name in TABLES})  # type: ignore[misc]  # as above
SizedPresetName = StrEnum("SizedPresetName", {name: name for name in SIZES})  # type: ignore[misc]  # as above


def _own_task(value: object, check: ValidatorFunctionWrapHandler) -> Any:
    """The address of the file of a user's own task as it is; anything else is one of the names that the form lists."""
    return value if isinstance(value, str) and is_task_file(value) else check(value)


TaskChoice = Annotated[TaskName, WrapValidator(_own_task)]
"""One of the twelve or of those beyond them, or the address of a task's file."""
PromptTaskChoice = Annotated[PromptTaskName, WrapValidator(_own_task)]
"""One of the tasks that are put as prompts, or the address of a task's file."""


Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A learning rate."""
_MODULES = ("parameters", "generation", "knowledge")  # of forms


class Form(BaseModel):
    """What a flow is told. Of each form, :meth:`check` looks up what its fields name before anything is computed."""

    model_config = ConfigDict(extra="forbid", use_enum_values=True)

    def check(self) -> None:
        """Look up what the filled form names: settings, sources, artifacts, datasets.

        :raises InputError: for the first that is not there.
        """
        from flows.forms import checks

        self._look_up(checks.check_addresses(dict(self)))

    def _look_up(self, store: Store) -> None:
        """The form's own checks, in this order: settings, text, tokenizer, weights, scheduler, checkpoint, tasks.

        Where settings are read by the checkpoint's family, it comes before them.
        """


def form_named(name: str) -> type[Form]:
    """The form of a name, of whichever module it is: the command line imports those of one command alone.

    :raises KeyError: there is none.
    """
    for module in _MODULES:
        found = getattr(import_module(f"flows.forms.{module}"), name, None)
        if isinstance(found, type) and issubclass(found, Form):
            return found
    raise KeyError(name)
