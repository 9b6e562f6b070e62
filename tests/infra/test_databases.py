"""The production stack's databases, made by their script on a real PostgreSQL: each role in its own, and no other."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from flows.servers.credentials import POSTGRES_PASSWORD
from flows.servers.stack import postgres
from flows.servers.stack.processes import start, stop, wait_until_ready
from tests.trials.scenarios import free_ports

SCRIPT = Path(__file__).resolve().parents[2] / "infra" / "databases.sql"
PASSWORDS = {"gptmill": "of-the-superuser", "prefect": "of-prefect's role", "mlflow": "of-mlflow"}
OWNERS = {"prefect": "prefect", "mlflow": "mlflow", "mlflow_auth": "mlflow"}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a PostgreSQL server of the version that `up --full` starts."""
    home = tmp_path_factory.mktemp("databases")
    (chosen,) = free_ports(1)
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("GPTMILL_HOME", str(home))
        credentials = {POSTGRES_PASSWORD: PASSWORDS["gptmill"]}
        postgres.prepare(credentials)
        server = postgres.postgres(chosen, credentials)
        process = start(server, home)
        try:
            wait_until_ready(server, process, home)
            yield chosen
        finally:
            stop([(process, postgres.STOP_SIGNAL)])


def run_script(port: int) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "PGPASSWORD": PASSWORDS["gptmill"],
        "PREFECT_DATABASE_PASSWORD": PASSWORDS["prefect"],
        "MLFLOW_DATABASE_PASSWORD": PASSWORDS["mlflow"],
    }
    psql = [str(postgres.program("psql")), "-h", "127.0.0.1", "-p", str(port), "-U", "gptmill", "--file", str(SCRIPT)]
    done = subprocess.run([*psql, "postgres"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def ask(port: int, role: str, database: str, *queries: str) -> list[Any]:
    connection = psycopg2.connect(host="127.0.0.1", port=port, user=role, dbname=database, password=PASSWORDS[role])
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            for query in queries:
                cursor.execute(query)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def test_each_role_has_its_own_databases_and_no_other(port: int) -> None:
    for database in OWNERS:  # as the older script left them, filled by its superuser
        ask(port, "gptmill", "postgres", f"CREATE DATABASE {database}")
    made = ["CREATE TYPE kind AS ENUM ('a')", "CREATE TABLE old (n serial PRIMARY KEY, k kind)", "CREATE TABLE kept ()"]
    ask(port, "gptmill", "prefect", *made, "INSERT INTO old (k) VALUES ('a')")
    for _ in range(2):
        run_script(port)
    for database, owner in OWNERS.items():
        ask(port, owner, database, "CREATE TABLE fresh (n int)", "SELECT * FROM fresh")
        with pytest.raises(psycopg2.OperationalError, match="permission denied for database"):
            ask(port, "mlflow" if owner == "prefect" else "prefect", database)
    changed = ["ALTER TYPE kind ADD VALUE 'b'", "ALTER TABLE old ADD COLUMN m int", "CREATE EXTENSION pg_trgm"]
    ask(port, "prefect", "prefect", *changed, "INSERT INTO old (k) VALUES ('b')")  # as migrations do
    assert ask(port, "prefect", "prefect", "SELECT count(*) FROM old") == [(2,)]
    for role in ("prefect", "mlflow"):
        rights = "SELECT rolsuper, rolcreatedb, rolcreaterole FROM pg_roles WHERE rolname = current_user"
        assert ask(port, role, role, rights) == [(False, False, False)]
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            ask(port, role, role, "CREATE ROLE another SUPERUSER")
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            ask(port, role, role, "COPY (SELECT 1) TO PROGRAM 'cat'")
