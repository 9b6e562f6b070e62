"""Servers that refuse, or are not there: one line, before any work."""

from __future__ import annotations

import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import fsspec
import httpx
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.cli.main import main
from flows.forms.parameters import PipelineParameters
from flows.servers.environment import require_servers
from gptcore.base.addresses import refuse_password
from gptcore.base.errors import InputError
from gptcore.base.files import write_json_atomic
from gptcore.base.filesystems import ANSWERED
from tasks.store.artifact import Recipe
from tasks.store.store import Store
from tasks.tracking.tracker import Tracker
from tests.expected import expected
from tests.gptcore.file_server import serving
from tests.trials import planted
from tests.trials.crowded import crowd_of


class _Refusing(BaseHTTPRequestHandler):
    def status(self) -> int:
        return 401

    def _refuse(self) -> None:
        self.send_response(self.status())
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
    for url, message in {
        "garbage/api": "PREFECT_API_URL: found garbage/api, expected an address such as http://",
        "http://": "Prefect at http://: does not answer",
        "http://127.0.0.1:9/api": "Prefect at http://127.0.0.1:9/api: does not answer; check PREFECT_API_URL",
        f"{refusing}/api": "refuses the log-in; check PREFECT_API_AUTH_STRING",
    }.items():
        monkeypatch.setenv("PREFECT_API_URL", url)
        with temporary_settings({PREFECT_API_URL: url}), pytest.raises(InputError, match=message):
            require_servers()


def test_deploy_asks_whether_it_may_before_it_begins(
    refusing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{refusing}/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for name in ("store", "datasets"):
        assert main(["deploy", f"--{name}", "s3://nobucket/runs"]) == 2
        assert f"--{name} s3://nobucket/runs: the S3 server http://127.0.0.1:9" in capsys.readouterr().err
    with temporary_settings({PREFECT_API_URL: url}):
        assert main(["deploy"]) == 2
    assert capsys.readouterr().err == (
        f"gptmill: error: Prefect at {url}: refuses the log-in; check PREFECT_API_AUTH_STRING\n"
    )


def test_a_server_that_leaves_during_deploy_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    def leaves(*_: object, **__: object) -> None:
        raise httpx.ConnectError("")

    for name in ("require_prefect", "require_log_in"):
        monkeypatch.setattr(f"flows.servers.environment.{name}", lambda: None)
    monkeypatch.setattr("flows.deployments.deploy.deploy", leaves)
    assert main(["deploy"]) == 1
    assert "the Prefect server went away meanwhile (ConnectError)" in capsys.readouterr().err


def test_every_address_of_a_form_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "garbage")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    for field, option in {"tokenizer": "--tokenizer", "start": "--from", "corpus": "--corpus"}.items():
        with pytest.raises(InputError, match=rf"^{option} s3://x: cannot be used \(Invalid endpoint: garbage\)"):
            PipelineParameters.model_validate({"store": str(tmp_path), field: "s3://x"}).check()


