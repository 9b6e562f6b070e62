"""MLflow, by run id only: one owner a run, reopened by its `job_key` tag after a crash, never left RUNNING.

The client's "active run" is thread-local state that a killed process leaves behind, so it is not used at all. What a
killed process leaves RUNNING and nobody reopens is ended by the next process that opens one (`Tracker.reconcile`).
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from gptcore.base.addresses import without_password
from gptcore.base.errors import InputError, unwritable
from gptcore.base.filesystems import answers_at
from gptcore.base.settings import flatten
from tasks.jobs.launch import JobInterrupted
from tasks.store.locks import exclusive
from tasks.store.state import can_write, state_folder
from tasks.tracking.database import SCHEME, prepare_database, register_repository, sqlite_file
from tasks.tracking.keys import METRIC, key_of
from tasks.tracking.owners import dead_owners, owner_name
from tasks.tracking.retry import NoRetries, RetryingClient, Unreachable, is_unreachable, retried, retries

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric
    from mlflow.entities import Run as MlflowRun

log = logging.getLogger(__name__)
JOB_KEY = "job_key"
OWNER = "owner"
NOTE = "mlflow.note.content"
"""Tag: the description of a run or an experiment, in Markdown."""
_PARENT = "mlflow.parentRunId"
_PAGE = 1000  # rows of a search
_METRICS_A_CALL = 1000  # this and the next four: MLflow's limits (mlflow.utils.validation)
_PARAMS_A_CALL = 100
_TAGS_A_CALL = 100
_PARAM_LENGTH = 6000
_TAG_LENGTH = 8000
_KIND = {"mlflow.experimentKind": "custom_model_development"}  # else MLflow's UI opens it on its pages for LLM traces
TRAINING = "?workflowType=machine_learning"
"""For addresses of the UI: the browser's own choice, GenAI at first, would outweigh an experiment's kind."""
_UI = "http://127.0.0.1:5000"  # where `gptmill up` serves the same SQLite file


@dataclass(eq=False)
class Run:
    """One MLflow run that this process owns; as a context manager it ends FINISHED, FAILED or KILLED."""

    tracker: Tracker
    run_id: str
    experiment_id: str
    finished: bool
    """Whether it had ended FINISHED before it was opened: there is nothing left to log."""
    fresh: bool
    """Whether it was made just now: it has no points and no results yet."""
    opened_tags: Mapping[str, str] = field(default_factory=dict)
    """The tags that it had when it was opened: what earlier openings recorded, without another call."""

    def __post_init__(self) -> None:
        self._last: dict[str, int] = {}  # metric -> step of its newest point
        self._unsorted: list[Mapping[str, Any]] = []
        self._waiting: list[Metric] = []

    @property
    def url(self) -> str:
        """The run's page in the MLflow UI."""
        return self.tracker.page(self.experiment_id, self.run_id)

    @property
    def charts(self) -> str:
        """The page of its curves."""
        page, query = self.url.split("?")
        return f"{page}/model-metrics?{query}"

    def log_metrics(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Log records ``{"step": int, "time": unix seconds, "metrics": {name: value}}`` in few calls.

        A curve's points that the run has already (from before a crash) are left out, and so is what is no finite
        number. If MLflow cannot be reached the points wait for the next call: training does not stop for that.
        """
        from mlflow.exceptions import MlflowException

        self._unsorted += records
        try:
            self._send(self.tracker.hasty)
        except MlflowException as error:
            if not unwritable(error):  # which the next call that cannot wait says
                waiting = len(self._waiting) + sum(len(record["metrics"]) for record in self._unsorted)
                log.warning("%d metrics wait for MLflow at %s: %s", waiting, self.tracker.shown, error)

    def log_results(self, results: Mapping[str, Any]) -> None:
        """Log the finite numbers of a result as each metric's newest value, without bending its curve.

        What is its metric's value already costs nothing: a row of the leaderboard is written again by every run.
        """
        from mlflow.entities import Metric

        client, now = self.tracker.client, int(time.time() * 1000)
        self._send(client)
        there = {} if self.fresh else self.metrics_and_tags()[0]
        for name, value in _numbers(results).items():
            if there.get(name) != value:
                self._waiting.append(Metric(name, value, now, max(self._newest(name, client), 0)))
        self._send(client)

    def metrics_and_tags(self) -> tuple[dict[str, float], dict[str, str]]:
        """The last value of each metric that the run has, and its tags."""
        data = self.tracker.client.get_run(self.run_id).data
        return dict(data.metrics), dict(data.tags)

    def log_artifact(self, path: Path, folder: str | None = None) -> None:
        """Copy a small file (card, figure) to the run. Checkpoints stay in the store; runs carry their address."""
        self.tracker.client.log_artifact(self.run_id, str(path), folder)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Add or replace tags."""
        from mlflow.entities import RunTag

        whole = [RunTag(key, value[:_TAG_LENGTH]) for key, value in tags.items()]
        for part in _parts(whole, _TAGS_A_CALL):
            self.tracker.client.log_batch(self.run_id, tags=part)

    def finish(self, status: str = "FINISHED", client: MlflowClient | None = None) -> None:
        """End the run: FINISHED, FAILED or KILLED.

        :param client: another one of MLflow's than the tracker's.
        """
        client = client or self.tracker.client
        try:
            self._send(client)
        finally:
            client.set_terminated(self.run_id, status)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.finished and kind is None:
            return  # opened only to look at: its end time stays
        # An Exception is the work's fault; anything wider (Ctrl-C, cancellation) and a told-to-stop somebody's wish.
        failed = kind is not None and issubclass(kind, Exception) and not issubclass(kind, JobInterrupted)
        if kind is None or failed:
            self.finish("FAILED" if failed else "FINISHED")
            return
        try:
            with NoRetries():
                self.finish("KILLED", self.tracker.hasty)
        except Exception as error:  # the next process that opens a run ends this one
            log.warning("run %s stays as it is: %s", self.run_id, without_password(str(error).partition("\n")[0]))

    def _newest(self, name: str, client: MlflowClient) -> int:
        """The step of a curve's newest point, -1 where it has none; asks MLflow once, for a run that was reopened."""
        if name not in self._last:
            history = [] if self.fresh else client.get_metric_history(self.run_id, name)
            self._last[name] = max((point.step for point in history), default=-1)
        return self._last[name]

    def _sort(self, client: MlflowClient) -> None:
        from mlflow.entities import Metric

        while self._unsorted:
            record = self._unsorted[0]
            for name, value in _numbers(record["metrics"]).items():
                if record["step"] > self._newest(name, client):
                    self._last[name] = record["step"]
                    self._waiting.append(Metric(name, value, int(record["time"] * 1000), record["step"]))
            del self._unsorted[0]

    def _send(self, client: MlflowClient) -> None:
        self._sort(client)
        while self._waiting:
            client.log_batch(self.run_id, metrics=self._waiting[:_METRICS_A_CALL])
            del self._waiting[:_METRICS_A_CALL]


class Tracker:
    """A connection to MLflow: `MLFLOW_TRACKING_URI`, else SQLite in the state folder."""

    def __init__(self, uri: str | None = None) -> None:
        self.uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{state_folder() / 'mlflow.db'}"
        self.shown = without_password(self.uri)
        """The address as logs, errors and links may say it: without user and password."""
        self.ui = self.shown.rstrip("/") if self.uri.startswith("http") else _UI
        self.served = self.uri.startswith("http")
        """Whether a server answers at `ui` by now; else it would after `gptmill up`."""
        self._client: MlflowClient | None = None

    @property
    def client(self) -> MlflowClient:
        """MLflow's client. In a flow's run it waits for a server that is away, or a file that somebody holds locked.

        The first use of a fresh SQLite file creates its tables, one process at a time.

        :raises InputError: the database or server cannot be used.
        """
        return cast("MlflowClient", RetryingClient(self.hasty, self.shown))

    @property
    def hasty(self) -> MlflowClient:
        """MLflow's client, which does not wait: for what can as well be sent later."""
        if self._client is None:
            self._client = retried(self._connect, self.shown)
        return self._client

    def _connect(self) -> MlflowClient:
        if self.served and not answers_at(self.uri):  # before MLflow is imported
            raise Unreachable(f"MLflow at {self.shown}: does not answer; check MLFLOW_TRACKING_URI")
        lock = state_folder() / ".mlflow-open.lock"
        with exclusive(lock, "creation of the tracking database") if can_write(lock.parent) else nullcontext():
            os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
            # cards and tables have the links
            os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
            from mlflow import MlflowClient

            register_repository()
            for name in ("mlflow", "alembic"):  # after the import, which sets their levels
                logging.getLogger(name).setLevel(logging.WARNING)
            # a failure is raised, too; MLflow would also print pages about it on the terminal, past our log
            logging.getLogger("mlflow.store.db.utils").addFilter(lambda record: not record.exc_info)
            try:
                file = sqlite_file(self.uri)
                client = MlflowClient(f"sqlite:///{prepare_database(file)}" if file else self.uri)
                with NoRetries():
                    client.search_experiments(max_results=1)
            except InputError:
                raise
            except Exception as error:  # each kind of database and server has its own words for it
                kind = Unreachable if is_unreachable(error) else InputError
                raise kind(f"MLflow at {self.shown}: {_reason(error)}") from None
            return client

    def page(self, experiment_id: str, run_id: str) -> str:
        """A run's page in the MLflow UI."""
        return f"{self.ui}/#/experiments/{experiment_id}/runs/{run_id}{TRAINING}"

    @retries
    def experiment(self, name: str) -> str:
        """The id of the experiment ``name``, which is created on first use; the UI opens it as model training."""
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            with self._creating():
                experiment = self.client.get_experiment_by_name(name)
                if experiment is None:
                    place = f"{SCHEME}:/" if sqlite_file(self.uri) else None
                    return str(self.client.create_experiment(name, artifact_location=place, tags=_KIND))
        for key, value in _KIND.items():
            if key not in experiment.tags:  # made by an older version
                self.client.set_experiment_tag(experiment.experiment_id, key, value)
        return str(experiment.experiment_id)

    @retries
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
        self.reconcile()
        experiment_id = self.experiment(experiment)
        whole = {JOB_KEY: job_key, OWNER: owner_name(self.uri), **tags, **({_PARENT: parent} if parent else {})}
        with self._creating():  # two processes that start one job must not make two rows
            runs = self._search(experiment_id, {JOB_KEY: job_key})
            if not runs:
                created = self.client.create_run(experiment_id, tags=whole, run_name=name)
                self._log_params(created.info.run_id, flatten(params))
                return Run(self, created.info.run_id, experiment_id, finished=False, fresh=True, opened_tags=whole)
        for stale in runs[1:]:  # two hosts started the same job at once: one row is enough
            if stale.info.status == "RUNNING":
                self.client.set_terminated(stale.info.run_id, "KILLED")
        there = runs[0]
        finished, tags_there = there.info.status == "FINISHED", there.data.tags
        run = Run(self, there.info.run_id, experiment_id, finished, fresh=False, opened_tags=tags_there)
        if not run.finished:
            self.client.update_run(run.run_id, status="RUNNING")
            lacking = {key: value for key, value in flatten(params).items() if key not in there.data.params}
            self._log_params(run.run_id, lacking)  # of a run that was killed before it had them
        # a finished run is only looked at, and has no owner
        run.set_tags({k: v for k, v in whole.items() if tags_there.get(k) != v and not (finished and k == OWNER)})
        return run

    @retries
    def reconcile(self) -> int:
        """End what killed processes that shared the state folder left RUNNING, as KILLED; how many runs that were."""
        killed = 0
        with dead_owners(self.uri) as dead:
            for owner in dead:
                experiments = [item.experiment_id for item in self.client.search_experiments()]
                where = f"attributes.status = 'RUNNING' and tags.`{OWNER}` = '{owner}'"
                for run in self.client.search_runs(experiments, where, max_results=10_000):
                    self.client.set_terminated(run.info.run_id, "KILLED")
                    killed += 1
        return killed

    def search(
        self, experiment: str, tags: Mapping[str, str], params: Mapping[str, str] | None = None
    ) -> list[MlflowRun]:
        """Runs of an experiment that carry all of ``tags``, newest first; none where there is no such experiment.

        :param params: flat settings (:func:`flatten`) that they have, too.
        """
        there = self.client.get_experiment_by_name(experiment)
        return self._search(there.experiment_id, tags, params) if there else []

    def _search(
        self, experiment_id: str, tags: Mapping[str, str], params: Mapping[str, str] | None = None
    ) -> list[MlflowRun]:
        wanted = [f"tags.`{key}` = '{value}'" for key, value in tags.items()]
        wanted += [f"params.`{key}` = '{value}'" for key, value in (params or {}).items()]
        where = " and ".join(wanted)
        return list(pages(self.client.search_runs, experiment_ids=[experiment_id], filter_string=where))

    def _creating(self) -> AbstractContextManager[object]:
        return exclusive(state_folder() / ".mlflow-create.lock", "creation of a tracking run")

    def _log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        flat = [Param(key, str(value)[:_PARAM_LENGTH]) for key, value in params.items()]
        for part in _parts(flat, _PARAMS_A_CALL):
            self.client.log_batch(run_id, params=part)


def pages(search: Callable[..., Any], **arguments: object) -> Iterator[Any]:
    """Everything that one of the client's searches finds, a page at a time."""
    token = None
    while True:
        page = search(max_results=_PAGE, page_token=token, **arguments)
        yield from page
        token = page.token
        if not token:
            return


def _reason(error: Exception) -> str:
    """Why a database or server cannot be used, in one line."""
    line = without_password(str(error).partition("\n")[0])
    if "error code 401" in line or "error code 403" in line:
        return "refuses the log-in; check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
    return f"cannot be used ({line})"


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a job's metrics.jsonl; none where there is no such file.

    Older versions' fine-tunes told their dev scores after every epoch, as fractions: what chose the epoch, x 100.
    """
    if not path.is_file():
        return []
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for metrics in (record.get("metrics", {}) for record in records):
        for name in [name for name in metrics if name.startswith("dev/")]:
            metrics[name.replace("dev/", "validation/")] = 100 * metrics.pop(name)
    return records


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return {key_of(name, METRIC): float(value) for name, value in numbers.items() if math.isfinite(value)}


def _parts(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder for files on their way to a tracker."""
    with TemporaryDirectory(prefix="gptmill-") as folder:
        yield Path(folder)
