"""What every training is: a value that knows its recipe, its title and its work, and that goes through JSON.

Also what its job shows while it runs, and how long trainings would take on this machine, before any is started: to an
order of magnitude, and said as that.
"""

from __future__ import annotations

import dataclasses
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, cast
from uuid import UUID

from prefect import Task
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact

from gptcore.config import DistilConfig, NetworkConfig, network_config
from tasks.jobs.devices import SpeedUnknown, training_speed, visible_gpus
from tasks.jobs.launch import run_job
from tasks.jobs.placement import on_cluster, slots_and_threads
from tasks.report.card import Card, shown
from tasks.report.figures import loss_curve
from tasks.stages.table import STAGES
from tasks.store.artifact import Artifact, Recipe
from tasks.store.codec import decoded, encoded, field_types
from tasks.store.store import Built, Store
from tasks.tracking.keys import key_of
from tasks.tracking.logs import Underway, duration, progress, rate
from tasks.tracking.provenance import cross_links
from tasks.tracking.tracker import Run, read_metrics, scratch_folder

Made = TypeVar("Made", covariant=True)
"""What a training gives back."""


@dataclass(frozen=True)
class Work:
    """What a training has to do; see :mod:`gptcore.config.operations`, which needs no torch to count it."""

    operations: float
    """Floating-point, forward and backward."""
    updates: float


@dataclass(frozen=True)
class Distillation:
    """What a network learns beside the text."""

    teacher: Artifact
    """A pre-trained model, or one that was imported."""
    config: DistilConfig


@dataclass(frozen=True)
class Training(ABC, Generic[Made]):
    """A training that was asked for; checked once and whole when it is made.

    :raises InputError: what it is to be made from does not fit together.
    """

    store: Store

    stage: ClassVar[str]
    """The stage of its artifact."""
    shown_as: ClassVar[str]
    """What people call the stage where it is shown how far it is."""

    @property
    @abstractmethod
    def task(self) -> Task[..., Made]:
        """The Prefect task that trains it, of the training and how many others go on beside it, see :meth:`room`."""

    @cached_property
    @abstractmethod
    def recipe(self) -> Recipe:
        """What its artifact is made from, and found again by."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What people call it."""

    @property
    @abstractmethod
    def work(self) -> Work:
        """What it has to do."""

    @property
    def item(self) -> str:
        """Which one of several it is, where it is shown how far it is."""
        return ""

    @property
    def key(self) -> str:
        """What sets it apart from others of the same flow: equal ones are done once."""
        return self.recipe.digest

    @property
    def made(self) -> bool:
        """Whether its artifact is in the store."""
        return self.store.find(self.recipe) is not None

    @property
    def work_left(self) -> float:
        """Floating-point operations that it still has to do: none where its artifact is in the store."""
        return 0.0 if self.made else self.work.operations

    @property
    def artifact(self) -> Artifact:
        """The request's artifact, which may not be there yet."""
        return self.store.artifact(self.stage, self.recipe.digest)

    @property
    def needs(self) -> set[str]:
        """Digests of what it is made from."""
        return {made.digest for made in self.recipe.inputs.values() if isinstance(made, Artifact)}

    @abstractmethod
    def job(self, workspace: Path, threads: int) -> dict[str, Any]:
        """What the process is told that runs the stage's job (:class:`tasks.stages.table.Stage`).

        :param threads: of the process, on a CPU.
        """

    def room(self, jobs: int, n: int) -> int:
        """How many of ``n`` trainings like this one go on here at the same time.

        :param jobs: what was asked for; 0: as many as the machine has room for.
        :raises InputError: no such place for jobs.
        """
        room, _ = slots_and_threads(jobs)
        return room if jobs else min(room, max(1, n))

    def packed(self) -> dict[str, Any]:
        """The request's fields as JSON, but for the store; :meth:`unpacked` reads them back."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "store"]
        return {name: encoded(getattr(self, name)) for name in names}

    @classmethod
    def unpacked(cls, store: Store, fields: Mapping[str, Any]) -> Self:
        """What :meth:`packed` wrote; what versions before 0.3 queued in a work pool is read, too.

        :raises InputError: as when it was made, where ``store`` is another one.
        """
        # a worker gives a job as many cores as its machine has, whatever was queued
        given = {name: value for name, value in fields.items() if name not in ("threads", "beside")}
        if "distil" in given:
            taught = {"teacher": given.pop("teacher", None), "config": given.pop("distil")}
            given["distillation"] = taught if taught["teacher"] else None
        types = field_types(cls)
        return cls(store, **{name: decoded(types[name], value) for name, value in given.items()})


def network_of(store: Store, model: Artifact) -> NetworkConfig:
    """The settings of a model's network."""
    return network_config(store.manifest(model)["config"]["model"])


