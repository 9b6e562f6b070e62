"""What an owner chooses of the deployments: when they run, what of runs that overlap, and who is told of failures.

Read before Prefect is imported: `gptmill up` checks them before it starts anything. A TOML file:

    overlap = "enqueue"             # or "cancel", "allow": a run that comes due while another of its deployment runs

    [[schedule]]
    name = "nightly"                # letters, digits and dashes
    deployment = "pipeline"         # pipeline, or another of those below
    cron = "30 2 * * *"
    timezone = "Europe/Berlin"      # UTC
    active = true                   # true
    parameters = { preset = "small", corpus = "s3://books/", store = "s3://gptmill" }   # fields of its form

    [alerts]
    webhook = "https://..."         # better: GPTMILL_WEBHOOK in the environment
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from pydantic import ValidationError

from flows.forms.fields import form_named
from flows.forms.parameters import PipelineParameters
from flows.plugins import added
from gptcore.base.addresses import refuse_recorded
from gptcore.base.errors import InputError, nearest, require
from gptcore.base.filesystems import read_toml
from tasks.store.state import state_folder

WEBHOOK_VARIABLE = "GPTMILL_WEBHOOK"
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MOST = (59, 23, 30, 11, 7)
"""The longest step of each field of a cron line."""
_EXTENSIONS = re.compile(r"(?<![a-z])l|#", re.IGNORECASE)  # the last day, the second Monday: not all are Prefect's
_FORMS = {
    "pipeline": "PipelineParameters",
    **{name: table["scheduled"] for name, table in added("deployments").items() if "scheduled" in table},
    "finetune": "FinetuneParameters",
    "finetune-all": "FinetuneAllParameters",
    "upkeep": "UpkeepParameters",
}
"""What may be scheduled here, and its form; anything may be in the browser."""
OVERLAP = ("enqueue", "cancel", "allow")
_FIELDS: dict[str, type] = {
    **dict.fromkeys(("name", "cron", "timezone", "deployment"), str),
    "active": bool,
    "parameters": dict,
}


@dataclass(frozen=True)
class Schedule:
    """One schedule of a deployment."""

    deployment: str
    name: str
    cron: str
    timezone: str
    active: bool
    parameters: Mapping[str, Any]
    """Fields of its form that differ from the deployment's defaults."""


UPKEEP = Schedule("upkeep", "upkeep", "30 3 * * *", "UTC", True, {})
"""What there is unless the file schedules upkeep itself."""


@dataclass(frozen=True)
class Settings:
    """The whole file."""

    schedules: tuple[Schedule, ...] = (UPKEEP,)
    overlap: str = OVERLAP[0]
    """What becomes of a run that is due while another of its deployment runs: one of :data:`OVERLAP`."""
    webhook: str = field(default="", repr=False)
    """Where failures are told; such an address is a secret. Empty: nobody is told."""


def settings_file() -> Path:
    return state_folder() / "deploy.toml"


def read_settings(path: str | Path | None = None) -> Settings:
    """The settings of ``path``; of :func:`settings_file`, if there is one, where none is given.

    :raises InputError: no such file, no TOML, an unknown field, a bad cron line, time zone or value of the form.
    """
    if path is None and not settings_file().is_file():
        return Settings(webhook=_checked_address(os.environ.get(WEBHOOK_VARIABLE, ""), WEBHOOK_VARIABLE))
    file = Path(path or settings_file())
    found = read_toml(str(file), "schedules and alerts in TOML")
    _check_fields(f"{file}", found, {"overlap": str, "schedule": list, "alerts": dict})
    overlap = found.get("overlap", OVERLAP[0])
    require(overlap in OVERLAP, f"{file}: overlap: found {_shown(overlap)}, expected {', '.join(OVERLAP)}")
    alerts = found.get("alerts", {})
    _check_fields(f"{file}: [alerts]", alerts, {"webhook": str})
    webhook = _checked_address(os.environ.get(WEBHOOK_VARIABLE) or alerts.get("webhook", ""), f"{file}: webhook")
    schedules = tuple(_schedule(file, number, item) for number, item in enumerate(found.get("schedule", []), start=1))
    names = [schedule.name for schedule in schedules]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"{file}: found two schedules named {twice!r}, expected a name each")
    if not any(schedule.deployment == UPKEEP.deployment for schedule in schedules):
        schedules += (UPKEEP,)
    return Settings(schedules, overlap, webhook)


