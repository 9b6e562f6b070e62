"""Which epoch of a fine-tuning run is kept: the best by dev score (the paper is silent; original code: by accuracy)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gptcore.evaluation.predict import predict_rows
from gptcore.evaluation.predictions import RowPredictions
from gptcore.machine import process
from gptcore.machine.distributed import World
from gptcore.models.classifier import Classifier
from gptcore.nlu.registry import TaskSpec
from gptcore.nlu.rows import Rows

_RELEASED_UPDATES = frozenset({1000, 2000, 4000, 8000, 16000, 32000})
"""After these of the first epoch the released code evaluates too."""


@dataclass(kw_only=True)
class BestEpoch:
    """Scores the dev rows after every epoch; an epoch better than all before leaves its model and predictions on disk.

    Earlier best epochs stay until the job is done: a resume from an older checkpoint finds the one that it remembers.

    """

    model: Classifier
    spec: TaskSpec
    dev: Rows
    batches_per_epoch: int
    world: World
    dtype: torch.dtype
    folder: Path
    extra: Mapping[str, Any]
    """For the saved model's config.json."""
    original: bool = False
    """Evaluate within the first epoch too, and choose by accuracy, whichever metric is the task's headline (original
    code); a graded task, which has no accuracy, by its headline."""
    first: int = 0
    """Updates before the first epoch, in which nothing is learnt of the labels; epochs count from there."""
    step: int = field(default=0, init=False)
    """The best one's last update; 0: none yet."""
    scores: dict[str, float] = field(default_factory=dict, init=False)
    collapsed: bool = field(default=False, init=False)

    @property
    def best(self) -> Path:
        """Folder with model/ and predictions.jsonl of the best epoch."""
        return self.folder / f"step-{self.step:07d}"

    @property
    def epoch(self) -> float:
        """The best one, counted from 1; a fraction where it was found within the first."""
        return self._epochs(self.step)

    def _epochs(self, step: int) -> float:
        step -= min(step, self.first)
        whole, rest = divmod(step, self.batches_per_epoch)
        return step / self.batches_per_epoch if rest else whole

    def due(self, step: int) -> bool:
        """At the end of each epoch; as released, after some updates of the first one too."""
        step -= self.first
        within = self.original and step < self.batches_per_epoch and step in _RELEASED_UPDATES
        return within or (step > 0 and step % self.batches_per_epoch == 0)

    def evaluate(self, step: int, interrupted: Callable[[], bool]) -> dict[str, float]:
        """Dev metrics after ``step`` updates; of a model whose logits are no numbers a score that is none either."""
        found = self.predict(self.model, self.dev, interrupted)
        if not found.finite:
            return {"epoch": self._epochs(step), "dev/score": math.nan}
        found = found.tuned()
        scores = found.scores(self.spec)
        chosen_by = "accuracy" if self.original and "accuracy" in self.spec.metrics else "score"
        if self.step == 0 or scores[chosen_by] > self.scores[chosen_by]:
            self.step, self.scores, self.collapsed = step, scores, found.collapsed
            self.model.save(self.best / "model", {**self.extra, **found.settings})
            found.write(self.spec, self.best / "predictions.jsonl")
        return {"epoch": self._epochs(step), **{f"dev/{name}": value for name, value in scores.items()}}

    def predict(self, model: Classifier, rows: Rows, interrupted: Callable[[], bool]) -> RowPredictions:
        """:raises Interrupted: between two batches, after SIGTERM."""

        def check(_rows_done: int) -> None:
            if interrupted():
                raise process.Interrupted("SIGTERM during an evaluation")

        return predict_rows(model, self.spec, rows, self.world.device, self.dtype, check)

    def state(self) -> dict[str, Any]:
        """The best epoch so far, for the checkpoint."""
        return {"step": self.step, "scores": self.scores, "collapsed": self.collapsed}

    def restore(self, state: dict[str, Any]) -> None:
        """Put back what :meth:`state` gave."""
        self.step, self.scores, self.collapsed = state["step"], state["scores"], state["collapsed"]
