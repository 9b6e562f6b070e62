"""What a fan-out of fine-tunes is: every task in every arm with every seed, as the trainings that it is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flows.trainings.failures import Failures, each_apart
from gptcore.config import FinetuneConfig, Preset
from gptcore.families import Family
from gptcore.nlu.forms import form_of
from gptcore.nlu.own_task import Task
from gptcore.nlu.registry import REGISTRY, TaskSpec, check_source
from tasks.report.card import start_note
from tasks.stages.dataset import encode_dataset
from tasks.stages.finetune import FinetuneRequest
from tasks.store.artifact import Artifact
from tasks.store.counts import DatasetCounts
from tasks.store.lineage import teacher_of
from tasks.store.store import Store

TaskSettings = Mapping[str, FinetuneConfig]
"""Task -> its fine-tuning settings; the seed and the arm's changes are filled in for each run."""


@dataclass(frozen=True)
class Arm:
    """One row of ours: every task from one checkpoint, with the settings' differences that make the arm."""

    label: str
    """How the row is called; part of what the row is."""
    checkpoint: Artifact
    """Only its shape and its tokenizer are used where the changes are from scratch (``pretrained`` False)."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of FinetuneConfig that differ from each task's settings: ``{"lm_coef": 0.0}``, ``{"n_transfer": 3}``."""
    teacher: Arm | None = None
    """The row of a student's teacher, from whose model of each task the student's learns where it is ``taught``."""

    @property
    def pretrained(self) -> bool:
        return bool(self.changes.get("pretrained", True))

    def settings(self, config: FinetuneConfig) -> FinetuneConfig:
        """A task's settings in this arm; without all of the checkpoint's weights no other task's model is between."""
        changes = {"pretrained": True, **self.changes}
        if not self.pretrained or changes.get("n_transfer", config.n_transfer) is not None:
            changes["from_task"] = None
        if not self.pretrained or self.teacher is None:
            changes |= {"taught": False, "layer_epochs": None, "augmentation": None}
        return dataclasses.replace(config, **changes)


@dataclass(frozen=True)
class Grid:
    """Every task in every arm: what a fan-out runs, and what it runs on."""

    store: Store
    datasets_url: str
    """The folder of the twelve datasets; empty where only users' own tasks are fine-tuned."""
    tasks: Sequence[Task]
    datasets: Mapping[str, Artifact]
    """Task -> its encoded rows, of those whose data is good."""
    arms: Sequence[Arm]
    settings: TaskSettings
    seeds: int = 0
    """Runs of each task, with the seeds 0 to seeds - 1. By default (0) as many as the task's registry entry says."""
    sources: Mapping[str, Artifact] = field(default_factory=dict)
    """Task -> its encoded rows, of those that others start from (``from_task``) and that have no cells of their own."""
    rates: tuple[float, ...] = ()
    """The learning rates that were tried, of which each task has the best. By default none was tried, and each task
    has the rate of its settings."""
    chosen: Mapping[str, float] = field(default_factory=dict)
    """Task -> the rate that was chosen. The rows' runs have it; a teacher without a row keeps its settings' rate."""
    notes: tuple[str, ...] = ()
    """What the leaderboard says of the settings."""
    origin: str = ""
    """Which preset has the settings, and why, in words."""
    command: str = ""
    """The command line that does the same."""

    def spec(self, task: str) -> TaskSpec:
        return next(own.spec for own in self.tasks if own.name == task)

    def config(self, arm: Arm, task: str, seed: int = 0) -> FinetuneConfig:
        config = dataclasses.replace(arm.settings(self.settings[task]), seed=seed)
        if task in self.chosen and arm in self.arms:
            config = dataclasses.replace(config, lr=self.chosen[task])
        return config

    def source_of(self, arm: Arm, task: str) -> str | None:
        """The task that one starts from in an arm.

        :raises InputError: it is none of the twelve, or the task itself.
        """
        source = arm.settings(self.settings[task]).from_task
        if source is not None:
            check_source(source, [task])
        return source

    def training(self, arm: Arm, task: str, config: FinetuneConfig) -> FinetuneRequest:
        """One run, by the settings that it has in its arm.

        :raises InputError: see :meth:`source_of`.
        """
        dataset = self.datasets.get(task) or self.sources[task]
        start = None if config.from_task is None else self.start(arm, config.from_task).artifact
        teacher = self.teaching(arm, task).artifact if config.taught else None
        return FinetuneRequest(
            self.store, task, dataset, arm.checkpoint, config, arm.label, start=start, teacher=teacher
        )

    def start(self, arm: Arm, source: str) -> FinetuneRequest:
        """The run whose network others start from: the source's settings in the same arm, seed 0."""
        return self.training(arm, source, dataclasses.replace(self.config(arm, source), from_task=None))

    def teaching(self, arm: Arm, task: str) -> FinetuneRequest:
        """The run whose model a student's learns from: the teacher's, seed 0."""
        assert arm.teacher is not None, "Arm.settings() saw to it"
        return self.training(arm.teacher, task, self.config(arm.teacher, task))

    def starts(self) -> Iterator[tuple[int, FinetuneRequest]]:
        """What must be trained before other runs, each with its arm's place, once.

        A teacher that has no row of its own is trained in its student's.
        """
        for place, arm in enumerate(self.arms):
            if arm.teacher is not None:
                home = self.arms.index(arm.teacher) if arm.teacher in self.arms else place
                for task in self.datasets:
                    if self.config(arm, task).taught:
                        yield home, self.teaching(arm, task)
            for source in dict.fromkeys(self.source_of(arm, name) for name in self.datasets):
                if source is not None:
                    yield place, self.start(arm, source)

    def trainings(self) -> Iterator[tuple[int, FinetuneRequest]]:
        """The runs behind all cells, each with its arm's place: the longest task's first, of those that wait for none.

        Which suites they are cells of is not known here.
        """
        tokens = {
            name: DatasetCounts.of(self.store, dataset).splits["train"].tokens
            for name, dataset in self.datasets.items()
        }
        found = [
            (place, self.training(arm, name, self.config(arm, name, seed)))
            for name in sorted(tokens, key=lambda name: -tokens[name])  # the last slot to end then ends early
            for place, arm in enumerate(self.arms)
            for seed in range(self.seeds or self.spec(name).seeds)
        ]
        yield from sorted(found, key=lambda each: each[1].start is not None or each[1].teacher is not None)