def _schedule(file: Path, number: int, item: Any) -> Schedule:
    where = f"{file}: schedule {number}"
    require(isinstance(item, dict), f"{where}: found {item!r}, expected a table")
    _check_fields(where, item, _FIELDS)
    for needed in ("name", "cron"):
        require(needed in item, f"{where}: found no {needed}, expected one")
    if not _NAME.fullmatch(item["name"]):
        raise InputError(f"{where}: name: found {item['name']!r}, expected small letters, digits and dashes")
    where = f"{file}: schedule {item['name']}"
    timezone = item.get("timezone", "UTC")
    if not _is_cron(item["cron"]):
        raise InputError(
            f'{where}: cron: found {item["cron"]!r}, expected five fields, such as "30 2 * * *", '
            "and a day that some month has"
        )
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # it is a file's name to Python: a folder's, one too long
        raise InputError(f'{where}: timezone: found {timezone!r}, expected a name such as "Europe/Berlin"') from None
    deployment, parameters = item.get("deployment", "pipeline"), item.get("parameters", {})
    require(deployment in _FORMS, f"{where}: deployment: found {_shown(deployment)}, {nearest(deployment, _FORMS)}")
    _check_parameters(f"{where}: parameters", _FORMS[deployment], parameters)
    return Schedule(deployment, item["name"], item["cron"], timezone, item.get("active", True), parameters)


def _check_parameters(where: str, form_name: str, parameters: Mapping[str, Any]) -> None:
    """What can be seen without the store: a run at night tells nobody of a typing error."""
    try:
        form = form_named(form_name)(**parameters)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise InputError(f"{where}: {place}: found {_shown(problem['input'])}: {problem['msg']}") from None
    try:
        if isinstance(form, PipelineParameters):
            _ = form.chosen_preset
        refuse_recorded(dict(form))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _is_cron(line: str) -> bool:
    """Whether these are minute, hour, day, month and weekday, and some day fits them."""
    fields = line.split(" ")
    try:
        next(CronSim(line, datetime(2000, 1, 1)))
    except (CronSimError, StopIteration):
        return False
    steps = (
        (int(step), most) for text, most in zip(fields, _MOST, strict=False) for step in re.findall(r"/(\d+)", text)
    )
    return len(fields) == len(_MOST) and not _EXTENSIONS.search(line) and all(step <= most for step, most in steps)


def _check_fields(where: str, found: Mapping[str, Any], expected: Mapping[str, type]) -> None:
    for name, value in found.items():
        require(name in expected, f"{where}: found {name!r}, expected {', '.join(expected)}")
        if type(value) is not expected[name]:
            kinds = {str: "a text", bool: "true or false", dict: "a table", list: "a list of tables: [[schedule]]"}
            raise InputError(f"{where}: {name}: found {_shown(value)}, expected {kinds[expected[name]]}")


def _shown(value: Any) -> str:
    """A number or a word; of what may hold a secret, an address above all, the kind alone."""
    if isinstance(value, int | float) or (isinstance(value, str) and "/" not in value):
        return repr(value)
    kinds: dict[type, str] = {str: "an address", dict: "a table", list: "a list"}
    return kinds.get(type(value), f"a {type(value).__name__}")


def _checked_address(url: str, where: str) -> str:
    """``url``, which a message does not repeat: it is a secret."""
    if url and not url.startswith(("http://", "https://")):
        raise InputError(f"{where}: found an address of another kind, expected http:// or https://")
    return url
