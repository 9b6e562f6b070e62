"""MLflow, by run id only: one owner a run, reopened by its `job_key` tag after a crash, never left RUNNING.

The client's "active run" is thread-local state that a killed process leaves behind, so it is not used at all.
"""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tasks.state import state_folder

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

JOB_KEY = "job_key"
_PARENT = "mlflow.parentRunId"
_METRICS_A_CALL = 1000  # MLflow's limits for one log_batch
_PARAMS_A_CALL = 100
_PARAM_LENGTH = 6000
_UI = "http://127.0.0.1:5000"  # where `gptmill up` serves the same SQLite file


class Run:
    """One MLflow run that this process owns; as a context manager it ends FINISHED, FAILED or KILLED."""

    def __init__(self, tracker: Tracker, run_id: str, experiment_id: str, finished: bool) -> None:
        self._tracker = tracker
        self.run_id = run_id
        self.experiment_id = experiment_id
        self.finished = finished
        """Whether it had ended FINISHED before it was opened: there is nothing left to log."""

    @property
    def url(self) -> str:
        """Its page in the MLflow UI."""
        return f"{self._tracker.ui}/#/experiments/{self.experiment_id}/runs/{self.run_id}"

    def log_metrics(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Log records ``{"step": int, "time": unix seconds, "metrics": {name: value}}`` in few calls; NaN is left out."""
        from mlflow.entities import Metric

        metrics = [
            Metric(name, float(value), int(record["time"] * 1000), record["step"])
            for record in records
            for name, value in record["metrics"].items()
            if math.isfinite(value)
        ]
        for part in _parts(metrics, _METRICS_A_CALL):
            self._tracker.client.log_batch(self.run_id, metrics=part)

    def log_results(self, results: Mapping[str, Any]) -> None:
        """Log the numbers of a result (others are left out) as metrics without a curve."""
        numbers = {k: float(v) for k, v in results.items() if isinstance(v, int | float) and math.isfinite(v)}
        self.log_metrics([{"step": 0, "time": time.time(), "metrics": numbers}])

    def metrics(self, names: Sequence[str]) -> dict[str, float]:
        """The last values of those of ``names`` that the run has."""
        found = self._tracker.client.get_run(self.run_id).data.metrics
        return {name: found[name] for name in names if name in found}

    def log_artifact(self, path: Path, folder: str | None = None) -> None:
        """Copy a small file (card, figure, table) to the run. Checkpoints stay in the store; runs carry their address."""
        self._tracker.client.log_artifact(self.run_id, str(path), folder)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Add or replace tags."""
        from mlflow.entities import RunTag

        self._tracker.client.log_batch(self.run_id, tags=[RunTag(key, value) for key, value in tags.items()])

    def finish(self, status: str = "FINISHED") -> None:
        """End the run: FINISHED, FAILED or KILLED."""
        self._tracker.client.set_terminated(self.run_id, status)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.finished and kind is None:
            return  # opened only to look at: its end time stays
        # Exception is the work's fault; anything wider (Ctrl-C, cancellation) is somebody's wish.
        self.finish("FINISHED" if kind is None else "FAILED" if issubclass(kind, Exception) else "KILLED")


class Tracker:
    """A connection to MLflow: `MLFLOW_TRACKING_URI`, else SQLite in the state folder."""

    def __init__(self, uri: str | None = None) -> None:
        self.uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{state_folder() / 'mlflow.db'}"
        self.ui = self.uri.rstrip("/") if self.uri.startswith("http") else _UI
        self._client: MlflowClient | None = None

    @property
    def client(self) -> MlflowClient:
        """MLflow's client; the first use of a fresh SQLite file creates its tables (about 2 s)."""
        if self._client is None:
            with _one_at_a_time("mlflow-open"):  # two processes must not create the same tables at once
                os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
                logging.getLogger("mlflow").setLevel(logging.WARNING)
                logging.getLogger("alembic").setLevel(logging.WARNING)
                from mlflow import MlflowClient

                # set after the import too: importing MLflow configures its own logger
                logging.getLogger("mlflow").setLevel(logging.WARNING)
                logging.getLogger("alembic").setLevel(logging.WARNING)
                self._client = MlflowClient(self.uri)
                self._client.search_experiments(max_results=1)
        return self._client

    def experiment(self, name: str) -> str:
        """The id of the experiment ``name``, which is created on first use."""
        found = self.client.get_experiment_by_name(name)
        if found is None:
            with _one_at_a_time("mlflow-experiment"):
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    place = None if self.uri.startswith("http") else (state_folder() / "mlflow-artifacts").as_uri()
                    return str(self.client.create_experiment(name, artifact_location=place))
        return str(found.experiment_id)

    def open(
        self,
        experiment: str,
        name: str,
        job_key: str,
        tags: Mapping[str, str],
        params: Mapping[str, Any],
        parent: str | None = None,
    ) -> Run:
        """The run of ``job_key``: reopened if there is one (a crash left it, or it is done), else created.

        :param params: nested settings; logged flat, ``model.n_layer`` and so on.
        :param parent: run id of the run that shows this one as its child.
        """
        experiment_id = self.experiment(experiment)
        found = self.search(experiment, {JOB_KEY: job_key})
        for stale in found[1:]:  # two hosts started the same job at once: one row is enough
            if stale.info.status == "RUNNING":
                self.client.set_terminated(stale.info.run_id, "KILLED")
        if found:
            run_id, finished = found[0].info.run_id, found[0].info.status == "FINISHED"
            if not finished:
                self.client.update_run(run_id, status="RUNNING")
            run = Run(self, run_id, experiment_id, finished)
            run.set_tags({**tags, **({_PARENT: parent} if parent else {})})
            return run
        whole = {JOB_KEY: job_key, **tags, **({_PARENT: parent} if parent else {})}
        created = self.client.create_run(experiment_id, tags=whole, run_name=name)
        self._log_params(created.info.run_id, params)
        return Run(self, created.info.run_id, experiment_id, finished=False)

    def search(self, experiment: str, tags: Mapping[str, str]) -> list[MlflowRun]:
        """Runs of an experiment that carry all of ``tags``, newest first; none where there is no such experiment."""
        found = self.client.get_experiment_by_name(experiment)
        if found is None:
            return []
        where = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        runs: list[MlflowRun] = []
        token = None
        while True:
            page = self.client.search_runs([found.experiment_id], where, max_results=500, page_token=token)
            runs += page
            token = page.token
            if not token:
                return runs

    def _log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        flat = [Param(key, str(value)[:_PARAM_LENGTH]) for key, value in flatten(params)]
        for part in _parts(flat, _PARAMS_A_CALL):
            self.client.log_batch(run_id, params=part)


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as ``("model.n_layer", 12)`` pairs."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a job's metrics.jsonl; none where there is no such file."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _parts(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


@contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    """Hold a lock in the state folder: the processes of this machine take turns."""
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f".{name}.lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
