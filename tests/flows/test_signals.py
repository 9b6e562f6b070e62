"""How a command is ended: one exception for one request, whoever had the handler; a server only where none is set."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.sorting import FlowRunSort, TaskRunSort
from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings
from prefect.states import Running

from flows.cli import main
from flows.cli.run import run
from flows.servers import signals, temporary_server
from flows.servers.temporary_server import _Server, begin_server, ensure_server
from gptcore.base.errors import InputError
from tasks.store.state import state_folder
from tasks.tracking import owners
from tests.trials.scenarios import wait

pytestmark = pytest.mark.usefixtures("ctrl_c_raises")


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


def in_place_of_python(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a shell's script run wherever Python would be started."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_a_server_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_place_of_python("echo the disk is full >&2\nexit 7", tmp_path, monkeypatch)
    with (
        temporary_settings(restore_defaults={PREFECT_API_URL}),
        pytest.raises(RuntimeError, match=r"(?s)exit code 7.*temporary-server.log:\nthe disk is full"),
    ):
        ensure_server()
    assert "PREFECT_API_URL" not in os.environ


def test_a_killed_server_is_started_again_on_its_socket_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place_of_python("exec sleep 60", tmp_path, monkeypatch)
    with socket.socket() as listener:
        server = _Server(listener, tmp_path / "log")
        keeper = threading.Thread(target=server.keep, daemon=True)
        keeper.start()
        first = server.process
        first.kill()
        wait(lambda: server.process is not first, "another server", 20, pause=0.01)
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


# --- the server of a command's own: begun once and not waited for, gone where another one is set


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that are started instead of servers, of which none answers."""
    in_place_of_python("exec sleep 60", tmp_path, monkeypatch)
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


@pytest.mark.parametrize(
    ("typed", "begun"),
    [
        (["pipeline", "--preset", "demo"], 1),
        (["--debug", "pretrain"], 1),
        (["pipeline", "--help"], 0),
        (["leaderboard"], 0),
        (["datasets", "pretrain"], 0),
        ([], 0),
    ],
)
def test_one_begins_before_the_options_of_a_command_that_runs_a_flow(
    typed: list[str], begun: int, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main.environment, "prepare", lambda: None)
    main.begin_ahead(typed)
    assert len(started) == begun


@pytest.mark.parametrize("temporary", [True, False])
def test_only_on_a_temporary_server_no_flow_waits_for_its_heartbeats(
    temporary: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    monkeypatch.setattr(temporary_server, "ensure_server", lambda: None)
    monkeypatch.setattr(temporary_server, "is_temporary", lambda: temporary)
    options = argparse.Namespace(command="pipeline", verbose=False)
    found = run(lambda _: get_current_settings().flows.heartbeat_frequency, cast("Any", None), options)
    assert (found is None) == temporary


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


# --- a command leaves flow runs Running; the next one on the same server ends them, and no living command's


SERVER = "test"


@task
def part() -> None:
    """One task run."""


@flow
def whole() -> None:
    part()


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process' own server is forgotten after each test."""
    monkeypatch.setattr(signals, "_server", None)


def states_of(flow_run: UUID) -> list[str]:
    """The state of a flow run, then those of its task runs."""
    its = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))
    with get_client(sync_client=True) as client:
        tasks = client.read_task_runs(flow_run_filter=its, sort=TaskRunSort.ID_DESC, limit=9)
        return [str(run.state_name) for run in [client.read_flow_run(flow_run), *tasks]]


@pytest.fixture
def running(prefect_server: None) -> UUID:
    """A flow run that its process did not live to end, in its one task."""
    with get_client(sync_client=True) as client:
        created = client.create_flow_run(whole, state=Running())
        client.create_task_run(part, created.id, "0", state=Running())
        return created.id


def dead_command(flow_run: UUID, end: str) -> None:
    """A process that notes a run as its own and ends."""
    program = f"import os, sys; from tasks.tracking.owners import note; note(*sys.argv[1:]); {end}"
    environment = os.environ | {"GPTMILL_HOME": str(state_folder())}
    subprocess.run([sys.executable, "-c", program, SERVER, str(flow_run)], env=environment, check=False)


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "sys.exit(1)"], ids=["killed", "its report was lost"])
def test_an_ended_commands_run_is_ended_by_the_next(running: UUID, end: str) -> None:
    dead_command(running, end)
    assert states_of(running) == ["Running", "Running"]
    signals.on_server(SERVER)
    assert states_of(running) == ["Crashed", "Crashed"]


def test_a_living_commands_run_is_left_alone(running: UUID) -> None:
    owners.note(SERVER, str(running))
    signals.on_server(SERVER)
    assert states_of(running) == ["Running", "Running"]


def test_a_run_that_the_server_does_not_know_is_no_fault(prefect_server: None) -> None:
    dead_command(UUID(int=1), "sys.exit(1)")
    signals.on_server(SERVER)
    with owners.dead_owners(SERVER) as dead:
        assert not dead


@pytest.mark.parametrize(
    ("error", "traced"), [(InputError("rows.csv, line 3: found 2 cells"), False), (KeyError("x"), True)]
)
def test_a_failed_runs_page_begins_with_the_reason(
    prefect_server: None, caplog: pytest.LogCaptureFixture, error: Exception, traced: bool
) -> None:
    @flow(name="breaks", flow_run_name="breaks rte")
    def breaks() -> None:
        signals._tell_failures()
        raise error

    with pytest.raises(type(error)):
        breaks()
    record = next(each for each in caplog.records if each.levelno == logging.ERROR)
    assert bool(record.exc_info) == traced
    assert record.getMessage() == ("Encountered exception during execution: KeyError('x')" if traced else str(error))
    with get_client(sync_client=True) as client:
        (run,) = client.read_flow_runs(limit=1, sort=FlowRunSort.START_TIME_DESC)
    assert run.name == "breaks rte → failed: " + ("KeyError: 'x'" if traced else str(error))
