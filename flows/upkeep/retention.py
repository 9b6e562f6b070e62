"""Retention: for how long Prefect, MLflow, the servers' logs and the memory of files keep what is over.

A Prefect server that stays deletes old runs and events by itself, once an hour (`flows/servers/settings.toml`). That of
a single command does not live long enough, so it is done here on its database; so is what MLflow leaves to
`mlflow gc`: runs that somebody has deleted.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, redirect_stdout
from datetime import timedelta
from pathlib import Path

from tasks.store.state import SERVED, state_folder
from tasks.tracking.database import sqlite_file
from tasks.tracking.tracker import Tracker

_DAY = 24 * 3600.0  # seconds
_LOG_BYTES = 10_000_000
_BUSY_SECONDS = 60.0  # how long another process may write to a database before it is left as it is
_DELETED = """
    SELECT run_uuid FROM runs WHERE lifecycle_stage = 'deleted' AND deleted_time < ?
    AND run_uuid NOT IN (SELECT run_id FROM model_versions WHERE run_id IS NOT NULL)"""
"""Runs of MLflow that were deleted before a time (ms), but for those that a registered model is of."""


def forget(days: float) -> Iterator[str]:
    """Delete what is over and older than ``days``, and say how much that was, a line a place where it was any."""
    for said in (_prefect(days), _mlflow(days), _logs(), _digests(days)):
        if said:
            yield said


def _prefect(days: float) -> str:
    """Flow runs that have ended, with their task runs, logs and artifacts; events after Prefect's own seven days.

    Nothing where a server is set, which does so itself.
    """
    if os.environ.get("PREFECT_API_URL"):
        return ""
    file = Path(os.environ.get("PREFECT_HOME") or state_folder() / "prefect") / "prefect.db"
    if not file.is_file():
        return ""
    from prefect.settings import (
        PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD as RETENTION,
    )
    from prefect.settings import temporary_settings
    from sqlalchemy.exc import OperationalError

    try:
        before = _flow_runs(file)
        with temporary_settings({RETENTION: timedelta(days=days)}):
            asyncio.run(_vacuum())
        with closing(sqlite3.connect(file, timeout=_BUSY_SECONDS)) as database:
            database.execute("VACUUM")
    except (OperationalError, sqlite3.OperationalError) as error:  # in use, or of another version of Prefect
        return f"{file}: left as it is ({str(error).partition(chr(10))[0]})"
    gone = before - _flow_runs(file)
    return f"{file}: {gone:,} flow runs deleted, {file.stat().st_size / 1e6:.1f} MB left" if gone else ""


def _flow_runs(file: Path) -> int:
    with closing(sqlite3.connect(file, timeout=_BUSY_SECONDS)) as database:
        return int(database.execute("SELECT count(*) FROM flow_run").fetchone()[0])


async def _vacuum() -> None:
    from prefect.server.database import provide_database_interface
    from prefect.server.services import db_vacuum

    db = provide_database_interface()
    await db_vacuum.vacuum_old_flow_runs(db=db)
    await db_vacuum.vacuum_stale_artifact_collections(db=db)
    await db_vacuum.vacuum_events_with_retention_overrides(db=db)
    await db_vacuum.vacuum_old_events(db=db)


def _mlflow(days: float) -> str:
    """Runs that somebody has deleted, with their files; of a database on this machine alone."""
    tracker = Tracker()
    url, _, served = os.environ.get(SERVED, "").partition(" ")
    file = sqlite_file(tracker.uri) or (Path(served) if url == tracker.uri else None)
    if file is None or not file.is_file():
        return ""
    oldest = int((time.time() - days * _DAY) * 1000)
    with closing(sqlite3.connect(file, timeout=_BUSY_SECONDS)) as database:
        runs = [run for (run,) in database.execute(_DELETED, (oldest,))]
    if not runs:
        return ""
    _ = tracker.client  # whose files have addresses that this package explains to MLflow
    from mlflow.cli import gc

    given = {"--backend-store-uri": f"sqlite:///{file}", "--tracking-uri": tracker.uri, "--run-ids": ",".join(runs)}
    with redirect_stdout(io.StringIO()):
        gc.main([word for pair in given.items() for word in pair], standalone_mode=False)
    return f"{file}: {len(runs):,} deleted runs are gone for good"


def _logs() -> str:
    """Logs of servers, which write on at the end of an emptied file: what is big becomes `NAME.log.1`."""
    big = [log for log in sorted((state_folder() / "logs").glob("*.log")) if log.stat().st_size > _LOG_BYTES]
    for log in big:
        shutil.copyfile(log, f"{log}.1")
        os.truncate(log, 0)
    return f"{state_folder() / 'logs'}: {', '.join(log.name for log in big)} begun anew" if big else ""


def _digests(days: float) -> str:
    """What is remembered of files' digests: files that are still there are read once more."""
    for memo in (state_folder() / "digests").glob("*.json"):
        if memo.stat().st_mtime < time.time() - days * _DAY:
            memo.unlink(missing_ok=True)
    return ""