@pytest.mark.parametrize(
    ("command", "option"), expected(__file__, "test_a_command_that_only_looks_tries_its_addresses_first")
)
def test_a_command_that_only_looks_tries_its_addresses_first(
    command: list[str], option: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    ANSWERED.clear()
    assert main([*command, "--store", str(tmp_path), option, "s3://mine/x"]) == 2
    assert f"error: {option} s3://mine/x: the S3 server http://127.0.0.1:9 does not answer" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


UNREACHABLE = {
    "http://127.0.0.1:9/x": "http://127.0.0.1:9 does not answer; check the address and the network",
    "https://127.0.0.1:9/x": "https://127.0.0.1:9 does not answer; check the address and the network",
    "http://{silent}/x": "http://{silent} does not answer; check the address and the network",
    "http://no-such-host.invalid/x": "http://no-such-host.invalid does not answer; check the address and the network",
    "ftp://127.0.0.1:9/x": "cannot be used ([Errno 111] Connection refused); check the address and the network",
    "ftp://{silent}/x": "does not answer in 0.5 s; check the address and the network",
    "nowhere://x": "found no such address (Protocol not known: nowhere), expected a folder, or an address that fsspec "
    "knows (s3://..., hf://...)",
}


@pytest.mark.parametrize(
    "command",
    [
        ("gc", "--store"),
        ("pipeline", "--corpus"),
        ("datasets", "--datasets"),
        ("datasets", "check", "rte", "--datasets"),
        ("encode", "--tokenizer"),
        ("predict", "rte", "--model"),
        ("backup", "--to"),
        ("up", "--store"),
    ],
    ids=" ".join,
)
def test_a_server_that_does_not_answer_is_told_by_its_option_at_once(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gptcore.base.filesystems._ANSWER_SECONDS", 0.5)
    monkeypatch.setattr("gptcore.base.filesystems._INFO_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:  # takes connections, and never answers
        silent = f"127.0.0.1:{listener.getsockname()[1]}"
        for address, words in UNREACHABLE.items():
            place = address.format(silent=silent)
            assert main([*command, place]) == 2
            said = capsys.readouterr().err
            assert said == f"gptmill: error: {command[-1]} {place}: {words.format(silent=silent)}\n"
    assert not list(tmp_path.iterdir())


class _Failing(_Refusing):
    """Answers with the status that an address begins with."""

    def status(self) -> int:
        return int(self.path.split("/")[1] or 404)


@pytest.mark.parametrize(
    "command",
    [("datasets", "--datasets"), ("encode", "--tokenizer"), ("pipeline", "--corpus"), ("knowledge",)],
    ids=" ".join,
)
def test_a_server_that_refuses_is_a_line(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(_Failing) as url:
        for status in (403, 500):
            assert main([*command, f"{url}/{status}"]) == 2
            said = capsys.readouterr().err
            assert f"cannot be looked at (found HTTP {status} " in said
            assert said.count("\n") == 1


def test_a_home_whose_databases_sqlite_cannot_open_is_told_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PREFECT_HOME", raising=False)
    database = "/prefect/prefect.db"
    above = f"{tmp_path}/{'x' * 200}/"
    home = above + "y" * (504 - len(above) - len(database))
    monkeypatch.setenv("GPTMILL_HOME", f"{home}y")
    assert main(["status"]) == 2
    assert f"{home}y{database}: found a path of 505 bytes, expected 504 at most" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("GPTMILL_HOME", home)
    assert main(["status"]) == 0
    (Path(home) / "prefect").mkdir(exist_ok=True)
    with closing(sqlite3.connect(f"{home}{database}")) as opened:
        opened.execute("CREATE TABLE found (number)")


def test_commands_use_the_store_of_the_stack_on_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether it is up or has died, unless they are told, or their Prefect is another one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "home"))
    for name in ("stack", "own"):
        Store(tmp_path / name).build(Recipe("corpus", 1, {"of": name}), lambda _: {})
    (tmp_path / "home").mkdir()
    record = {
        "prefect_url": "http://127.0.0.1:9",
        "mlflow_url": "http://127.0.0.1:9",
        "layout": {"full": False},
        "forms": {"store": str(tmp_path / "stack"), "datasets": ""},
        "processes": {},
    }
    write_json_atomic(tmp_path / "home" / "stack.json", record)
    for url, whose in (("http://127.0.0.1:9/api", "that is up"), ("", "on record, which does not answer")):
        monkeypatch.setenv("PREFECT_API_URL", url)
        assert main(["verify"]) == 0
        assert f"store {tmp_path / 'stack'}, that of the stack {whose}" in (said := capsys.readouterr()).err
        assert said.out.startswith("1 artifacts read")
    for words, url in ((["--store", "own"], ""), ([], "http://127.0.0.1:10/api")):
        monkeypatch.setenv("PREFECT_API_URL", url)
        assert main(["verify", *words]) == (0 if words else 2)
        assert "that of the stack" not in (said := capsys.readouterr()).err
        assert words or "--store runs/demo: found nothing there" in said.err.replace(f"{tmp_path}/", "")


# --- a password that somebody put into an address or the environment is told to nobody


SECRET = "pl4nted-s3cret"
ADDRESS = f"http://user:{SECRET}@127.0.0.1:9/place"
COMMANDS = {
    "store": ["pretrain", "--store", ADDRESS],
    "store of gc": ["gc", "--store", f"ftp://user:{SECRET}@127.0.0.1:9/x", "--yes"],
    "corpus": ["pipeline", "--corpus", ADDRESS, "--store", "{tmp}/store", "--verbose"],
    "datasets": ["datasets", "--datasets", ADDRESS],
    "datasets of a pipeline": ["--debug", "pipeline", "--corpus", "{tmp}", "--datasets", ADDRESS],
    "tokenizer": ["encode", "--tokenizer", ADDRESS],
    "model": ["generate", "--model", f"{ADDRESS}/pretrain/{'0' * 64}", "--prompt", "x"],
    "mirror": ["--debug", "datasets", "get", "rte", "--to", "{tmp}/data", "--mirror", ADDRESS],
    "scheduler": ["--debug", "pipeline", "--store", "{tmp}/store", "--dask", f"tcp://user:{SECRET}@127.0.0.1:9"],
    "scheduler of a search": ["sweep", "{tmp}/sweep.toml", "--dask", f"tls://user:{SECRET}@127.0.0.1:9"],
    "graph": ["knowledge", ADDRESS],
    "links": ["pipeline", "--family", "ernie", "--store", "{tmp}/store", "--links", ADDRESS],
    "task": ["finetune", f"{ADDRESS}/task.toml", "--store", "{tmp}/store"],
    "tasks": ["few-shot", "--tasks", f"{ADDRESS}/task.toml", "--store", "{tmp}/store"],
    "models": ["few-shot", "--checkpoint", ADDRESS, "--store", "{tmp}/store"],
    "further models": ["abstracts", "--beside", ADDRESS, "--store", "{tmp}/store"],
    "tables": ["analysis", "overlap", "--out", ADDRESS, "--store", "{tmp}/store"],
    "backup": ["backup", ADDRESS],
    "restored": ["restore", ADDRESS],
    "tracker": ["--debug", "leaderboard"],
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_failing_command_tells_no_password(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", ADDRESS if case == "tracker" else f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setattr("gptcore.fetch.download.time.sleep", lambda _: None)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "SOMEBODYS_PASSWORD"):
        monkeypatch.setenv(name, SECRET)
    assert main([part.format(tmp=tmp_path) for part in COMMANDS[case]]) in (1, 2)
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    assert said.err
    assert [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()] == []


def test_a_traceback_is_shown_without_passwords(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise OSError(f"cannot reach {ADDRESS}")

    monkeypatch.setattr("flows.servers.stack.control.status", broken)
    assert main(["--debug", "status"]) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "cannot reach http://127.0.0.1:9/place" in said
    assert SECRET not in said


@pytest.mark.parametrize("address", [ADDRESS, f"sftp://{SECRET}:{SECRET}@host/x"])
def test_an_address_with_a_password_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="found a password, user or token in the address"):
        Store(address)


@pytest.mark.parametrize("address", ["abfs://books@account.dfs.core.windows.net/x", "s3://bucket/a:b@c", "/a@b:c/d"])
def test_an_address_without_one_is_not(address: str) -> None:
    refuse_password(address)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_secret_that_was_planted_is_found_anywhere(tmp_path: Path) -> None:
    assert planted.main(tmp_path / "planted") == 0


@pytest.mark.parametrize("temporary", [False, True])
def test_of_many_who_write_to_the_database_of_a_server_at_once_none_is_refused(temporary: bool, tmp_path: Path) -> None:
    statuses, completed = crowd_of(tmp_path, clients=8, runs=3, temporary=temporary)
    assert (completed, statuses.keys()) == (24, {200})
