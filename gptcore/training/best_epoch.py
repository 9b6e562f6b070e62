"""Which epoch of a fine-tuning run is kept: the best by dev score (the paper is silent; original code: by accuracy)."""

from __future__ import annotations

import math
from collections.abc import Callable
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


class BestEpoch:
    """Scores the dev rows after every epoch; an epoch better than all before leaves its model and predictions on disk.

    Earlier best epochs stay until the job is done: a resume from an older checkpoint finds the one that it remembers.

    :param first: updates before the first epoch, in which nothing is learnt of the labels; epochs count from there.
    :param original: evaluate within the first epoch too, and choose by accuracy, whichever metric is the task's
        headline (original code); a graded task, which has no accuracy, by its headline.
    """

    def __init__(
        self,
        model: Classifier,
        spec: TaskSpec,
        dev: Rows,
        *,
        batches_per_epoch: int,
        world: World,
        dtype: torch.dtype,
        folder: Path,
        extra: dict[str, Any],
        original: bool = False,
        first: int = 0,
    ) -> None:
        self._model, self._spec, self._dev = model, spec, dev
        self._batches_per_epoch = batches_per_epoch
        self._world, self._dtype = world, dtype
        self._folder = folder
        self._extra = extra  # for the saved model's config.json
        self._original, self._first = original, first
        self._chosen_by = "accuracy" if original and "accuracy" in spec.metrics else "score"
        self.step = 0
        """The best one's last update; 0: none yet."""
        self.scores: dict[str, float] = {}
        self.collapsed = False

    @property
    def best(self) -> Path:
        """Folder with model/ and predictions.jsonl of the best epoch."""
        return self._folder / f"step-{self.step:07d}"

    @property
    def epoch(self) -> float:
        """The best one, counted from 1; a fraction where it was found within the first."""
        return self._epochs(self.step)

    def _epochs(self, step: int) -> float:
        step -= min(step, self._first)
        whole, rest = divmod(step, self._batches_per_epoch)
        return step / self._batches_per_epoch if rest else whole

    def due(self, step: int) -> bool:
        """At the end of each epoch; as released, after some updates of the first one too."""
        step -= self._first
        within = self._original and step < self._batches_per_epoch and step in _RELEASED_UPDATES
        return within or (step > 0 and step % self._batches_per_epoch == 0)

    def evaluate(self, step: int, interrupted: Callable[[], bool]) -> dict[str, float]:
        """Dev metrics after ``step`` updates; of a model whose logits are no numbers a score that is none either."""
        found = self.predict(self._model, self._dev, interrupted)
        if not found.finite:
            return {"epoch": self._epochs(step), "dev/score": math.nan}
        found = found.tuned()
        scores = found.scores(self._spec)
        if self.step == 0 or scores[self._chosen_by] > self.scores[self._chosen_by]:
            self.step, self.scores, self.collapsed = step, scores, found.collapsed
            self._model.save(self.best / "model", {**self._extra, **found.settings})
            found.write(self._spec, self.best / "predictions.jsonl")
        return {"epoch": self._epochs(step), **{f"dev/{name}": value for name, value in scores.items()}}

    def predict(self, model: Classifier, rows: Rows, interrupted: Callable[[], bool]) -> RowPredictions:
        """:raises Interrupted: between two batches, after SIGTERM."""

        def check(_rows_done: int) -> None:
            if interrupted():
                raise process.Interrupted("SIGTERM during an evaluation")

        return predict_rows(model, self._spec, rows, self._world.device, self._dtype, check)

    def state(self) -> dict[str, Any]:
        """The best epoch so far, for the checkpoint."""
        return {"step": self.step, "scores": self.scores, "collapsed": self.collapsed}

    def restore(self, state: dict[str, Any]) -> None:
        """Put back what :meth:`state` gave."""
        self.step, self.scores, self.collapsed = state["step"], state["scores"], state["collapsed"]
