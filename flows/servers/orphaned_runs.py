"""Flow runs that a command left Running: the next command on the same Prefect server ends them as Crashed.

It was killed, or its server could not write down how they ended.

A run of a deployment is its worker's, whose host may be another one: Prefect's own heartbeats judge those.
"""

from __future__ import annotations

from uuid import UUID

from tasks.tracking.owners import dead_owners, note

_server: str | None = None


def on_server(name: str) -> None:
    """Say where this process' flow runs go, and end what killed commands left behind there.

    :param name: the same for every process that talks to the same database.
    """
    global _server  # noqa: PLW0603  # as is the server that a process talks to
    _server = name
    with dead_owners(name) as dead:
        for flow_run in {line for lines in dead.values() for line in lines}:
            _end(UUID(flow_run))


def note_flow_run() -> None:
    """Remember the flow run that runs here as this process' own."""
    from prefect.runtime import flow_run

    if _server is not None:
        note(_server, str(flow_run.id))


def _end(flow_run: UUID) -> None:
    """Crashed for a flow run and its task runs, unless they have ended."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import TERMINAL_STATES, State, StateType
    from prefect.client.schemas.sorting import TaskRunSort
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Crashed

    crashed: State[None] = Crashed(message="The command that ran it has ended; the same command goes on from here.")
    its = filters.FlowRunFilter(id=filters.FlowRunFilterId(any_=[flow_run]))
    open_states = filters.TaskRunFilterStateType(any_=[kind for kind in StateType if kind not in TERMINAL_STATES])
    unended = filters.TaskRunFilter(state=filters.TaskRunFilterState(type=open_states))
    with get_client(sync_client=True) as client:
        try:
            found = client.read_flow_run(flow_run)
        except ObjectNotFound:  # the database is another one by now
            return
        if found.state is not None and found.state.is_final():
            return
        order = TaskRunSort.ID_DESC
        for task in client.read_task_runs(flow_run_filter=its, task_run_filter=unended, sort=order, limit=200):
            client.set_task_run_state(task.id, crashed, force=True)
        client.set_flow_run_state(flow_run, crashed, force=True)
