"""Stage `finetune`: one task, one seed, from a checkpoint or from random weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from prefect import task

from gptcore.config import FinetuneConfig, ModelConfig
from gptcore.nlu.metrics import leaderboard_cells
from gptcore.nlu.registry import task_spec
from tasks.launch import run_job
from tasks.observer import JobObserver
from tasks.stage import JOB_OPTIONS, build
from tasks.store import Artifact, Recipe, Store
from tasks.tracking import Tracker

VERSION = 1
Arm = Literal["pre-trained", "from scratch"]


@dataclass(frozen=True)
class Score:
    """What one fine-tune, or one baseline, reached on its task."""

    task: str
    arm: str
    seed: int
    split: str
    """The split of ``percent``: test where the public test rows carry labels, else dev."""
    percent: dict[str, float]
    """Leaderboard column -> headline metric x 100."""
    notes: tuple[str, ...] = ()


def score_of(name: str, arm: str, seed: int, metrics: Mapping[str, Any], notes: tuple[str, ...] = ()) -> Score:
    """A score from a result's ``<split>/<metric>`` numbers: test where there is one, else dev."""
    spec = task_spec(name)
    split = "test" if "test/score" in metrics else "dev"
    values = {key.partition("/")[2]: value for key, value in metrics.items() if key.startswith(f"{split}/")}
    cells = leaderboard_cells(spec, values)
    return Score(name, arm, seed, split, {column: 100 * value for column, value in cells.items()}, notes)


@task(name="finetune", task_run_name="finetune {name} {arm} seed {config.seed}", **JOB_OPTIONS)
def finetune_model(
    store_url: str,
    name: str,
    arm: Arm,
    dataset: Artifact,
    checkpoint: Artifact,
    config: FinetuneConfig,
    suite: SuiteRun,
    threads: int,
) -> Score:
    """Fine-tune (section 3.2) in a child process; its MLflow run is a child of the suite's.

    From scratch, only the checkpoint's shape is used, so a longer pre-training does not make those runs stale.

    :raises InputError: dataset and checkpoint were made with different tokenizers.
    """
    store = Store(store_url)
    shape = ModelConfig(**store.manifest(checkpoint)["config"]["model"])
    settings = dataclasses.asdict(config)
    inputs: dict[str, Artifact | str] = {"dataset": dataset}
    if config.pretrained:
        inputs["checkpoint"] = checkpoint
    else:
        settings["model"] = dataclasses.asdict(shape)
    recipe = Recipe("finetune", VERSION, {"task": name, **settings}, inputs)
    run = Tracker().open()

    def produce(workspace: Path) -> dict[str, Any]:
        job = {
            "task": name,
            "finetune": dataclasses.asdict(config),
            "model": str(store.local(checkpoint) / "model") if config.pretrained else None,
            "model_config": dataclasses.asdict(shape),
            "dataset": str(store.local(dataset)),
            "workspace": str(workspace),
            "threads": threads,
        }
        observer = JobObserver(f"finetune {name} {arm}", run)
        return run_job("gptcore.training.finetune", job, workspace, on_metrics=observer)

    return None
