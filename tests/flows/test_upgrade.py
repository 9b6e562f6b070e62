"""Databases of other versions: older ones are copied and migrated, newer and damaged ones refused in a line."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pytest

from flows.servers.prefect_server import check_home
from gptcore.base.errors import InputError
from tasks.tracking.tracker import Tracker

OLD = "bd07f7e963c5"  # MLflow's of version 1.23
OLD_PREFECT = "28ae48128c75"


def at(file: Path, revision: str = "") -> str:
    """The Alembic revision of a database, which is set where one is given."""
    with closing(sqlite3.connect(file)) as database, database:
        if revision:
            database.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        return str(database.execute("SELECT version_num FROM alembic_version").fetchone()[0])


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as an MLflow of long ago made it, with a run."""
    from alembic import command
    from mlflow.store.db.utils import _get_alembic_config, create_sqlalchemy_engine
    from mlflow.store.tracking.dbmodels.initial_models import Base

    file = tmp_path_factory.mktemp("old") / "mlflow.db"
    engine = create_sqlalchemy_engine(f"sqlite:///{file}")
    Base.metadata.create_all(engine)  # what there was before the first migration
    config = _get_alembic_config(str(engine.url))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, OLD)
    engine.dispose()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(
            "INSERT INTO experiments (experiment_id, name, artifact_location, lifecycle_stage)"
            " VALUES (7, 'old', 'file:///gone/mlflow-artifacts', 'active')"
        )
        database.execute(
            "INSERT INTO runs (run_uuid, experiment_id, artifact_uri, status, lifecycle_stage, user_id, start_time)"
            " VALUES ('r1', 7, 'file:///gone/mlflow-artifacts/r1/artifacts', 'FINISHED', 'active', 'me', 1)"
        )
    return file


@pytest.fixture
def home(tmp_path: Path, former: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(former, tmp_path)
    (tmp_path / "mlflow-artifacts" / "r1" / "artifacts").mkdir(parents=True)
    (tmp_path / "mlflow-artifacts" / "r1" / "artifacts" / "card.md").write_text("# card")
    return tmp_path


def test_an_older_tracking_database_is_copied_and_migrated(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        client = Tracker().client
    said = [record.getMessage() for record in caplog.records if str(home) in record.getMessage()]
    copy = home / "before-upgrade" / f"mlflow-{OLD}.db"
    assert said == [
        f"{home}/mlflow.db: was written by an older mlflow, and is migrated; a copy is kept: {copy}",
        f"{home}/mlflow.db: the files of its 1 runs are found beside it from now on, wherever it lies",
    ]
    assert at(copy) == OLD != at(home / "mlflow.db")
    assert client.get_run("r1").info.artifact_uri == "mlflow-artifacts:/r1/artifacts"
    assert [file.path for file in client.list_artifacts("r1")] == ["card.md"]


def test_a_database_that_cannot_be_used_is_told_in_a_line(home: Path) -> None:
    file = home / "mlflow.db"
    whole = file.read_bytes()
    (home / "mlflow.db.version").write_text("99.1.0\n")
    at(file, "ffffffffffff")
    told = rf"{file}: written by mlflow 99.1.0 \(schema ffffffffffff\), which mlflow {version('mlflow')} cannot read"
    with pytest.raises(InputError, match=told):
        _ = Tracker().client
    assert at(file) == "ffffffffffff"
    for damaged, told in {
        whole[: len(whole) // 2]: rf"cut short: found [\d,]+ bytes, expected {len(whole):,}; `gptmill restore`",
        b"PK" * 100: r"found b'PKPKPKPKPKPKPKPK', expected an SQLite database; `gptmill restore`",
        b"": r"empty, but mlflow-artifacts/ beside it has the files of its runs; bring it back",
    }.items():
        file.write_bytes(damaged)
        with pytest.raises(InputError, match=told):
            _ = Tracker().client
        assert file.read_bytes() == damaged
    file.unlink()
    with pytest.raises(InputError, match="not there, but mlflow-artifacts/"):
        _ = Tracker().client


def test_prefects_database(prefect_server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", raising=False)
    file = Path(shutil.copy(prefect_server, tmp_path / "prefect.db"))
    check_home(str(tmp_path))
    assert not (tmp_path / "before-upgrade").exists()
    assert (tmp_path / "prefect.db.version").read_text() == f"{version('prefect')}\n"
    (tmp_path / "prefect.db.version").unlink()
    at(file, OLD_PREFECT)
    check_home(str(tmp_path))
    assert at(tmp_path / "before-upgrade" / f"prefect-{OLD_PREFECT}.db") == OLD_PREFECT
    at(file, "ffffffffffff")
    (tmp_path / "prefect.db.version").write_text("99.1.0\n")
    with pytest.raises(InputError, match=rf"written by prefect 99.1.0 .* prefect {version('prefect')} cannot read"):
        check_home(str(tmp_path))
