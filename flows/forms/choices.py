"""The forms on a Prefect server, kept current: a store's pre-trained models and users' own tasks, as choices.

A field with a list and free text is a union, which the browser draws as two tabs. The order and what each half says of
its type are Prefect's own rules: the list without a type, after the text, opens first where the value is in the list,
and neither of Prefect's two UIs takes the text away from somebody who types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from itertools import islice
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from httpx import HTTPError
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.sorting import DeploymentSort
from prefect.exceptions import PrefectException

from flows.forms.fields import OWN_TASKS
from flows.forms.readers import as_typed
from flows.forms.settings import CHECKPOINT, preset_on
from gptcore.base.errors import InputError
from gptcore.nlu.own_task import is_task_file
from tasks.store.references import CHECKPOINTS, label_of, pretrained_model
from tasks.store.store import Store
from tasks.tracking.logs import logger

_LISTED = 50  # checkpoints: the newest
_WITH_LATEST = " With latest: "
_READ = 200  # deployments: the most that Prefect gives at once


def checkpoints_of(store: Store) -> list[str]:
    """What the drop-down offers: latest, then every pre-trained model, newest first, then every imported one."""
    return ["latest", *(label_of(record) for stage in CHECKPOINTS for record in islice(store.newest(stage), _LISTED))]


def settings_of_latest(store: Store) -> dict[str, Any]:
    """Field -> what a fine-tune of the newest checkpoint uses where its form's field is left empty and the task has no
    value of its own."""
    try:
        checkpoint = pretrained_model(store, "latest")
        config = preset_on(store, checkpoint, CHECKPOINT, {}).preset.finetune
    except InputError:  # there is none yet, or none that can be looked into: forms are worth less than what calls this
        return {}
    return {name: getattr(config, name) for name in ("lr", "batch_size", "epochs", "lm_coef", "clf_pdrop")}


def with_choices(
    schema: dict[str, Any], choices: list[str], settings: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """A deployment's parameter schema whose fields `checkpoint` list ``choices`` and still take any text.

    :param settings: what the first of the choices means for fields that are left empty, where a form has these.
    """
    changed = without_choices(schema)
    for properties in _with_checkpoints(changed):
        field = properties["checkpoint"]
        field.pop("type", None)
        field["anyOf"] = [{"title": "type one", "type": "string"}, {"title": "choose", "enum": choices}]
        for name, value in settings.items():
            if name in properties:
                properties[name]["description"] += f"{_WITH_LATEST}{as_typed(value)}, unless the task has its own."
    return changed


def without_choices(schema: dict[str, Any]) -> dict[str, Any]:
    """What :func:`with_choices` was made from."""
    changed = deepcopy(schema)
    for properties in _with_checkpoints(changed):
        if properties["checkpoint"].pop("anyOf", None):
            properties["checkpoint"]["type"] = "string"
        for field in properties.values():
            if "description" in field:
                field["description"] = field["description"].partition(_WITH_LATEST)[0]
    return changed


def _with_checkpoints(schema: dict[str, Any]) -> list[dict[str, Any]]:
    fields = (definition.get("properties", {}) for definition in schema.get("definitions", {}).values())
    return [found for found in fields if "checkpoint" in found]


def with_own_tasks(schema: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """A deployment's parameter schema whose fields for tasks list users' own tasks behind the others."""
    changed = deepcopy(schema)
    for enum in _task_enums(changed):
        enum += [name for name in names if name not in enum]
    return changed


def takes_tasks(schema: dict[str, Any]) -> bool:
    return any(True for _ in _task_enums(schema))


def own_tasks(deployment: DeploymentResponse) -> dict[str, str]:
    """Name -> file of the users' own tasks that a deployment's fields list; earlier versions listed the files."""
    named: dict[str, str] = json.loads((deployment.job_variables or {}).get("env", {}).get(OWN_TASKS, "{}"))
    listed = (name for enum in _task_enums(deployment.parameter_openapi_schema or {}) for name in enum)
    return named | {PurePosixPath(file).stem: file for file in listed if is_task_file(file)}


def _task_enums(schema: dict[str, Any]) -> Iterator[list[str]]:
    for name, definition in schema.get("definitions", {}).items():
        if name.endswith("TaskName"):  # as forms of plugins call theirs, too
            yield definition["enum"]


def list_checkpoints(store: Store) -> None:
    """Bring the drop-downs of the deployments whose default store this is up to date, where there are any.

    A server that does not answer is a warning: what was just trained is worth more than a form.
    """
    try:
        with get_client(sync_client=True) as client:
            forms = [
                deployment
                for deployment in client.read_deployments(limit=_READ, sort=DeploymentSort.NAME_ASC)
                if isinstance(form := deployment.parameters.get("parameters"), dict) and form.get("store") == store.url
            ]
            choices, settings = (checkpoints_of(store), settings_of_latest(store)) if forms else ([], {})
            for deployment in forms:
                there = deployment.parameter_openapi_schema or {}
                if (schema := with_choices(there, choices, settings)) != there:
                    client.update_deployment(deployment.id, DeploymentUpdate(parameter_openapi_schema=schema))
    except (HTTPError, PrefectException):
        logger().warning("the forms do not list the checkpoints of %s yet", store.url, exc_info=True)
