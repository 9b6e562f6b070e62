"""Fine-tuning: one task with the settings of a form, or every task with those of a preset."""

from __future__ import annotations

import dataclasses

from prefect import flow

from flows.forms.checks import check_start_task, chosen_tasks, datasets_folder
from flows.forms.parameters import FinetuneAllParameters, FinetuneParameters
from flows.forms.references import pretrained_model
from flows.forms.run_names import from_form
from flows.forms.settings import chosen_preset
from flows.servers import signals
from flows.trainings.grid import Grid, arms_of, encoded_tasks, grid_of, pretrained_arm, scratch_arm
from flows.trainings.leaderboard import score_tasks
from gptcore.config import FinetuneConfig
from gptcore.families import Family, recorded_family
from gptcore.nlu.forms import form_of
from gptcore.nlu.registry import REGISTRY
from tasks.report.leaderboard import Leaderboard
from tasks.stages.dataset import encode_dataset
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
    family.require_form(task.name, form_of(task.spec).places)
    source = parameters.from_task
    arm = scratch_arm(checkpoint)
    if parameters.pretrained:
        arm = pretrained_arm(checkpoint, source, teacher_of(store, checkpoint))
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
    arms = arms_of(store, preset, checkpoint, parameters.from_task)
    grid = grid_of(store, preset, datasets_url, chosen, datasets, arms, parameters.seeds)
    return score_tasks(grid, parameters.jobs, left_out=left_out, rates=parameters.rates)
