"""The settings that a filled form asks for: those of its preset, with what its overrides change."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gptcore.base.errors import InputError
from gptcore.config import FinetuneConfig, Preset, preset_named
from gptcore.families import DEFAULT, recorded_family
from gptcore.nlu.registry import REGISTRY, check_source

if TYPE_CHECKING:
    from tasks.store.artifact import Artifact
    from tasks.store.store import Store

CHECKPOINT = "checkpoint"
"""What a form has in a preset's place that takes the one whose settings suit the model it starts from."""
FROM_TASK = ("rte", "stsb", "mrpc")
"""The tasks that start from another's model where a form names one (ALBERT, section 4.5)."""


class Inherited(NamedTuple):
    """A preset by its name, and why it is that one, in words."""

    name: str
    origin: str


class Chosen(NamedTuple):
    """A preset with a form's overrides, and why it is that one, in words."""

    preset: Preset
    origin: str


def chosen_preset(name: str, overrides: Mapping[str, Any], family: str = DEFAULT, from_task: str = "") -> Preset:
    """The preset of a form, of a family, with the form's overrides applied.

    :param family: that of the form, which its overrides may say instead, or of the checkpoint that it starts from.
    :param from_task: the task that others start from; empty: as the settings say.
    :raises InputError: an unknown setting, or a value that does not fit.
    """
    preset = preset_named(name, {"family": family, **overrides})
    if from_task:
        check_source(from_task, FROM_TASK)
        tasks = {task: {**preset.tasks.get(task, {}), "from_task": from_task} for task in FROM_TASK}
        preset = dataclasses.replace(preset, tasks={**preset.tasks, **tasks})
    for task in REGISTRY:
        if (source := preset.finetune_for(task).from_task) is not None:
            check_source(source, [task], f"tasks.{task}.from_task")
    return preset


def require_one_family(overrides: Mapping[str, Any], family: str) -> None:
    """:raises InputError: a form and its settings ask for two families."""
    if (said := overrides.get("family", family)) != family != DEFAULT:
        raise InputError(f"family = {said!r} in the settings, --family {family}; expected one of the two")


def inherited(preset: str, model: Artifact | None, called: str = "the checkpoint", tuned: bool = False) -> Inherited:
    """The preset that a form asks for, or that of the model it starts from, where it takes that one.

    :param model: None: the form names none, and the preset is the demo's.
    :param called: what the words call the model.
    :param tuned: whether it is the model itself that is fine-tuned.
    :raises InputError: the model is not there.
    """
    if preset != CHECKPOINT:
        return Inherited(preset, f"preset {preset}, as asked for")
    if model is None:
        return Inherited("demo", "preset demo")
    from tasks.store.lineage import inherited_preset

    name, why = inherited_preset(model, called, tuned)
    return Inherited(name, f"preset {name}, {why}")


def preset_on(
    store: Store, checkpoint: Artifact, preset: str, overrides: Mapping[str, Any], from_task: str = ""
) -> Chosen:
    """The preset of the family of the model that a form fine-tunes, and why it is that one.

    The presets `paper` and `imported` have for a published size its column of the paper's tables.

    :raises InputError: an unknown setting, or a value that does not fit.
    """
    network = store.manifest(checkpoint)["config"]["model"]
    family, (name, origin) = recorded_family(network), inherited(preset, checkpoint, tuned=True)
    size = family.size_of(network) if preset == CHECKPOINT else ""
    if size:
        overrides = {"shape": size, **overrides}
    chosen = chosen_preset(name, overrides, DEFAULT if family.ablation else family.name, from_task)
    if name != "imported":
        return Chosen(chosen, origin)
    own, given = overrides.get("finetune", {}), overrides.get("tasks", {})
    tasks = {  # what a user says of all tasks counts for those, too, that the recipe has values of their own for
        task: {name: value for name, value in fields.items() if name not in own or name in given.get(task, {})}
        for task, fields in chosen.tasks.items()
    }
    chosen = dataclasses.replace(chosen, tasks=tasks)
    if size not in family.columns and "lr" not in own and (factor := _PUBLISHED_WIDTH / network["n_embd"]) != 1:
        chosen = _at_width(chosen, factor, {task for task, fields in given.items() if "lr" in fields})
        origin += f", its rates times {factor:.3g} for a width of {network['n_embd']}"
    return Chosen(chosen, origin)


_PUBLISHED_WIDTH = 768
"""Width of the networks that most published rates of fine-tuning are of."""


def _at_width(preset: Preset, factor: float, kept: Collection[str]) -> Preset:
    """A preset whose rates are those for another width, with which Adam's best rate falls (Yang et al. 2022, "Tensor
    Programs V", Table 3).

    :param kept: the tasks whose rate a user's own settings say.
    """
    tasks = {
        task: {**fields, "lr": fields["lr"] * factor} if "lr" in fields and task not in kept else fields
        for task, fields in preset.tasks.items()
    }
    finetune = dataclasses.replace(preset.finetune, lr=preset.finetune.lr * factor)
    return dataclasses.replace(preset, tasks=tasks, finetune=finetune)


def with_options(
    settings: Mapping[str, FinetuneConfig], options: Mapping[str, Any], from_task: str
) -> dict[str, FinetuneConfig]:
    """Task -> its settings of fine-tuning, with what the options of a form say on top of each.

    :param from_task: the task that all others start from; empty: as their settings say.
    :raises InputError: a value that does not fit.
    """
    started = {**options, "from_task": from_task} if from_task else options
    return {
        task: dataclasses.replace(config, **(options if task == from_task else started))
        for task, config in settings.items()
    }


def refuse_setting(overrides: Mapping[str, Any], section: str, name: str) -> None:
    """:raises InputError: a setting is given that is what the analysis varies."""
    if (value := overrides.get(section, {}).get(name)) is not None:
        raise InputError(f"{section}.{name} = {value!r}: the analysis compares its values; expected no such setting")
