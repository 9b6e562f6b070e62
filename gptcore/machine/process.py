"""What a training process owes its machine: exit codes, an end with its parent, SIGTERM, one writer a folder."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from gptcore.base.errors import InputError
from gptcore.base.files import read_json, read_object, try_lock, write_json_atomic

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_NON_FINITE = 3
EXIT_INTERRUPTED = 75  # EX_TEMPFAIL of sysexits.h: try again later

PARENT_VARIABLE = "GPTMILL_PARENT_PID"
"""Environment variable in which a supervisor names itself, so that a child can tell that it died early."""

OUTCOME_VARIABLE = "GPTMILL_OUTCOME"
"""Environment variable with the path of a file in which a job that does not end well leaves its exit code and reason.

torchrun's own exit code is 1 whatever happened. Of several processes the first to end writes it: the others' troubles
follow from its.
"""

_RESTART_VARIABLE = "TORCHELASTIC_RESTART_COUNT"  # torchrun's own

_ORPHAN_SECONDS = 8  # to finish the update and write a checkpoint when the parent was killed; then the kernel ends it
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class NonFiniteLoss(ArithmeticError):
    """The loss, the gradient's norm or an evaluation's metric became infinite or not a number.

    :param step: the update (counted from 1) that it happened in.
    :param what: "loss", "gradient norm" or the metric.
    :param last_good: folder of the newest valid checkpoint, or None.
    :param documents: where that update's batch came from.
    """

    def __init__(self, step: int, what: str, value: float, last_good: Path | None, documents: list[str]) -> None:
        self.step, self.last_good, self.documents = step, last_good, documents
        shown = ", ".join(documents[:8]) + (f" and {len(documents) - 8} more" if len(documents) > 8 else "")
        super().__init__(
            f"{what} = {value} at step {step}; last good checkpoint: {last_good or 'none'}; batch from: {shown}"
        )


class Interrupted(Exception):
    """SIGTERM was honoured: the update was finished and a checkpoint written."""


class StopRequest:
    """Remembers that SIGTERM arrived; the training loop asks after every update."""

    def __init__(self) -> None:
        self.requested = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Note SIGTERM instead of dying from it, inside the ``with`` block. Main thread only."""

        def note(_signal: int, _frame: FrameType | None) -> None:
            self.requested = True
            if _orphaned():  # nobody is left to wait for a long update: its end, or the newest checkpoint as it is
                signal.alarm(_ORPHAN_SECONDS)

        before = signal.signal(signal.SIGTERM, note)
        try:
            yield self
        finally:
            signal.signal(signal.SIGTERM, before)


def die_with_parent(number: signal.Signals = signal.SIGTERM, parent: int | None = None) -> None:
    """Ask Linux to send this process a signal when its parent dies; elsewhere nothing.

    The kernel takes the end of the thread that started this process for the parent's death.

    :param parent: the parent's process id; None: what it put into :data:`PARENT_VARIABLE`, if anything. If it is known
        and gone already, the signal is raised at once.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if _orphaned(parent):
        signal.raise_signal(number)


def _orphaned(parent: int | None = None) -> bool:
    """Whether the parent is known, by its number or by :data:`PARENT_VARIABLE`, and gone."""
    expected = os.environ.get(PARENT_VARIABLE) if parent is None else parent
    return expected is not None and int(expected) != os.getppid()


@contextlib.contextmanager
def job_lock(folder: Path, timeout: float = 120.0) -> Iterator[None]:
    """Hold ``folder/.lock`` alone: an orphan that finishes its checkpoint and a fresh run never write at once.

    :param timeout: seconds to wait for the other process.
    :raises TimeoutError: if it still holds the lock then.
    :raises InputError: the file system keeps no locks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout
    with open(folder / ".lock", "a") as file:
        while not try_lock(file):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{folder}: another process has held this job for {timeout:.0f} s")
            time.sleep(0.2)
        yield


def read_job(path: str) -> dict[str, Any]:
    """Parse a job file.

    :raises InputError: if it is missing or not a JSON object.
    """
    return read_object(path, "a job file, a JSON object")


class Outcome(NamedTuple):
    """What a job leaves behind that did not end well."""

    code: int
    reason: str
    restart: int
    """How often torchrun had started the processes of its world again."""


def read_outcome(path: Path) -> Outcome | None:
    """What a job left at ``path``; None: it left nothing, or was killed while it wrote."""
    try:
        left = read_json(path)
        return Outcome(int(left["code"]), str(left["reason"]), int(left["restart"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def main(run: Callable[[dict[str, Any], StopRequest], object], arguments: list[str]) -> int:
    """Run a job's file and turn what happens into an exit code; the last line of stderr says why it is not 0.

    Both are left in the file of :data:`OUTCOME_VARIABLE`, too. SIGTERM is noted from the first moment on, also while
    data and model are still being loaded.
    """
    if len(arguments) != 1:
        print("usage: python -m MODULE JOB.json", file=sys.stderr)
        return EXIT_BAD_INPUT
    code, reason = _ending(run, arguments[0])
    if code != EXIT_DONE and (outcome := os.environ.get(OUTCOME_VARIABLE)):
        _leave_outcome(Path(outcome), code, reason)
    return code


def _leave_outcome(path: Path, code: int, reason: str) -> None:
    """Write how this process ended, unless another one of its world has said why that world ended.

    The first failure is the reason; who is ended because of it is only interrupted. Nobody deletes the file: a process
    that starts late would delete the reason of one that has failed early. One that an elastic torchrun's earlier
    processes left is older than this world, and is replaced.
    """
    mine = Outcome(code, reason, int(os.environ.get(_RESTART_VARIABLE, "0")))
    with contextlib.suppress(FileExistsError), open(path, "x", encoding="utf-8") as file:
        json.dump(mine._asdict(), file)
        return
    earlier = read_outcome(path)
    if earlier is None or earlier.restart < mine.restart or earlier.code == EXIT_INTERRUPTED != code:
        write_json_atomic(path, mine._asdict())


def _ending(run: Callable[[dict[str, Any], StopRequest], object], path: str) -> tuple[int, str]:
    """Run the job; its exit code, and the reason, which is printed as well."""
    stop = StopRequest()
    try:
        with stop.listening():
            die_with_parent()
            run(read_job(path), stop)
    except (InputError, NonFiniteLoss) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT if isinstance(error, InputError) else EXIT_NON_FINITE, str(error)
    except Interrupted as error:
        print(f"interrupted: {error}", file=sys.stderr)
        return EXIT_INTERRUPTED, str(error)
    except Exception as error:  # the whole story goes to the log; the parent learns it from the exit code
        traceback.print_exc()
        return EXIT_FAILED, f"{type(error).__name__}: {error}"
    return EXIT_DONE, ""
