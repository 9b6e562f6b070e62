"""What a flow run is called: which flow, on what, and what sets it apart from the form's defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from prefect.runtime import flow_run
from pydantic import BaseModel

from flows.forms.parameters import PretrainParameters, SweepParameters
from flows.forms.settings import CHECKPOINT, chosen_preset
from gptcore.nlu.own_task import is_task_file
from tasks.tracking.tracker import flatten

_WHERE_IT_RUNS = {"store", "datasets", "corpus", "shards", "out", "dask", "jobs", "nproc", "shard"}  # where, not what
_SHOWN = 4  # differences: a name is one line of a list


def from_form() -> str:
    """The name of the flow run that starts, from its form: "finetune rte, lr 0.0005, 2 seeds"."""
    return run_name(str(flow_run.flow_name), flow_run.parameters["parameters"])


def run_name(flow: str, form: BaseModel) -> str:
    """The name of a run of ``flow`` (as "analysis-table5") with this form."""
    settings = form.model_dump()
    on = [_task(str(settings[name])) for name in ("preset", "task") if settings.get(name, CHECKPOINT) != CHECKPOINT]
    length: list[str] = []
    if isinstance(form, PretrainParameters):
        config = chosen_preset(form).pretrain
        steps = form.steps or config.steps
        length = [f"{steps:,} updates" if steps else f"{config.epochs:g} epochs"]
    if isinstance(form, SweepParameters):  # read before it is checked
        on = [str(form.sweep["preset"])] if "preset" in form.sweep else []
        length = [f"by {form.sweep.get('objective', '')}"]
    differences = list(_differences(form))
    more = ["..."] if len(differences) > _SHOWN else []
    return ", ".join([" ".join([flow.replace("-", " ", 1), *on, *length]), *differences[:_SHOWN], *more])


def _task(name: str) -> str:
    """A task's name; of a file's address the file's own name."""
    return PurePosixPath(name).stem if is_task_file(name) else name


def _differences(form: BaseModel) -> Iterator[str]:
    """What was chosen otherwise than the form's defaults, each in a word or two."""
    for name, field in type(form).model_fields.items():
        value: Any = getattr(form, name)
        if name in _WHERE_IT_RUNS or field.is_required() or value == field.default:
            continue
        if name == "overrides":
            yield from (f"{setting} {chosen}" for setting, chosen in flatten(value))
        elif name == "tasks":
            yield "+".join(map(_task, value))
        elif isinstance(value, list):
            yield f"{name} {'+'.join(str(item).partition(' ')[0] for item in value)}"
        elif name in ("seeds", "layers"):
            yield f"{value} {name if value != 1 else name.removesuffix('s')}"
        elif name == "pretrained":
            yield "from random weights"
        elif name == "start":
            yield f"from {value.partition(' ')[0]}"
        elif name not in ("preset", "steps"):  # they are said already
            yield f"{name.replace('_', ' ')} {str(value).partition(' ')[0]}"
