"""How a command is ended: one exception for one request, whoever had the handler; a server only where none is set."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect import flow
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.servers import signals
from flows.servers.temporary_server import _Server, ensure_server


@pytest.fixture(autouse=True)
def ctrl_c_raises() -> Iterator[None]:
    """Python's own handler, which is not there when the suite is started in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_an_exception_with_an_exit_code(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(signals.Ended) as ended, signals.polite_end(program=False):
        signal.raise_signal(number)
    assert ended.value.exit_code == code
    assert signal.getsignal(number) == before


@pytest.mark.parametrize(("seconds", "finished"), [(2.0, True), (0.0, False)], ids=["sent as one", "out of patience"])
def test_only_a_later_signal_cuts_the_clean_up_short(
    seconds: float, finished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "_SAME_REQUEST_SECONDS", seconds)
    cleaned_up = False

    def work() -> None:
        nonlocal cleaned_up
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            time.sleep(0.01)
            signal.raise_signal(signal.SIGTERM)
            cleaned_up = True

    with pytest.raises(signals.Ended), signals.polite_end(program=False):
        work()
    assert cleaned_up == finished


def test_a_failure_because_of_a_signal_is_the_signals() -> None:
    def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except signals.Ended:
            raise ConnectionError("the other end was told, too") from None

    with pytest.raises(signals.Ended) as ended, signals.polite_end(program=False):
        work()
    assert isinstance(ended.value.__cause__, ConnectionError)
    with pytest.raises(ConnectionError), signals.polite_end(program=False):
        raise ConnectionError("of its own")


@pytest.mark.usefixtures("prefect_server")
def test_a_running_flow_keeps_our_handler_where_there_is_one() -> None:
    @flow
    def whose_handler() -> object:
        signals.listen()
        return signal.getsignal(signal.SIGTERM)

    with signals.polite_end(program=False):
        ours = signal.getsignal(signal.SIGTERM)
        assert whose_handler() is ours
    assert whose_handler() is not ours


@pytest.mark.usefixtures("prefect_server")
def test_a_server_that_is_set_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    ensure_server()
    assert "PREFECT_API_URL" not in os.environ


def test_a_server_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho the disk is full >&2\nexit 7\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with (
        temporary_settings(restore_defaults={PREFECT_API_URL}),
        pytest.raises(RuntimeError, match=r"(?s)exit code 7.*temporary-server.log:\nthe disk is full"),
    ):
        ensure_server()
    assert "PREFECT_API_URL" not in os.environ


def test_a_killed_server_is_started_again_on_its_socket_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with socket.socket() as listener:
        server = _Server(listener, tmp_path / "log")
        keeper = threading.Thread(target=server.keep, daemon=True)
        keeper.start()
        first = server.process
        first.kill()
        deadline = time.monotonic() + 20
        while server.process is first:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert server.process.poll() is None
        assert listener.fileno() >= 0
        server.process.kill()
        keeper.join(20)
        assert not keeper.is_alive()
        assert listener.fileno() < 0  # whoever waits there is told

        server = _Server(socket.socket(), tmp_path / "log")
        keeper = threading.Thread(target=server.keep, daemon=True)
        keeper.start()
        server.stop()
        keeper.join(20)
        assert server.process.returncode == -signal.SIGTERM
