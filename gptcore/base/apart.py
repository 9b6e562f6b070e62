"""Work that nobody has to wait for: a thread that a signal, a time limit or the process' end leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

Result = TypeVar("Result")


def apart(work: Callable[[], Result], seconds: float | None = None) -> Result:
    """What ``work`` returns, or the exception that it raises, from a thread of its own.

    Python handles a signal between two of its own instructions: whoever calls a library that waits in C hears none.

    :param seconds: for how long it is waited for; None: however long it takes.
    :raises TimeoutError: it takes longer; the thread goes on, until this process ends at the latest.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # that of who waits
            outcome.set_exception(error)

    threading.Thread(target=copy_context().run, args=(run,), name="work apart", daemon=True).start()
    return outcome.result(seconds)