def follow_job(
    store: Store,
    recipe: Recipe,
    job: Mapping[str, Any],
    run: Run,
    stage: str,
    item: str = "",
    *,
    alone: bool = False,
    unit: str = "tokens",
    nproc: int = 1,
) -> dict[str, Any]:
    """What the process of a training leaves, once it has ended; its metrics go to ``run`` meanwhile.

    :param job: what it is told: its workspace and threads, too.
    :param stage: what people call it, ``item``: which one of several.
    :param alone: whether it is one job and not one of many, and so has a progress artifact on Prefect's pages.
    :param unit: what its speed counts, in the plural.
    """
    workspace = Path(job["workspace"])
    mirror = partial(store.sync_partial, recipe, workspace)
    observer = JobObserver(stage, run, f"progress-{recipe.stage}" if alone else None, mirror, item, unit)
    result = run_job(
        STAGES[recipe.stage].job, job, workspace, nproc=nproc, on_metrics=observer, on_waiting=observer.waiting
    )
    return {**result, "threads": job["threads"]}


def report(
    store: Store,
    built: Built,
    run: Run,
    key: str,
    title: str,
    results: Mapping[str, Any],
    measured: Mapping[str, Any],
    notes: tuple[str, ...],
    references: Mapping[str, float] | None = None,
    unit: str = "nats per token",
) -> None:
    """The final numbers, the curve and the card, on the MLflow run and on the Prefect run.

    :param key: of the card on the Prefect run's page, as :func:`key_of` makes one.
    :param results: on the card; ``measured``: on the MLflow run.
    :param references: see :func:`tasks.report.figures.loss_curve`, ``unit``, too.
    """
    records = read_metrics(store.local(built.artifact, "metrics.jsonl"))
    with scratch_folder() as folder:
        figure = loss_curve(records, folder / "loss.png", references, unit)
        links = cross_links(run, built.artifact)
        card = Card(title, results, built.manifest["config"], built.manifest, links, figure, notes)
        number = next((f": {name} {shown(value)}" for name, value in results.items()), "")
        create_markdown_artifact(markdown=card.markdown(), key=key_of(key), description=f"{title}{number}")
        (folder / "card.md").write_text(card.markdown(), encoding="utf-8")
        run.log_metrics(records)  # also what an earlier, killed process could not deliver any more
        drawn = {name for record in records for name in record["metrics"]}  # whose last value stands already
        run.log_results({name: value for name, value in measured.items() if name not in drawn})
        for path in (folder / "card.md", figure):
            if path is not None:
                run.log_artifact(path)


_MIRROR_EVERY = 300.0  # seconds: what a lost host may cost
_SHOW_EVERY = 10.0  # seconds: a person watches this, and the API is not a metrics store


