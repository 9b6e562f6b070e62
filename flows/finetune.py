"""Fine-tuning: one task with the settings of a form, or every task with those of a preset."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import flow

from flows.failures import Failures, leave_out, raise_if_all
from flows.fanout import Arm, Grid, TaskSettings, score_tasks
from flows.forms.checks import chosen_tasks, datasets_folder
from flows.forms.parameters import FinetuneAllParameters, FinetuneParameters
from flows.forms.references import pretrained_model
from flows.forms.run_names import from_form
from flows.forms.settings import chosen_preset
from flows.servers import signals
from gptcore.config import FinetuneConfig, Preset
from gptcore.errors import InputError
from gptcore.families import recorded_family
from gptcore.nlu.own_task import Task
from gptcore.nlu.registry import REGISTRY
from tasks.report.leaderboard import Leaderboard
from tasks.stages.dataset import encode_dataset
from tasks.store.artifact import Artifact
from tasks.store.lineage import own_tokenizer
from tasks.store.store import Store


@flow(name="finetune", flow_run_name=from_form, persist_result=False)
def finetune(parameters: FinetuneParameters) -> Leaderboard:
    """Fine-tune one task from one checkpoint; the result stands beside the baselines and the published rows."""
    signals.listen()
    store = Store(parameters.store)
    checkpoint = pretrained_model(store, parameters.checkpoint)
    family = recorded_family(store.manifest(checkpoint)["config"]["model"])
    config = FinetuneConfig(
        warmup=family.settings.get("finetune", {}).get("warmup", FinetuneConfig.warmup),
        lr=parameters.lr,
        batch_size=parameters.batch_size,
        epochs=parameters.epochs,
        lm_coef=parameters.lm_coef if family.auxiliary_loss else 0.0,
        clf_pdrop=parameters.clf_pdrop,
        n_transfer=None if parameters.layers < 0 else parameters.layers,
        max_train_rows=parameters.max_train_rows or None,
    )
    datasets_url = datasets_folder(store, parameters.datasets, [parameters.task])
    (task,) = chosen_tasks([parameters.task], datasets_url)
    family.require_form(task.name, task.spec.form)
    arm = pretrained_arm(checkpoint) if parameters.pretrained else scratch_arm(checkpoint)
    tokenizer = own_tokenizer(store, checkpoint)
    datasets = {task.name: encode_dataset(store, datasets_url, task.spec, tokenizer)}
    settings = dict.fromkeys(REGISTRY, config) | {task.name: config}
    return score_tasks(Grid(store, datasets_url, [task], datasets, [arm], settings, parameters.seeds), jobs=0)


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
    for task in chosen:
        family.require_form(task.name, task.spec.form)
    tokenizer = own_tokenizer(store, checkpoint)
    datasets: dict[str, Artifact] = {}
    left_out: Failures = {}
    for task in chosen:
        try:
            datasets[task.name] = encode_dataset(store, datasets_url, task.spec, tokenizer)
        except InputError as error:
            leave_out(left_out, task.name, error)
    raise_if_all(left_out, [task.name for task in chosen])
    arms, seeds = arms_of(preset, checkpoint), seeds_of(preset, parameters.seeds)
    grid = Grid(store, datasets_url, chosen, datasets, arms, settings_of(preset, chosen), seeds)
    return score_tasks(grid, parameters.jobs, left_out=left_out)


def settings_of(preset: Preset, tasks: Sequence[Task]) -> TaskSettings:
    """The fine-tuning settings of each of the twelve under a preset, and of the own tasks among ``tasks``."""
    own = {task.name: task.settings(preset.finetune_for(task.name)) for task in tasks}
    return {name: preset.finetune_for(name) for name in REGISTRY} | own


def pretrained_arm(checkpoint: Artifact) -> Arm:
    """The paper's method."""
    return Arm("pre-trained", checkpoint)


def scratch_arm(checkpoint: Artifact) -> Arm:
    """The same network from random weights (Table 5, "w/o pre-training")."""
    return Arm("from scratch", checkpoint, {"pretrained": False})


def arms_of(preset: Preset, checkpoint: Artifact) -> list[Arm]:
    """The rows of ours that a preset fills."""
    arms = [pretrained_arm(checkpoint)]
    return [*arms, scratch_arm(checkpoint)] if preset.scratch else arms


def seeds_of(preset: Preset, wanted: int) -> int:
    """Runs of each task: as many as were asked for, else the preset's; 0: each task's own number."""
    return wanted or preset.seeds or 0
