"""What every training is: a value that knows its recipe, its title and its work, and that goes through JSON."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from prefect import Task

from gptcore.abstracts.config import AdaptConfig
from gptcore.config import DistilConfig, FinetuneConfig, NetworkConfig, PretrainConfig, network_config
from gptcore.families import FAMILIES
from tasks.jobs.launch import run_job
from tasks.jobs.placement import slots_and_threads
from tasks.report.card import Card
from tasks.report.figures import loss_curve
from tasks.stages.stage import publish_card
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Built, Store
from tasks.tracking.observer import JobObserver
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
    """Of its artifact."""

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
        """Its artifact, which may not be there yet."""
        return self.store.artifact(self.stage, self.recipe.digest)

    @property
    def needs(self) -> set[str]:
        """Digests of what it is made from."""
        return {found.digest for found in self.recipe.inputs.values() if isinstance(found, Artifact)}

    @abstractmethod
    def job(self, workspace: Path, threads: int) -> dict[str, Any]:
        """What its process is told: :mod:`gptcore.training` has a module of the stage's name.

        :param threads: of the process, on a CPU.
        """

    def room(self, jobs: int, n: int) -> int:
        """How many of ``n`` trainings like this one go on here at the same time.

        :param jobs: what was asked for; 0: as many as the machine has room for.
        :raises InputError: no such place for jobs.
        """
        return slots_and_threads(jobs)[0]

    def packed(self) -> dict[str, Any]:
        """Its fields as JSON, but for the store; :meth:`unpacked` reads them back."""
        return {name: _packed(getattr(self, name)) for name in self._names()}

    @classmethod
    def unpacked(cls, store: Store, fields: Mapping[str, Any]) -> Self:
        """What :meth:`packed` wrote; what the version before queued in a work pool is read, too.

        :raises InputError: as when it was made, where ``store`` is another one.
        """
        found = {name: _unpacked(value) for name, value in fields.items()}
        for name in ("threads", "beside"):  # a worker gives a job as many cores as its machine has
            found.pop(name, None)
        if "distil" in found:
            teacher, config = found.pop("teacher", None), found.pop("distil")
            found["distillation"] = Distillation(teacher, config) if teacher else None
        return cls(store, **found)

    @classmethod
    def _names(cls) -> list[str]:
        return [field.name for field in dataclasses.fields(cls) if field.name != "store"]


_RECORDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(AdaptConfig, Artifact, DistilConfig, Distillation, FinetuneConfig, PretrainConfig),
        *(family.part("config") for family in FAMILIES.values()),
    )
}


def _packed(value: Any) -> Any:
    if type(value).__name__ not in _RECORDS:
        return value
    fields = {field.name: _packed(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return {"kind": type(value).__name__, "fields": fields}


def _unpacked(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return _RECORDS[value["kind"]](**{name: _unpacked(field) for name, field in value["fields"].items()})


def network_of(store: Store, model: Artifact) -> NetworkConfig:
    """The settings of a model's network."""
    return network_config(store.manifest(model)["config"]["model"])


def follow_job(
    request: Training[Any], observer: JobObserver, workspace: Path, threads: int, nproc: int = 1
) -> dict[str, Any]:
    """What a training's process leaves, once it has ended; its metrics go to ``observer`` meanwhile."""
    result: dict[str, Any] = run_job(
        f"gptcore.training.{request.stage}",
        request.job(workspace, threads),
        workspace,
        nproc=nproc,
        on_metrics=observer,
        on_waiting=observer.waiting,
    )
    return {**result, "threads": threads}


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

    :param key: of the card on the Prefect run's page.
    :param results: on the card; ``measured``: on the MLflow run.
    :param references: see :func:`tasks.report.figures.loss_curve`, ``unit``, too.
    """
    records = read_metrics(store.local(built.artifact, "metrics.jsonl"))
    with scratch_folder() as folder:
        figure = loss_curve(records, folder / "loss.png", references, unit)
        links = cross_links(run, built.artifact)
        card = Card(title, results, built.manifest["config"], built.manifest, links, figure, notes)
        publish_card(card, key)
        (folder / "card.md").write_text(card.markdown(), encoding="utf-8")
        run.log_metrics(records)  # also what an earlier, killed process could not deliver any more
        run.log_results(measured)
        for path in (folder / "card.md", figure):
            if path is not None:
                run.log_artifact(path)
