"""The servers that a command will use, tried before any work: a dead one, or a wrong password, costs seconds."""

from __future__ import annotations

import os

from gptcore.base.connectivity import answers_at
from gptcore.base.errors import InputError, without_password
from tasks.tracking.tracker import Tracker

_SECONDS = 5.0


def require_servers() -> None:
    """See that Prefect and MLflow can be used where they are set; servers of this process's own always can.

    :raises InputError: one does not answer, or refuses the log-in.
    """
    url = os.environ.get("PREFECT_API_URL")
    if url:
        _require_answer(url)
    tracker = Tracker()
    if tracker.served:
        _ = tracker.client
    if url:
        require_log_in()


def require_prefect() -> None:
    """Refuse to go on where a Prefect server would be started for this command alone, or none answers.

    :raises InputError: none is set, or it does not answer.
    """
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        raise InputError("no Prefect server: start one with `gptmill up`, or set PREFECT_API_URL to that of another")
    _require_answer(url)


def _require_answer(url: str) -> None:
    """Before Prefect is imported."""
    if not url.startswith(("http://", "https://")):
        raise InputError(
            f"PREFECT_API_URL: found {without_password(url)}, expected an address such as http://127.0.0.1:4200/api"
        )
    if not answers_at(url):
        raise InputError(f"Prefect at {without_password(url)}: does not answer; check PREFECT_API_URL")


def require_log_in() -> None:
    """See that the Prefect server that is set takes our log-in.

    :raises InputError: the server refuses the log-in, or is no Prefect server.
    """
    from httpx import HTTPError, HTTPStatusError
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    where = f"Prefect at {without_password(os.environ['PREFECT_API_URL'])}"
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
