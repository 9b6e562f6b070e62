"""Where the embedded servers keep their state, decided before Prefect and MLflow are imported.

Order of choice: what the environment says (PREFECT_API_URL, MLFLOW_TRACKING_URI, AWS_...); else the local stack, when
`gptmill up` has started one; else Prefect's ephemeral server and MLflow on SQLite in the state folder. The full stack
has its passwords in a file, from which they come with its addresses.

The servers that a command will use are tried before any work: a dead one, or a wrong password, costs seconds.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.servers.credentials import client_environment, read_credentials
from gptcore.base.addresses import without_password
from gptcore.base.errors import InputError, require, unwritable
from gptcore.base.files import checked_object, read_object
from gptcore.base.tables import read_table
from tasks.store.state import SERVED, make_private, state_folder

LIGHT_STORE = "runs/demo"
"""The default store of the light stack, and of every command where no stack is on record."""
PORTS = {"prefect": 4200, "mlflow": 5000, "postgres": 5433, "s3": 8333}
"""Where the local stack's servers listen unless it is told otherwise."""
_TRIED_SECONDS = 5.0
_SQLITE_BYTES = 504  # 512 with the name of the journal beside it (MAX_PATHNAME of its os_unix.c)
SETTINGS = read_table(__file__, "settings.toml")
"""Whose, commands or the temporary server -> variable -> its value where the environment has none."""


def stack_file() -> Path:
    """Record of the local stack: addresses and pids; exists while `gptmill up` has it running."""
    return state_folder() / "stack.json"


def read_stack() -> dict[str, Any] | None:
    """The record of the local stack; None where none was started.

    :raises InputError: a file that is no such record.
    """
    path = stack_file()
    if not path.exists():
        return None
    try:
        fields = {"prefect_url": str, "mlflow_url": str, "processes": dict, "layout": dict}
        record = read_object(path, "a record of the stack", fields)
        checked_object(record["layout"], f"{path}: layout", "a JSON object", {"full": bool})
        before = {"store": str(record.get("store") or LIGHT_STORE), "datasets": ""}
        record.setdefault("forms", before)  # of an older version
        checked_object(record["forms"], f"{path}: forms", "a JSON object", {"store": str, "datasets": str})
    except InputError as error:
        raise InputError(f"{error}; delete it if the stack is down") from None
    return record


def listener(port: int, backlog: int = 1) -> socket.socket:
    """A socket that listens on a port of this machine.

    What is written to its connections is sent at once: asyncio sees to that only where a socket names its protocol,
    and else the second part of an answer waits 40 ms for the first one's receipt.

    :raises InputError: it is none, or in use, or not ours to listen on; names one that is free.
    """
    require(0 < port < 1 << 16, f"--port: found {port}, expected 1 to {(1 << 16) - 1}")
    try:
        listening = socket.create_server(("127.0.0.1", port), backlog=backlog)
    except OSError as error:
        with socket.create_server(("127.0.0.1", 0)) as other:
            free = other.getsockname()[1]
        raise InputError(f"--port {port}: {os.strerror(error.errno or 0)}; --port {free} is free") from None
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # which connections take over
    return listening


def absolute(place: str) -> str:
    """A folder as every process finds it, wherever that works; an address as it is."""
    return place if not place or "://" in place else str(Path(place).absolute())


def pages_of(prefect_url: str) -> str:
    """Where a Prefect server's pages begin: its second UI, which it opens by itself; the first has another face."""
    return f"{prefect_url}/v2"


def deployments_page(prefect_url: str, tag: str) -> str:
    """Where a Prefect server's pages show the deployments that have a tag, of all that there are."""
    return f"{pages_of(prefect_url)}/deployments?tags={urllib.parse.quote(json.dumps([tag]))}"


AWAY = {"PREFECT_CLIENT_RETRY_EXTRA_CODES": "500"}
"""For clients of a Prefect server on PostgreSQL, which says so while that is away. With SQLite it means a full disk."""


def is_of(stack: Mapping[str, Any], url: str) -> bool:
    """Whether ``url`` is that of the Prefect server of the stack on record, however it is spelt."""
    ours, given = (urllib.parse.urlsplit(address.rstrip("/")) for address in (f"{stack['prefect_url']}/api", url))
    host = "127.0.0.1" if given.hostname == "localhost" else given.hostname
    return (host, given.port, given.path) == (ours.hostname, ours.port, ours.path)


