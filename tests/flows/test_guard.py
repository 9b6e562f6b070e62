"""A server on loopback is no web page's: foreign origins and rebound names are refused, programs and own pages not."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from starlette.testclient import TestClient

from flows.servers import mlflow_server
from flows.servers.guard import own_names, refusal
from flows.servers.stack.services import Layout, service
from tests.expected import expected
from tests.trials.scenarios import free_ports

NAMES = own_names("127.0.0.1", 4200)
EVIL = "http://evil.example"
PAGE = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
"""Asks as a page can: to read, to write simply (no preflight), to write as JSON (with one)."""
ASKS = """
import json, sys
from starlette.testclient import TestClient
from flows.servers import mlflow_server
client = TestClient(mlflow_server.application(), base_url="http://127.0.0.1:5000")
answers = [client.request(method, path, headers=headers) for method, path, headers in json.load(sys.stdin)]
print(json.dumps([[found.status_code, "access-control-allow-origin" in found.headers] for found in answers]))
"""
"""Each request's status, and whether a page of the origin may read the answer."""


@pytest.mark.parametrize(("headers", "problem"), expected(__file__, "test_who_is_refused"))
def test_who_is_refused(headers: list[tuple[str, str]], problem: str) -> None:
    found = refusal(headers, NAMES)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_a_proxys_name_can_be_added() -> None:
    names = own_names("0.0.0.0", 4200, ["Prefect.Example:443"])
    assert not refusal([("host", "prefect.example:443"), ("origin", "https://prefect.example:443")], names)
    assert refusal([("host", "evil.example:443")], names)


def test_mlflows_first_page_keeps_its_greetings_to_itself() -> None:
    page = b"<html><head><title>MLflow</title></head></html>"

    async def served(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"Content-Length", str(len(page)).encode()), (b"etag", b"1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": page})

    client = TestClient(mlflow_server._without_greetings(served))
    found = client.get("/")
    assert found.text.startswith("<html><head><script>")
    assert found.text.endswith("</script><title>MLflow</title></head></html>")
    assert '"mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true"' in found.text
    assert "etag" in found.headers
    assert client.get("/api/2.0/mlflow/experiments/search").content == page


