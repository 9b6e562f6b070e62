"""The leaderboard's rows as they were last read, kept beside MLflow's SQLite file until that changes.

Importing MLflow and opening its database takes longer than anybody waits for a table. A file that says of which
database it is, is believed; any other one is written anew.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from gptcore.base.files import write_json_atomic
from tasks.report.leaderboard import Cell, Leaderboard, Row, published_rows
from tasks.report.suites import read_rows
from tasks.store.state import state_folder
from tasks.tracking.tracker import Tracker
from tasks.tracking.views import leaderboard_line

_VERSION = 3  # of the file
_SQLITE = "sqlite:///"


def kept_leaderboard(tracker: Tracker | None = None) -> tuple[Leaderboard, str]:
    """The board of :func:`tasks.report.suites.read_leaderboard` and the words that lead to its page.

    MLflow is not asked where its SQLite file is as it was.
    """
    tracker = tracker or Tracker()
    path, before = state_folder() / "leaderboard.json", _state(tracker.uri)
    kept = _kept(path, before)
    if kept is None:
        kept = read_rows(tracker), leaderboard_line(tracker)
        after = _state(tracker.uri)
        if after is not None and (before == after or before is None):  # nobody wrote meanwhile
            rows = [dataclasses.asdict(row) for row in kept[0]]
            write_json_atomic(path, {"of": after, "rows": rows, "page": kept[1]})
    return Leaderboard((*kept[0], *published_rows())), kept[1]


def _state(uri: str) -> Any | None:
    """What tells one state of the database from the next; None where it is no file, or none yet."""
    database = Path(uri.removeprefix(_SQLITE))
    if not uri.startswith(_SQLITE) or not database.is_file():
        return None
    files = [file for file in (database, database.with_name(f"{database.name}-wal")) if file.is_file()]
    stats = [(file.name, file.stat()) for file in files]
    return [_VERSION, uri, [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]]


def _kept(path: Path, state: Any | None) -> tuple[list[Row], str] | None:
    """The rows and the words in the file; None where it is of another state, or none of ours."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if state is None or kept["of"] != state:
            return None
        return [_row(row) for row in kept["rows"]], str(kept["page"])
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _row(row: dict[str, Any]) -> Row:
    cells = {column: Cell(**{**cell, "commits": tuple(cell["commits"])}) for column, cell in row["cells"].items()}
    return Row(**{**row, "cells": cells})