def default_store() -> tuple[str, str]:
    """Where artifacts are unless a command is told, and a line about it where that is not :data:`LIGHT_STORE`.

    It is the store of the stack on record, also of one that has died: what is there is what its databases tell of.
    """
    stack, url = read_stack(), os.environ.get("PREFECT_API_URL")
    store = absolute(LIGHT_STORE) if stack is None or (url and not is_of(stack, url)) else stack["forms"]["store"]
    if store == absolute(LIGHT_STORE):
        return LIGHT_STORE, ""
    whose = "that is up" if url else "on record, which does not answer: gptmill up starts it, gptmill down forgets it"
    return store, f"store {store}, that of the stack {whose}\n"


def log_in(stack: Mapping[str, Any]) -> dict[str, str]:
    """Make this process a client of the full stack on record, whose credentials these are.

    :raises InputError: their file is not as it should be.
    """
    credentials = read_credentials()
    os.environ.update(client_environment(credentials, os.environ))
    if is_of(stack, os.environ["PREFECT_API_URL"]):
        for name, value in AWAY.items():
            os.environ.setdefault(name, value)
    os.environ.setdefault("PREFECT_UI_URL", pages_of(stack["prefect_url"]))
    return credentials


def set_defaults(whose: str) -> None:
    """Give this process those of :data:`SETTINGS` that its environment does not say itself."""
    for name, value in SETTINGS[whose].items():
        os.environ.setdefault(name, value)


def prepare(client: bool = True) -> None:
    """Set the defaults that are not set; call before the first import of prefect.

    :param client: whether the command uses the full stack; what mends or ends it must do without its credentials.
    :raises InputError: the stack's record, its credentials or the state folder are not as they should be.
    """
    set_defaults("commands")
    home = state_folder()
    for file in (home / "mlflow.db", Path(os.environ.get("PREFECT_HOME") or home / "prefect") / "prefect.db"):
        size = len(os.fsencode(file))
        limit = f"found a path of {size} bytes, expected {_SQLITE_BYTES} at most, which SQLite can open"
        require(size <= _SQLITE_BYTES, f"{file}: {limit}; set GPTMILL_HOME to a folder with a shorter one")
    os.environ["GPTMILL_HOME"] = str(home)
    make_private()
    stack = read_stack()
    if stack and stack["layout"]["full"]:
        if client:  # also where it does not answer: its databases are not those that a command would use without it
            log_in(stack)
    elif stack:
        if answers(stack["prefect_url"] + "/api/health"):
            os.environ.setdefault("PREFECT_API_URL", stack["prefect_url"] + "/api")
            os.environ.setdefault("PREFECT_UI_URL", pages_of(stack["prefect_url"]))
        if answers(stack["mlflow_url"] + "/health"):
            os.environ.setdefault("MLFLOW_TRACKING_URI", stack["mlflow_url"])
            os.environ[SERVED] = f"{stack['mlflow_url']} {state_folder() / 'mlflow.db'}"
    if "PREFECT_API_URL" not in os.environ:
        home = Path(os.environ.setdefault("PREFECT_HOME", str(state_folder() / "prefect")))
        try:
            home.mkdir(parents=True, exist_ok=True)  # the server does not make it before it opens its database there
        except OSError as error:
            if unwritable(error):
                return  # which who runs a flow is told first, and no other needs a server
            raise InputError(f"{home}: cannot be made ({error.strerror}); set GPTMILL_HOME to a folder") from None


def answers(url: str, login: str | None = None, timeout: float = 2.0) -> bool:
    """Whether a GET of ``url`` (http, this machine) ends with status 200 within ``timeout`` seconds.

    :param login: ``user:password`` for basic authentication.
    """
    import urllib.error
    import urllib.request  # brings HTTP and TLS along: not for `--help`

    headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  # our own loopback addresses
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310  # as above
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


# --- tried before any work


def require_servers() -> None:
    """Check that Prefect and MLflow can be used where they are set; servers of this process's own always can.

    :raises InputError: one does not answer, or refuses the log-in.
    """
    url = os.environ.get("PREFECT_API_URL")
    if url:
        _require_answer(url)
    from tasks.tracking.tracker import Tracker

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
    from gptcore.base.filesystems import answers_at  # brings fsspec along: not for `--help`

    require(answers_at(url), f"Prefect at {without_password(url)}: does not answer; check PREFECT_API_URL")


def require_log_in() -> None:
    """Check that the Prefect server that is set takes our log-in.

    :raises InputError: the server refuses the log-in, or is no Prefect server.
    """
    from httpx import HTTPError, HTTPStatusError
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    where = f"Prefect at {without_password(os.environ['PREFECT_API_URL'])}"
    try:
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(httpx_settings={"timeout": _TRIED_SECONDS}, sync_client=True) as client,
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
