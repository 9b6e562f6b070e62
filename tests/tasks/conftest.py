"""One MLflow database for the files that need no fresh one: creating its tables takes seconds."""

from __future__ import annotations

import pytest

from tasks.tracking.tracker import Tracker


@pytest.fixture(scope="session")
def shared_tracker(tmp_path_factory: pytest.TempPathFactory) -> Tracker:
    return Tracker(f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}")
