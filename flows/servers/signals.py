"""How a process ends, and what becomes of its flow runs.

SIGTERM has the manners of Ctrl-C: jobs write their checkpoints, the last reports go out, one line says so. Both become
an exception in the main thread, a kind of KeyboardInterrupt, so that whatever cleans up after one cleans up after the
other.

Flow runs that a killed command left Running, or whose end its server could not write down, the next command on the
same Prefect server ends as Crashed. A run of a deployment is its worker's, whose host may be another one: Prefect's own
heartbeats judge those.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn
from uuid import UUID

from tasks.tracking.owners import dead_owners, note

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun, State
    from prefect.flows import Flow

_SAME_REQUEST_SECONDS = 2.0
_PARENT_SECONDS = 1.0
_RUN_SECONDS = 15.0
_OURS = ("flows", "gptcore", "tasks")


class Ended(KeyboardInterrupt):
    """Somebody wants this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """As a shell reports a death by this signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.number

    @property
    def farewell(self) -> str:
        how = "interrupted" if self.number == signal.SIGINT else f"ended by {self}"
        return f"gptmill: {how}; the same command goes on from here"


class _Handler:
    """Raises :class:`Ended`, once for signals that belong together."""

    def __init__(self) -> None:
        self.first: Ended | None = None
        self._at = 0.0

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first, self._at = Ended(number), now
            raise self.first
        # `timeout` and job schedulers signal the process, then its group: a clean-up is not to be cut short by that.
        if now - self._at > _SAME_REQUEST_SECONDS:
            raise Ended(number)


_handler: _Handler | None = None
_followed = False
_server: str | None = None


@contextmanager
def polite_end(program: bool) -> Iterator[None]:
    """Inside the ``with`` block SIGTERM and Ctrl-C raise :class:`Ended`. Main thread only.

    What fails because of them is no failure of its own: it comes out as :class:`Ended`, too.

    :param program: whether the process ends after the block. On its way out a signal ends it on the spot: nothing is
        left to be saved, and an exception would be printed with its traceback by whichever library is just closing.
    """
    global _handler  # noqa: PLW0603  # as are the signals of a process
    _handler = handler = _Handler()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number, what in before.items():
            if what is not signal.SIG_IGN:  # nohup, or a shell's background: not meant for us
                signal.signal(number, handler)
        yield
    except Exception as error:
        if handler.first is None:
            raise
        raise handler.first from error
    finally:
        _handler = None
        for number, what in before.items():
            signal.signal(number, _end_at_once if program and what is not signal.SIG_IGN else what)


def asked_to_end() -> bool:
    """Whether a signal has come: what is said of failures from now on is not worth saying."""
    return _handler is not None and _handler.first is not None


def listen() -> None:
    """What a flow does first. Main thread only.

    Under :func:`polite_end` it takes SIGTERM back from Prefect, whose own handler of a running flow raises at each of
    two signals that were sent as one. Under a worker, which cancels by SIGTERM, Prefect's handler stays, and the run
    ends when the worker does: one that is killed leaves its runs behind. It also ends when the server has given the
    run to another process, which it does with one that it has not heard of for too long.
    """
    if _handler is not None:
        from prefect.runtime import flow_run

        if _server is not None:
            note(_server, str(flow_run.id))  # this process' own
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, _handler)
        return
    global _followed  # noqa: PLW0603  # as is the worker of a process
    from prefect.runtime import deployment, flow_run

    if deployment.id and not _followed:  # once: a flow inside another is no run of the worker's
        _followed = True
        _tell_failures()
        threading.Thread(target=_follow_parent, args=(os.getppid(),), name="parent", daemon=True).start()
        threading.Thread(target=_follow_run, args=(UUID(str(flow_run.id)),), name="run", daemon=True).start()


def _tell_failures() -> None:
    """Have a run's page begin with why it failed, if it will: in its name, and in its log without a traceback.

    The errors of these packages are written to be read; the traceback of any other one stays.
    """
    from prefect.context import FlowRunContext
    from prefect.logging.loggers import flow_run_logger

    def in_one_line(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and type(error).__module__.partition(".")[0] in _OURS:
            record.msg, record.args, record.exc_info = str(error), (), None
        return True

    context = FlowRunContext.get()
    assert context is not None
    assert context.flow is not None
    assert context.flow_run is not None
    flow_run_logger(context.flow_run).logger.addFilter(in_one_line)
    context.flow.on_failure(_name_failure)


def _name_failure(flow: Flow[..., object], flow_run: FlowRun, state: State[object]) -> None:
    from prefect.client.orchestration import get_client

    reason = (state.message or "").partition("\n")[0].removeprefix("Flow run encountered an exception: ")
    with get_client(sync_client=True) as client:
        client.set_flow_run_name(flow_run.id, f"{flow_run.name} → failed: {reason.removeprefix('InputError: ')}")


def _follow_parent(parent: int) -> None:
    # Not the kernel's signal of a parent's death: which of the worker's threads starts a run is not ours to say.
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def _follow_run(run_id: UUID) -> None:
    """Leave without a word once the run is another process': whatever this one reported would be taken for that one's.

    Its job is told by the kernel, writes its checkpoint and goes; the other process waits for it at the store's lock.
    """
    from httpx import HTTPError
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectException

    count: int | None = None  # how often the run has been started, this time included
    while True:
        try:
            with get_client(sync_client=True) as client:
                run = client.read_flow_run(run_id)
        except (HTTPError, PrefectException):
            pass  # a server that is away has given nobody anything
        else:
            count = run.run_count if count is None else count
            state = run.state
            if run.run_count != count or (state and (state.is_scheduled() or state.is_pending() or state.is_crashed())):
                print(f"gptmill: flow run {run_id} goes on elsewhere; this process leaves", file=sys.stderr, flush=True)
                os._exit(0)
        time.sleep(_RUN_SECONDS)


def _end_at_once(number: int, _frame: FrameType | None) -> NoReturn:
    ended = Ended(number)
    print(ended.farewell, file=sys.stderr, flush=True)
    os._exit(ended.exit_code)


# --- flow runs without their process


def on_server(name: str) -> None:
    """Say where this process' flow runs go, and end what killed commands left behind there.

    :param name: the same for every process that talks to the same database.
    """
    global _server  # noqa: PLW0603  # as is the server that a process talks to
    _server = name
    with dead_owners(name) as dead:
        for flow_run in {line for lines in dead.values() for line in lines}:
            _crash(UUID(flow_run))


def _crash(flow_run: UUID) -> None:
    """Crashed for a flow run and its task runs, unless they have ended."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import TERMINAL_STATES, StateType
    from prefect.client.schemas.sorting import TaskRunSort
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Crashed

    crashed: State[None] = Crashed(message="The command that ran it has ended; the same command goes on from here.")
    its = filters.FlowRunFilter(id=filters.FlowRunFilterId(any_=[flow_run]))
    open_states = filters.TaskRunFilterStateType(any_=[kind for kind in StateType if kind not in TERMINAL_STATES])
    unended = filters.TaskRunFilter(state=filters.TaskRunFilterState(type=open_states))
    with get_client(sync_client=True) as client:
        try:
            run = client.read_flow_run(flow_run)
        except ObjectNotFound:  # the database is another one by now
            return
        if run.state is not None and run.state.is_final():
            return
        order = TaskRunSort.ID_DESC
        for task in client.read_task_runs(flow_run_filter=its, task_run_filter=unended, sort=order, limit=200):
            client.set_task_run_state(task.id, crashed, force=True)
        client.set_flow_run_state(flow_run, crashed, force=True)
