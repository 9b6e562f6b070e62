"""MLflow's SQLite file and, beside it, the files of runs: one folder that may lie anywhere.

The address of a run's files is `mlflow-artifacts:/<run>/artifacts`, which names no place. A server takes it for its own
folder (`--artifacts-destination`); where there is none, it is the folder `mlflow-artifacts` beside the SQLite file.
MLflow learns that from :func:`artifact_repository`, an entry point of this package, also where nobody but MLflow runs
(`mlflow.pyfunc.load_model`).
"""

from __future__ import annotations

import atexit
import logging
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gptcore.base.errors import InputError
from tasks.store.sqlite import check_database, copy_database
from tasks.store.state import can_write

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

log = logging.getLogger(__name__)
SCHEME = "mlflow-artifacts"
FILES = "mlflow-artifacts"
"""The folder with the files of runs, beside the database."""


def sqlite_file(uri: str) -> Path | None:
    """The file of a tracking address `sqlite:///...`; None of any other."""
    return Path(uri.removeprefix("sqlite:///")).absolute() if uri.startswith("sqlite:///") else None


def artifact_repository(
    artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None
) -> ArtifactRepository:
    """MLflow's repository of a run's files, for addresses `mlflow-artifacts:`; called by MLflow."""
    from mlflow import get_tracking_uri
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
    from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

    tracking_uri = tracking_uri or get_tracking_uri()
    if file := sqlite_file(tracking_uri):
        place = file.parent / FILES / urlsplit(artifact_uri).path.strip("/")
        return LocalArtifactRepository(place.as_uri(), tracking_uri, registry_uri)
    return MlflowArtifactsRepository(artifact_uri, tracking_uri, registry_uri)


def register_repository() -> None:
    """Do what the entry point does, where the package was installed before it had one."""
    from mlflow.store.artifact.artifact_repository_registry import _artifact_repository_registry

    _artifact_repository_registry.register(SCHEME, artifact_repository)  # type: ignore[no-untyped-call]


def _copied(file: Path) -> Path:
    """A copy of the SQLite file that ends with this process, beside the files of its runs."""
    folder = Path(tempfile.mkdtemp(prefix="gptmill-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy_database(file, folder / file.name)
    (folder / FILES).symlink_to(file.parent / FILES)
    return folder / file.name


def prepare_database(file: Path) -> Path:
    """Check that MLflow can use its SQLite file, bring a former version's up to date, and begin none where one is lost.

    :return: the file that MLflow is to open: a copy where the folder takes nothing, so that it is read all the same.
    :raises InputError: the file is damaged, is of a newer MLflow, or is gone from beside the files of its runs.
    """
    empty = not file.exists() or not file.stat().st_size
    if empty and any((file.parent / FILES).glob("*/*")):
        raise InputError(
            f"{file}: {'empty' if file.exists() else 'not there'}, but {FILES}/ beside it has the files of its runs; "
            "bring it back (`gptmill restore`), or move that folder away to begin anew"
        )
    if not (empty or can_write(file.parent)):
        file = _copied(file)
    if check_database(file, "mlflow", "store/db_migrations/versions"):
        migrate(f"sqlite:///{file}")
    if not empty and (file.parent / FILES).is_dir():
        _make_relocatable(file)
    return file


def migrate(uri: str) -> None:
    """Do what `mlflow db upgrade` does, where there are tables; MLflow's server makes those of an empty database."""
    from mlflow.store.db import utils

    engine = utils.create_sqlalchemy_engine(uri)  # type: ignore[no-untyped-call]
    if utils._all_tables_exist(engine) or uri.startswith("sqlite:"):  # type: ignore[no-untyped-call]
        utils._upgrade_db(engine)  # type: ignore[no-untyped-call]
    engine.dispose()


def _make_relocatable(file: Path) -> None:
    """Rewrite the absolute addresses that former versions gave to the files of runs, where these lie beside the file.

    They named the folder in which the database was made, which may be another's by now, or nobody's.
    """
    old = f"file:///%/{FILES}"
    with closing(sqlite3.connect(file, timeout=60)) as database, database:
        asked = "SELECT count(*) FROM experiments WHERE artifact_location LIKE ?"
        if not database.execute(asked, (old,)).fetchone()[0]:  # and nothing is written
            return
        database.execute(
            "UPDATE experiments SET artifact_location = ? WHERE artifact_location LIKE ?", (f"{SCHEME}:/", old)
        )
        runs = database.execute(
            "UPDATE runs SET artifact_uri = ? || run_uuid || '/artifacts'"
            " WHERE artifact_uri LIKE ? || '/' || run_uuid || '/artifacts'",
            (f"{SCHEME}:/", old),
        ).rowcount
    log.warning("%s: the files of its %d runs are found beside it from now on, wherever it lies", file, runs)
