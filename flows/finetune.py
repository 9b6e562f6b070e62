"""Fine-tuning: one task with the settings of a form, or every task with those of a preset."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from prefect import flow

from flows.failures import Failures, leave_out, raise_if_all
from flows.fanout import score_tasks
from flows.forms.checks import check_start_task, chosen_tasks, datasets_folder
from flows.forms.parameters import FinetuneAllParameters, FinetuneParameters
from flows.forms.references import pretrained_model
from flows.forms.run_names import from_form
from flows.forms.settings import chosen_preset
from flows.grid import Arm, Grid, TaskSettings
from flows.servers import signals
from gptcore.base.errors import InputError
from gptcore.config import FinetuneConfig, Preset
from gptcore.families import Family, recorded_family
from gptcore.nlu.own_task import Task
from gptcore.nlu.registry import REGISTRY
from tasks.report.leaderboard import Leaderboard
from tasks.stages.dataset import encode_dataset
from tasks.store.artifact import Artifact
from tasks.store.lineage import own_tokenizer, teacher_of
from tasks.store.store import Store


@flow(name="finetune", flow_run_name=from_form, persist_result=False)
def finetune(parameters: FinetuneParameters) -> Leaderboard:
    """Fine-tune one task from one checkpoint; the result stands beside the baselines and the published rows."""
    signals.listen()
    store = Store(parameters.store)
    checkpoint = pretrained_model(store, parameters.checkpoint)
    family = recorded_family(store.manifest(checkpoint)["config"]["model"])
    config = _config(parameters, family)
    check_start_task(parameters)
    datasets_url = datasets_folder(store, parameters.datasets, [parameters.task])
    (task,) = chosen_tasks([parameters.task], datasets_url)
    family.require_form(task.name, task.spec.form)
    source = parameters.from_task
    arm = (
        pretrained_arm(checkpoint, source, teacher_of(store, checkpoint))
        if parameters.pretrained
        else scratch_arm(checkpoint)
    )
    tokenizer = own_tokenizer(store, checkpoint)
    datasets = {task.name: encode_dataset(store, datasets_url, task.spec, tokenizer)}
    started = dataclasses.replace(config, from_task=source or None)
    settings = dict.fromkeys(REGISTRY, started) | {task.name: started} | ({source: config} if source else {})
    grid = Grid(store, datasets_url, [task], datasets, [arm], settings, parameters.seeds)
    return score_tasks(grid, jobs=0, rates=parameters.rates)


def _config(parameters: FinetuneParameters, family: Family) -> FinetuneConfig:
    """The settings that a form asks for, of a model of a family."""
    given = {
        **family.settings.get("finetune", {}),
        "lr": parameters.lr,
        "batch_size": parameters.batch_size,
        "epochs": parameters.epochs,
        "lm_coef": parameters.lm_coef if family.auxiliary_loss else 0.0,
        "clf_pdrop": parameters.clf_pdrop,
        "n_transfer": None if parameters.layers < 0 else parameters.layers,
        "max_train_rows": parameters.max_train_rows or None,
    }
    if parameters.layer_decay:
        given["layer_decay"] = parameters.layer_decay
    return FinetuneConfig(**given)


@flow(name="finetune-all", flow_run_name=from_form, persist_result=False)
def finetune_all(parameters: FinetuneAllParameters) -> Leaderboard:
    """Fine-tune every task whose data is there from one checkpoint, with a preset's settings."""
    signals.listen()
    store = Store(parameters.store)
    checkpoint = pretrained_model(store, parameters.checkpoint)
    family = recorded_family(store.manifest(checkpoint)["config"]["model"])
    preset = chosen_preset(parameters, "" if family.ablation else family.name)
    datasets_url = datasets_folder(store, parameters.datasets, parameters.tasks)
    chosen = chosen_tasks(parameters.tasks, datasets_url)
    datasets, left_out = encoded_tasks(store, datasets_url, chosen, family, own_tokenizer(store, checkpoint))
    arms, seeds = arms_of(store, preset, checkpoint, parameters.from_task), seeds_of(preset, parameters.seeds)
    grid = Grid(store, datasets_url, chosen, datasets, arms, settings_of(preset, chosen), seeds)
    return score_tasks(grid, parameters.jobs, left_out=left_out, rates=parameters.rates)


def encoded_tasks(
    store: Store, datasets_url: str, tasks: Sequence[Task], family: Family, tokenizer: Artifact
) -> tuple[dict[str, Artifact], Failures]:
    """Task -> its encoded rows, and the tasks whose rows are broken.

    :raises InputError: a task that the family cannot be fine-tuned on, or none has good rows.
    """
    for task in tasks:
        family.require_form(task.name, task.spec.form)
    datasets: dict[str, Artifact] = {}
    left_out: Failures = {}
    for task in tasks:
        try:
            datasets[task.name] = encode_dataset(store, datasets_url, task.spec, tokenizer)
        except InputError as error:
            leave_out(left_out, task.name, error)
    raise_if_all(left_out, [task.name for task in tasks])
    return datasets, left_out


def settings_of(preset: Preset, tasks: Sequence[Task]) -> TaskSettings:
    """The fine-tuning settings of each of the twelve under a preset, and of the own tasks among ``tasks``."""
    own = {task.name: task.settings(preset.finetune_for(task.name)) for task in tasks}
    return {name: preset.finetune_for(name) for name in REGISTRY} | own


def pretrained_arm(checkpoint: Artifact, source: str = "", teacher: Artifact | None = None) -> Arm:
    """The paper's method.

    :param source: the task that others start from, which the row's name says.
    :param teacher: of a student, which may learn from that one's models of the tasks.
    """
    label = f"pre-trained, then {source}" if source else "pre-trained"
    return Arm(label, checkpoint, teacher=pretrained_arm(teacher) if teacher else None)


def scratch_arm(checkpoint: Artifact) -> Arm:
    """The same network from random weights (Table 5, "w/o pre-training")."""
    return Arm("from scratch", checkpoint, {"pretrained": False})


def arms_of(store: Store, preset: Preset, checkpoint: Artifact, source: str = "") -> list[Arm]:
    """The rows of ours that a preset fills.

    :param source: the task that a form has others start from; of what the settings say so the notes tell.
    """
    arms = [pretrained_arm(checkpoint, source, teacher_of(store, checkpoint))]
    return [*arms, scratch_arm(checkpoint)] if preset.scratch else arms


def seeds_of(preset: Preset, wanted: int) -> int:
    """Runs of each task: as many as were asked for, else the preset's; 0: each task's own number."""
    return wanted or preset.seeds or 0
