"""A password that somebody put into an address or the environment is told to nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cli.main import main
from gptcore.base.errors import InputError, refuse_password
from tasks.store.store import Store

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
    with pytest.raises(InputError, match="found a password in the address"):
        Store(address)


@pytest.mark.parametrize("address", ["abfs://books@account.dfs.core.windows.net/x", "s3://bucket/a:b@c", "/a@b:c/d"])
def test_an_address_without_one_is_not(address: str) -> None:
    refuse_password(address)
