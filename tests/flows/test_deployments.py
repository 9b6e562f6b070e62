"""`gptmill deploy` through the harness: what it makes, that it makes nothing twice, and whose things it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.schedules import CronSchedule
from prefect.client.schemas.sorting import FlowRunSort
from prefect.events import AutomationCore, EventTrigger
from prefect.exceptions import ObjectNotFound
from prefect.server.events import triggers
from prefect.server.events.schemas.automations import Automation, Firing
from prefect.server.events.schemas.events import ReceivedEvent, RelatedResource, Resource
from prefect.states import Completed, InfrastructurePending, Pending, Running, Scheduled
from prefect.utilities.importtools import import_object

from flows.cli import main as cli
from flows.deployments.automations import alerts, lost_runs
from flows.deployments.deploy import deploy
from flows.deployments.settings import Settings, read_settings
from flows.forms.choices import with_choices
from flows.servers.pools import POOLS
from gptcore.base.errors import InputError
from tests.conftest import forget_deployments
from tests.expected import expected

ROOT = Path(__file__).resolve().parents[2]
SCHEDULE = "\n".join(expected(__file__, "SCHEDULE"))


def written(folder: Path, text: str) -> Path:
    path = folder / "deploy.toml"
    path.write_text(text, encoding="utf-8")
    return path


def scheduled(parameters: str = "", cron: str = "0 2 * * *", timezone: str = "UTC") -> str:
    return f'[[schedule]]\nname = "a"\ncron = "{cron}"\ntimezone = "{timezone}"\nparameters = {{ {parameters} }}\n'


@pytest.mark.parametrize("entrypoint", expected(__file__, "test_deployments_of_former_versions_find_their_flows"))
def test_deployments_of_former_versions_find_their_flows(entrypoint: str) -> None:
    assert isinstance(found := import_object(entrypoint), Flow)
    assert found.fn.__name__ == entrypoint.rpartition(".")[2]


@pytest.mark.parametrize("cron", ["*/15 * * * *", "0 0 29 2 *", "0 0 31 2 mon", "0 0 31 * *", "5,7 0-6/2 * jan-mar 7"])
def test_schedules_that_prefect_takes_are_taken(tmp_path: Path, cron: str) -> None:
    schedule, upkeep = read_settings(written(tmp_path, scheduled(cron=cron))).schedules
    assert upkeep.deployment == "upkeep", "at night, unless the file says when"
    assert CronSchedule(cron=schedule.cron).cron == cron


def test_prefects_own_file_says_the_same_as_the_list() -> None:
    from flows.deployments.catalog import OFFERS, text

    found = (ROOT / "prefect.yaml").read_text(encoding="utf-8")
    entries = {entry["name"]: entry for entry in yaml.safe_load(found)["deployments"]}
    assert list(entries) == [offer.name for offer in OFFERS]
    for offer in OFFERS:
        entry = entries[offer.name]
        assert entry["work_pool"]["name"] == offer.pool in POOLS
        assert (entry["entrypoint"], entry["description"], entry["tags"]) == (
            offer.entrypoint,
            offer.description,
            offer.tags,
        )
        assert offer.description
    assert found == text(), "run `make prefect.yaml`"


@pytest.mark.parametrize(("text", "message"), expected(__file__, "test_settings_that_are_wrong_are_one_line"))
def test_settings_that_are_wrong_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_settings(written(tmp_path, text))
    assert "\n" not in str(caught.value)
    assert "secret-token" not in str(caught.value)


def test_wrong_settings_and_no_server_end_with_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    for name in ("PREFECT_API_URL", "PREFECT_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert cli.main(["deploy", "--settings", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: found nothing there, expected schedules" in capsys.readouterr().err
    assert cli.main(["deploy"]) == 2
    assert "no Prefect server: start one with `gptmill up`" in capsys.readouterr().err


def everything() -> dict[str, Any]:
    """Each object that deploy makes, as the server has it, with the time of its last change."""
    with get_client(sync_client=True) as client:
        found = {}
        for path in ("deployments", "automations", "work_pools", "block_documents"):
            for item in client.request("POST", f"/{path}/filter", json={}).json():
                found[f"{path} {item.get('name')}"] = item
        return found


@pytest.fixture
def clean_server(prefect_server: None) -> Iterator[None]:
    """Nothing that another test of this file has deployed."""
    with get_client(sync_client=True) as client:
        forget_deployments(client)
        yield


@pytest.mark.usefixtures("clean_server")
def test_deploying_twice_changes_nothing_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPTMILL_WEBHOOK", "http://127.0.0.1:9/secret-token")
    store = str(tmp_path / "store")
    first = deploy(store, "", read_settings(written(tmp_path, SCHEDULE)))
    assert set(first.done) == {"work pools", "deployments", "schedules", "alerts", "automations"}
    assert len(first.done["automations"]["created"]) == 8

    with get_client(sync_client=True) as client:
        one = client.read_deployment_by_name("finetune/finetune")
        body = {"parameter_openapi_schema": with_choices(one.parameter_openapi_schema or {}, ["latest", "abc"])}
        client.request("PATCH", f"/deployments/{one.id}", json=body)  # as forms/choices.py does after a pre-training
        pipeline = client.read_deployment_by_name("pipeline/pipeline")
        body_of_a_person = [{"schedule": {"cron": "0 0 1 1 *"}, "active": False}]
        client.request("POST", f"/deployments/{pipeline.id}/schedules", json=body_of_a_person)
        (ours, *_) = client.read_deployment(pipeline.id).schedules
    assert {s.slug for s in [ours]} <= {"gptmill-nightly", None}

    before = everything()
    second = deploy(store, "", read_settings(written(tmp_path, SCHEDULE)))
    assert all(set(done) == {"unchanged"} for done in second.done.values()), second.done
    assert everything() == before, "not even the times have moved"
    assert "secret-token" not in capsys.readouterr().out
    assert "secret-token" not in str(before)

    with get_client(sync_client=True) as client:  # as the server's scheduler does; with SQLAlchemy 2.1 it cannot
        client.request("POST", f"/deployments/{pipeline.id}/schedule", json={"min_runs": 2})
        waiting = client.read_flow_runs(
            deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[pipeline.id])),
            sort=FlowRunSort.EXPECTED_START_TIME_ASC,
            limit=50,
        )
    assert len(waiting) >= 2
    assert all({"gptmill", "auto-scheduled"} <= set(run.tags) for run in waiting)
    assert waiting[0].parameters["parameters"] == {"store": store, "preset": "demo", "tasks": ["rte"]}

    changed = deploy(str(tmp_path / "other"), "", read_settings(written(tmp_path, SCHEDULE.replace("30", "40"))))
    assert set(changed.done["schedules"]) == {"updated"}  # the store is another one
    assert set(changed.done["schedules"]["updated"]) == {"nightly", "upkeep"}
    assert "finetune" in changed.done["deployments"]["updated"]
    removed = deploy(str(tmp_path / "other"), "", read_settings(written(tmp_path, "")))
    assert removed.done["schedules"] == {"removed": ["nightly"], "unchanged": ["upkeep"]}
    with get_client(sync_client=True) as client:
        (left,) = client.read_deployment(pipeline.id).schedules
    assert left.slug is None, "a schedule that a person made is left alone"


@pytest.mark.usefixtures("clean_server")
@pytest.mark.parametrize(
    ("overlap", "limit", "strategy"), [("enqueue", 1, "ENQUEUE"), ("cancel", 1, "CANCEL_NEW"), ("allow", None, None)]
)
def test_what_overlaps_waits_or_is_cancelled_as_the_owner_says(
    tmp_path: Path, overlap: str, limit: int | None, strategy: str | None
) -> None:
    store = str(tmp_path / "store")
    deploy(store, "", Settings())
    settings = read_settings(written(tmp_path, f'overlap = "{overlap}"\n'))
    deploy(store, "", settings)
    with get_client(sync_client=True) as client:
        for name, alone in {"pipeline": True, "upkeep": True, "finetune": False, "internal-training": False}.items():
            flow = "train" if name == "internal-training" else name
            found = client.read_deployment_by_name(f"{flow}/{name}")
            there, options = found.global_concurrency_limit, found.concurrency_options
            assert (there.limit if there else None) == (limit if alone else None)
            assert (str(options.collision_strategy.value) if options else None) == (strategy if alone else None)
    assert set(deploy(store, "", settings).done["deployments"]) == {"unchanged"}
    begun = {"enqueue": "AwaitingConcurrencySlot", "cancel": "Cancelled", "allow": "Pending"}[overlap]
    with get_client(sync_client=True) as client:  # as the scheduler makes runs, and a worker takes them
        pipeline = client.read_deployment_by_name("pipeline/pipeline").id
        first, second = (client.create_flow_run_from_deployment(pipeline, state=Scheduled()) for _ in range(2))

        def taken(run: FlowRun) -> str:
            client.set_flow_run_state(run.id, Pending())
            return str(client.read_flow_run(run.id).state_name)

        assert (taken(first), taken(second)) == ("Pending", begun)
        for state in (Running(), Completed()):
            client.set_flow_run_state(first.id, state, force=True)
        assert taken(second) == ("Cancelled" if overlap == "cancel" else "Pending")


@pytest.mark.usefixtures("clean_server")
def test_upkeep_and_sweeps_can_be_scheduled(tmp_path: Path) -> None:
    text = """
    [[schedule]]
    name = "weekly"
    deployment = "upkeep"
    cron = "0 4 * * sun"
    parameters = { backup_to = "backups", verify = true }

    [[schedule]]
    name = "search"
    deployment = "sweep"
    cron = "0 1 1 * *"
    parameters = { sweep = { trials = 9 } }
    """
    deploy(str(tmp_path / "store"), "", read_settings(written(tmp_path, text)))
    with get_client(sync_client=True) as client:
        (upkeep,) = client.read_deployment_by_name("upkeep/upkeep").schedules
        (search,) = client.read_deployment_by_name("sweep/sweep").schedules
    assert (upkeep.slug, upkeep.parameters["parameters"]["verify"]) == ("gptmill-weekly", True)
    assert upkeep.parameters["parameters"]["store"] == str(tmp_path / "store")
    assert search.parameters["parameters"]["sweep"] == {"trials": 9}


@pytest.mark.usefixtures("clean_server")
def test_another_teams_deployment_of_the_same_name_is_left_alone(tmp_path: Path) -> None:
    with get_client(sync_client=True) as client:
        flow_id = client.create_flow_from_name("train")
        made = {"entrypoint": "their/flows.py:train", "tags": ["theirs"]}
        theirs = [client.create_deployment(flow_id, name, **made) for name in ("internal-training", "train")]
    before = everything()
    with pytest.raises(InputError, match=r"deployment train/internal-training: found one that gptmill did not make"):
        deploy(str(tmp_path / "store"), "", Settings())
    assert everything() == before
    with get_client(sync_client=True) as client:
        client.delete_deployment(theirs[0])
        deploy(str(tmp_path / "store"), "", Settings())
        client.delete_deployment(theirs[1])  # it is still there


@pytest.mark.usefixtures("clean_server")
def test_what_former_versions_called_otherwise_is_brought_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pool `gpu`, with its owner's job template; `generate` goes, `train` stays while it runs."""
    with get_client(sync_client=True) as client:
        with suppress(ObjectNotFound):
            client.delete_work_pool("training")
        template = {"job_configuration": {"image": "ours"}, "variables": {"type": "object"}}
        client.create_work_pool(WorkPoolCreate(name="gpu", type="kubernetes", base_job_template=template))
        made = {}
        for name in ("generate", "train", "finetune"):
            flow_id = client.create_flow_from_name(name)
            made[name] = client.create_deployment(flow_id, name, tags=["gptmill"], work_pool_name="gpu")
        run = client.create_flow_run_from_deployment(made["train"], state=Running())
        done = deploy(str(tmp_path / "store"), "", Settings()).done
        assert done["deployments"]["removed"] == ["generate/generate"]
        assert "train/train is called train/internal-training now" in (said := capsys.readouterr().out)
        assert "the work pool gpu is called training now: start workers with --pool training" in said
        moved = client.read_work_pool("training")
        assert (moved.type, moved.base_job_template) == ("kubernetes", template)
        assert client.read_deployment_by_name("finetune/finetune").work_pool_name == "training"
        assert client.read_deployment_by_name("finetune/finetune").id == made["finetune"]
        client.set_flow_run_state(run.id, Completed(), force=True)
        assert deploy(str(tmp_path / "store"), "", Settings()).done["deployments"]["removed"] == ["train/train"]
        for name in ("gpu", "training"):
            client.delete_work_pool(name)


