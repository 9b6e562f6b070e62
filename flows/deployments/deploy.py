"""`gptmill deploy`: work pools, deployments, schedules and automations on a Prefect server.

What the server has is compared with what is wanted, and only what differs is written: the second call changes nothing.
What others keep is left alone: a pool's kind and job template, the drop-downs that flows/forms/choices.py fills,
schedules that somebody made in the browser, an automation that somebody switched off.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate, WorkPoolCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId, FlowRunFilter
from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions, WorkPool
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.events import AutomationCore
from prefect.exceptions import ObjectNotFound
from pydantic import SecretStr

from flows.deployments.automations import alerts, lost_runs
from flows.deployments.catalog import OFFERS, Offer, version
from flows.deployments.settings import WEBHOOK_VARIABLE, Schedule, Settings, read_settings
from flows.forms.choices import list_checkpoints, own_tasks, takes_tasks, with_own_tasks, without_choices
from flows.forms.fields import OWN_TASKS
from flows.servers.environment import absolute
from flows.servers.pools import FORMER_POOLS, INTERNAL, OFFERED, POOLS
from gptcore.base.errors import InputError
from gptcore.base.filesystems import exists, file_system
from gptcore.nlu.own_task import own_task_name
from tasks.store.store import Store

_BLOCK = "gptmill-alerts"
_SLUG = "gptmill-"  # begins the names of our schedules: those made in the browser have none


class Changes:
    """What was done to each thing, kind by kind."""

    def __init__(self) -> None:
        self.done: dict[str, dict[str, list[str]]] = {}
        """Kind -> created, updated, removed, unchanged -> names."""
        self.notes: list[str] = []

    def add(self, kind: str, how: str, name: str) -> None:
        """``how``: created, updated, removed or unchanged."""
        self.done.setdefault(kind, {}).setdefault(how, []).append(name)

    def lines(self) -> Iterator[str]:
        """A line a kind; what was changed by name, what stayed as a number."""
        for kind, done in self.done.items():
            changed = [f"{how} {', '.join(names)}" for how, names in done.items() if how != "unchanged"]
            same = [f"{len(done['unchanged'])} unchanged"] if "unchanged" in done else []
            yield f"{kind:<12} {'; '.join([*changed, *same])}"
        yield from self.notes


def deploy(store: str, datasets: str, settings: Settings | None = None, tasks: Sequence[str] = ()) -> Changes:
    """Bring the Prefect server to what is wanted, and print what that took.

    :param store: default store of the forms.
    :param datasets: default datasets folder of the forms; empty: the generated world in the store.
    :param settings: schedules and alerts; by default those of the state folder's file.
    :param tasks: files of users' own tasks that the forms list, beside those that they list already; of these one whose
        file is gone is taken off.
    """
    settings, changes = settings or read_settings(), Changes()
    defaults = {"store": absolute(store), "datasets": absolute(datasets)}
    with get_client(sync_client=True) as client:
        found = {offer.name: _found(client, offer) for offer in OFFERS}
        pools = {name: _pool(client, name, description, changes) for name, description in POOLS.items()}
        own = _own_tasks(found["finetune"], tasks, changes)
        there = {
            offer.name: _deployment(
                client, offer, found[offer.name], pools[offer.pool], defaults, own, settings.overlap, changes
            )
            for offer in OFFERS
        }
        _retire(client, changes)
        for offer in OFFERS:
            wanted_here = [schedule for schedule in settings.schedules if schedule.deployment == offer.name]
            usual = offer.parameters(defaults).get("parameters", {})
            _schedules(client, there[offer.name], wanted_here, usual, changes)
        wanted = lost_runs()
        if webhook := _webhook(settings.webhook, changes):
            wanted += alerts(webhook)
        _automations(client, wanted, changes)
    if Path(store).exists() or "://" in store:
        list_checkpoints(Store(defaults["store"]))
    for line in changes.lines():
        print(line)
    return changes


def _found(client: SyncPrefectClient, offer: Offer) -> DeploymentResponse | None:
    """The deployment of a name of ours that the server has, which others may use as well; None where it has none.

    :raises InputError: it is somebody else's.
    """
    try:
        there = client.read_deployment_by_name(offer.address)
    except ObjectNotFound:
        return None
    if there.entrypoint != offer.entrypoint and not {*there.tags} & {OFFERED, INTERNAL}:
        raise InputError(
            f"deployment {offer.address}: found one that gptmill did not make (entrypoint "
            f"{there.entrypoint}), expected none or ours; rename it, or use a Prefect server of your own"
        )
    return there


def _pool(client: SyncPrefectClient, name: str, description: str, changes: Changes) -> WorkPool:
    try:
        pool = client.read_work_pool(name)
        changes.add("work pools", "unchanged", name)
        return pool
    except ObjectNotFound:
        changes.add("work pools", "created", name)
    like: dict[str, Any] = {"type": "process"}
    with suppress(ObjectNotFound):
        former = client.read_work_pool(FORMER_POOLS.get(name, name))
        like = {"type": former.type, "base_job_template": former.base_job_template}
        changes.notes.append(
            f"the work pool {former.name} is called {name} now: start workers with --pool {name}, then delete "
            f"{former.name} (prefect work-pool delete {former.name})"
        )
    return client.create_work_pool(WorkPoolCreate(name=name, description=description, **like))


def _retire(client: SyncPrefectClient, changes: Changes) -> None:
    """Delete what earlier versions called otherwise, but for one that still has runs, or a schedule of somebody's."""
    unfinished = FlowRunFilter.model_validate({"state": {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING"]}}})
    for offer in (offer for offer in OFFERS if offer.address != offer.former):
        with suppress(ObjectNotFound):
            there = client.read_deployment_by_name(offer.former)
            if not {*there.tags} & {OFFERED, INTERNAL}:
                continue  # another team's
            its = DeploymentFilter(id=DeploymentFilterId(any_=[there.id]))
            if there.schedules or client.count_flow_runs(deployment_filter=its, flow_run_filter=unfinished):
                changes.notes.append(
                    f"{offer.former} is called {offer.address} now; it stays for its runs or schedules"
                )
                continue
            client.delete_deployment(there.id)
            changes.add("deployments", "removed", offer.former)


def _deployment(
    client: SyncPrefectClient,
    offer: Offer,
    there: DeploymentResponse | None,
    pool: WorkPool,
    defaults: dict[str, str],
    own_tasks: dict[str, str],
    overlap: str,
    changes: Changes,
) -> DeploymentResponse:
    """Create one, or update the one that is there; as the server has it before its schedules are looked at."""
    # So that relative paths in a form mean what they say. Other kinds of pool have folders of their own.
    variables: dict[str, Any] = {"working_dir": str(Path.cwd())} if pool.type == "process" else {}
    if own_tasks and takes_tasks(offer.schema):
        variables["env"] = {OWN_TASKS: json.dumps(own_tasks)}
    wanted: dict[str, Any] = {
        "version": version(),
        "description": offer.description,
        "tags": offer.tags,
        "parameters": offer.parameters(defaults),
        "work_pool_name": pool.name,
        "entrypoint": offer.entrypoint,
        "job_variables": variables,
        "parameter_openapi_schema": with_own_tasks(offer.schema, own_tasks),
        **_alone(offer, overlap),
    }
    if there is None:
        flow_id = client.create_flow_from_name(str(offer.flow.name))
        created = client.create_deployment(flow_id=flow_id, name=offer.name, enforce_parameter_schema=True, **wanted)
        changes.add("deployments", "created", offer.name)
        return client.read_deployment(created)
    found = {name: getattr(there, name) for name in wanted if name != "concurrency_limit"}
    if "concurrency_limit" in wanted:
        limit = there.global_concurrency_limit
        found["concurrency_limit"] = limit.limit if limit else None
    found["parameter_openapi_schema"] = without_choices(found["parameter_openapi_schema"] or {})
    if found == wanted:
        changes.add("deployments", "unchanged", offer.name)
    else:
        client.update_deployment(there.id, DeploymentUpdate(**wanted))
        changes.add("deployments", "updated", offer.name)
    return there


def _alone(offer: Offer, overlap: str) -> dict[str, Any]:
    """How many runs of a deployment there may be at once, and what becomes of one more."""
    if not offer.alone:
        return {}
    if overlap == "allow":
        return {"concurrency_limit": None, "concurrency_options": None}
    kind = ConcurrencyLimitStrategy.ENQUEUE if overlap == "enqueue" else ConcurrencyLimitStrategy.CANCEL_NEW
    return {"concurrency_limit": 1, "concurrency_options": ConcurrencyOptions(collision_strategy=kind)}


def _own_tasks(form: DeploymentResponse | None, added: Sequence[str], changes: Changes) -> dict[str, str]:
    """Name -> file of the users' own tasks that the forms list from now on; ``form``: a deployment that lists them.

    :raises InputError: an added file has no name.
    """
    there = own_tasks(form) if form else {}
    new = {own_task_name(file): file for file in added}
    kept = {name: file for name, file in there.items() if name not in new and exists(*file_system(file))}
    wanted = kept | new
    for name, file in {**there, **new}.items():
        how = "updated" if name in there else "created"
        how = "removed" if name not in wanted else "unchanged" if there.get(name) == file else how
        changes.add("own tasks", how, f"{name} ({file})")
    return wanted


def _schedules(
    client: SyncPrefectClient,
    deployment: DeploymentResponse,
    wanted: Sequence[Schedule],
    usual: Mapping[str, str],
    changes: Changes,
) -> None:
    there = {schedule.slug: schedule for schedule in deployment.schedules if (schedule.slug or "").startswith(_SLUG)}
    for item in wanted:
        slug = f"{_SLUG}{item.name}"
        places = {name: absolute(place) for name in ("store", "datasets") if (place := item.parameters.get(name))}
        form = {**usual, **item.parameters, **places}
        parameters = {"parameters": form}  # whole: a schedule's values replace the deployment's
        cron = CronSchedule(cron=item.cron, timezone=item.timezone)
        create = DeploymentScheduleCreate(schedule=cron, active=item.active, parameters=parameters, slug=slug)
        found = there.pop(slug, None)
        if found is None:
            client.create_deployment_schedules(deployment.id, [create])
            changes.add("schedules", "created", item.name)
        elif all(getattr(found, name) == getattr(create, name) for name in ("schedule", "active", "parameters")):
            changes.add("schedules", "unchanged", item.name)
        else:
            client.update_deployment_schedule(
                deployment.id, found.id, active=item.active, schedule=cron, parameters=parameters
            )
            changes.add("schedules", "updated", item.name)
    for schedule in there.values():
        client.delete_deployment_schedule(deployment.id, schedule.id)
        changes.add("schedules", "removed", str(schedule.slug).removeprefix(_SLUG))


def _webhook(url: str, changes: Changes) -> UUID | None:
    """The block that holds the address: made or changed where one is given, else that which is there; its id."""
    try:
        block = cast(Webhook, Webhook.load(_BLOCK))  # no coroutine, as this is no async function
    except ValueError:  # Prefect's word for a block that is not there
        if not url:
            changes.notes.append(f"nobody is told of failures: no webhook is set ({WEBHOOK_VARIABLE}, or the settings)")
            return None
        changes.add("alerts", "created", _BLOCK)
    else:
        if not url or block.url.get_secret_value() == url:
            changes.add("alerts", "unchanged", _BLOCK)
            return block._block_document_id
        changes.add("alerts", "updated", _BLOCK)
    return cast(UUID, Webhook(url=SecretStr(url)).save(_BLOCK, overwrite=True))


def _automations(client: SyncPrefectClient, wanted: list[AutomationCore], changes: Changes) -> None:
    for automation in wanted:
        found = next(iter(client.read_automations_by_name(automation.name)), None)
        if found is None:
            client.create_automation(automation)
            changes.add("automations", "created", automation.name)
        elif _content(found) == _content(automation):
            changes.add("automations", "unchanged", automation.name)
        else:
            client.update_automation(found.id, automation.model_copy(update={"enabled": found.enabled}))
            changes.add("automations", "updated", automation.name)


def _content(automation: AutomationCore) -> Mapping[str, Any]:
    """What an automation does, apart from whether it is switched on."""
    return automation.model_dump(include={"description", "trigger", "actions"})
