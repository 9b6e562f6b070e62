"""Prefect's server with its pages and services, as `prefect server start` runs it, behind :mod:`flows.servers.guard`.

    python -m flows.servers.prefect_server --host 127.0.0.1 --port 4200

Prefect itself answers under any name, and lets pages of any origin read and change everything; a process worker's job
variable `command` makes that a shell.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from flows.servers.environment import set_defaults
from flows.servers.guard import guarded, own_names
from flows.servers.transactions import waiting_for_their_turn
from tasks.store.sqlite import check_database

NAMES_VARIABLE = "GPTMILL_PREFECT_NAMES"
"""Further names of the server, with their ports, between blanks: a proxy's, a container's."""


def check_home(home: str) -> None:
    """Check that the installed Prefect can open its SQLite file in a folder; a copy is kept where it will migrate it.

    :raises InputError: the file is damaged, or of a newer Prefect.
    """
    if "PREFECT_SERVER_DATABASE_CONNECTION_URL" not in os.environ:
        check_database(Path(home) / "prefect.db", "prefect", "server/database/_migrations/versions/sqlite")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description="Prefect's server, closed to web pages of other origins.")
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int, default=4200)
    return made


def main() -> None:
    """Serve until SIGTERM."""
    options = parser().parse_args()
    set_defaults("server")
    names = own_names(options.host, options.port, os.environ.get(NAMES_VARIABLE, "").split())
    origins = ",".join(f"http://{name}" for name in sorted(names))
    os.environ.setdefault("PREFECT_SERVER_CORS_ALLOWED_ORIGINS", origins)
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    settings = get_current_settings().server
    with waiting_for_their_turn():
        uvicorn.run(
            guarded(create_app(final=True), names),
            host=options.host,
            port=options.port,
            timeout_keep_alive=settings.api.keepalive_timeout,
            log_level=settings.logging_level.lower(),
        )


if __name__ == "__main__":
    main()
