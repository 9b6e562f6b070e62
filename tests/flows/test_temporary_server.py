"""The server of a command's own: begun once and not waited for, gone where another one is set, patient with SQLite."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.servers import temporary_server
from flows.servers.temporary_server import asking_again, begin_server, ensure_server


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that are started instead of servers, of which none answers."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(temporary_server, "_beginning", None)
    monkeypatch.setattr(temporary_server.atexit, "register", lambda _: None)
    found: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def remembered(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        found.append(popen(*arguments, **named))
        return found[-1]

    monkeypatch.setattr(subprocess, "Popen", remembered)
    yield found
    for process in found:
        process.kill()
        process.wait()


def test_a_server_begins_once_and_nobody_waits(started: list[subprocess.Popen[bytes]]) -> None:
    begin_server()
    begin_server()
    assert [process.poll() for process in started] == [None]


def test_none_begins_where_one_is_set(started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    begin_server()
    assert not started


def test_one_that_has_begun_is_the_one_that_is_waited_for(
    started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_server()
    waited = []

    def wait(server: Any) -> None:
        waited.append(server.process)
        raise TimeoutError

    monkeypatch.setattr(temporary_server._Server, "wait", wait)
    with temporary_settings(restore_defaults={PREFECT_API_URL}), pytest.raises(TimeoutError):
        ensure_server()
    assert waited == started
    assert "PREFECT_API_URL" not in os.environ


def test_one_that_has_begun_ends_where_prefects_settings_name_another(
    started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporary_server, "on_server", lambda _: None)
    begin_server()
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        ensure_server()
    assert [process.poll() is None for process in started] == [False]
    begin_server()
    assert [process.poll() is None for process in started] == [False, True], "one that has ended is nobody's server"


def test_its_process_ends_by_itself_where_a_profile_names_another(tmp_path: Path) -> None:
    profile = '[profiles.theirs]\nPREFECT_API_URL = "http://127.0.0.1:9/api"\n'
    (tmp_path / "profiles.toml").write_text(f'active = "theirs"\n\n{profile}', encoding="utf-8")
    with socket.socket() as listener:
        number = listener.fileno()
        subprocess.run(
            [sys.executable, "-m", "flows.servers.temporary_server", str(number)],
            pass_fds=[number],
            env={**os.environ, "PREFECT_HOME": str(tmp_path)},
            check=True,
            timeout=60,
        )


class _Application:
    """An ASGI application that answers with these statuses in turn; an unavailable one raises as well."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope["path"] = "/changed by a router"
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message.get("more_body", False)
        self.bodies.append(body)
        status = self.statuses.pop(0)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": str(status).encode()})
        if status == 503:
            raise RuntimeError("database is locked")


def answered(application: _Application) -> tuple[list[Any], str]:
    """What is sent to a client that posts ``12`` in two parts, and what is raised after it."""
    parts = [{"type": "http.request", "body": b"1", "more_body": True}, {"type": "http.request", "body": b"2"}]
    sent: list[Any] = []
    scope = {"type": "http", "path": "/"}

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    try:
        asyncio.run(asking_again(application)(scope, receive, send))
    except RuntimeError as error:
        return sent, str(error)
    assert scope["path"] == "/"
    return sent, ""


@pytest.mark.parametrize("refusals", [0, 1, 3])
def test_what_sqlite_refuses_is_asked_again_with_the_same_body(refusals: int) -> None:
    application = _Application(*[503] * refusals, 201)
    sent, raised = answered(application)
    assert [message.get("status") for message in sent] == [201, None]
    assert sent[1]["body"] == b"201"
    assert application.bodies == [b"12"] * (refusals + 1)
    assert not raised


def test_another_error_is_the_clients_at_once() -> None:
    application = _Application(500, 201)
    sent, _ = answered(application)
    assert sent[0]["status"] == 500
    assert application.statuses == [201]


def test_what_stays_refused_is_told_in_the_end() -> None:
    sent, raised = answered(_Application(*[503] * 6))
    assert [message.get("status") for message in sent] == [503, None]
    assert raised == "database is locked"
