"""Which processes a stack has, in the order of their start, and what each is told."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from flows.servers.credentials import (
    ADMIN,
    MLFLOW,
    MLFLOW_DATABASE_PASSWORD,
    MLFLOW_SECRET_KEY,
    PREFECT,
    PREFECT_DATABASE_PASSWORD,
    S3,
)
from flows.servers.environment import AWAY, answers, pages_of
from flows.servers.pools import CPU, TRAINERS, worker_online
from flows.servers.stack import postgres, s3
from flows.servers.stack.processes import Service
from gptcore.base.errors import InputError, require
from tasks.jobs.placement import slots
from tasks.store.state import state_folder

HOST = "127.0.0.1"
_CPU_RUNS = 4  # flows that mostly wait for trainings; more of them at once is memory for nothing
_DATABASE_SECONDS = "60"  # Prefect's own 5 and 10 are too few beside trainings that take every core
_AWAITED = "P7D"  # how long Prefect remembers what should have come: its minute is shorter than a power cut
_PASSWORD_SECONDS = 300  # MLflow believes a password so long: hashing it costs 0.1 s and more a request
_LAST_PORT = 65_535
LEVELS = ((postgres.NAME, s3.NAME), ("prefect", "mlflow"), (f"worker-{CPU}", f"worker-{TRAINERS}"))
"""The names of all services: each level needs the ones before it."""


@dataclass(frozen=True)
class Layout:
    """Which stack it is, and where its servers listen."""

    full: bool
    prefect_port: int
    mlflow_port: int
    postgres_port: int
    s3_port: int

    @property
    def prefect_url(self) -> str:
        return f"http://{HOST}:{self.prefect_port}"

    @property
    def mlflow_url(self) -> str:
        return f"http://{HOST}:{self.mlflow_port}"

    @property
    def s3_url(self) -> str:
        return f"http://{HOST}:{self.s3_port}"

    @property
    def names(self) -> list[str]:
        """The services of the stack, in the order of their start."""
        return [name for level in LEVELS[0 if self.full else 1 :] for name in level]

    @property
    def chosen(self) -> dict[str, int]:
        """The port of each of its servers that clients use."""
        ports = {"prefect": self.prefect_port, "mlflow": self.mlflow_port}
        return ports | ({postgres.NAME: self.postgres_port, s3.NAME: self.s3_port} if self.full else {})

    def ports(self, names: Collection[str]) -> dict[int, str]:
        """Port -> the option that chooses it, of those that the services ``names`` take.

        :raises InputError: one of its ports is none, or two of its services would have the same.
        """
        taken: dict[int, str] = {}
        for name, port in self.chosen.items():
            every, last = (s3.ports(port), s3.LAST_PORT) if name == s3.NAME else ([port], _LAST_PORT)
            require(0 < port <= last, f"--{name}-port: found {port}, expected 1 to {last}")
            for one in every:
                if one in taken:
                    others = f" (it takes {', '.join(map(str, every))})" if len(every) > 1 else ""
                    raise InputError(f"--{name}-port {port}{others}: {one} is also --{taken[one]}-port; choose another")
                taken[one] = name
        return {port: f"--{name}-port" for port, name in taken.items() if name in names}


def service(name: str, layout: Layout, credentials: Mapping[str, str]) -> Service:
    """One of ``layout.names``.

    :param credentials: of the full stack; the light one has none.
    :raises InputError: its program is not installed.
    """
    if name == postgres.NAME:
        return postgres.postgres(layout.postgres_port, credentials)
    if name == s3.NAME:
        return s3.s3(layout.s3_port, credentials)
    if name == "prefect":
        return _prefect(layout, credentials)
    if name == "mlflow":
        return _mlflow(layout, credentials)
    return _worker(name, layout, credentials)


def _prefect(layout: Layout, credentials: Mapping[str, str]) -> Service:
    command = [sys.executable, "-m", "flows.servers.prefect_server", "--host", HOST, "--port", str(layout.prefect_port)]
    environment = {
        "PREFECT_UI_URL": pages_of(layout.prefect_url),
        "PREFECT_SERVER_EVENTS_EXPIRED_BUCKET_BUFFER": _AWAITED,
    }
    if layout.full:
        environment |= {
            "PREFECT_SERVER_API_AUTH_STRING": credentials[PREFECT[1]],
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": postgres.uri("prefect", layout.postgres_port, "asyncpg"),
            "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": _DATABASE_SECONDS,
            "PREFECT_SERVER_DATABASE_TIMEOUT": _DATABASE_SECONDS,
            "PGPASSWORD": credentials[PREFECT_DATABASE_PASSWORD],
        }
    return Service("prefect", command, lambda: _prefect_answers(layout, credentials), environment)


def _prefect_answers(layout: Layout, credentials: Mapping[str, str]) -> bool:
    return answers(f"{layout.prefect_url}/api/admin/version", credentials.get(PREFECT[1]))


def _mlflow(layout: Layout, credentials: Mapping[str, str]) -> Service:
    command = [sys.executable, "-m", "flows.servers.mlflow_server", "--host", HOST, "--port", str(layout.mlflow_port)]
    command += ["--workers", "1"]
    environment = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # judges of LLM traces: processes we have no use for
    if layout.full:
        command += ["--app-name", "basic-auth", "--artifacts-destination", s3.MLFLOW_ARTIFACTS]
        environment |= {
            "MLFLOW_BACKEND_STORE_URI": postgres.uri("mlflow", layout.postgres_port, "psycopg2"),
            "PGPASSWORD": credentials[MLFLOW_DATABASE_PASSWORD],
            "MLFLOW_AUTH_CONFIG_PATH": str(users_file()),
            "MLFLOW_AUTH_ADMIN_USERNAME": ADMIN,
            "MLFLOW_AUTH_ADMIN_PASSWORD": credentials[MLFLOW[2]],
            MLFLOW_SECRET_KEY: credentials[MLFLOW_SECRET_KEY],
            **{name: credentials[name] for name in S3},
        }
    else:
        command += ["--backend-store-uri", f"sqlite:///{state_folder() / 'mlflow.db'}"]
        command += ["--artifacts-destination", str(state_folder() / "mlflow-artifacts")]
    url = f"{layout.mlflow_url}/api/2.0/mlflow/experiments/search?max_results=1"
    login = f"{ADMIN}:{credentials[MLFLOW[2]]}" if layout.full else None
    return Service("mlflow", command, lambda: answers(url, login), environment)


def users_file() -> Path:
    """What tells MLflow where its users are; it holds no secret."""
    return state_folder() / "mlflow-users.ini"


def write_users_file(layout: Layout) -> None:
    """Write it anew: the database's port may have changed."""
    settings = {
        "default_permission": "READ",
        "database_uri": postgres.uri("mlflow_auth", layout.postgres_port, "psycopg2"),
        "auth_cache_ttl_seconds": str(_PASSWORD_SECONDS),
    }
    lines = ["[mlflow]", *(f"{name} = {value}" for name, value in settings.items())]
    users_file().write_text("\n".join(lines) + "\n", encoding="utf-8")


def _worker(name: str, layout: Layout, credentials: Mapping[str, str]) -> Service:
    pool = name.removeprefix("worker-")
    runs = slots() if pool == TRAINERS else _CPU_RUNS
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "process"]
    command += ["--limit", str(runs)]
    return Service(name, command, lambda: _prefect_answers(layout, credentials) and worker_online(pool))


def client_variables(layout: Layout, credentials: Mapping[str, str]) -> dict[str, str]:
    """What this process, the workers and their runs get, whatever their environment said before."""
    addresses = {
        "PREFECT_API_URL": f"{layout.prefect_url}/api",
        "PREFECT_UI_URL": pages_of(layout.prefect_url),
        "PREFECT_HOME": str(state_folder() / "prefect"),
        "MLFLOW_TRACKING_URI": layout.mlflow_url,
    }
    secrets = {name: credentials[name] for name in (*PREFECT, *MLFLOW, *S3) if name in credentials}
    return addresses | secrets | (AWAY if layout.full else {})