# --- the parts of a grid ---


def encoded_tasks(
    store: Store, datasets_url: str, tasks: Sequence[Task], family: Family, tokenizer: Artifact
) -> tuple[dict[str, Artifact], Failures]:
    """Task -> its encoded rows, and the tasks whose rows are broken.

    :raises InputError: a task that the family cannot be fine-tuned on, or none has good rows.
    """
    for task in tasks:
        family.require_form(task.name, form_of(task.spec).places)
    return each_apart(tasks, lambda task: encode_dataset(store, datasets_url, task.spec, tokenizer))


def settings_of(preset: Preset, tasks: Sequence[Task]) -> TaskSettings:
    """The fine-tuning settings of each of the twelve under a preset, and of the own tasks among ``tasks``."""
    own = {task.name: task.settings(preset) for task in tasks}
    return {name: preset.finetune_for(name) for name in REGISTRY} | own


def grid_of(
    store: Store,
    preset: Preset,
    datasets_url: str,
    tasks: Sequence[Task],
    datasets: Mapping[str, Artifact],
    arms: Sequence[Arm],
    seeds: int,
    origin: str = "",
    alone: bool = False,
) -> Grid:
    """Tasks in some arms, by a preset's settings.

    :param seeds: as a form has it; 0: as the preset says, else each task's own number.
    :param origin: why it is that preset, in words; empty: by its name alone.
    :param alone: whether networks are compared: only n-grams that the user asks for are then counted beside them.
    """
    seeds, origin = seeds or preset.seeds or 0, origin or f"preset {preset.name}"
    settings = settings_of(preset, tasks)
    if alone and not preset.asks_ngrams:
        settings = {name: dataclasses.replace(config, ngrams=None) for name, config in settings.items()}
    imported = dict.fromkeys(arm.checkpoint for arm in arms if arm.checkpoint.stage == "imported")
    notes = tuple(note for checkpoint in imported for note in start_note(store.manifest(checkpoint)))
    return Grid(store, datasets_url, tasks, datasets, arms, settings, seeds, notes=notes, origin=origin)


def recipe_in_words(settings: Collection[FinetuneConfig]) -> str:
    """Rates, epochs and batches of some fine-tunes: ``lr 0.0001, 3 or 5 epochs of batches of 32``."""
    told = {name: {getattr(config, name) for config in settings} for name in ("lr", "epochs", "batch_size")}
    lr, epochs, rows = (" or ".join(f"{value:g}" for value in sorted(values)) for values in told.values())
    return f"lr {lr}, {epochs} epochs of batches of {rows}"


def pretrained_arm(checkpoint: Artifact, source: str = "", teacher: Artifact | None = None) -> Arm:
    """The paper's method.

    :param source: the task that others start from, which the row's name says.
    :param teacher: of a student, which may learn from that one's models of the tasks.
    """
    label = f"pre-trained, then {source}" if source else "pre-trained"
    return Arm(label, checkpoint, teacher=pretrained_arm(teacher) if teacher else None)


def scratch_arm(checkpoint: Artifact, alone: bool = False) -> Arm:
    """The network of a checkpoint from random weights (Table 5, "w/o pre-training"), ``alone``: without n-grams."""
    return Arm("from scratch", checkpoint, {"pretrained": False} | ({"ngrams": None} if alone else {}))


def arms_of(store: Store, preset: Preset, checkpoint: Artifact, source: str = "") -> list[Arm]:
    """The rows of ours that a preset fills.

    :param source: the task that a form has others start from; of what the settings say so the notes tell.
    """
    arms = [pretrained_arm(checkpoint, source, teacher_of(store, checkpoint))]
    return [*arms, scratch_arm(checkpoint, alone=not preset.asks_ngrams)] if preset.scratch else arms
