"""Servers that refuse, or are not there: one line, before any work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from flows.cli import main
from flows.servers import require_servers
from gptcore.errors import InputError
from tasks.tracking.tracker import Tracker


class _Refusing(BaseHTTPRequestHandler):
    def _refuse(self) -> None:
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = do_HEAD = _refuse

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_a_dead_or_refusing_mlflow(refusing: str) -> None:
    with pytest.raises(InputError, match=r"MLflow at http://127.0.0.1:9: does not answer; check MLFLOW_TRACKING_URI"):
        _ = Tracker("http://me:secret@127.0.0.1:9").client
    with pytest.raises(InputError, match="refuses the log-in; check MLFLOW_TRACKING_USERNAME") as error:
        _ = Tracker(refusing.replace("//", "//me:secret@")).client
    assert "secret" not in str(error.value)


def test_a_dead_or_refusing_prefect(refusing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    for url, expected in {
        "http://127.0.0.1:9/api": "Prefect at http://127.0.0.1:9/api: does not answer; check PREFECT_API_URL",
        f"{refusing}/api": "refuses the log-in; check PREFECT_API_AUTH_STRING",
    }.items():
        monkeypatch.setenv("PREFECT_API_URL", url)
        with temporary_settings({PREFECT_API_URL: url}), pytest.raises(InputError, match=expected):
            require_servers()


def test_deploy_asks_whether_it_may_before_it_begins(
    refusing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    url = f"{refusing}/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    with temporary_settings({PREFECT_API_URL: url}):
        assert main(["deploy"]) == 2
    assert capsys.readouterr().err == (
        f"gptmill: error: Prefect at {url}: refuses the log-in; check PREFECT_API_AUTH_STRING\n"
    )


def test_a_server_that_leaves_during_deploy_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import httpx

    def leaves(*_: object) -> None:
        raise httpx.ConnectError("")

    for name in ("require_prefect", "require_log_in"):
        monkeypatch.setattr(f"flows.servers.{name}", lambda: None)
    monkeypatch.setattr("flows.deployments.deploy.deploy", leaves)
    assert main(["deploy"]) == 1
    assert "the Prefect server went away meanwhile (ConnectError)" in capsys.readouterr().err