def test_a_run_whose_pod_waits_for_a_node_is_not_given_to_another_worker() -> None:
    """Kubernetes starts it once there is a node, hours later if need be: it would run beside its second start."""
    [lost] = [one.trigger for one in lost_runs() if one.name == "gptmill: lost before the start"]
    assert isinstance(lost, EventTrigger)
    assert lost.after == {f"prefect.flow-run.{Pending().name}"}
    assert f"prefect.flow-run.{InfrastructurePending().name}" in lost.expect  # as Prefect's observer of pods calls it


def test_automations_act_on_our_runs_alone() -> None:
    """On a server that others use, too: whatever an automation does, it does to runs that carry one of our tags."""
    ours = {"prefect.tag.gptmill", "prefect.tag.gptmill-internal", "prefect.tag.gptmill-training"}
    for automation in [*lost_runs(), *alerts(uuid4())]:
        assert isinstance(automation.trigger, EventTrigger)
        related = automation.trigger.match_related
        assert related["prefect.resource.role"] == ["tag"]  # type: ignore[call-overload,index]
        assert set(related["prefect.resource.id"]) <= ours  # type: ignore[call-overload,index]


@pytest.mark.usefixtures("clean_server")
@pytest.mark.parametrize(("name", "event"), [("failures", "Failed"), ("late schedules", "Late")])
def test_two_hundred_runs_that_fail_or_are_late_are_one_notice(
    name: str, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All due at once, as Prefect's server itself works it out; and one more on the next night."""
    [core] = [one for one in alerts(uuid4()) if one.name == f"gptmill: {name}"]
    fired = list[str]()

    async def fire(_: object, firing: Firing) -> None:
        assert firing.triggering_event
        fired.append(firing.triggering_event.resource.id)

    async def nights() -> list[int]:
        async with get_client() as client:
            number = await client.create_automation(AutomationCore(name=name, trigger=core.trigger, actions=[]))
        kept = Automation.model_validate({**core.model_dump(mode="json"), "id": number, "actions": []})
        triggers.load_automation(kept)
        counts = []
        for night in (0, 1):
            due = datetime.now(UTC) + timedelta(days=night)  # in the past the server sweeps what we count in
            for run in range(200):
                await triggers.reactive_evaluation(_event(event, due + timedelta(seconds=run / 10)))
            await triggers.proactive_evaluation(kept.trigger, due + timedelta(hours=1))  # type: ignore[arg-type]
            counts.append(len(fired))
        triggers.forget_automation(number)
        return counts

    monkeypatch.setattr(triggers, "fire", fire)
    assert asyncio.run(nights()) == [1, 2]


def _event(name: str, when: datetime) -> ReceivedEvent:
    """What Prefect says of a run of a deployment of ours."""
    related = {"flow": "prefect.flow.nightly", "work-pool": "prefect.work-pool.cpu", "tag": "prefect.tag.gptmill"}
    return ReceivedEvent(
        occurred=when,
        event=f"prefect.flow-run.{name}",
        resource=Resource({"prefect.resource.id": f"prefect.flow-run.{uuid4()}"}),
        related=[
            RelatedResource({"prefect.resource.id": number, "prefect.resource.role": role})
            for role, number in related.items()
        ],
        id=uuid4(),
    )
