"""The settings that a filled form asks for: those of its preset, with what its overrides change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gptcore.base.errors import InputError
from gptcore.config import FinetuneConfig, Preset, preset_named
from gptcore.families import Family, recorded_family
from gptcore.nlu.registry import REGISTRY, check_source

if TYPE_CHECKING:
    from tasks.store.artifact import Artifact
    from tasks.store.store import Store

CHECKPOINT = "checkpoint"
"""What a form has in a preset's place that takes the one whose settings suit the model it starts from."""
_OPTIONS = ("lr", "batch_size", "epochs", "lm_coef", "clf_pdrop", "max_train_rows", "layer_decay")
"""The settings of fine-tuning that are options of a form of one task; its defaults leave them to the preset."""
FROM_TASK = ("rte", "stsb", "mrpc")
"""The tasks that start from another's model where a form names one (ALBERT, section 4.5)."""


def chosen_preset(form: Any, family: str = "") -> Preset:
    """The preset of a form, of the family that it may ask for, with its overrides applied.

    :param family: of a checkpoint that the form starts from; empty: the form's own, or GPT-1.
    :raises InputError: an unknown setting, or a value that does not fit.
    """
    if not family:
        family = getattr(form, "family", "gpt")
        if (found := form.overrides.get("family", family)) != family != "gpt":
            raise InputError(f"family = {found!r} in the settings, --family {family}; expected one of the two")
    preset = preset_named(form.preset, {"family": family, **form.overrides})
    if source := getattr(form, "from_task", ""):
        check_source(source, FROM_TASK)
        tasks = {name: {**preset.tasks.get(name, {}), "from_task": source} for name in FROM_TASK}
        preset = dataclasses.replace(preset, tasks={**preset.tasks, **tasks})
    for name in REGISTRY:
        if (chosen := preset.finetune_for(name).from_task) is not None:
            check_source(chosen, [name], f"tasks.{name}.from_task")
    return preset


def inherited(form: Any, model: Artifact | None, called: str = "the checkpoint") -> tuple[Any, str]:
    """A form with its preset by name, where it takes that of the model it starts from, and why it is that one.

    :param model: None: the form names none, and the preset is the demo's.
    :param called: what the words call the model.
    :raises InputError: the model is not there.
    """
    if form.preset != CHECKPOINT:
        return form, f"preset {form.preset}, as asked for"
    if model is None:
        return form.model_copy(update={"preset": "demo"}), "preset demo"
    from tasks.store.lineage import inherited_preset

    name, why = inherited_preset(model, called)
    return form.model_copy(update={"preset": name}), f"preset {name}, {why}"


def preset_on(form: Any, store: Store, checkpoint: Artifact | None) -> tuple[Family, Preset, str]:
    """The family of the model that a form fine-tunes, the preset of that family, and why it is that one.

    Of a published size the preset `paper` has its column of the paper's tables.

    :param checkpoint: None: the form names none.
    :raises InputError: an unknown setting, or a value that does not fit.
    """
    network = store.manifest(checkpoint)["config"]["model"] if checkpoint else {}
    family, given = recorded_family(network), form
    form, origin = inherited(form, checkpoint)
    if form is not given and (size := family.size_of(network)):
        form.overrides = {"shape": size, **form.overrides}
    if hasattr(form, "task"):  # whose source is one of its options
        form = form.model_copy(update={"from_task": ""})
    return family, chosen_preset(form, "" if family.ablation else family.name), origin


def with_options(form: Any, family: Family, settings: Mapping[str, FinetuneConfig]) -> dict[str, FinetuneConfig]:
    """Fine-tuning settings by task, with what the options of a form of one task say on top of each.

    :raises InputError: a value that does not fit.
    """
    defaults = type(form).model_fields
    given = {name: value for name in _OPTIONS if (value := getattr(form, name)) != defaults[name].default}
    if not family.auxiliary_loss:
        given.pop("lm_coef", None)
    if given.get("max_train_rows") == 0:
        given["max_train_rows"] = None
    if form.layers >= 0:
        given |= {"n_transfer": form.layers, "from_task": None}
    started = given | ({"from_task": form.from_task} if form.from_task else {})
    return {
        name: dataclasses.replace(config, **(given if name == form.from_task else started))
        for name, config in settings.items()
    }


def refuse_setting(form: Any, section: str, name: str) -> None:
    """:raises InputError: a setting is given that is what the analysis varies."""
    if (value := form.overrides.get(section, {}).get(name)) is not None:
        raise InputError(f"{section}.{name} = {value!r}: the analysis compares its values; expected no such setting")
