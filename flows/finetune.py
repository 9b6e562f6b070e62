"""Fine-tuning with a preset's settings, by default those that suit the checkpoint: one task, or every task."""

from __future__ import annotations

import dataclasses

from prefect import flow

from flows.forms.checks import check_start_task, chosen_tasks, datasets_folder
from flows.forms.parameters import FinetuneAllParameters, FinetuneParameters
from flows.forms.references import pretrained_model
from flows.forms.run_names import from_form
from flows.forms.settings import preset_on, with_options
from flows.servers import signals
from flows.trainings.grid import arms_of, encoded_tasks, grid_of, pretrained_arm, scratch_arm
from flows.trainings.leaderboard import score_tasks
from gptcore.nlu.forms import form_of
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
    family, preset, origin = preset_on(parameters, store, checkpoint)
    check_start_task(parameters)
    datasets_url = datasets_folder(store, parameters.datasets, [parameters.task])
    (task,) = chosen_tasks([parameters.task], datasets_url)
    family.require_form(task.name, form_of(task.spec).places)
    arm = scratch_arm(checkpoint)
    if parameters.pretrained:
        arm = pretrained_arm(checkpoint, parameters.from_task, teacher_of(store, checkpoint))
    datasets = {task.name: encode_dataset(store, datasets_url, task.spec, own_tokenizer(store, checkpoint))}
    alone = parameters.layers >= 0 or not parameters.pretrained
    grid = grid_of(store, preset, datasets_url, [task], datasets, [arm], parameters.seeds, origin, alone)
    settings = with_options(parameters, family, grid.settings)
    return score_tasks(dataclasses.replace(grid, settings=settings), jobs=0, rates=parameters.rates)


@flow(name="finetune-all", flow_run_name=from_form, persist_result=False)
def finetune_all(parameters: FinetuneAllParameters) -> Leaderboard:
    """Fine-tune every task whose data is there from one checkpoint, with a preset's settings."""
    signals.listen()
    store = Store(parameters.store)
    checkpoint = pretrained_model(store, parameters.checkpoint)
    family, preset, origin = preset_on(parameters, store, checkpoint)
    datasets_url = datasets_folder(store, parameters.datasets, parameters.tasks)
    chosen = chosen_tasks(parameters.tasks, datasets_url)
    datasets, left_out = encoded_tasks(store, datasets_url, chosen, family, own_tokenizer(store, checkpoint))
    arms = arms_of(store, preset, checkpoint, parameters.from_task)
    grid = grid_of(store, preset, datasets_url, chosen, datasets, arms, parameters.seeds, origin)
    return score_tasks(grid, parameters.jobs, left_out=left_out, rates=parameters.rates)
