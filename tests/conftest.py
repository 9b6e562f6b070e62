"""One ephemeral Prefect server and one MLflow database for the whole suite, away from the user's own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

_HOME = tempfile.mkdtemp(prefix="gptmill-tests-")
# Before anything imports Prefect or MLflow: both read their homes once.
os.environ["GPTMILL_HOME"] = _HOME
os.environ["GPTMILL_CACHE"] = os.path.join(_HOME, "cache")
os.environ["PREFECT_HOME"] = os.path.join(_HOME, "prefect")
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
    os.environ.pop(name, None)
os.environ.update(DO_NOT_TRACK="1", PREFECT_SERVER_ANALYTICS_ENABLED="false", MLFLOW_DISABLE_TELEMETRY="true")
os.makedirs(os.environ["PREFECT_HOME"], exist_ok=True)


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """Prefect's own test harness, once: it starts a server on a temporary database."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield
