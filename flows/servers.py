"""The servers that a command will use, tried before any work: a dead one, or a wrong password, costs seconds."""

from __future__ import annotations

import os

from gptcore.errors import InputError, without_password
from gptcore.reach import answers_at
from tasks.tracking.tracker import Tracker

_SECONDS = 5.0


def require_servers() -> None:
    """See that Prefect and MLflow can be used where they are set; servers of this process's own always can.

    :raises InputError: one does not answer, or refuses the log-in.
    """
    url = os.environ.get("PREFECT_API_URL")
    where = f"Prefect at {without_password(url or '')}"
    if url and not answers_at(url):  # before Prefect is imported
        raise InputError(f"{where}: does not answer; check PREFECT_API_URL")
    tracker = Tracker()
    if tracker.served:
        _ = tracker.client
    if url:
        _require_log_in(where)


def _require_log_in(where: str) -> None:
    from httpx import HTTPError, HTTPStatusError
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    try:
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(httpx_settings={"timeout": _SECONDS}, sync_client=True) as client,
        ):
            client.read_flows(limit=1, offset=0)
    except HTTPStatusError as error:
        refused = error.response.status_code in (401, 403)
        reason = "refuses the log-in; check PREFECT_API_AUTH_STRING" if refused else f"cannot be used ({_line(error)})"
        raise InputError(f"{where}: {reason}") from None
    except (HTTPError, RuntimeError) as error:
        raise InputError(f"{where}: cannot be used ({_line(error)})") from None


def _line(error: Exception) -> str:
    return without_password(str(error).strip().partition("\n")[0]) or type(error).__name__
