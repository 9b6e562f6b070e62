"""A small fine-tune as released, for the tests of the released recipe: its world, its job, its network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from gptcore.models.heads import ClassificationModel
from gptcore.nlu import REGISTRY
from gptcore.training import finetune
from tests.gptcore.tiny_tasks import encoded, finetune_job, pretrained


def small_world(folder: Path) -> dict[str, Path]:
    """A pre-trained model and encoded rows of three forms; the stories are longer than n_ctx."""
    pretrained(folder / "model")
    tasks = {task: encoded(folder, task, n_train=70, n_dev=20) for task in ("storycloze", "mrpc", "sst2")}
    return {"model": folder / "model", **tasks}


def job(world: dict[str, Path], task: str, workspace: Path, **settings: object) -> dict[str, Any]:
    chosen = {"lr": 1e-2, "batch_size": 16, "precision": "float32", "original": True, **settings}
    return finetune_job(task, world["model"], world[task], workspace, chosen)


def task_network(world: dict[str, Path], task: str, **settings: object) -> ClassificationModel:
    parsed = finetune.FinetuneJob.parse(job(world, task, Path("unused"), **settings))
    return finetune.task_model(parsed, REGISTRY[task])[0]


def randomised(model: torch.nn.Module) -> None:
    draws = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.5, generator=draws)
