"""Fine-tuning with a preset's settings, by default those that suit the checkpoint: one task, or every task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from prefect import flow

from flows.forms.parameters import FinetuneAllParameters, FinetuneParameters
from flows.forms.requests import FineTunesRequest
from flows.forms.run_names import from_form
from flows.forms.settings import with_options
from flows.servers import signals
from flows.trainings.grid import Arm, Grid, arms_of, encoded_tasks, grid_of, pretrained_arm, scratch_arm
from flows.trainings.leaderboard import score_tasks
from gptcore.nlu.forms import form_of
from tasks.report.leaderboard import Leaderboard
from tasks.stages.dataset import encode_dataset
from tasks.store.artifact import Artifact
from tasks.store.lineage import own_tokenizer, teacher_of


@flow(name="finetune", flow_run_name=from_form, persist_result=False)
def finetune(parameters: FinetuneParameters) -> Leaderboard:
    """Fine-tune one task from one checkpoint; the result stands beside the baselines and the published rows."""
    signals.listen()
    request = parameters.request
    store, checkpoint, (task,) = request.store, request.checkpoint, request.tasks
    request.family.require_form(task.name, form_of(task.spec).places)
    arm = scratch_arm(checkpoint)
    if parameters.pretrained:
        arm = pretrained_arm(checkpoint, request.from_task, teacher_of(store, checkpoint))
    datasets = {task.name: encode_dataset(store, request.datasets_url, task.spec, own_tokenizer(store, checkpoint))}
    alone = parameters.layers >= 0 or not parameters.pretrained
    grid = _grid(request, datasets, [arm], parameters.seeds, alone)
    settings = with_options(grid.settings, request.options, request.from_task)
    return score_tasks(dataclasses.replace(grid, settings=settings), jobs=0, rates=parameters.rates)


@flow(name="finetune-all", flow_run_name=from_form, persist_result=False)
def finetune_all(parameters: FinetuneAllParameters) -> Leaderboard:
    """Fine-tune every task whose data is there from one checkpoint, with a preset's settings."""
    return fine_tuned(parameters)


def fine_tuned(parameters: FinetuneAllParameters, sections: Mapping[str, str] | None = None) -> Leaderboard:
    """Every task whose data is there, fine-tuned as a form asks for.

    :param sections: heading -> Markdown that the result's card shows, too.
    """
    signals.listen()
    request = parameters.request
    store, checkpoint = request.store, request.checkpoint
    tokenizer = own_tokenizer(store, checkpoint)
    datasets, left_out = encoded_tasks(store, request.datasets_url, request.tasks, request.family, tokenizer)
    arms = arms_of(store, request.preset, checkpoint, request.from_task)
    grid = _grid(request, datasets, arms, parameters.seeds)
    return score_tasks(grid, parameters.jobs, sections, left_out, parameters.rates)


def _grid(
    request: FineTunesRequest, datasets: Mapping[str, Artifact], arms: Sequence[Arm], seeds: int, alone: bool = False
) -> Grid:
    """The tasks of a request in some arms; see :func:`flows.trainings.grid.grid_of`."""
    store, preset, url, tasks = request.store, request.preset, request.datasets_url, request.tasks
    return grid_of(store, preset, url, tasks, datasets, arms, seeds, request.origin, alone)
