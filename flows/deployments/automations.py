"""What a Prefect server does by itself: lost runs are found and started again, failures and late schedules are told.

A run that loses its machine stays Running for ever in Prefect. Its process sends a heartbeat every 180 s
(PREFECT_FLOWS_HEARTBEAT_FREQUENCY); three that are missing make it Crashed. A Crashed run goes on as itself, at most
three times: what its stages had made is in the store, and its training resumes from the last checkpoint. Should the
old process live after all (a server that was away cannot tell), it notices and leaves: see `flows/servers/signals.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import StateType
from prefect.events import AutomationCore, CallWebhook, ChangeFlowRunState, EventTrigger, Posture
from prefect.events.actions import ActionTypes
from prefect.settings import get_current_settings

from gptcore.base.tables import read_table

AUTOMATIONS = read_table(__file__, "automations.toml")
_MISSED = 3  # heartbeats
_HEARTBEAT = 180  # seconds; Prefect's own default, where heartbeats are switched off here but on at the workers
_QUIET = timedelta(minutes=15)
"""After a trigger has fired for one of many runs, it does not for so long: 200 failures at once are one notice."""
_EACH = {
    "run": "prefect.resource.id",
    "flow": "related:flow:prefect.resource.id",
    "pool": "related:work-pool:prefect.resource.id",
}
_TEXT = """\
{"text": {{ ("gptmill: " ~ flow_run.name ~ ": " ~ WHAT ~ " " ~ (flow_run | ui_url)) | tojson }}}"""


def lost_runs() -> list[AutomationCore]:
    """Find the runs whose process, or whose worker, is gone, and start them again."""
    return [_automation(entry, _become(*entry["becomes"])) for entry in AUTOMATIONS["lost-runs"]]


def alerts(webhook: UUID) -> list[AutomationCore]:
    """Tell of failures and of schedules that nobody works on.

    :param webhook: the block with the address.
    """
    return [
        _automation(entry, CallWebhook(block_document_id=webhook, payload=_TEXT.replace("WHAT", entry["says"])))
        for entry in AUTOMATIONS["alerts"]
    ]


def _automation(entry: Mapping[str, Any], action: ActionTypes) -> AutomationCore:
    """What an entry of the table says; its trigger fires for each run that it is about, or once for many."""
    after = entry.get("after", ())
    trigger = EventTrigger(
        match={"prefect.resource.id": "prefect.flow-run.*", **entry.get("match", {})},
        match_related={
            "prefect.resource.id": [f"prefect.tag.{tag}" for tag in entry["runs"]],
            "prefect.resource.role": "tag",
        },
        after={f"prefect.flow-run.{name}" for name in after},
        expect={f"prefect.flow-run.{name}" for name in entry["expect"]},
        for_each={_EACH[entry.get("each", "run")]},
        posture=Posture.Proactive if after else Posture.Reactive,
        within=_silence() * entry.get("within", 1) if after else _QUIET if "each" in entry else timedelta(0),
    )
    text = _with_silence(entry["text"])
    return AutomationCore(name=f"gptmill: {entry['name']}", description=text, trigger=trigger, actions=[action])


def _become(state: str, name: str, message: str) -> ActionTypes:
    kind, said = StateType(state), _with_silence(message)
    return ChangeFlowRunState(type="change-flow-run-state", state=kind, name=name, message=said, force=False)


def _with_silence(text: str) -> str:
    return text.replace("$silence", str(_silence().seconds))


def _silence() -> timedelta:
    """How long nothing is heard of a process before it counts as gone."""
    return timedelta(seconds=_MISSED * (get_current_settings().flows.heartbeat_frequency or _HEARTBEAT))
