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
from functools import partial
from pathlib import Path

from gptcore.base.apart import apart
from tasks.store.state import SERVED, state_folder
from tasks.tracking.database import sqlite_file
from tasks.tracking.tracker import Tracker

_DAY = 24 * 3600.0  # seconds
_LOG_BYTES = 10_000_000
_BUSY_SECONDS = 5.0  # for which databases are waited for, before one that another process writes to is left as it is
_TURN_SECONDS = 2.0  # for which a statement waits for its turn, as commands that run write now and then
_POLL_SECONDS = 0.1
_DELETED = """
    SELECT run_uuid FROM runs WHERE lifecycle_stage = 'deleted' AND deleted_time < ?
    AND run_uuid NOT IN (SELECT run_id FROM model_versions WHERE run_id IS NOT NULL)"""
"""Runs of MLflow that were deleted before a time (ms), but for those that a registered model is of."""


def forget(days: float) -> Iterator[str]:
    """Delete what is over and older than ``days``, and say how much that was, a line a place where it was any.

    A database that another process writes to is waited for, seconds in all, and then left as it is; both are said.
    """
    waited = 0.0
    for file, clean in ((_prefect_file(), _prefect), (_mlflow_file(), _mlflow)):
        if file is None or not file.is_file():
            continue
        try:
            if waited < _BUSY_SECONDS and _write_lock(file):
                yield f"waiting for {file}, which another process writes to"
            while busy := _write_lock(file):
                if waited >= _BUSY_SECONDS:
                    raise busy
                time.sleep(_POLL_SECONDS)
                waited += _POLL_SECONDS
            said = apart(partial(clean, file, days))
        except Exception as error:
            if not _refused(error):
                raise
            said = f"{file}: left as it is ({str(error).partition(chr(10))[0]})"
        if said:
            yield said
    yield from filter(None, (_logs(), _digests(days)))


def _write_lock(file: Path) -> sqlite3.OperationalError | None:
    """What says that another process writes to a database; None where none does.

    :raises sqlite3.OperationalError: nobody could write to it.
    """
    with closing(sqlite3.connect(file, timeout=0)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:  # without what extends the code
                raise
            return error
    return None


def _refused(error: Exception) -> bool:
    """Whether a database was in use after all, or is of another version of Prefect; MLflow wraps what SQLite says."""
    from sqlalchemy.exc import OperationalError

    return isinstance(error.__cause__ or error, sqlite3.OperationalError | OperationalError)


def _prefect_file() -> Path | None:
    """Prefect's database, of which a server that is set takes care itself."""
    if os.environ.get("PREFECT_API_URL"):
        return None
    return Path(os.environ.get("PREFECT_HOME") or state_folder() / "prefect") / "prefect.db"


def _prefect(file: Path, days: float) -> str:
    """Flow runs that have ended, with their task runs, logs and artifacts; events after Prefect's own seven days."""
    from prefect.settings import PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD as RETENTION
    from prefect.settings import temporary_settings

    from flows.servers.transactions import waiting_for_their_turn

    before = _flow_runs(file)
    with temporary_settings({RETENTION: timedelta(days=days)}), waiting_for_their_turn(_TURN_SECONDS):
        asyncio.run(_vacuum())
    with closing(sqlite3.connect(file, timeout=_TURN_SECONDS)) as database:
        database.execute("VACUUM")
    gone = before - _flow_runs(file)
    return f"{file}: {gone:,} flow runs deleted, {file.stat().st_size / 1e6:.1f} MB left" if gone else ""


def _flow_runs(file: Path) -> int:
    with closing(sqlite3.connect(file, timeout=_TURN_SECONDS)) as database:
        return int(database.execute("SELECT count(*) FROM flow_run").fetchone()[0])


async def _vacuum() -> None:
    from prefect.server.database import provide_database_interface
    from prefect.server.services import db_vacuum

    db = provide_database_interface()
    await db_vacuum.vacuum_old_flow_runs(db=db)
    await db_vacuum.vacuum_stale_artifact_collections(db=db)
    await db_vacuum.vacuum_events_with_retention_overrides(db=db)
    await db_vacuum.vacuum_old_events(db=db)


def _mlflow_file() -> Path | None:
    """MLflow's database where it is on this machine; None where it is another's."""
    url, _, served = os.environ.get(SERVED, "").partition(" ")
    return sqlite_file(uri := Tracker().uri) or (Path(served) if url == uri else None)


def _mlflow(file: Path, days: float) -> str:
    """Runs that somebody has deleted, with their files."""
    tracker = Tracker()
    oldest = int((time.time() - days * _DAY) * 1000)
    with closing(sqlite3.connect(file, timeout=_TURN_SECONDS)) as database:
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
