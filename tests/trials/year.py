"""What a year of nightly runs leaves behind: a pipeline that finds everything, night after night, by a moved clock.

    python -m tests.trials.year --folder FOLDER [--nights 365] [--every 7] [--row-every 28]

The first run makes everything (a short demo); each later one finds it, at a later time of day (clock.c, which needs
gcc). Of so many nights one is run, and `gptmill gc --yes` after it; what its run left in Prefect's database is copied
for the nights before it, with times and names of their own (MLflow's gets nothing of a run that finds everything).
`--every 1` runs all. A row now and then says how big the databases are, in MB, and how long the run, `gptmill
leaderboard` and `gc` took: seconds by the clock, and of all cores. A folder that is there goes on. The exit code is 1
where `leaderboard` took the cores more than 3 s at the end.
"""

from __future__ import annotations

import os
import re
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Container, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.trials.scenarios import compile_shim, options

_DAY = 24 * 3600
_SETTINGS = Path(__file__).resolve().parents[2] / "infra" / "short-demo.toml"
_GOAL = 3.0  # seconds of `leaderboard`
_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+")


def timed(words: list[str], environment: Mapping[str, str], folder: Path) -> tuple[float, float]:
    """Seconds by the clock, and of all cores, that a command took."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(folder / "out.txt", "wb") as out:
        command = [sys.executable, "-m", "flows.cli", *words]
        subprocess.run(command, check=True, env=dict(environment), stdout=out, stderr=subprocess.STDOUT)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - began, spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime


def copied(database: Path, nights: int) -> None:
    """Give each of the nights before the last run its rows: the same, with other names, a day earlier each."""
    with closing(sqlite3.connect(database)) as there, there:
        newest = (
            "SELECT id FROM flow_run WHERE start_time > datetime((SELECT max(start_time) FROM flow_run), '-12 hours')"
        )
        tasks = f"SELECT id FROM task_run WHERE flow_run_id IN ({newest})"
        belongs = {
            "flow_run": f"id IN ({newest})",
            **dict.fromkeys(("flow_run_state", "task_run", "log"), f"flow_run_id IN ({newest})"),
            "task_run_state": f"task_run_id IN ({tasks})",
        }
        rows = {table: there.execute(f"SELECT * FROM {table} WHERE {of}").fetchall() for table, of in belongs.items()}
        names = {
            row[column]
            for table, rows_of_table in rows.items()
            for row in rows_of_table
            for column in [_id(there, table)]
        }
        for night in range(1, nights + 1):
            for table, rows_of_table in rows.items():
                insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows_of_table[0]))})"
                there.executemany(insert, ([_earlier(value, night, names) for value in row] for row in rows_of_table))


def _earlier(value: Any, nights: int, names: Container[str]) -> Any:
    if _is(_TIME, value):
        return f"{datetime.fromisoformat(value) - timedelta(days=nights):%Y-%m-%d %H:%M:%S.%f}"
    if value not in names:
        return value
    moment = (int(value[:8] + value[9:13], 16) - nights * _DAY * 1000) % (1 << 48)  # of a UUIDv7, in ms
    return f"{moment >> 16:08x}-{moment & 0xFFFF:04x}{value[13:]}"


def _id(there: sqlite3.Connection, table: str) -> int:
    return [column[1] for column in there.execute(f"PRAGMA table_info({table})")].index("id")


def _is(form: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and form.fullmatch(value) is not None


def size(path: Path) -> float:
    """Megabytes of a file, or of all that lies in a folder."""
    files = path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.name}*")
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def main() -> int:
    """Print a row now and then."""
    parser = options(__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where home and store are")
    parser.add_argument("--nights", type=int, default=365, help="(%(default)s)")
    parser.add_argument("--every", type=int, default=7, help="nights of which one is run (%(default)s)")
    parser.add_argument("--row-every", type=int, default=28, help="nights (%(default)s)")
    given = parser.parse_args()
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    home, store, done = folder / "home", folder / "store", folder / "nights"
    library = compile_shim(Path(__file__).with_name("clock.c"), folder)
    run = ["pipeline", "--config", str(_SETTINGS), "--store", str(store)]
    night, cores = int(done.read_text(encoding="ascii")) if done.exists() else 0, 0.0
    head = ("night", "prefect.db", "mlflow.db", "files", "logs", "run s", "cores", "board s", "cores", "gc s", "cores")
    print("".join(f"{word:>11}" for word in head), flush=True)
    while night <= given.nights:
        ahead = {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(night * _DAY)}
        environment = {**os.environ, "GPTMILL_HOME": str(home), **ahead}
        took = timed(run, environment, folder)
        if night > 1:
            copied(home / "prefect" / "prefect.db", given.every - 1)
        gc = timed(["gc", "--yes", "--store", str(store)], environment, folder)
        if night <= 1 or night % given.row_every == 0 or night + given.every > given.nights:
            board = timed(["leaderboard"], environment, folder)
            cores = board[1]
            sizes = [size(home / name) for name in ("prefect/prefect.db", "mlflow.db", "mlflow-artifacts", "logs")]
            row = [f"{night}", *(f"{each:.1f}" for each in (*sizes, *took, *board, *gc))]
            print("".join(f"{word:>11}" for word in row), flush=True)
        night += given.every if night else 1
        night -= night % given.every if night > 1 else 0
        done.write_text(str(night), encoding="ascii")
    return int(cores > _GOAL)


if __name__ == "__main__":
    sys.exit(main())
