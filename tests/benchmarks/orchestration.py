"""What a pipeline costs beside its training: finding what is there, following a job, tracking it, the leaderboard."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
import uuid
from contextlib import closing
from pathlib import Path

import psutil

from tasks.report.rows import Cell, Row
from tasks.report.suites import EXPERIMENT, record_row
from tasks.tracking.tracker import Tracker
from tests.benchmarks.table import Rate, line

_FEW = Path(__file__).with_name("few.toml")
_TURNS = 3
_POINTS = 50
_ROWS = 1_000
_COLUMNS = ("mnli_m", "mnli_mm", "snli", "scitail", "qnli", "rte", "storycloze", "race", "cola", "sst2", "mrpc", "stsb")


def run(seconds: float, folder: Path) -> None:
    """Rows 11 and 12."""
    os.environ["GPTMILL_HOME"] = str(folder / "home")
    pipeline = ["pipeline", "--preset", "demo", "--config", str(_FEW), "--store", str(folder / "store")]
    _gptmill(pipeline)
    spent = Rate(tuple(_gptmill(pipeline) for _ in range(_TURNS)))
    line("11", "a pipeline that finds everything in the store", spent, None, "s", "< 5 s")
    share = Rate(tuple(_beside_training(folder, turn, seconds) for turn in range(2)))  # over a minute each
    line("11", "CPU time of flow, server and tracking, of a training's", share, None, "%", "< 3 %")
    _points(folder)
    _board(folder)


def _gptmill(arguments: list[str]) -> float:
    """Seconds of a command."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "flows.cli", *arguments], check=True, capture_output=True)
    return time.perf_counter() - began


def _beside_training(folder: Path, turn: int, seconds: float) -> float:
    """What the command and its server use while their job trains, in percent of what the job uses."""
    steps = str(500 + turn)  # another number is another model, which the store does not have
    arguments = ["pretrain", "--preset", "demo", "--store", str(folder / "store"), "--steps", steps]
    used: dict[str, list[float]] = {"job": [], "beside": []}
    command = [sys.executable, "-m", "flows.cli", *arguments]
    with psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            time.sleep(0.2)
            with contextlib.suppress(psutil.Error):  # one of them has ended meanwhile
                children = process.children()
                jobs = [child for child in children if "gptcore.training.pretrain" in child.cmdline()]
                beside = sum(_cpu(one) for one in (process, *children) if one not in jobs)
                if jobs and (job := _cpu(jobs[0])) > seconds / 2:  # it trains by now
                    used["job"].append(job)
                    used["beside"].append(beside)
    assert process.returncode == 0
    spent = {name: seconds_used[-1] - seconds_used[0] for name, seconds_used in used.items()}
    return 100 * spent["beside"] / spent["job"]


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _points(folder: Path) -> None:
    """Metrics of fifty updates, as a job's observer sends them."""
    tracker = Tracker(f"sqlite:///{folder / 'points.db'}")
    spent = []
    for turn in range(_TURNS):
        with tracker.open("bench", "points", str(turn), {}, {}) as run:
            now = time.time()
            records = [
                {"step": step, "time": now, "metrics": {"train/loss": 1 / (step + 1)}} for step in range(_POINTS)
            ]
            began = time.perf_counter()
            run.log_metrics(records)
            spent.append(time.perf_counter() - began)
    line("11", f"{_POINTS} points of a metric, to SQLite", Rate(tuple(spent)), None, "s", "< 0.2 s")


def _board(folder: Path) -> None:
    """`gptmill leaderboard` over so many rows of twelve tasks, none of them read before."""
    os.environ["GPTMILL_HOME"] = str(folder / "board")
    tracker = Tracker(f"sqlite:///{folder / 'board' / 'mlflow.db'}")
    cells = {column: Cell("dev", 1, 50.0, 50.0, 2.0, commits=("0" * 40,)) for column in _COLUMNS}
    row = Row("pre-trained 000000", "ours", "dev", dict.fromkeys(_COLUMNS, 50.0), cells, suite="0")
    with tracker.open(EXPERIMENT, row.name, "0", {"kind": "ours", "suite": "0"}, {}) as run:
        record_row(run, row)
    _copy_run(folder / "board" / "mlflow.db", run.run_id, _ROWS - 1)
    spent = []
    for _ in range(_TURNS):
        (folder / "board" / "leaderboard.json").unlink(missing_ok=True)
        spent.append(_gptmill(["leaderboard"]))
    line("12", f"leaderboard over {_ROWS:,} rows, command and imports", Rate(tuple(spent)), None, "s", "< 5 s")


def _copy_run(database: Path, run_id: str, times: int) -> None:
    """Copy a run under other names, past MLflow: by its client a thousand runs take minutes."""
    with closing(sqlite3.connect(database)) as connection, connection:
        for table in ("runs", "tags", "metrics", "latest_metrics"):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            copied = ", ".join({"run_uuid": ":id", "name": ":name"}.get(column, column) for column in columns)
            connection.executemany(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {copied} FROM {table} WHERE run_uuid = :of",
                [{"id": uuid.uuid4().hex, "name": f"pre-trained {n:06d}", "of": run_id} for n in range(1, times + 1)],
            )
