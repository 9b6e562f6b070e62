"""How our processes serve Prefect and MLflow, and what a command's environment becomes, without starting either."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sqlite3
import sys
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from flows.servers import environment, mlflow_server, pools, prefect_server, temporary_server, transactions
from gptcore.base.errors import InputError
from tasks.store.state import SERVED

# --- Prefect's


async def application(scope: Any, _: Any, send: Any) -> None:
    """Says that it was reached."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def statuses(app: Any, *names: str) -> list[int]:
    """What requests under some names are answered."""
    client = TestClient(app)
    return [client.get("/", headers={"host": name}).status_code for name in names]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What Prefect's application is asked for."""
    asked: list[dict[str, Any]] = []

    def create_app(**given: Any) -> Any:
        asked.append(given)
        return application

    monkeypatch.setattr("prefect.server.api.server.create_app", create_app)
    return asked


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], ["127.0.0.1:4200", "[::1]:4200", "localhost:4200", "prefect.example:443"]),
        (
            ["--host", "0.0.0.0", "--port", "4300"],  # nobody listens
            ["0.0.0.0:4300", "127.0.0.1:4300", "[::1]:4300", "localhost:4300", "prefect.example:443"],
        ),
    ],
)
def test_prefects_server_is_guarded_under_its_names(
    words: list[str], names: list[str], made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr("uvicorn.run", lambda app, **given: served.append((app, given)))
    monkeypatch.setattr(sys, "argv", ["prefect_server", *words])
    monkeypatch.setenv(prefect_server.NAMES_VARIABLE, "prefect.example:443")
    for name in ("PREFECT_SERVER_CORS_ALLOWED_ORIGINS", *environment.SETTINGS["server"]):
        monkeypatch.delenv(name, raising=False)
    prefect_server.main()
    ((app, given),) = served
    host, _, port = names[0].rpartition(":")
    assert (given["host"], given["port"], given["log_level"]) == (host, int(port), "warning")
    assert statuses(app, names[-1], names[0], "evil.example", "127.0.0.1:1") == [204, 204, 403, 403]
    assert os.environ["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] == ",".join(f"http://{name}" for name in names)
    assert os.environ["PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED"] == "events,flow_runs"
    assert made == [{"final": True}]


@pytest.fixture
def own(made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, environment: None) -> SimpleNamespace:
    """What a command's own server does, which ends at once; ``url``: what Prefect's settings name."""
    seen = SimpleNamespace(url=None, apps=[], enabled=[], alarms=[], parents=0, made=made)

    async def startup(self: Any, sockets: Any = None) -> None:
        seen.enabled.append(gc.isenabled())

    def run(self: Any, sockets: list[socket.socket]) -> None:
        import asyncio

        asyncio.run(self.startup(sockets))
        seen.enabled.append(gc.isenabled())
        seen.apps.append(self.config.app)
        self.handle_exit(signal.SIGTERM, None)
        seen.apps.append(self.should_exit)

    def dies() -> None:
        seen.parents += 1

    settings = SimpleNamespace(api=SimpleNamespace(url=None))
    monkeypatch.setattr("prefect.settings.get_current_settings", lambda: settings)
    monkeypatch.setattr("uvicorn.Server.startup", startup)
    monkeypatch.setattr("uvicorn.Server.run", run)
    monkeypatch.setattr(temporary_server, "die_with_parent", dies)
    monkeypatch.setattr(temporary_server, "waiting_for_their_turn", nullcontext)
    monkeypatch.setattr(signal, "alarm", seen.alarms.append)
    for name in environment_of_temporary():
        monkeypatch.delenv(name, raising=False)
    seen.settings = settings.api
    return seen


def environment_of_temporary() -> dict[str, str]:
    return dict(environment.SETTINGS["temporary-server"])


def test_a_commands_own_server_is_guarded_and_ends_in_seconds(own: SimpleNamespace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        try:
            temporary_server.serve(listening)
        finally:
            gc.enable()
            gc.unfreeze()
    app, ends = own.apps
    assert statuses(app, f"127.0.0.1:{port}", f"localhost:{port}", "evil.example") == [204, 204, 403]
    assert (ends, own.alarms, own.parents) == (True, [5], 1)
    assert own.enabled == [False, True], "what is imported is not looked through; from the start on all else is"
    assert own.made == [{"ephemeral": True, "final": True}]
    assert {name: os.environ[name] for name in environment_of_temporary()} == environment_of_temporary()


def test_a_commands_own_server_is_none_where_the_settings_name_another(own: SimpleNamespace) -> None:
    own.settings.url = "http://127.0.0.1:9/api"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        try:
            temporary_server.serve(listening)
        finally:
            gc.enable()
    assert own.apps == []


def test_a_transaction_asks_for_the_right_to_write_as_it_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And waits for it as long as it is told; all else is as Prefect sets it."""
    import asyncio

    from prefect.server.database import provide_database_interface
    from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL as URL
    from prefect.settings import temporary_settings
    from sqlalchemy import text

    file = tmp_path / "prefect.db"

    async def look() -> tuple[int, int, str]:
        db = provide_database_interface()
        async with db.session_context(begin_transaction=True) as session:
            names = ("busy_timeout", "foreign_keys", "journal_mode")
            found = [(await session.execute(text(f"PRAGMA {name}"))).scalar() for name in names]
            with (
                closing(sqlite3.connect(file, timeout=0)) as other,
                pytest.raises(sqlite3.OperationalError, match="lock"),
            ):
                other.execute("BEGIN IMMEDIATE")
            return int(found[0]), int(found[1]), str(found[2])

    with temporary_settings({URL: f"sqlite+aiosqlite:///{file}"}), transactions.waiting_for_their_turn(0.25):
        assert asyncio.run(look()) == (250, 1, "wal")
    with temporary_settings({URL: "postgresql+asyncpg://a@127.0.0.1/b"}):
        assert isinstance(transactions.waiting_for_their_turn(), nullcontext)


# --- MLflow's


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("served", ["", "postgresql://there"])
def test_mlflows_server_is_started_with_its_names_and_its_database(
    served: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import mlflow.cli
    import mlflow.server

    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(mlflow.cli, "cli", lambda words, prog_name: calls.append((words, prog_name)))
    monkeypatch.setattr(
        mlflow.server, "_build_uvicorn_command", lambda *words: [*words, "mlflow.server.fastapi_app:app"]
    )
    monkeypatch.setattr(mlflow_server.database, "prepare_database", lambda file: calls.append(("prepare", file)))
    monkeypatch.setattr(mlflow_server.database, "migrate", lambda url: calls.append(("migrate", url)))
    monkeypatch.setenv(mlflow_server.NAMES_VARIABLE, "mlflow.example")
    monkeypatch.delenv("MLFLOW_SERVER_CORS_ALLOWED_ORIGINS", raising=False)
    monkeypatch.setenv("MLFLOW_BACKEND_STORE_URI", served)
    options = [] if served else ["--port", "5001", "--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db"]
    mlflow_server.main(options)
    prepared = ("migrate", served) if served else ("prepare", tmp_path / "mlflow.db")
    assert calls == [prepared, (["server", *options], "mlflow")]
    port = 5000 if served else 5001
    names = [f"127.0.0.1:{port}", f"[::1]:{port}", f"localhost:{port}", "mlflow.example"]
    assert os.environ["MLFLOW_SERVER_ALLOWED_HOSTS"] == ",".join(names)
    pages = [f"{scheme}://{name}" for scheme in ("http", "https") for name in names]
    assert os.environ["MLFLOW_SERVER_CORS_ALLOWED_ORIGINS"] == ",".join(pages)
    build: Any = mlflow.server._build_uvicorn_command
    ours = "flows.servers.mlflow_server:application"
    assert build("uvicorn") == ["uvicorn", "--factory", ours]
    assert build("uvicorn", "--factory") == ["uvicorn", "--factory", ours]
    assert os.environ[mlflow_server._APPLICATION] == "mlflow.server.fastapi_app:app"


def factory() -> Any:
    """MLflow's maker of an application with users."""
    return application


class Callable:
    """MLflow's application is no function."""

    __call__ = staticmethod(application)


APPLICATION = Callable()


@pytest.mark.parametrize("name", ["factory", "APPLICATION"])
def test_what_uvicorn_serves_of_mlflow_is_behind_the_guard(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mlflow_server._APPLICATION, f"{__name__}:{name}")
    monkeypatch.setenv(mlflow_server._SERVED, "127.0.0.1:5000,mlflow.example")
    assert statuses(mlflow_server.application(), "mlflow.example", "127.0.0.1:5000", "evil.example") == [204, 204, 403]


# --- a command's environment


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_a_port_that_is_none(port: int) -> None:
    with pytest.raises(InputError, match=rf"^--port: found {port}, expected 1 to 65535$"):
        environment.listener(port)


def test_the_highest_port_is_one() -> None:
    with closing(environment.listener(65_535)) as listening:
        assert listening.getsockname() == ("127.0.0.1", 65_535)


@pytest.mark.parametrize(
    ("url", "ours"),
    [
        ("http://127.0.0.1:4200/api", True),
        ("http://localhost:4200/api/", True),
        ("http://127.0.0.1:4201/api", False),
        ("http://127.0.0.1:4200", False),
        ("http://prefect.example:4200/api", False),
    ],
)
def test_whose_server_an_address_is_of(url: str, ours: bool) -> None:
    assert environment.is_of({"prefect_url": "http://127.0.0.1:4200"}, url) is ours


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: None) -> Path:
    """A state folder, of which neither Prefect nor MLflow has been told."""
    for name in ("PREFECT_API_URL", "PREFECT_UI_URL", "PREFECT_HOME", "MLFLOW_TRACKING_URI", SERVED):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def recorded(home: Path, full: bool) -> None:
    home.mkdir()
    urls = {"prefect_url": "http://127.0.0.1:4200", "mlflow_url": "http://127.0.0.1:5000"}
    (home / "stack.json").write_text(json.dumps({**urls, "processes": {}, "layout": {"full": full}}))


def told() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in ("PREFECT_API_URL", "PREFECT_UI_URL", "MLFLOW_TRACKING_URI", SERVED)}


NOTHING = dict.fromkeys(("PREFECT_API_URL", "PREFECT_UI_URL", "MLFLOW_TRACKING_URI", SERVED))


def test_without_a_stack_prefects_home_is_in_ours(home: Path) -> None:
    home.mkdir(mode=0o755)
    environment.prepare()
    assert told() == NOTHING
    assert os.environ["PREFECT_HOME"] == str(home / "prefect")
    assert (home / "prefect").is_dir()
    assert home.stat().st_mode & 0o777 == 0o700
    assert {name: os.environ[name] for name in environment.SETTINGS["commands"]}.keys()


@pytest.mark.parametrize("alive", [(), ("prefect",), ("mlflow",), ("prefect", "mlflow")])
def test_servers_of_the_light_stack_that_answer_are_used(
    alive: tuple[str, ...], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(home, full=False)
    health = {"prefect": "http://127.0.0.1:4200/api/health", "mlflow": "http://127.0.0.1:5000/health"}
    monkeypatch.setattr(environment, "answers", lambda url: url in [health[name] for name in alive])
    environment.prepare()
    expected = dict(NOTHING)
    if "prefect" in alive:
        expected |= {"PREFECT_API_URL": "http://127.0.0.1:4200/api", "PREFECT_UI_URL": "http://127.0.0.1:4200/v2"}
    if "mlflow" in alive:
        expected |= {
            "MLFLOW_TRACKING_URI": "http://127.0.0.1:5000",
            SERVED: f"http://127.0.0.1:5000 {home / 'mlflow.db'}",
        }
    assert told() == expected


@pytest.mark.parametrize("client", [True, False])
def test_the_full_stack_is_logged_in_to_by_its_clients_alone(
    client: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(home, full=True)
    asked: list[bool] = []
    monkeypatch.setattr(environment, "log_in", lambda stack: asked.append(stack["layout"]["full"]))
    environment.prepare(client)
    assert asked == [True] * client


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("url", "codes"), [("http://127.0.0.1:4200", "500"), ("http://127.0.0.1:9", None)])
def test_a_client_of_the_full_stack_waits_where_its_database_is_away(
    url: str, codes: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"PREFECT_API_URL": f"{url}/api", "PREFECT_API_AUTH_STRING": "admin:a"}
    monkeypatch.setattr(environment, "read_credentials", lambda: given)
    monkeypatch.setattr(environment, "client_environment", lambda credentials, _: credentials)
    monkeypatch.delenv("PREFECT_CLIENT_RETRY_EXTRA_CODES", raising=False)
    assert environment.log_in({"prefect_url": "http://127.0.0.1:4200"}) == given
    assert os.environ["PREFECT_API_AUTH_STRING"] == "admin:a"
    assert os.environ["PREFECT_UI_URL"] == "http://127.0.0.1:4200/v2"
    assert os.environ.get("PREFECT_CLIENT_RETRY_EXTRA_CODES") == codes


def test_the_pages_of_a_servers_deployments() -> None:
    assert environment.deployments_page("http://a:1", "start-here") == (
        "http://a:1/v2/deployments?tags=%5B%22start-here%22%5D"
    )


@pytest.mark.parametrize(("states", "online"), [(["OFFLINE", "ONLINE"], True), (["OFFLINE"], False), ([], False)])
def test_a_pool_has_a_worker_where_one_is_online(
    states: list[str], online: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def read(pool: str, **given: Any) -> list[SimpleNamespace]:
        asked.append((pool, given))
        return [SimpleNamespace(status=state) for state in states]

    client = SimpleNamespace(read_workers_for_work_pool=read)
    monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **_: nullcontext(client))
    assert pools.worker_online("training") is online
    assert asked == [("training", {"offset": 0, "limit": 200})]
