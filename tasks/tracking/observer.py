"""What a running job shows: MLflow curves, one Prefect progress artifact, a line in the log now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact

from tasks.tracking.logs import Underway, duration, progress
from tasks.tracking.tracker import Run

_MIRROR_EVERY = 300.0  # seconds: what a lost host may cost
_SHOW_EVERY = 10.0  # seconds: a person watches this, and the API is not a metrics store


class JobObserver:
    """Receives a job's metric records in batches and passes them on.

    :param stage: what people call it: ``"pretrain"``.
    :param run: the MLflow run that owns the curves.
    :param key: key of the progress artifact (letters, digits, dashes); None: log lines only, for one of many jobs.
    :param mirror: sends the workspace to a remote store, so that another host can go on from its checkpoints.
    :param item: which one of several jobs of the stage.
    :param unit: what the job reads, in the plural: its speed is so many of them a second.
    """

    def __init__(
        self, stage: str, run: Run, key: str | None, mirror: Callable[[], None], item: str = "", unit: str = "tokens"
    ) -> None:
        self._stage, self._run, self._key, self._mirror, self._item = stage, run, key, mirror, item
        self._unit = unit
        self._mirrored = time.monotonic()
        self._artifact: UUID | None = None
        self._shown = time.monotonic()
        self._latest: dict[str, Any] = {}

    def __call__(self, records: list[dict[str, Any]]) -> None:
        """Take records ``{"step", "time", "metrics"}`` in order."""
        self._run.log_metrics(records)
        for record in records:
            self._latest.update(record["metrics"], step=record["step"])
        due = time.monotonic() - self._shown >= _SHOW_EVERY
        if "step" in self._latest:
            share, words = self._latest.get("progress", 0.0), self._words()
            progress(Underway(self._stage, share, words, self._item), line=due)
        if due:
            self._shown = time.monotonic()
            if "progress" in self._latest:
                self._show(self._words())
        if time.monotonic() - self._mirrored >= _MIRROR_EVERY:
            self._mirror()
            self._mirrored = time.monotonic()

    def waiting(self, why: str) -> None:
        """Take words about the queue that the job waits in; see :func:`tasks.jobs.launch.run_job`."""
        due = time.monotonic() - self._shown >= _SHOW_EVERY
        progress(Underway(self._stage, self._latest.get("progress", 0.0), why, self._item, waits=True), line=due)
        if due:
            self._shown = time.monotonic()
            self._show(why)

    def _show(self, text: str) -> None:
        if self._key is None:
            return
        percent = 100.0 * self._latest.get("progress", 0.0)
        if self._artifact is None:
            created = create_progress_artifact(percent, key=self._key, description=text)
            self._artifact = cast(
                UUID, created
            )  # a coroutine only where an event loop runs, and tasks are plain functions
        else:
            update_progress_artifact(self._artifact, percent, description=text)

    def _words(self) -> str:
        latest, parts = self._latest, [f"step {self._latest['step']:,}"]
        for name, form in (("train/loss", "loss {:.3f}"), ("validation/loss", "validation {:.3f}")):
            if name in latest:
                parts.append(form.format(latest[name]))
        if "tokens_per_second" in latest:
            parts.append(f"{latest['tokens_per_second']:,.0f} {self._unit}/s")
        eta = latest.get("eta_seconds")
        if latest.get("progress", 0.0) >= 1.0:
            parts.append("the last evaluation runs")
            eta = eta or None  # 0: no evaluation has been timed
        if eta is not None:
            parts.append(f"ETA {duration(eta)}")
        return ", ".join(parts)