class JobObserver:
    """Receives a job's metric records in batches and passes them on.

    :param stage: what people call it: ``"pretrain"``.
    :param run: the MLflow run that owns the curves.
    :param key: key of the progress artifact; None: log lines only, for one of many jobs.
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
        self._shown = -math.inf if key else time.monotonic()  # at once where somebody follows it by this alone
        self._latest: dict[str, Any] = {}
        self._heard = time.monotonic()

    def __call__(self, records: list[dict[str, Any]]) -> None:
        """Take records ``{"step", "time", "metrics"}`` in order; without any the time that is left still falls."""
        if records:
            self._run.log_metrics(records)
            self._heard = time.monotonic()
        for record in records:
            self._latest.update(record["metrics"], step=record["step"])
        due = time.monotonic() - self._shown >= _SHOW_EVERY
        if "step" in self._latest:
            news = Underway(self._stage, self._latest.get("progress", 0.0), self._parts(), self._item)
            progress(news, line=due)
            if due and "progress" in self._latest:
                self._show(news.words)
        if due:
            self._shown = time.monotonic()
        if time.monotonic() - self._mirrored >= _MIRROR_EVERY:
            self._mirror()
            self._mirrored = time.monotonic()

    def waiting(self, why: str) -> None:
        """Take words about the queue that the job waits in; see :func:`tasks.jobs.launch.run_job`."""
        due = time.monotonic() - self._shown >= _SHOW_EVERY
        progress(Underway(self._stage, self._latest.get("progress", 0.0), (why,), self._item, waits=True), line=due)
        if due:
            self._shown = time.monotonic()
            self._show(why)

    def _show(self, text: str) -> None:
        if self._key is None:
            return
        percent = 100.0 * self._latest.get("progress", 0.0)
        if self._artifact is None:
            # a coroutine only where an event loop runs, and tasks are plain functions
            self._artifact = cast(UUID, create_progress_artifact(percent, key=key_of(self._key), description=text))
        else:
            update_progress_artifact(self._artifact, percent, description=text)

    def _parts(self) -> tuple[str, ...]:
        latest, parts = self._latest, []
        eta = latest.get("eta_seconds")
        if latest.get("progress", 0.0) >= 1.0:
            parts.append("the last evaluation runs")
            eta = eta or None  # 0: no evaluation has been timed
        if eta is not None:
            parts.append(f"{duration(round(max(0.0, eta - (time.monotonic() - self._heard))))} left")
        for name, form in (("train/loss", "loss {:.3f}"), ("validation/loss", "validation {:.3f}")):
            if name in latest:
                parts.append(form.format(latest[name]))
        if latest.get("validation/score", math.inf) <= latest.get("validation/chance", -math.inf):
            parts.append(
                f"epoch {latest['epoch']:.3g}: {latest['validation/score']:.1f}, as one answer to all rows has"
            )
        parts.append(f"step {latest['step']:,}")
        if "tokens_per_second" in latest:
            parts.append(f"{rate(latest['tokens_per_second'])} {self._unit}/s")
        return tuple(parts)


_SLOWEST = 1e10  # operations a second that any machine reaches: what is short at that needs no measurement
_UPDATE = 0.01  # seconds that an update takes however small its network is, on a CPU; a GPU's is about as much
_SHORT = 60.0


@dataclass(frozen=True)
class Estimate:
    """The time that trainings would take here."""

    seconds: float | None
    """None: not known."""
    reason: str
    """What it rests on, or why it is not known."""

    def __str__(self) -> str:
        """``some 31 hours (estimate: 4.5e+15 operations, at 40 GFLOP/s on this machine's cpu)``."""
        if self.seconds is None:
            return f"for a time that is not known ({self.reason})"
        return f"{about(self.seconds)} (estimate: {self.reason})"


def estimate(trainings: Iterable[Training[object]]) -> Estimate:
    """The time of ``trainings`` on this machine, one after another on all that it has."""
    if on_cluster():
        return Estimate(None, "as jobs of a cluster")
    trainings = list(trainings)
    work = [training.work for training in trainings]
    total = sum(each.operations for each in work)
    fixed = sum(each.updates for each in work) * _UPDATE
    if total / _SLOWEST + fixed < _SHORT:
        return Estimate(total / _SLOWEST + fixed, f"{total:.1e} operations")
    try:
        speed = training_speed()
    except SpeedUnknown as error:
        return Estimate(None, f"{total:.1e} operations; the speed of this machine: {error}")
    gpus = len(visible_gpus()) if speed.device != "cpu" else 1
    if not any(training.stage == "pretrain" for training in trainings):
        gpus = min(gpus, len(trainings))  # each of these has one
    where = f"{gpus} {speed.device}" if gpus > 1 else f"this machine's {speed.device}"
    reason = f"{total:.1e} operations, at {speed.flops * gpus / 1e9:,.0f} GFLOP/s on {where}"
    return Estimate(total / (speed.flops * gpus) + fixed, reason)


def about(seconds: float) -> str:
    """A time in words, as roughly as it is known: ``under a minute``, ``some 20 minutes``, ``some 31 hours``."""
    for unit, size, most in (("minute", 60.0, 100), ("hour", 3600.0, 72)):
        if seconds < most * size:
            count = round(seconds / size)
            return f"some {count} {unit}s" if count > 1 else f"{'a' if unit == 'minute' else 'an'} {unit} or less"
    return f"some {seconds / 86400:,.0f} days"
