"""The form of a sweep, and what its checkpoint adds to the file that it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.forms.fields import Form, field
from gptcore.base.errors import InputError
from gptcore.families import DEFAULT, FAMILIES, recorded_family

if TYPE_CHECKING:
    from gptcore.nlu.own_task import Task
    from gptcore.papers.sweep.plan import Plan
    from tasks.store.artifact import Artifact
    from tasks.store.store import Store


@dataclass(frozen=True)
class SweepRequest:
    """A sweep's file as it is read, and what the form's names stand for."""

    store: Store
    table: Mapping[str, Any]
    notes: tuple[str, ...]
    """What a reader must know of the settings."""
    plan: Plan
    checkpoint: Artifact | None
    """The model that all trials fine-tune; None: each pre-trains its own."""
    datasets_url: str
    """Empty: the generated world's."""
    tasks: tuple[Task, ...] | None
    """None: of the generated world, or none is fine-tuned."""


class SweepParameters(Form):
    """A search for better settings: trials drawn from a space, of which the best go on to longer trainings."""

    sweep: dict[str, Any] = field("sweep", 0)
    store: str = field("store", 1)
    corpus: str = field("corpus", 2)
    datasets: str = field("twelve-datasets", 3)
    checkpoint: str = field("sweep-checkpoint", 4)
    nproc: int = field("sweep-nproc", 5)
    jobs: int = field("sweep-jobs", 6)
    dask: str = field("dask", 7)

    def headline(self) -> list[str]:  # of a form that has not been checked yet
        preset = [str(self.sweep["preset"])] if "preset" in self.sweep else []
        return [*preset, f"by {self.sweep.get('objective', '')}"]

    def resolve(self, store: Store) -> SweepRequest:
        from flows.forms import checks
        from flows.forms.references import pretrained_model
        from gptcore.papers.sweep.plan import read_plan

        checkpoint, settings = None, "preset" in self.sweep
        if self.checkpoint and not settings:
            checkpoint = pretrained_model(store, self.checkpoint)
        table, notes = sweep_on(store, self.sweep, checkpoint)
        plan = read_plan(table, "sweep", bool(self.checkpoint))
        if self.checkpoint and settings:
            checkpoint = pretrained_model(store, self.checkpoint)
        family = FAMILIES[plan.trials[0].preset.family]
        if checkpoint is None:
            if family.knowledge:
                found = "found no --checkpoint, expected one, as only fine-tunes are searched"
                raise InputError(f"sweep: {family.title}: {found}")
            checks.check_corpus(self.corpus)
        checks.check_dask(self.dask)
        datasets_url, tasks = self.datasets, None
        if plan.tasks and (checkpoint or datasets_url):
            datasets_url = checks.datasets_folder(store, datasets_url, plan.tasks)
            tasks = tuple(checks.chosen_tasks(plan.tasks, datasets_url))
        return SweepRequest(store, table, notes, plan, checkpoint, datasets_url, tasks)


def sweep_on(
    store: Store, table: Mapping[str, Any], checkpoint: Artifact | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What a sweep's file holds, with preset and family of the checkpoint where it names no preset; a note on these.

    :param checkpoint: the model that all trials start from; None: there is none.
    """
    if checkpoint is None or "preset" in table:
        return dict(table), ()
    from tasks.store.lineage import inherited_preset

    name, why = inherited_preset(checkpoint, tuned=True)
    family, found = recorded_family(store.manifest(checkpoint)["config"]["model"]), {**table, "preset": name}
    if family.name != DEFAULT and not family.ablation and isinstance(said := table.get("settings", {}), Mapping):
        found["settings"] = {"family": family.name, **said}
    return found, (f"Settings of preset {name}, {why}.",)
