"""A training that makes nothing but its artifact."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from prefect import task

from tasks.stages.training import Training, Work
from tasks.store.artifact import Artifact, Recipe


@dataclass(frozen=True)
class Toy(Training[Any]):
    """Finds what the test has made, or has a hand in making it."""

    stage, shown_as = "finetune", "fine-tunes"

    name: str
    makes: Any = None
    """Called where it is trained and its artifact is not there."""
    called: str = "toy"
    after: tuple[Artifact, ...] = ()
    """What it is made from."""

    @property
    def task(self) -> Any:
        return train_toy

    @cached_property
    def recipe(self) -> Recipe:
        return Recipe(self.stage, 1, {"of": self.name}, {found.digest: found for found in self.after})

    @property
    def title(self) -> str:
        return self.called

    @property
    def work(self) -> Work:
        return Work(0.0, 0.0)

    def job(self, workspace: Path, threads: int) -> dict[str, Any]:
        return {}

    def packed(self) -> dict[str, Any]:
        return {"name": self.name}


@dataclass(frozen=True)
class ToyPretraining(Toy):
    """A toy of the stage whose waiting is told by itself."""

    stage = shown_as = "pretrain"


@task
def train_toy(request: Toy, beside: int = 0) -> Artifact | None:
    if request.makes is not None and not request.made:
        request.makes(request)
    return request.store.find(request.recipe)
