"""What a flow run is called: which flow, on what, and what sets it apart from the form's defaults."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from prefect.runtime import flow_run

from flows.forms.fields import Form, options_of
from flows.forms.readers import as_typed
from gptcore.base.addresses import without_password
from gptcore.base.settings import flatten
from gptcore.nlu.own_task import is_task_file

_WHERE_IT_RUNS = {"store", "datasets", "corpus", "shards", "out", "dask", "jobs", "nproc", "shard", "ngrams"}
"""Not what runs."""
_SHOWN = 4  # differences: a name is one line of a list


def from_form() -> str:
    """The name of the flow run that starts, from its form: "finetune rte, lr 0.0005, 2 seeds"."""
    return run_name(str(flow_run.flow_name), flow_run.parameters["parameters"])


def command_line(checkpoint: str) -> str:
    """The command that does what the flow at hand was told; empty where it was told by no form.

    :param checkpoint: in the place of the form's, which may be the latest one.
    """
    form = flow_run.parameters.get("parameters") if flow_run.id else None
    if not isinstance(form, Form):
        return ""
    known = {"checkpoint": checkpoint} if "checkpoint" in type(form).model_fields else {}
    return typed(str(flow_run.flow_name), form.model_copy(update=known))


def typed(flow: str, form: Form) -> str:
    """A flow (as "analysis-table5") with its filled form as it is typed: the options that are not as by default.

    Settings that a file holds stand behind it as a comment.
    """
    words, comment = ["gptmill", *flow.replace("analysis-", "analysis ").split()], ""
    for option in sorted(options_of(type(form)), key=lambda option: not option.drawn.positional):
        value, flag = getattr(form, option.field), [] if option.drawn.positional else [option.flag]
        if value == option.info.default and option.field != "store":
            continue
        if isinstance(value, dict):
            words, comment = [*words, *flag, "settings.toml"], f"  # settings.toml: {json.dumps(value)}"
        elif isinstance(value, list) and option.drawn.repeated:
            words += [word for item in value for word in (*flag, str(item))]
        elif isinstance(value, bool):
            words += flag
        else:
            words += [*flag, ",".join(map(as_typed, value)) if isinstance(value, list) else as_typed(value)]
    return without_password(shlex.join(words)) + comment


def run_name(flow: str, form: Form) -> str:
    """The name of a run of ``flow`` (as "analysis-table5") with this form."""
    differences = list(_differences(form))
    more = ["..."] if len(differences) > _SHOWN else []
    return ", ".join([" ".join([flow.replace("-", " ", 1), *form.headline()]), *differences[:_SHOWN], *more])


def _task(name: str) -> str:
    return PurePosixPath(name).stem if is_task_file(name) else name


def _differences(form: Form) -> Iterator[str]:
    """What was chosen otherwise than the form's defaults, each in a word or two."""
    for name, field in type(form).model_fields.items():
        value: Any = getattr(form, name)
        if name in _WHERE_IT_RUNS or field.is_required() or value == field.default:
            continue
        if name == "overrides":
            yield from (f"{setting} {chosen}" for setting, chosen in flatten(value).items())
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
