"""One MLflow database for the files that need no fresh one: creating its tables takes seconds. Stores, near and far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tasks.store.store import Store
from tasks.tracking.tracker import Tracker
from tests.tasks.stores import bucket, forget


@pytest.fixture(scope="session")
def shared_tracker(tmp_path_factory: pytest.TempPathFactory) -> Tracker:
    return Tracker(f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}")


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A state folder of the test's own; what was noted in it is forgotten."""
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "home"))
    yield
    forget()


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, own_home: None, tmp_path: Path) -> Iterator[Store]:
    with nullcontext(str(tmp_path / "store")) if request.param == "local" else bucket() as url:
        yield Store(url)
