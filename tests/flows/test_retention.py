"""What is over goes after its time, and nothing that somebody still needs goes with it."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from flows.upkeep import retention
from tasks.tracking.tracker import Tracker

_DAY = 24 * 3600


def insert(database: sqlite3.Connection, table: str, **given: Any) -> None:
    """A row whose other columns are as empty as they may be."""
    columns = database.execute(f"PRAGMA table_info({table})").fetchall()
    needed = {name: "{}" if kind == "JSON" else "" for _, name, kind, notnull, default, _ in columns if notnull}
    row = {**needed, **given}
    marks = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def test_prefects_old_runs_go_with_all_that_is_theirs(prefect_server: Path, tmp_path: Path) -> None:
    """On the database of a command's own server, which lives too short to do it; what runs or is young stays."""
    file = tmp_path / "home" / "prefect" / "prefect.db"
    file.parent.mkdir(parents=True)
    shutil.copyfile(prefect_server, file)
    ends = {"old": ("COMPLETED", 100), "young": ("COMPLETED", 80), "running": ("RUNNING", 100)}
    with closing(sqlite3.connect(file)) as database, database:
        flow = str(uuid.uuid4())
        insert(database, "flow", id=flow, name="pipeline")
        for name, (state, days) in ends.items():
            then = f"{datetime.now(UTC) - timedelta(days=days):%Y-%m-%d %H:%M:%S.%f}"
            run = str(uuid.uuid4())
            end = then if state == "COMPLETED" else None
            insert(database, "flow_run", id=run, flow_id=flow, name=name, state_type=state, end_time=end, run_count=1)
            insert(
                database, "task_run", id=str(uuid.uuid4()), flow_run_id=run, name=name, task_key=name, dynamic_key="0"
            )
            insert(
                database,
                "log",
                id=str(uuid.uuid4()),
                flow_run_id=run,
                name=name,
                level=20,
                message=name,
                timestamp=then,
            )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment["GPTMILL_HOME"] = str(tmp_path / "home")
    code = (
        "from flows.servers import environment; environment.prepare(); from flows.upkeep.retention import forget; "
        "print(*forget(90), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert f"{file}: 1 flow runs deleted" in done.stdout
    with closing(sqlite3.connect(file)) as database:
        for table in ("flow_run", "task_run", "log"):
            assert {name for (name,) in database.execute(f"SELECT name FROM {table}")} == {"young", "running"}


def test_what_was_deleted_in_mlflow_goes_for_good_unless_a_registered_model_is_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracker = Tracker()
    runs = {}
    for name in ("old", "young", "registered", "living"):
        with tracker.open("gptmill-leaderboard", name, name, {}, {}) as run:
            runs[name] = run.run_id
            (tmp_path / "card.md").write_text(name)
            run.log_artifact(tmp_path / "card.md")
    client = tracker.client
    client.create_registered_model("gptmill-rte")
    client.create_model_version("gptmill-rte", f"runs:/{runs['registered']}/model", runs["registered"])
    for name in ("old", "young", "registered"):
        client.delete_run(runs[name])
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        for name, days in {"old": 100, "registered": 100, "young": 80}.items():
            then = int((time.time() - days * _DAY) * 1000)
            database.execute("UPDATE runs SET deleted_time = ? WHERE run_uuid = ?", (then, runs[name]))
    assert [line for line in retention.forget(90) if "mlflow" in line] == [
        f"{tmp_path / 'mlflow.db'}: 1 deleted runs are gone for good"
    ]
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        left = {run for (run,) in database.execute("SELECT run_uuid FROM runs")}
    assert left == {runs[name] for name in ("young", "registered", "living")}
    files = {path.parents[1].name for path in (tmp_path / "mlflow-artifacts").rglob("card.md")}
    assert files == left, "files go with their run"


def test_a_big_log_is_begun_anew_under_the_hands_of_who_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    monkeypatch.setattr(retention, "_LOG_BYTES", 100)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "mlflow.log").write_text("small\n")
    with open(tmp_path / "logs" / "prefect.log", "ab", buffering=0) as server:
        for lines in (30, 20):
            server.write(b"a line\n" * lines)
            assert any("prefect.log begun anew" in line for line in retention.forget(90))
        server.write(b"the next\n")
    assert (tmp_path / "logs" / "prefect.log").read_text() == "the next\n"
    assert (tmp_path / "logs" / "prefect.log.1").read_text() == "a line\n" * 20
    assert (tmp_path / "logs" / "mlflow.log").read_text() == "small\n"


