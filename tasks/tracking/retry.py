"""A tracking server that is away: a flow under way waits for it, as nobody is there to start the flow again.

A command is told at once (flows.servers.environment tries the servers before any work), and so is whoever is told to
end.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, Protocol, TypeVar

from gptcore.base.addresses import without_password
from gptcore.base.errors import InputError
from gptcore.base.files import is_full
from gptcore.base.filesystems import answers_at
from tasks.jobs.launch import JobInterrupted, jobs_are_stopped
from tasks.store.state import state_folder
from tasks.tracking.logs import in_run, logger

Result = TypeVar("Result")
Owner = TypeVar("Owner", bound="_Shown")
P = ParamSpec("P")
_UNREACHABLE_SECONDS, _BROKEN_SECONDS = 1800.0, 300.0
"""How long a server may not answer; and how long answer that it is broken, as it does without its database."""
_AGAIN_SECONDS = 2.0
_LOCKED = "(sqlite3.OperationalError) database is locked"  # for the 20 s that MLflow waits for SQLite
_FIRST_SECONDS = "5"  # for a server's first answer
_waiting: ContextVar[bool] = ContextVar("waiting", default=False)


@dataclass
class _Outage:
    """One outage of a server, which is waited for once, whoever waits."""

    since: float
    broken: float | None = None
    """Since when it answers, and cannot work."""


_outages: dict[str, _Outage] = {}  # by address, until a call succeeds
_lock = threading.Lock()


class Unreachable(InputError):
    """A server that does not answer, or not sensibly; for a command the address is wrong."""


def retried(call: Callable[[], Result], shown: str) -> Result:
    """The result of ``call``; in a flow's run it is made again as long as the server is away.

    Calls inside it do not wait by themselves: what belongs together is done again together, and lets go of its locks.

    :param shown: the server's address, without a password.
    :raises JobInterrupted: this process was told to end meanwhile.
    :raises OSError: no space is left where this machine's server has its database, which is not waited for.
    :raises ConnectionError: the server was unreachable for too long.
    """
    if _waiting.get():
        return call()
    token = _waiting.set(True)
    try:
        while True:
            try:
                result = call()
            except Exception as error:
                if not (in_run() and is_unreachable(error)):
                    raise
                _wait(error, shown)
            else:
                with _lock:
                    _outages.pop(shown, None)
                return result
    finally:
        _waiting.reset(token)


def is_unreachable(error: Exception) -> bool:
    """Whether a server or a database could not be reached: what it was asked may be all right."""
    if isinstance(error, Unreachable):
        return True
    from mlflow.exceptions import MlflowException
    from requests.exceptions import ConnectionError as Unconnected

    if isinstance(error, MlflowException):
        status = error.get_http_status_code()  # type: ignore[no-untyped-call]
        return bool(status >= 500 and str(error).startswith(("API request to", _LOCKED)))
    return isinstance(error, Unconnected)


class _Shown(Protocol):
    shown: str
    """The server's address."""


def retries(method: Callable[Concatenate[Owner, P], Result]) -> Callable[Concatenate[Owner, P], Result]:
    """A method that waits as a whole, of a class that has the server's address as ``shown``."""

    @wraps(method)
    def retrying(self: Owner, /, *arguments: P.args, **named: P.kwargs) -> Result:
        return retried(lambda: method(self, *arguments, **named), self.shown)

    return retrying


class RetryingClient:
    """MLflow's client, each of whose calls waits for a server that is away."""

    def __init__(self, client: object, shown: str) -> None:
        self._client, self._shown = client, shown

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*arguments: object, **named: object) -> Any:
            return retried(lambda: method(*arguments, **named), self._shown)

        return call


class NoRetries:
    """No second try: whether a server can be used at all is said within seconds. It reads these anew at each call.

    Several threads may be in a hurry: the last one puts back what the first one found.
    """

    _values: ClassVar = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": _FIRST_SECONDS}
    _lock = threading.Lock()
    _inside = 0
    _before: ClassVar[dict[str, str | None]] = {}

    def __enter__(self) -> None:
        with NoRetries._lock:
            if not NoRetries._inside:
                NoRetries._before = {name: os.environ.get(name) for name in self._values}
                os.environ.update(self._values)
            NoRetries._inside += 1

    def __exit__(self, *_: object) -> None:
        with NoRetries._lock:
            NoRetries._inside -= 1
            if not NoRetries._inside:
                for name, value in NoRetries._before.items():
                    os.environ.pop(name, None)
                    if value is not None:
                        os.environ[name] = value


def _wait(error: Exception, shown: str) -> None:
    if jobs_are_stopped() or not threading.main_thread().is_alive():
        raise JobInterrupted(f"MLflow at {shown} was not waited for, as this process ends")
    if is_full(state_folder()):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(state_folder())) from error
    answers = answers_at(shown)
    now = time.monotonic()
    with _lock:
        new = shown not in _outages
        outage = _outages.setdefault(shown, _Outage(now))
        outage.broken = (outage.broken or now) if answers else None
        since, limit = (outage.broken, _BROKEN_SECONDS) if outage.broken else (outage.since, _UNREACHABLE_SECONDS)
    if new:
        reason = without_password(str(error).partition("\n")[0])[:300]
        logger().warning("MLflow at %s is away, waiting for it: %s", shown, reason)
    if now - since > limit:
        raise ConnectionError(f"MLflow at {shown} was away for {limit / 60:.0f} minutes: {error}") from error
    time.sleep(_AGAIN_SECONDS)
