"""Which epoch of a fine-tuning run is kept: the best on rows that nothing is learnt from (the paper is silent).

These are held-out training rows or, as in the released code, the dev rows. Of equal scores on held-out rows, and there
are many where a metric says nothing (of one label, of constant grades) or the rows are few, the lower loss wins, then
the earlier epoch; on dev rows the earlier epoch, as it always was. Held-out rows are scored as the model will answer:
from the probability on that is best for the metric (:mod:`gptcore.training.decision`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gptcore.evaluation.predict import answers_of, logits_of, mean_loss
from gptcore.evaluation.predictions import RowPredictions
from gptcore.machine import process
from gptcore.machine.distributed import World
from gptcore.models.classifier import Classifier
from gptcore.nlu.metrics import chance
from gptcore.nlu.registry import TaskSpec
from gptcore.nlu.rows import Rows, TaskRows
from gptcore.training.decision import decided

_RELEASED_UPDATES = frozenset({1000, 2000, 4000, 8000, 16000, 32000})
"""After these of the first epoch the released code evaluates too."""


@dataclass(kw_only=True)
class BestEpoch:
    """Scores rows after every epoch; an epoch better than all before leaves its model and predictions on disk.

    Earlier best epochs stay until the job is done: a resume from an older checkpoint finds the one that it remembers.

    """

    model: Classifier
    spec: TaskSpec
    rows: Rows
    held_out: bool
    """Whether these are training rows, else dev rows."""
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
    loss: float = field(default=0.0, init=False)
    """Nats a row; of dev rows 0, where nobody asks for it."""
    collapsed: bool = field(default=False, init=False)
    shift: float = field(default=0.0, init=False)
    """What is yet to be added to the second class's logit of the saved model, nats; scores are those with it."""
    settings: dict[str, Any] = field(default_factory=dict, init=False)
    """``extra``, and what was tuned on the rows."""

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
        """Metrics x 100 after ``step`` updates; of a model whose logits are no numbers a score that is none either."""
        logits = self.logits(self.model, self.rows, interrupted)
        answers, shift = self.decided(logits)
        if not answers.finite:
            return {"epoch": self._epochs(step), "validation/score": math.nan}
        answers = answers.tuned()
        scores = answers.scores(self.spec)
        loss = mean_loss(self.spec, self.rows, logits, self.world.device) if self.held_out else 0.0
        chosen_by = "accuracy" if self.original and "accuracy" in self.spec.metrics else "score"
        if self.step == 0 or (scores[chosen_by], -loss) > (self.scores[chosen_by], -self.loss):
            self.step, self.scores, self.loss, self.collapsed, self.shift = step, scores, loss, answers.collapsed, shift
            self.settings = {**self.extra, **answers.settings}
            self.model.save(self.best / "model", self.settings)
            answers.write(self.spec, self.best / "predictions.jsonl")
        shown = {f"validation/{name}": 100 * value for name, value in scores.items()}
        shown |= {"validation/task_loss": loss} if self.held_out else {}
        return {"epoch": self._epochs(step), **shown, "validation/chance": 100 * self.chance}

    @cached_property
    def chance(self) -> float:
        """The score of one answer to all rows, see :func:`gptcore.nlu.metrics.chance`; 0 where answers are places."""
        if not isinstance(self.rows, TaskRows):
            return 0.0
        return chance(self.spec, self.rows.labels[~np.isnan(self.rows.labels)])

    def decided(self, logits: Sequence[NDArray[np.float32]]) -> tuple[RowPredictions, float]:
        """What held-out rows are answered with once the second class's logit is moved to where their metric is expected
        to be best, and by how much; dev rows as they are.
        """
        if self.held_out:
            return decided(self.spec, self.rows, logits)
        return answers_of(self.spec, self.rows, logits), 0.0

    def logits(self, model: Classifier, rows: Rows, interrupted: Callable[[], bool]) -> Sequence[NDArray[np.float32]]:
        """What a model gives each row, see :func:`gptcore.evaluation.predict.logits_of`.

        :raises Interrupted: between two batches, after SIGTERM.
        """

        def check(_rows_done: int) -> None:
            if interrupted():
                raise process.Interrupted("SIGTERM during an evaluation")

        return logits_of(model, rows, self.world.device, self.dtype, check)

    def state(self) -> dict[str, Any]:
        """The best epoch so far, for the checkpoint."""
        return {name: getattr(self, name) for name in ("step", "scores", "loss", "collapsed", "shift", "settings")}

    def restore(self, state: dict[str, Any]) -> None:
        """Put back what :meth:`state` gave."""
        for name, value in state.items():  # of older versions fewer, which chose by dev scores alone
            setattr(self, name, value)
