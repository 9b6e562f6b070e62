"""Servers that refuse, or are not there: one line, before any work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
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
from gptcore.base.filesystems import require_s3
from tasks.store.store import Store
from tasks.tracking.tracker import Tracker
from tests.expected import expected
from tests.trials import planted
from tests.trials.crowded import crowd_of


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
    require_s3.cache_clear()
    assert main([*command, "--store", str(tmp_path), option, "s3://mine/x"]) == 2
    assert f"error: {option} s3://mine/x: the S3 server http://127.0.0.1:9 does not answer" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


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
