"""What is over goes after its time, and nothing that somebody still needs goes with it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
import uuid
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
