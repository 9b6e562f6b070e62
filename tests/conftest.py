"""One ephemeral Prefect server and one MLflow database for the whole suite, away from the user's own."""

from __future__ import annotations

import os
import signal
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import certifi
import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

_END = "-----END CERTIFICATE-----\n"
_HOME = tempfile.mkdtemp(prefix="gptmill-tests-")
# Before anything imports Prefect or MLflow: both read their homes once.
os.environ["GPTMILL_HOME"] = _HOME
os.environ["PREFECT_HOME"] = os.path.join(_HOME, "prefect")
os.environ["HF_MODULES_CACHE"] = os.path.join(
    _HOME, "modules"
)  # code of folders, which processes would take from others
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # there are more test processes than cores
# PYTHONDONTWRITEBYTECODE: each of some hundred processes would compile what it imports of this project.
for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "PYTHONDONTWRITEBYTECODE"):
    os.environ.pop(name, None)
os.environ.update(DO_NOT_TRACK="1", PREFECT_SERVER_ANALYTICS_ENABLED="false", MLFLOW_DISABLE_TELEMETRY="true")
os.makedirs(os.environ["PREFECT_HOME"], exist_ok=True)

# Each of a thousand clients would read all authorities, 20 ms, and no server here has a certificate.
_AUTHORITY = Path(_HOME) / "authority.pem"
_AUTHORITY.write_text(Path(certifi.where()).read_text(encoding="utf-8").partition(_END)[0] + _END, encoding="utf-8")
os.environ["PREFECT_API_SSL_CERT_FILE"] = str(_AUTHORITY)

# A machine with other work takes longer for an example, which says nothing about what is tested.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

_LONGEST = (
    "test_pipeline.py",
    "test_abstracts.py",
    "test_analysis.py",
    "test_students.py",
    "test_distil.py",
    "test_worlds.py",
    "test_kill.py",
    "test_encoders.py",
    "test_from_task.py",
    "test_sweep.py",
    "test_own_tasks.py",
    "test_toy_family.py",
    "test_family.py",
    "test_masked_jobs.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of many minutes first: of those that start last one worker would have to wait for another."""
    items.sort(key=lambda item: _LONGEST.index(item.path.name) if item.path.name in _LONGEST else len(_LONGEST))


# pytest tells the environment which test runs. Jobs are forked from a process with their imports behind it only where
# the environment is the one that it was started with; else each of some hundred would import torch again.
@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup() -> None:
    os.environ.pop("PYTEST_CURRENT_TEST", None)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call() -> None:
    os.environ.pop("PYTEST_CURRENT_TEST", None)


def pytest_fixture_post_finalizer() -> None:
    """pytest takes its variable away at a test's end, and fails where a fixture has put the environment back before."""
    os.environ.setdefault("PYTEST_CURRENT_TEST", "")


@pytest.fixture
def ctrl_c_raises() -> Iterator[None]:
    """Python's own handler, which is not there when the suite is started in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Prefect's own test harness, once: it starts a server on a temporary database.

    Yields a copy of that database as it was when its tables had been made, which takes a server seven seconds of work.
    """
    from prefect.settings import PREFECT_SERVER_DATABASE_CONNECTION_URL
    from prefect.testing.utilities import prefect_test_harness

    from flows.servers.environment import SETTINGS

    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:  # read as it starts; servers that tests start have their own
            for name, value in SETTINGS["temporary-server"].items():
                patch.setenv(name, value)
            stack.enter_context(prefect_test_harness(server_startup_timeout=120))
        database = str(PREFECT_SERVER_DATABASE_CONNECTION_URL.value()).partition("///")[2]
        fresh = tmp_path_factory.mktemp("prefect") / "prefect.db"
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(fresh)) as copy:
            source.backup(copy)
        yield fresh


@pytest.fixture(scope="module", autouse=True)
def _as_it_was_found(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a file's tests left in MLflow and on the server: no other file's tests see it, whatever their order is."""
    tracked = Path(_HOME) / "mlflow.db"
    before = _written(tracked)
    yield
    if _written(tracked) != before:
        _forget_runs(tracked)
    if any("prefect_server" in item.fixturenames for item in request.session.items if item.path == request.path):
        from prefect.client.orchestration import get_client

        with get_client(sync_client=True) as client:
            forget_deployments(client)


def _written(file: Path) -> int:
    """When a file was last written to; 0: never."""
    return file.stat().st_mtime_ns if file.exists() else 0


def forget_deployments(client: SyncPrefectClient) -> None:
    """Delete what `gptmill deploy` makes for other runs to meet: deployments and automations."""
    for path in ("deployments", "automations"):
        while found := client.request("POST", f"/{path}/filter", json={"limit": 200}).json():
            for item in found:
                client.request("DELETE", f"/{path}/{item['id']}")


def _forget_runs(database: Path) -> None:
    """Empty MLflow's tables, but for what a fresh database has, and the published scores, which never change."""
    from tasks.report.suites import PUBLISHED_EXPERIMENT

    with closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {table: {row[1] for row in connection.execute(f"PRAGMA table_info('{table}')")} for table in tables}
        published = "SELECT experiment_id FROM experiments WHERE name = ?"
        kept = {
            "run_uuid": f"SELECT run_uuid FROM runs WHERE experiment_id IN ({published})",
            "experiment_id": published,
        }
        last = ["runs", "experiments"]  # they say what is kept
        for table in [*sorted(set(tables) - {"alembic_version", "workspaces", *last}), *last]:
            column = next((name for name in kept if name in columns[table]), None)
            where = f"WHERE {column} NOT IN ({kept[column]}) AND {column} != '0'" if column else ""  # 0: MLflow's own
            connection.execute(f'DELETE FROM "{table}" {where}', (PUBLISHED_EXPERIMENT,) if column else ())
