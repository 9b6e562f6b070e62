"""What a Prefect server does by itself: lost runs are found and started again, failures and late schedules are told.

A run that loses its machine stays Running for ever in Prefect. Its process sends a heartbeat every 180 s
(PREFECT_FLOWS_HEARTBEAT_FREQUENCY); three that are missing make it Crashed. A Crashed run goes on as itself, at most
three times: what its stages had made is in the store, and its training resumes from the last checkpoint. Should the
old process live after all (a server that was away cannot tell), it notices and leaves: see `flows/servers/signals.py`.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from prefect.client.schemas.objects import StateType
from prefect.events import AutomationCore, CallWebhook, ChangeFlowRunState, EventTrigger, Posture
from prefect.events.actions import ActionTypes
from prefect.settings import get_current_settings

from flows.servers.tags import INTERNAL, OFFERED, TRAINING

_STARTS = 4  # of one run: a machine that dies of a run is not to die of it for ever
_MISSED = 3  # heartbeats
_HEARTBEAT = 180  # seconds; Prefect's own default, where heartbeats are switched off here but on at the workers
_ENDS = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
_HELD = {"prefect.flow-run.Suspended", "prefect.flow-run.Paused"}  # by a person, or by a flow that asks one
_BEGUN = {"prefect.flow-run.Running", "prefect.flow-run.Retrying"}
_RUN = "prefect.flow-run.*"
_Labels = dict[str, str | list[str]]
_TEXT = """\
{"text": {{ ("gptmill: " ~ flow_run.name ~ ": " ~ WHAT ~ " " ~ (flow_run | ui_url)) | tojson }}}"""
_SINCE = "(flow_run.expected_start_time | string)[:16] ~ ' UTC'"
_POOL = "(flow_run.work_pool_name or 'none')"


def lost_runs() -> list[AutomationCore]:
    """Find the runs whose process, or whose worker, is gone, and start them again."""
    silence = timedelta(seconds=_MISSED * (get_current_settings().flows.heartbeat_frequency or _HEARTBEAT))
    beat = "prefect.flow-run.heartbeat"
    return [
        AutomationCore(
            name="gptmill: lost runs",
            description=f"A run without heartbeats for {silence.seconds} s has crashed.",
            trigger=_missing(after={beat}, expect={beat, *_HELD, *_ENDS}, within=silence, match_related=_OURS),
            actions=[_become(StateType.CRASHED, "Crashed", f"no heartbeat for {silence.seconds} s")],
        ),
        AutomationCore(
            name="gptmill: lost while cancelling",
            description="Nobody was left to end a run that was cancelled.",
            trigger=_missing(after={"prefect.flow-run.Cancelling"}, expect=_ENDS, within=silence, match_related=_OURS),
            actions=[_become(StateType.CANCELLED, "Cancelled", "cancelled; its process had gone")],
        ),
        AutomationCore(
            name="gptmill: lost before the start",
            description="A worker took a run and was gone before it began: another takes it.",
            trigger=_missing(
                after={"prefect.flow-run.Pending"},
                expect={*_BEGUN, "prefect.flow-run.Cancelling", *_ENDS},
                within=4 * silence,
                match_related=_tagged(OFFERED, TRAINING),
            ),
            actions=[_become(StateType.SCHEDULED, "AwaitingRetry", "taken by a worker that did not start it")],
        ),
        AutomationCore(
            name="gptmill: start again",
            description="A crashed run goes on where it was; the store holds what it had done.",
            trigger=EventTrigger(
                match={
                    "prefect.resource.id": _RUN,
                    "prefect.run-count": [str(count) for count in range(1, _STARTS)],
                },
                match_related=_tagged(OFFERED),
                expect={"prefect.flow-run.Crashed"},
                for_each={"prefect.resource.id"},
                posture=Posture.Reactive,
            ),
            actions=[_become(StateType.SCHEDULED, "AwaitingRetry", "crashed; goes on from what the store holds")],
        ),
    ]


def alerts(webhook: UUID) -> list[AutomationCore]:
    """Tell of failures and of schedules that nobody works on.

    :param webhook: the block with the address.
    """
    silence = timedelta(seconds=_MISSED * (get_current_settings().flows.heartbeat_frequency or _HEARTBEAT))
    state = "flow_run.state.name ~ ': ' ~ (flow_run.state.message or '')"
    late = (
        f"'late: no worker of the work pool ' ~ {_POOL} ~ ' has taken this run since ' ~ {_SINCE} ~ "
        f"'; if none is online: prefect worker start --pool ' ~ {_POOL} ~ ', or gptmill up'"
    )
    unbegun = f"'taken by a worker of the work pool ' ~ {_POOL} ~ ', but not begun; due since ' ~ {_SINCE}"
    return [
        AutomationCore(
            name="gptmill: failures",
            description="Tells of a run that failed or crashed.",
            trigger=_ended({"Failed", "Crashed"}, _tagged(OFFERED)),
            actions=[_call(webhook, state)],
        ),
        AutomationCore(
            name="gptmill: lost trainings",
            description="Tells of a training whose machine was lost; the flow that waits for it starts it again.",
            trigger=_ended({"Crashed"}, _tagged(TRAINING)),
            actions=[_call(webhook, state)],
        ),
        AutomationCore(
            name="gptmill: late schedules",
            description=f"Tells of a run, of a schedule or a training, that no worker took for {silence.seconds} s.",
            trigger=_missing(
                after={"prefect.flow-run.Late"},
                expect={"prefect.flow-run.Pending", *_BEGUN, *_ENDS},
                within=silence,
                match_related=_OURS,
            ),
            actions=[_call(webhook, late)],
        ),
        AutomationCore(
            name="gptmill: not begun",
            description=f"Tells of a run that a worker took, but did not begin for {silence.seconds} s.",
            trigger=_missing(
                after={"prefect.flow-run.Pending"},
                expect={"prefect.flow-run.Cancelling", *_BEGUN, *_ENDS},
                within=silence,
                match_related=_tagged(OFFERED, TRAINING),
            ),
            actions=[_call(webhook, unbegun)],
        ),
    ]


def _ended(states: set[str], match_related: _Labels) -> EventTrigger:
    """Fires for each run that comes to one of ``states``."""
    return EventTrigger(
        match={"prefect.resource.id": _RUN},
        match_related=match_related,
        expect={f"prefect.flow-run.{state}" for state in states},
        for_each={"prefect.resource.id"},
        posture=Posture.Reactive,
    )


def _missing(after: set[str], expect: set[str], within: timedelta, match_related: _Labels) -> EventTrigger:
    """Fires for each run that had one of ``after``, but none of ``expect`` for so long."""
    return EventTrigger(
        match={"prefect.resource.id": _RUN},
        match_related=match_related,
        after=after,
        expect=expect,
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        within=within,
    )


def _tagged(*tags: str) -> _Labels:
    """Runs that have one of the tags: others may use the same server."""
    return {"prefect.resource.id": [f"prefect.tag.{tag}" for tag in tags], "prefect.resource.role": "tag"}


_OURS = _tagged(OFFERED, INTERNAL)


def _become(state: StateType, name: str, message: str) -> ActionTypes:
    return ChangeFlowRunState(type="change-flow-run-state", state=state, name=name, message=message, force=False)


def _call(webhook: UUID, what: str) -> ActionTypes:
    return CallWebhook(block_document_id=webhook, payload=_TEXT.replace("WHAT", what))
