"""The settings that a filled form asks for: those of its preset, with what its overrides change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gptcore.base.errors import InputError, nearest, require
from gptcore.base.settings import replace_settings
from gptcore.config import FinetuneConfig, NetworkConfig, Preset, distillation, preset_named
from gptcore.families import DEFAULT, FAMILIES, Family, recorded_family, shape_settings
from gptcore.nlu.registry import REGISTRY, check_source
from gptcore.papers.abstracts.config import PRESETS as ABSTRACTS
from gptcore.papers.abstracts.config import AbstractsPreset, SamplingConfig

if TYPE_CHECKING:
    from tasks.store.artifact import Artifact
    from tasks.store.store import Store

CHECKPOINT = "checkpoint"
"""What a form has in a preset's place that takes the one whose settings suit the model it starts from."""
_OPTIONS = ("lr", "batch_size", "epochs", "lm_coef", "clf_pdrop", "max_train_rows", "layer_decay")
"""The settings of fine-tuning that are options of a form of one task; its defaults leave them to the preset."""
FROM_TASK = ("rte", "stsb", "mrpc")
"""The tasks that start from another's model where a form names one (ALBERT, section 4.5)."""
STUDENT = "distilbert"
"""The student's family where a form of distillation names none."""


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


def distilled_preset(form: Any, teacher: NetworkConfig, short: str) -> Preset:
    """The preset of a form of distillation: the student in its teacher's shape, with fewer layers.

    A decoder's student is of the decoder's family. What the settings say of the network stands.

    :param short: what messages call the teacher.
    :raises InputError: an unknown setting, a value that does not fit, or a student that cannot learn from the teacher.
    """
    family = _students_family(form, teacher, short)
    preset = preset_named(form.preset, {**form.overrides, "family": family})
    depth = form.layers or max(1, getattr(teacher, "n_layer", 2) // 2)
    size = form.overrides.get("shape")
    said = {**(shape_settings(size, "overrides")["model"] if size else {}), **form.overrides.get("model", {})}
    if form.layers and said.get("n_layer", form.layers) != form.layers:
        raise InputError(f"--layers {form.layers}: the settings have model.n_layer = {said['n_layer']}; expected one")
    shape = distillation.student_of(teacher, preset.model, said.get("n_layer", depth))
    model = replace_settings(shape, said, "overrides: model")
    distillation.check_teacher(preset.distil, model, teacher, f"--teacher {short}")
    return dataclasses.replace(preset, model=model)


def refuse_setting(form: Any, section: str, name: str) -> None:
    """:raises InputError: a setting is given that is what the analysis varies."""
    if (value := form.overrides.get(section, {}).get(name)) is not None:
        raise InputError(f"{section}.{name} = {value!r}: the analysis compares its values; expected no such setting")


def _students_family(form: Any, teacher: NetworkConfig, short: str) -> str:
    """The family of a teacher's student: a decoder's own, an encoder's as the form or its settings say.

    :raises InputError: the form or its settings say another one, or two.
    """
    said, own = form.overrides.get("family"), FAMILIES[teacher.family]
    if own.generates:
        is_one = f"a student of {own.title} ({short}) is one, too; expected none"
        require(said in (None, own.name), f"family = {said!r} in the settings: {is_one}")
        require(form.family in (own.name, STUDENT), f"--family {form.family}: {is_one}")
        return own.name
    if said is not None and form.family not in (said, STUDENT):
        raise InputError(f"family = {said!r} in the settings, --family {form.family}; expected one of the two")
    return str(said or form.family)


_ADAPTATION = ("adapt", "sampling", "star")
"""Sections of the settings that are about fine-tuning on abstracts; the others are the language model's."""


def chosen_abstracts(form: Any) -> tuple[Preset, AbstractsPreset]:
    """The language model's preset that a form asks for, and that of its fine-tuning on abstracts.

    :raises InputError: an unknown setting, or a value that does not fit.
    """
    own, overrides = ABSTRACTS[form.preset], language_overrides(form.overrides)
    changes = {
        name: replace_settings(getattr(own, name), form.overrides.get(name, {}), f"overrides: {name}")
        for name in _ADAPTATION
    }
    if overrides.get("family", "gpt2") != "gpt2":
        raise InputError(f"overrides: family = {overrides['family']!r}; expected gpt2, whose vocabulary has the marks")
    return preset_named(form.preset, {**overrides, "family": "gpt2"}), dataclasses.replace(own, **changes)


def language_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Of the settings of a form of abstracts, those of the language model that it starts from."""
    return {name: values for name, values in overrides.items() if name not in _ADAPTATION}


def chosen_sampling(preset: str, overrides: dict[str, Any], seed: int | None) -> SamplingConfig:
    """How abstracts are drawn under a preset with overrides, of which the other sections do not matter here.

    :param seed: None: the settings' own.
    :raises InputError: an unknown preset or setting, or a value that does not fit.
    """
    require(preset in ABSTRACTS, f"preset {preset!r} is not known; {nearest(preset, ABSTRACTS)}")
    chosen = replace_settings(ABSTRACTS[preset].sampling, overrides.get("sampling", {}), "overrides: sampling")
    return chosen if seed is None else dataclasses.replace(chosen, seed=seed)
