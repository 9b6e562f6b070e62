"""`gptmill up | down | status`: Prefect server, MLflow server and two workers on this machine, without Docker."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import psutil

from flows.environment import answers, pages_of, read_stack, stack_file
from flows.pools import CPU, GPU, worker_online
from gptcore.errors import InputError
from gptcore.files import write_json_atomic
from tasks.store.state import state_folder

HOST = "127.0.0.1"
_SERVICES = {"prefect", "mlflow", f"worker-{CPU}", f"worker-{GPU}"}
_CPU_RUNS = 4  # flows that mostly wait for trainings; more of them at once is memory for nothing
_START_SECONDS = 180.0  # the first start of each server migrates a new database
_STOP_SECONDS = 20.0


class Process(TypedDict):
    """What tells one process from all others, also after its pid is used again."""

    pid: int
    created: float


@dataclass(frozen=True)
class Service:
    """One process of the stack."""

    name: str
    command: list[str]
    ready: Callable[[], bool]


def up(store: str, datasets: str, prefect_port: int, mlflow_port: int) -> None:
    """Start what is not running, register the deployments, print the addresses.

    :param store: default store of the deployments' forms.
    :param datasets: default datasets folder of the forms; empty: the generated world in the store.
    :raises InputError: a port is taken by something else.
    """
    home = state_folder()
    (home / "logs").mkdir(parents=True, exist_ok=True)
    prefect_url, mlflow_url = f"http://{HOST}:{prefect_port}", f"http://{HOST}:{mlflow_port}"
    processes: dict[str, Process] = (read_stack() or {"processes": {}})["processes"]
    if processes.keys() >= _SERVICES and all(map(_alive, processes.values())):
        print("The stack is already running.")
        status()
        return
    down(quiet=True)
    for port in (prefect_port, mlflow_port):
        _require_free(port)
    os.environ.update(
        PREFECT_API_URL=f"{prefect_url}/api",
        PREFECT_UI_URL=pages_of(prefect_url),
        PREFECT_HOME=str(home / "prefect"),
        MLFLOW_TRACKING_URI=mlflow_url,
    )
    record: dict[str, Any] = {"prefect_url": prefect_url, "mlflow_url": mlflow_url, "processes": {}}
    services = [_prefect_server(prefect_url, prefect_port), _mlflow_server(home, mlflow_url, mlflow_port)]
    try:
        for service in services:
            record["processes"][service.name] = _start(service, home)
            write_json_atomic(stack_file(), record)
        for service in services:
            _wait(service, record["processes"][service.name], home)
        from flows.deployments.deploy import deploy

        deploy(store, datasets)
        _refresh_experiments(mlflow_url)
        workers = [_worker(CPU, _CPU_RUNS), _worker(GPU, 1)]  # a machine's GPU is not shared by two trainings
        for worker in workers:
            record["processes"][worker.name] = _start(worker, home)
            write_json_atomic(stack_file(), record)
        for worker in workers:
            _wait(worker, record["processes"][worker.name], home)
    except BaseException:
        down(quiet=True)
        raise
    status()
    print("\nStart a fine-tune: Prefect UI -> Deployments -> finetune -> Run -> Custom run. Stop all: gptmill down")


def down(quiet: bool = False) -> None:
    """Stop the processes that `up` started: SIGTERM to each group, then SIGKILL to what is left."""
    record = read_stack()
    if record is None:
        if not quiet:
            print("The stack is not running.")
        return
    processes: dict[str, Process] = record["processes"]
    for name, process in sorted(processes.items(), reverse=True):  # the worker first: it reports to the server
        if _alive(process):
            _signal(process, signal.SIGTERM)
            deadline = time.monotonic() + _STOP_SECONDS
            while _alive(process) and time.monotonic() < deadline:
                time.sleep(0.1)
            if _alive(process):
                _signal(process, signal.SIGKILL)
        if not quiet:
            print(f"{name:<10} stopped")
    stack_file().unlink(missing_ok=True)


def status() -> None:
    """Print each process, whether it runs, and the addresses to open."""
    record = read_stack()
    if record is None:
        print("The stack is not running. Start it: gptmill up")
        return
    for name, process in record["processes"].items():
        print(f"{name:<10} {'running' if _alive(process) else 'NOT running'} (pid {process['pid']})")
    print(f"\nPrefect  {record['prefect_url']}\nMLflow   {record['mlflow_url']}\nLogs     {state_folder() / 'logs'}")
    if answers(f"{record['mlflow_url']}/health"):
        from tasks.tracking.tracker import Tracker
        from tasks.tracking.views import leaderboard_link

        print(f"Scores   {leaderboard_link(Tracker(record['mlflow_url']))}")


def _refresh_experiments(mlflow_url: str) -> None:
    """Bring the pages of a database that an older version filled up to date; a fresh one gets the published rows."""
    from tasks.report.experiments import show_experiments
    from tasks.tracking.tracker import Tracker

    show_experiments(Tracker(mlflow_url))


def _prefect_server(url: str, port: int) -> Service:
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]
    return Service("prefect", command, lambda: answers(f"{url}/api/health"))


def _mlflow_server(home: Path, url: str, port: int) -> Service:
    command = [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{home / 'mlflow.db'}"]
    command += ["--artifacts-destination", str(home / "mlflow-artifacts"), "--workers", "1"]
    return Service("mlflow", command, lambda: answers(f"{url}/health"))


def _worker(pool: str, runs: int) -> Service:
    """A worker of ``pool`` that takes ``runs`` flow runs at the same time."""
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "process"]
    return Service(f"worker-{pool}", [*command, "--limit", str(runs)], lambda: worker_online(pool))


def _start(service: Service, home: Path) -> Process:
    """Start a service in its own process group; its output goes to a log file of the state folder."""
    print(f"starting {service.name} ...", flush=True)
    with open(home / "logs" / f"{service.name}.log", "ab") as log:
        started = subprocess.Popen(
            service.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    return {"pid": started.pid, "created": psutil.Process(started.pid).create_time()}


def _wait(service: Service, process: Process, home: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not service.ready():
        if not _alive(process) or time.monotonic() > deadline:
            log = home / "logs" / f"{service.name}.log"
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise RuntimeError(f"{service.name} did not start; the end of {log}:\n{tail}")
        time.sleep(0.5)


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it went by itself: that is what was wanted
        os.killpg(process["pid"], number)


def _alive(process: Process) -> bool:
    """Whether that very process runs: a pid that another program has got since is not ours to stop."""
    try:
        found = psutil.Process(process["pid"])
        return found.create_time() == process["created"] and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        if probe.connect_ex((HOST, port)) == 0:
            raise InputError(
                f"port {port} of {HOST} is taken by another program; choose one with --prefect-port/--mlflow-port"
            )
