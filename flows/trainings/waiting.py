"""Trainings that wait in a work pool: looked after, told of in the log and on Prefect's page, and not for ever.

Once a worker has begun one, the terminal shows how far it is, as it does of one that goes on here.
"""

from __future__ import annotations

import threading
import time
from datetime import datetime
from typing import cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas import FlowRun
from prefect.client.schemas.filters import ArtifactFilter, FlowRunFilter, WorkPoolFilter
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.sorting import ArtifactSort

from flows.servers.pools import START_WORKER, TRAINERS, worker_online
from flows.trainings.worker_policy import NoWorker, WorkerPolicy, worker_policy
from tasks.stages.training import Training, estimate
from tasks.tracking.keys import key_of
from tasks.tracking.logs import Underway, duration, logger, progress

NONE_ONLINE = f"no worker is online in the work pool {TRAINERS}; start one: {START_WORKER}"
_LOOK_SECONDS = 15.0
_FOLLOW_SECONDS = 5.0
_SAY_SECONDS = 600.0
_QUIET_SECONDS = 60.0  # a worker that is online and free takes a run within some seconds
_SHOWN_NAMES = 2


class TrainHere(Exception):  # a decision, no error
    """No worker is left to take a training, and the policy is to train in this process."""


class Wait:
    """One training's wait for a worker to begin its run, and for the run's end."""

    def __init__(self, training: Training[object]) -> None:
        self._training, self._title = training, training.title
        self._next = 0.0
        self._begun = False

    def look(self, client: SyncPrefectClient, child: FlowRun) -> None:
        """Tell how far the run is, or why nobody has begun it; to be called every few seconds.

        :raises NoWorker: none is online, and the policy is not to wait, or no longer.
        :raises TrainHere: none is online, and the policy is to train here.
        """
        now = time.monotonic()
        if child.state is None or not (child.state.is_scheduled() or child.state.is_pending()):
            if child.state and child.state.is_running() and (not self._begun or now >= self._next):
                self._begun, self._next = True, now + _FOLLOW_SECONDS
                _board.seen()
                share, words = _how_far(client, child)
                self._tell(share, tuple(words.split(", ")))
            self.over()
        elif now >= self._next:
            self._next = now + _LOOK_SECONDS
            self._look(client, pending=child.state.is_pending())

    def over(self) -> None:
        """The run has begun, or ended, or is waited for no longer."""
        _board.take_off(self._title)

    def _look(self, client: SyncPrefectClient, pending: bool) -> None:
        if pending:
            why = f"a worker of the work pool {TRAINERS} took it and has not begun it"
        elif worker_online(TRAINERS):
            _board.seen()
            why = _busy(client)
        else:
            self._decide(worker_policy(), _board.missed())
            why = NONE_ONLINE
        _board.put(self._title, why, why == NONE_ONLINE)
        if _board.n_waits == 1:  # of many the bar of all of them stands there
            self._tell(0.0, (why,), waits=True)

    def _tell(self, share: float, parts: tuple[str, ...], waits: bool = False) -> None:
        progress(Underway(self._training.shown_as, share, parts, self._training.item, waits))

    def _decide(self, policy: WorkerPolicy, waited: float) -> None:
        if policy.choice == "here":
            raise TrainHere
        if policy.choice == "fail":
            raise NoWorker(
                f"{self._title}: no worker is online any more in the work pool {TRAINERS}, and {policy}{self._hint}"
            )
        if waited >= 3600 * policy.hours:
            raise NoWorker(
                f"{self._title}: no worker was online in the work pool {TRAINERS} for {policy.hours:g} hours ({policy})"
                f"{self._hint}"
            )

    @property
    def _hint(self) -> str:
        return f"; start one: {START_WORKER}; here it would take {estimate([self._training])}"


def _how_far(client: SyncPrefectClient, run: FlowRun) -> tuple[float, str]:
    """The share of its work that a run has done, and the words beside it, as its page has them."""
    ours = ArtifactFilter.model_validate({"flow_run_id": {"any_": [run.id]}, "type": {"any_": ["progress"]}})
    for shown in client.read_artifacts(artifact_filter=ours, sort=ArtifactSort.UPDATED_DESC, limit=1):
        return cast(float, shown.data) / 100, shown.description or ""
    return 0.0, f"a worker of the work pool {TRAINERS} trains it"


def _busy(client: SyncPrefectClient) -> str:
    """How many runs the workers have, in words."""

    def count(state: StateType) -> int:
        ours = WorkPoolFilter.model_validate({"name": {"any_": [TRAINERS]}})
        such = FlowRunFilter.model_validate({"state": {"type": {"any_": [state]}}})
        return client.count_flow_runs(work_pool_filter=ours, flow_run_filter=such)

    running, queued = count(StateType.RUNNING), count(StateType.SCHEDULED)
    return f"the workers of the work pool {TRAINERS} are busy: {running} running, {queued} in the queue"


class _Board:
    """All waits of this process, so that sixteen of them are told as one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}  # title -> when its wait began
        self._said = 0.0
        self._why = ""
        self._artifact: UUID | None = None
        self._without: float | None = None  # since when no worker is known of

    @property
    def n_waits(self) -> int:
        return len(self._since)

    def seen(self) -> None:
        self._without = None

    def missed(self) -> float:
        """No worker is there; for how many seconds, whichever trainings waited meanwhile."""
        with self._lock:
            now = time.monotonic()
            self._without = now if self._without is None else self._without
            return now - self._without

    def announced(self, why: str) -> None:
        """Somebody has just said why trainings will wait: no need to say it again at once."""
        with self._lock:
            self._said, self._why = time.monotonic(), why

    def put(self, title: str, why: str, warn: bool) -> None:
        """Note a wait and its reason, which is told at once where nobody can end it but a person."""
        with self._lock:
            now = time.monotonic()
            self._since.setdefault(title, now)
            started = min(self._since.values())
            due = now - max(self._said, started) >= (_SAY_SECONDS if self._why else _QUIET_SECONDS)
            news = due or (warn and why != self._why)
            names = list(self._since)
            more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
            titles = f"{', '.join(names[:_SHOWN_NAMES])}{more}"
            clock = datetime.fromtimestamp(time.time() - (now - started)).astimezone()
            words = f"{titles}: waiting for {duration(now - started)}, since {clock:%H:%M}: {why}"
            if news:
                self._said, self._why = now, why
                (logger().warning if warn else logger().info)("%s", words)
            if news or (warn and self._artifact is None):
                self._show(0.0, words)

    def take_off(self, title: str) -> None:
        with self._lock:
            since = self._since.pop(title, None)
            if since is None or self._since:
                return
            if self._why:
                words = f"{title}: waited {duration(time.monotonic() - since)}"
                logger().info("%s", words)
                self._show(100.0, words)
            self._said, self._why, self._artifact = 0.0, "", None

    def _show(self, percent: float, words: str) -> None:
        if self._artifact is None:
            made = create_progress_artifact(percent, key=key_of(f"waiting-for-{TRAINERS}"), description=words)
            self._artifact = cast(UUID, made)  # no coroutine, as tasks are plain functions
        else:
            update_progress_artifact(self._artifact, percent, description=words)


_board = _Board()


def announced() -> None:
    """The log has just said that trainings will wait for a worker, as none is online."""
    _board.announced(NONE_ONLINE)
