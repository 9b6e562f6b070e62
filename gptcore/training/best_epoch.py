"""Which epoch of a fine-tuning run is kept: the best by dev score (original code)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gptcore.evaluation.predict import Predictions, predict_rows
from gptcore.models.heads import ClassificationModel
from gptcore.nlu.registry import TaskSpec
from gptcore.training import process
from gptcore.training.batches import TaskRows
from gptcore.training.distributed import World


class BestEpoch:
    """Scores the dev rows after every epoch; an epoch better than all before leaves its model and predictions on disk.

    Earlier best epochs stay until the job is done: a resume from an older checkpoint finds the one that it remembers.
    """

    def __init__(
        self,
        model: ClassificationModel,
        spec: TaskSpec,
        dev: TaskRows,
        *,
        batches_per_epoch: int,
        world: World,
        dtype: torch.dtype,
        folder: Path,
        extra: dict[str, Any],
    ) -> None:
        self._model, self._spec, self._dev = model, spec, dev
        self._batches_per_epoch = batches_per_epoch
        self._world, self._dtype = world, dtype
        self._folder = folder
        self._extra = extra  # for the saved model's config.json
        self.epoch = 0
        """The best one, counted from 1; 0: none yet."""
        self.scores: dict[str, float] = {}
        self.collapsed = False

    @property
    def best(self) -> Path:
        """Folder with model/ and predictions.jsonl of the best epoch."""
        return self._folder / f"epoch-{self.epoch:04d}"

    def due(self, step: int) -> bool:
        """At the end of each epoch."""
        return step > 0 and step % self._batches_per_epoch == 0

    def evaluate(self, step: int, interrupted: Callable[[], bool]) -> dict[str, float]:
        """Dev metrics of the epoch that ends with ``step``."""
        epoch = step // self._batches_per_epoch
        found = self.predict(self._model, self._dev, interrupted)
        scores = found.scores(self._spec)
        if self.epoch == 0 or scores["score"] > self.scores["score"]:
            self.epoch, self.scores, self.collapsed = epoch, scores, found.collapsed
            self._model.save(self.best / "model", self._extra)
            found.write(self._spec, self.best / "predictions.jsonl")
        return {"epoch": epoch, **{f"dev/{name}": value for name, value in scores.items()}}

    def predict(self, model: ClassificationModel, rows: TaskRows, interrupted: Callable[[], bool]) -> Predictions:
        """:raises Interrupted: between two batches, after SIGTERM."""

        def check(_rows_done: int) -> None:
            if interrupted():
                raise process.Interrupted("SIGTERM during an evaluation")

        return predict_rows(model, self._spec, rows, self._world.device, self._dtype, check)

    def state(self) -> dict[str, Any]:
        """The best epoch so far, for the checkpoint."""
        return {"epoch": self.epoch, "scores": self.scores, "collapsed": self.collapsed}

    def restore(self, state: dict[str, Any]) -> None:
        """Put back what :meth:`state` gave."""
        self.epoch, self.scores, self.collapsed = state["epoch"], state["scores"], state["collapsed"]
