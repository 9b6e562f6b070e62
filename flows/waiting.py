"""Trainings that wait in a work pool: looked after, told of in the log and on Prefect's page, and not for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas import FlowRun
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import StateType

from flows.servers.pools import GPU, START_WORKER, worker_online
from flows.worker_policy import NoWorker, WorkerPolicy, worker_policy
from tasks.tracking.logs import duration, logger

_LOOK_SECONDS = 15.0
_SAY_SECONDS = 600.0
_QUIET_SECONDS = 60.0  # a worker that is online and free takes a run within some seconds
_SHOWN_NAMES = 2


class TrainHere(Exception):  # a decision, no error
    """No worker is left to take a training, and the policy is to train in this process."""


class Wait:
    """One training's wait for a worker to begin its run.

    :param title: what people call the training.
    :param here: how long it would take in this process, in words.
    """

    def __init__(self, title: str, here: Callable[[], object]) -> None:
        self._title, self._here = title, here
        self._next = 0.0
        self._without: float | None = None  # since when no worker is online

    def look(self, client: SyncPrefectClient, child: FlowRun) -> None:
        """See why nobody has begun the run, and tell; to be called every few seconds.

        :raises NoWorker: none is online, and the policy is not to wait, or no longer.
        :raises TrainHere: none is online, and the policy is to train here.
        """
        now = time.monotonic()
        if child.state is None or not (child.state.is_scheduled() or child.state.is_pending()):
            self.over()
        elif now >= self._next:
            self._next = now + _LOOK_SECONDS
            self._look(client, pending=child.state.is_pending())

    def over(self) -> None:
        """The run has begun, or ended, or is waited for no longer."""
        _board.take_off(self._title)

    def _look(self, client: SyncPrefectClient, pending: bool) -> None:
        if pending:
            self._without = None
            _board.put(self._title, f"a worker of the work pool {GPU} took it and has not begun it", False)
        elif worker_online(GPU):
            self._without = None
            _board.put(self._title, _busy(client), False)
        else:
            policy = worker_policy()
            self._without = self._without or time.monotonic()
            self._decide(policy, time.monotonic() - self._without)
            _board.put(self._title, f"no worker is online in the work pool {GPU}; start one: {START_WORKER}", True)

    def _decide(self, policy: WorkerPolicy, waited: float) -> None:
        if policy.choice == "here":
            raise TrainHere
        if policy.choice == "fail":
            raise NoWorker(
                f"{self._title}: no worker is online any more in the work pool {GPU}, and {policy}{self._hint}"
            )
        if waited >= 3600 * policy.hours:
            raise NoWorker(
                f"{self._title}: no worker was online in the work pool {GPU} for {policy.hours:g} hours ({policy})"
                f"{self._hint}"
            )

    @property
    def _hint(self) -> str:
        return f"; start one: {START_WORKER}; here it would take {self._here()}"


def _busy(client: SyncPrefectClient) -> str:
    """How many runs the workers have, in words."""

    def count(state: StateType) -> int:
        state_type = FlowRunFilterStateType(any_=[state])
        return client.count_flow_runs(
            work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[GPU])),
            flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=state_type)),
        )

    running, queued = count(StateType.RUNNING), count(StateType.SCHEDULED)
    return f"the workers of the work pool {GPU} are busy: {running} running, {queued} in the queue"


class _Board:
    """All waits of this process, so that sixteen of them are told as one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}  # title -> when its wait began
        self._said = 0.0
        self._why = ""
        self._artifact: UUID | None = None

    def put(self, title: str, why: str, warn: bool) -> None:
        """Note a wait and its reason, which is told at once where nobody can end it but a person."""
        with self._lock:
            now = time.monotonic()
            self._since.setdefault(title, now)
            started = min(self._since.values())
            due = now - max(self._said, started) >= (_SAY_SECONDS if self._said >= started else _QUIET_SECONDS)
            if not due and not (warn and why != self._why):
                return
            self._said, self._why = now, why
            words = f"{self._titles()} waited {duration(now - started)}, since {_clock(now - started)}: {why}"
            (logger().warning if warn else logger().info)("%s", words)
            self._show(0.0, words)

    def take_off(self, title: str) -> None:
        """A wait is over."""
        with self._lock:
            since = self._since.pop(title, None)
            if since is None or self._since:
                return
            if self._said >= since:
                words = f"{title} waited {duration(time.monotonic() - since)}"
                logger().info("%s", words)
                self._show(100.0, words)
            self._said, self._why, self._artifact = 0.0, "", None

    def _titles(self) -> str:
        names = list(self._since)
        more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
        return f"{', '.join(names[:_SHOWN_NAMES])}{more}"

    def _show(self, percent: float, words: str) -> None:
        if self._artifact is None:
            made = create_progress_artifact(percent, key=f"waiting-for-{GPU}", description=words)
            self._artifact = cast(UUID, made)  # no coroutine, as tasks are plain functions
        else:
            update_progress_artifact(self._artifact, percent, description=words)


_board = _Board()


def _clock(seconds_ago: float) -> str:
    """The time of the day, as this machine's clock shows it."""
    return datetime.fromtimestamp(time.time() - seconds_ago).astimezone().strftime("%H:%M")
