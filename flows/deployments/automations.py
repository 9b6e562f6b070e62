"""What a Prefect server does by itself: lost runs are found and started again, failures and late schedules are told.

A run that loses its machine stays Running for ever in Prefect. Its process sends a heartbeat every 180 s
(PREFECT_FLOWS_HEARTBEAT_FREQUENCY); three that are missing make it Crashed. A Crashed run goes on as itself, at most
three times: what its stages had made is in the store, and its training resumes from the last checkpoint. Should the
old process live after all (a server that was away cannot tell), it notices and leaves: see `flows/servers/signals.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from uuid import UUID

from prefect.client.schemas.objects import StateType
from prefect.events import AutomationCore, CallWebhook, ChangeFlowRunState, EventTrigger, Posture
from prefect.events.actions import ActionTypes
from prefect.settings import get_current_settings

from flows.servers.pools import INTERNAL, OFFERED, TRAINING

_STARTS = 4  # of one run: a machine that dies of a run is not to die of it for ever
_MISSED = 3  # heartbeats
_HEARTBEAT = 180  # seconds; Prefect's own default, where heartbeats are switched off here but on at the workers
_ENDS = {"Completed", "Failed", "Cancelled", "Crashed"}
_HELD = {"Suspended", "Paused"}  # by a person, or by a flow that asks one
_BEGUN = {"Running", "Retrying"}
_Labels = dict[str, str | list[str]]
_TEXT = """\
{"text": {{ ("gptmill: " ~ flow_run.name ~ ": " ~ WHAT ~ " " ~ (flow_run | ui_url)) | tojson }}}"""
_STATE = "flow_run.state.name ~ ': ' ~ (flow_run.state.message or '')"
_SINCE = "(flow_run.expected_start_time | string)[:16] ~ ' UTC'"
_POOL = "(flow_run.work_pool_name or 'none')"
_LATE = (
    f"'late: no worker of the work pool ' ~ {_POOL} ~ ' has taken this run since ' ~ {_SINCE} ~ "
    f"'; if none is online: prefect worker start --pool ' ~ {_POOL} ~ ', or gptmill up'"
)
_NOT_BEGUN = f"'taken by a worker of the work pool ' ~ {_POOL} ~ ', but not begun; due since ' ~ {_SINCE}"


def _tagged(*tags: str) -> _Labels:
    """Runs that have one of the tags: others may use the same server."""
    return {"prefect.resource.id": [f"prefect.tag.{tag}" for tag in tags], "prefect.resource.role": "tag"}


_OURS = _tagged(OFFERED, INTERNAL)
_FROM_WORKERS = _tagged(OFFERED, TRAINING)


def lost_runs() -> list[AutomationCore]:
    """Find the runs whose process, or whose worker, is gone, and start them again."""
    silence = _silence()
    return [
        _automation(
            "lost runs",
            f"A run without heartbeats for {silence.seconds} s has crashed.",
            _trigger(_OURS, {"heartbeat", *_HELD, *_ENDS}, after={"heartbeat"}, within=silence),
            _become(StateType.CRASHED, "Crashed", f"no heartbeat for {silence.seconds} s"),
        ),
        _automation(
            "lost while cancelling",
            "Nobody was left to end a run that was cancelled.",
            _trigger(_OURS, _ENDS, after={"Cancelling"}, within=silence),
            _become(StateType.CANCELLED, "Cancelled", "cancelled; its process had gone"),
        ),
        _automation(
            "lost before the start",
            "A worker took a run and was gone before it began: another takes it.",
            _trigger(_FROM_WORKERS, {*_BEGUN, "Cancelling", *_ENDS}, after={"Pending"}, within=4 * silence),
            _become(StateType.SCHEDULED, "AwaitingRetry", "taken by a worker that did not start it"),
        ),
        _automation(
            "start again",
            "A crashed run goes on where it was; the store holds what it had done.",
            _trigger(_tagged(OFFERED), {"Crashed"}, match={"prefect.run-count": [str(n) for n in range(1, _STARTS)]}),
            _become(StateType.SCHEDULED, "AwaitingRetry", "crashed; goes on from what the store holds"),
        ),
    ]


def alerts(webhook: UUID) -> list[AutomationCore]:
    """Tell of failures and of schedules that nobody works on.

    :param webhook: the block with the address.
    """
    silence = _silence()

    def told(name: str, description: str, trigger: EventTrigger, what: str) -> AutomationCore:
        call = CallWebhook(block_document_id=webhook, payload=_TEXT.replace("WHAT", what))
        return _automation(name, description, trigger, call)

    return [
        told(
            "failures",
            "Tells of a run that failed or crashed.",
            _trigger(_tagged(OFFERED), {"Failed", "Crashed"}),
            _STATE,
        ),
        told(
            "lost trainings",
            "Tells of a training whose machine was lost; the flow that waits for it starts it again.",
            _trigger(_tagged(TRAINING), {"Crashed"}),
            _STATE,
        ),
        told(
            "late schedules",
            f"Tells of a run, of a schedule or a training, that no worker took for {silence.seconds} s.",
            _trigger(_OURS, {"Pending", *_BEGUN, *_ENDS}, after={"Late"}, within=silence),
            _LATE,
        ),
        told(
            "not begun",
            f"Tells of a run that a worker took, but did not begin for {silence.seconds} s.",
            _trigger(_FROM_WORKERS, {"Cancelling", *_BEGUN, *_ENDS}, after={"Pending"}, within=silence),
            _NOT_BEGUN,
        ),
    ]


def _silence() -> timedelta:
    """How long nothing is heard of a process before it counts as gone."""
    return timedelta(seconds=_MISSED * (get_current_settings().flows.heartbeat_frequency or _HEARTBEAT))


def _automation(name: str, description: str, trigger: EventTrigger, action: ActionTypes) -> AutomationCore:
    return AutomationCore(name=f"gptmill: {name}", description=description, trigger=trigger, actions=[action])


def _trigger(
    runs: _Labels,
    expect: set[str],
    after: Collection[str] = (),
    within: timedelta = timedelta(0),
    match: _Labels | None = None,
) -> EventTrigger:
    """Fires for each run that comes to one of the states ``expect``.

    :param after: or else for each run that had one of these, but none of ``expect`` for the time ``within``.
    :param match: what the run is like besides.
    """
    return EventTrigger(
        match={"prefect.resource.id": "prefect.flow-run.*", **(match or {})},
        match_related=runs,
        after={f"prefect.flow-run.{name}" for name in after},
        expect={f"prefect.flow-run.{name}" for name in expect},
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive if after else Posture.Reactive,
        within=within,
    )


def _become(state: StateType, name: str, message: str) -> ActionTypes:
    return ChangeFlowRunState(type="change-flow-run-state", state=state, name=name, message=message, force=False)