@pytest.mark.slow
@pytest.mark.usefixtures("environment")
def test_mlflow_starts_its_server_behind_the_guard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import mlflow.server

    class Process:
        pid = 0

        def wait(self) -> int:
            return 0

    started: list[list[str]] = []
    monkeypatch.setattr(mlflow.server, "_exec_cmd", lambda command, **_: started.append(command) or Process())
    monkeypatch.setattr(mlflow.server, "_build_uvicorn_command", mlflow.server._build_uvicorn_command)
    monkeypatch.setattr(mlflow.server.signal, "signal", lambda *_: None)
    monkeypatch.setenv(mlflow_server.NAMES_VARIABLE, "mlflow:5000 mlflow.example")
    monkeypatch.setenv("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    # files only: no tables are made
    options = ["--host", "127.0.0.1", "--port=5000", "--artifacts-only", "--artifacts-destination", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        mlflow_server.main(options)
    assert ended.value.code in (0, None)
    (command,) = started
    assert command[1:3] == ["-m", "uvicorn"]
    assert command[-2:] == ["--factory", "flows.servers.mlflow_server:application"]
    assert os.environ[mlflow_server._APPLICATION] == "mlflow.server.fastapi_app:app"
    allowed = [
        {"Host": host, "Origin": f"https://{host}"}
        for host in ("127.0.0.1:5000", "localhost:5000", "mlflow:5000", "mlflow.example")
    ]
    foreign = [
        {"Host": "evil.example:5000"},
        {"Host": "10.evil.example:5000"},  # MLflow itself takes it for an address of a private network
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Origin": "http://localhost:8888"},  # and this for a page of its own
    ]
    asked = {"Access-Control-Request-Method": "POST"}
    requests_made: list[tuple[str, str, dict[str, str]]] = [
        *(("GET", "/health", headers) for headers in allowed),
        *(("POST", "/api/2.0/x", headers) for headers in allowed),  # MLflow's own check, too, lets its pages write
        *((method, "/graphql", headers) for headers in foreign for method in ("GET", "POST")),
        *(("OPTIONS", "/graphql", {**headers, **asked}) for headers in foreign),
    ]
    # A process of its own, as MLflow reads its names from the environment while its modules are imported.
    done = subprocess.run(
        [sys.executable, "-c", ASKS], input=json.dumps(requests_made), capture_output=True, text=True, check=True
    )
    answers = json.loads(done.stdout.splitlines()[-1])
    assert [status for status, _ in answers] == [200] * 4 + [404] * 4 + [403] * 15
    assert not any(readable for _, readable in answers[8:])


def test_mlflow_does_not_start_where_it_cannot_be_guarded(monkeypatch: pytest.MonkeyPatch, environment: None) -> None:
    import mlflow.server

    monkeypatch.delattr(mlflow.server, "_build_uvicorn_command")
    with pytest.raises(AttributeError, match="_build_uvicorn_command"):
        mlflow_server.main([])


@pytest.mark.parametrize("full", [False, True])
def test_both_stacks_start_both_servers_behind_it(full: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    secrets = defaultdict(str)
    for name in ("prefect", "mlflow"):
        command = service(name, Layout(full, 4200, 5000, 5433, 8333), secrets).command
        assert command[1:5] == ["-m", f"flows.servers.{name}_server", "--host", "127.0.0.1"]
        assert not [word for word in command if word.startswith(("--allowed-hosts", "--cors", "--disable-security"))]


@pytest.mark.slow
def test_the_server_of_a_command_is_behind_it_too(prefect_server: Path, tmp_path: Path) -> None:
    shutil.copy(prefect_server, tmp_path / "prefect.db")  # its tables are there
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        command = [sys.executable, "-m", "flows.servers.temporary_server", str(listener.fileno())]
        process = subprocess.Popen(
            command, env={**environment, "PREFECT_HOME": str(tmp_path)}, pass_fds=[listener.fileno()]
        )
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/api/health"
        try:
            assert requests.get(url, timeout=60).status_code == 200
            assert requests.get(url, headers={"Origin": EVIL}, timeout=20).status_code == 403
            assert requests.get(url, headers={"Host": "evil.example"}, timeout=20).status_code == 403
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a guarded Prefect server."""
    (port,), home = free_ports(1), tmp_path_factory.mktemp("prefect")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"PREFECT_HOME": str(home), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    command = [sys.executable, "-m", "flows.servers.prefect_server", "--port", str(port)]
    with open(home / "log.txt", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 90
        while True:
            assert process.poll() is None, (home / "log.txt").read_text()
            try:
                if requests.get(f"{url}/api/health", timeout=5).ok:
                    break
            except requests.ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def mlflow_pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a guarded MLflow server of this process."""
    import uvicorn

    (port,) = free_ports(1)
    monkeypatch.setenv(mlflow_server._SERVED, ",".join(own_names("127.0.0.1", port)))
    monkeypatch.setenv(mlflow_server._APPLICATION, "mlflow.server.fastapi_app:create_fastapi_app")
    config = uvicorn.Config(mlflow_server.application(), port=port, log_level="error")  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(20)


@pytest.mark.slow
def test_prefect_answers_programs_and_its_own_pages_alone(prefect: str) -> None:
    body: dict[str, Any] = {"name": "ours", "value": "1"}
    port = prefect.rpartition(":")[2]
    assert requests.post(f"{prefect}/api/variables/", json=body, timeout=20).status_code == 201
    assert (
        "Prefect"
        in requests.get(f"{prefect}/dashboard", headers={"Origin": prefect, "Accept": "text/html"}, timeout=20).text
    )
    for headers in ({"Origin": EVIL}, {"Host": f"evil.example:{port}"}, {"Origin": "null"}):
        refused = requests.post(f"{prefect}/api/variables/", json={**body, "name": "x"}, headers=headers, timeout=20)
        assert refused.status_code == 403
        assert requests.get(f"{prefect}/api/admin/version", headers=headers, timeout=20).status_code == 403
    asked = {"Origin": EVIL, "Access-Control-Request-Method": "POST"}
    preflight = requests.options(f"{prefect}/api/variables/", headers=asked, timeout=20)
    assert "access-control-allow-origin" not in preflight.headers
    found = requests.post(f"{prefect}/api/variables/filter", json={}, timeout=20).json()
    assert [variable["name"] for variable in found] == ["ours"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium: the test above sends the same requests")
@pytest.mark.parametrize(
    ("server", "own_path", "read", "write"),
    [
        ("prefect", "/dashboard", "/api/admin/version", "/api/variables/"),
        ("mlflow_pages", "/version", "/version", "/graphql"),
    ],
)
def test_a_page_of_another_origin_gets_nothing_in_a_real_browser(
    server: str, own_path: str, read: str, write: str, request: pytest.FixtureRequest
) -> None:
    from playwright.sync_api import sync_playwright

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            page = PAGE.replace("ADDRESS", self.server.target)  # type: ignore[attr-defined]
            self.wfile.write(page.replace("READ", read).replace("WRITE", write).encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    url = request.getfixturevalue(server)
    port = url.rpartition(":")[2]
    with HTTPServer(("127.0.0.1", 0), Page) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        own = f"http://other.example:{elsewhere.server_address[1]}"
        rules = "MAP other.example 127.0.0.1,MAP rebound.example 127.0.0.1"
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"),
                args=["--no-sandbox", f"--host-resolver-rules={rules}", "--disable-features=LocalNetworkAccessChecks"],
            )
            page = browser.new_page()
            for target in (url, f"http://rebound.example:{port}"):
                elsewhere.target = target  # type: ignore[attr-defined]
                page.goto(own)
                page.wait_for_function("document.title.startsWith('{')")
                found = json.loads(page.title())
                assert found["read"] == found["json"] == "refused"
            answer = page.goto(f"http://rebound.example:{port}{own_path}")
            assert answer.status == 403, (
                "a name that was made to mean this machine, once the page is of the same origin"
            )
            own_page = page.goto(f"{url}{own_path}")
            assert own_page.status == 200
            browser.close()
        elsewhere.shutdown()
    if server == "prefect":
        names = requests.post(f"{url}/api/variables/filter", json={}, timeout=20).json()
        assert "evil" not in [variable["name"] for variable in names]
