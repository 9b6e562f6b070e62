"""Who starts a job and sees to its end: a thread of its own, into which nobody raises an exception.

One that is raised into the thread that follows a job, as Prefect cancels a task, arrives between any two of its
instructions, those of a clean-up included. So that thread cleans up nothing: it holds a lease, which it cannot but let
go of, and without which the keeper ends the job. Nor does it start the keeper: CPython takes a thread that is just
being started for the one that starts it, and would raise the exception there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import NamedTuple

from gptcore.machine.process import Outcome, read_outcome
from tasks.jobs.placement import Running

_POLL_SECONDS = 0.1


class Ended(NamedTuple):
    """How a job ended."""

    code: int
    """The job's exit code, or minus the number of the signal that killed it."""
    how: str
    """How it ended in words, where that is known better than the code tells; else empty."""
    outcome: Outcome | None
    """What it left."""


class Keeper(threading.Thread):
    """The thread of one job. Its log lines are its follower's."""

    def __init__(self, start_job: Callable[[], Running], grace: float) -> None:
        """Keep the job that ``start_job`` starts; ``grace`` is that of :func:`tasks.jobs.launch.run_job`."""
        super().__init__(name="keeper of a job", target=copy_context().run, args=(self._keep,))
        self.lease = threading.Lock()
        """Held by the follower in a `with` statement, which lets go of a lock in one instruction."""
        self.waiting: str | None = None
        """Why the job does not run yet, in words; empty once it does, None before its start."""
        self._start_job, self._grace = start_job, grace
        self._begun = False
        self._hurry = threading.Event()
        self._done = threading.Lock()
        self._done.acquire()
        self._found: Ended | BaseException | None = None

    def begin(self) -> None:
        """Start the job; who calls this holds the lease."""
        _to_start.put(self)
        self._begun = True

    def wait(self, seconds: float) -> bool:
        """Whether the job has ended, and nothing of it is left, after ``seconds`` at most."""
        done = self._done.acquire(timeout=seconds)
        if done:
            self._done.release()
        return done

    def end(self) -> None:
        """Wait until nothing of the job is left; who calls this has let go of the lease.

        An exception that comes meanwhile leaves the job no more grace.
        """
        try:
            if self._begun:
                self.wait(-1)
        except BaseException:
            self._hurry.set()
            raise

    def ended(self) -> Ended:
        """How the job ended.

        :raises BaseException: what kept it from starting.
        """
        assert self._found is not None
        if isinstance(self._found, BaseException):
            raise self._found
        return self._found

    def _keep(self) -> None:
        try:
            self._found = self._kept()
        except BaseException as error:  # the follower's, who waits for it
            self._found = error
        finally:
            self._done.release()

    def fail(self, error: BaseException) -> None:
        """There is no thread, and so no job."""
        self._found = error
        self._done.release()

    def _kept(self) -> Ended | None:
        if self.lease.acquire(blocking=False):
            return None  # its follower has left
        running = self._start_job()
        try:
            while (code := running.poll()) is None and not self.lease.acquire(timeout=_POLL_SECONDS):
                self.waiting = running.waiting
        finally:
            running.stop(self._grace, self._hurry)
            outcome = read_outcome(running.outcome)
            running.outcome.unlink(missing_ok=True)
        return Ended(code or 0, running.ending, outcome)


_to_start: SimpleQueue[Keeper] = SimpleQueue()


def _start_keepers() -> None:
    while True:
        keeper = _to_start.get()
        try:
            keeper.start()
        except RuntimeError as error:  # no room for another thread
            keeper.fail(error)


def _begin() -> None:
    threading.Thread(target=_start_keepers, name="starter of keepers", daemon=True).start()


_begin()
os.register_at_fork(after_in_child=_begin)
