"""The form of a sweep, and what its checkpoint adds to the file that it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flows.forms.fields import Form, field
from gptcore.base.errors import InputError
from gptcore.families import DEFAULT, FAMILIES, recorded_family

if TYPE_CHECKING:
    from tasks.store.store import Store


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

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks
        from flows.forms.references import pretrained_model
        from gptcore.papers.sweep.plan import read_plan

        plan = read_plan(sweep_on(store, self.sweep, self.checkpoint)[0], "sweep", bool(self.checkpoint))
        family = FAMILIES[plan.trials[0].preset.family]
        if self.checkpoint:
            pretrained_model(store, self.checkpoint)
        elif family.knowledge:
            title = family.title
            raise InputError(f"sweep: {title}: found no --checkpoint, expected one, as only fine-tunes are searched")
        else:
            checks.check_corpus(self.corpus)
        checks.check_dask(self.dask)
        if plan.tasks and (self.checkpoint or self.datasets):
            checks.chosen_tasks(plan.tasks, checks.datasets_folder(store, self.datasets, plan.tasks))


def sweep_on(store: Store, table: Mapping[str, Any], ref: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What a sweep's file holds, with preset and family of the checkpoint where it names no preset; a note on these.

    :param ref: the checkpoint that all trials start from; empty: none.
    :raises InputError: no such model.
    """
    if not ref or "preset" in table:
        return dict(table), ()
    from flows.forms.references import pretrained_model
    from tasks.store.lineage import inherited_preset

    model = pretrained_model(store, ref)
    name, why = inherited_preset(model)
    family, found = recorded_family(store.manifest(model)["config"]["model"]), {**table, "preset": name}
    if family.name != DEFAULT and not family.ablation and isinstance(said := table.get("settings", {}), Mapping):
        found["settings"] = {"family": family.name, **said}
    return found, (f"Settings of preset {name}, {why}.",)
