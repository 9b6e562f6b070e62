"""MLflow's server, as `mlflow server` runs it, behind :mod:`flows.servers.guard`.

    python -m flows.servers.mlflow_server --host 127.0.0.1 --port 5000 [any other option of `mlflow server`]

MLflow itself checks names and origins, but lets in the names of private networks by their first letters (a page of
10.evil.example, rebound to 127.0.0.1, reads and writes) and every page that any port of this machine serves, be it
another user's.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import ParamSpec, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flows.servers.guard import guarded, own_names
from gptcore.base.tables import read_table
from tasks.tracking import database

NAMES_VARIABLE = "GPTMILL_MLFLOW_NAMES"
"""Further names of the server, with their ports, between blanks: a proxy's, a container's."""
_APPLICATION = "GPTMILL_MLFLOW_APPLICATION"  # what MLflow would have uvicorn serve: `module:name`
_KEPT = read_table(__file__, "settings.toml")["mlflow-pages"]
_SCRIPT = f"""<script>
for (const [key, value] of Object.entries({json.dumps(_KEPT)}))
  if (localStorage.getItem(key) === null) localStorage.setItem(key, value);
if (!location.hash) location.replace("#/experiments?workflowType=machine_learning");
</script>"""
_Given = ParamSpec("_Given")
_SERVED = "MLFLOW_SERVER_ALLOWED_HOSTS"


def main(options: Sequence[str] | None = None) -> None:
    from mlflow import server
    from mlflow.cli import cli

    options = sys.argv[1:] if options is None else options
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000)
    parser.add_argument("--backend-store-uri", default="")
    known, _ = parser.parse_known_args(options)
    if file := database.sqlite_file(known.backend_store_uri):
        database.prepare_database(file)
    elif served := os.environ.get("MLFLOW_BACKEND_STORE_URI"):
        database.migrate(served)
    names = own_names(known.host, known.port, os.environ.get(NAMES_VARIABLE, "").split())
    os.environ[_SERVED] = ",".join(sorted(names))  # for the guard, and for MLflow's own check
    pages = (f"{scheme}://{name}" for scheme in ("http", "https") for name in sorted(names))
    os.environ.setdefault("MLFLOW_SERVER_CORS_ALLOWED_ORIGINS", ",".join(pages))
    # An MLflow without it is one that would start unguarded: an AttributeError, and no server.
    server._build_uvicorn_command = _with_guard(server._build_uvicorn_command)
    cli(["server", *options], prog_name="mlflow")


def application() -> ASGIApp:
    """What uvicorn serves in the process that MLflow starts."""
    module, _, name = os.environ[_APPLICATION].partition(":")
    theirs = getattr(importlib.import_module(module), name)
    app = theirs() if inspect.isfunction(theirs) else theirs  # with users it is a factory
    return guarded(_without_greetings(cast(ASGIApp, app)), frozenset(os.environ[_SERVED].split(",")))


def _without_greetings(app: ASGIApp) -> ASGIApp:
    """The application, whose first page tells the browser first what it keeps in its local storage."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        async def changed(message: Message) -> None:
            if message["type"] == "http.response.start":  # its length is another one
                message["headers"] = [pair for pair in message["headers"] if pair[0].lower() != b"content-length"]
            elif body := message.get("body"):
                message["body"] = body.replace(b"<head>", b"<head>" + _SCRIPT.encode(), 1)
            await send(message)

        await app(scope, receive, changed if (scope["type"], scope.get("path")) == ("http", "/") else send)

    return served


def _with_guard(build: Callable[_Given, list[str]]) -> Callable[_Given, list[str]]:
    """MLflow's maker of uvicorn's command line, but with :func:`application` in the place of its own."""

    def command(*arguments: _Given.args, **named: _Given.kwargs) -> list[str]:
        *words, served = build(*arguments, **named)
        os.environ[_APPLICATION] = served
        return [*words, *(() if "--factory" in words else ("--factory",)), "flows.servers.mlflow_server:application"]

    return command


if __name__ == "__main__":
    main()
