"""A command leaves flow runs Running; the next one on the same server ends them, and no living command's."""

from __future__ import annotations

import os
import subprocess
import sys
from uuid import UUID

import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.sorting import TaskRunSort
from prefect.states import Running

from flows.servers import signals
from tasks.store.state import state_folder
from tasks.tracking import owners

SERVER = "test"


@task
def part() -> None:
    """One task run."""


@flow
def whole() -> None:
    part()


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process' own server is forgotten after each test."""
    monkeypatch.setattr(signals, "_server", None)


def states_of(flow_run: UUID) -> list[str]:
    """The state of a flow run, then those of its task runs."""
    its = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))
    with get_client(sync_client=True) as client:
        tasks = client.read_task_runs(flow_run_filter=its, sort=TaskRunSort.ID_DESC, limit=9)
        return [str(run.state_name) for run in [client.read_flow_run(flow_run), *tasks]]


@pytest.fixture
def running(prefect_server: None) -> UUID:
    """A flow run that its process did not live to end, in its one task."""
    with get_client(sync_client=True) as client:
        created = client.create_flow_run(whole, state=Running())
        client.create_task_run(part, created.id, "0", state=Running())
        return created.id


def dead_command(flow_run: UUID, end: str) -> None:
    """A process that notes a run as its own and ends."""
    program = f"import os, sys; from tasks.tracking.owners import note; note(*sys.argv[1:]); {end}"
    environment = os.environ | {"GPTMILL_HOME": str(state_folder())}
    subprocess.run([sys.executable, "-c", program, SERVER, str(flow_run)], env=environment, check=False)


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "sys.exit(1)"], ids=["killed", "its report was lost"])
def test_an_ended_commands_run_is_ended_by_the_next(running: UUID, end: str) -> None:
    dead_command(running, end)
    assert states_of(running) == ["Running", "Running"]
    signals.on_server(SERVER)
    assert states_of(running) == ["Crashed", "Crashed"]


def test_a_living_commands_run_is_left_alone(running: UUID) -> None:
    owners.note(SERVER, str(running))
    signals.on_server(SERVER)
    assert states_of(running) == ["Running", "Running"]


def test_a_run_that_the_server_does_not_know_is_no_fault(prefect_server: None) -> None:
    dead_command(UUID(int=1), "sys.exit(1)")
    signals.on_server(SERVER)
    with owners.dead_owners(SERVER) as dead:
        assert not dead