@pytest.fixture
def busy_home(prefect_server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home with a run that was deleted long ago, to whose databases another process writes."""
    home = tmp_path / "home"
    monkeypatch.setenv("GPTMILL_HOME", str(home))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (home / "prefect").mkdir(parents=True)
    shutil.copyfile(prefect_server, home / "prefect" / "prefect.db")
    (tmp_path / "store" / "corpus").mkdir(parents=True)
    tracker = Tracker()
    with tracker.open("gptmill-leaderboard", "old", "old", {}, {}) as run:
        pass
    tracker.client.delete_run(run.run_id)
    with closing(sqlite3.connect(home / "mlflow.db")) as database, database:
        database.execute("UPDATE runs SET deleted_time = 1 WHERE run_uuid = ?", (run.run_id,))
    code = (
        "import sqlite3, sys\n"
        "held = [sqlite3.connect(file) for file in sys.argv[1:]]\n"
        "for database in held: database.execute('BEGIN IMMEDIATE')\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    files = (str(home / "prefect" / "prefect.db"), str(home / "mlflow.db"))
    command = [sys.executable, "-c", code, *files]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "held\n"
        yield home
        writer.communicate("")


def gc_beside(home: Path) -> subprocess.Popen[str]:
    """`gptmill gc --yes`, its output line by line."""
    named = ("PREFECT_", "MLFLOW_TRACKING")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(named)}
    command = [sys.executable, "-m", "flows.cli", "gc", "--yes", "--store", str(home.parent / "store")]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def whole(home: Path) -> None:
    for name in ("prefect/prefect.db", "mlflow.db"):
        with closing(sqlite3.connect(home / name)) as database:
            assert database.execute("PRAGMA quick_check").fetchone() == ("ok",)


def test_a_database_that_another_process_writes_to_is_waited_for_some_seconds_in_all(busy_home: Path) -> None:
    with gc_beside(busy_home) as cleaning:
        assert cleaning.stdout is not None
        lines = []
        for line in cleaning.stdout:
            lines.append(line.rstrip())
            if line.startswith("waiting for"):
                break
        began = time.monotonic()
        said, _ = cleaning.communicate()
        lasted = time.monotonic() - began
    lines += said.splitlines()
    assert cleaning.returncode == 0, lines
    prefect, mlflow = busy_home / "prefect" / "prefect.db", busy_home / "mlflow.db"
    assert lines[-3:] == [
        f"waiting for {prefect}, which another process writes to",
        f"{prefect}: left as it is (database is locked)",
        f"{mlflow}: left as it is (database is locked)",
    ]
    assert lasted < 50, "5 s and the process' end, and not a minute a statement"
    whole(busy_home)


@pytest.mark.usefixtures("ctrl_c_raises")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_wait_for_a_database_at_once(busy_home: Path, number: signal.Signals, code: int) -> None:
    with gc_beside(busy_home) as cleaning:
        assert cleaning.stdout is not None
        while not cleaning.stdout.readline().startswith("waiting for"):
            assert cleaning.poll() is None
        cleaning.send_signal(number)
        said, _ = cleaning.communicate(timeout=60)
    assert cleaning.returncode == code
    assert said.startswith("gptmill: ")  # and not that a database is left as it is, which the wait's end would say
    whole(busy_home)
