"""A small fine-tune as released, for the tests of the released recipe: its world, its job, its network."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from gptcore.machine import process
from gptcore.models.heads import ClassificationModel
from gptcore.nlu import REGISTRY
from gptcore.training import finetune
from tests.gptcore.tiny_tasks import encoded, pretrained


def small_world(folder: Path) -> dict[str, Path]:
    """A pre-trained model and encoded rows of three forms; the stories are longer than n_ctx."""
    pretrained(folder / "model")
    tasks = {task: encoded(folder, task, n_train=70, n_dev=20) for task in ("storycloze", "mrpc", "sst2")}
    return {"model": folder / "model", **tasks}


def job(world: dict[str, Path], task: str, workspace: Path, **settings: object) -> dict[str, object]:
    return {
        "task": task,
        "finetune": {"lr": 1e-2, "batch_size": 16, "precision": "float32", "original": True, **settings},
        "model": str(world["model"]),
        "dataset": str(world[task]),
        "workspace": str(workspace),
        "threads": 1,
    }


def run(given: dict[str, object]) -> dict[str, float]:
    finetune.run(given, process.StopRequest())
    result: dict[str, float] = json.loads((Path(str(given["workspace"])) / "result.json").read_text(encoding="utf-8"))
    return result


def task_network(world: dict[str, Path], task: str, **settings: object) -> ClassificationModel:
    parsed = finetune.FinetuneJob.parse(job(world, task, Path("unused"), **settings))
    return finetune.task_model(parsed, REGISTRY[task])[0]


def randomised(model: torch.nn.Module) -> None:
    draws = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.5, generator=draws)
