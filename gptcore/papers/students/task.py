"""Learning a task's rows from a teacher that was fine-tuned on them, in the labels' place.

A student (TinyBERT, section 3.2) first learns the layers of that teacher, then its predictions. One run does both: the
first epochs' batches say that they are of layers. Their rate is constant after its warm-up (original code), that of
predictions rises and falls as any fine-tuning's.

Legend of shape comments: B batch, C sequences an example, T positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from gptcore.base.errors import InputError, require
from gptcore.config import DistilConfig, FinetuneConfig
from gptcore.config.distillation import check_teacher
from gptcore.data.feed import Data, Losses, MicroBatch, Objective, Update
from gptcore.machine import rng
from gptcore.models.classifier import Classifier
from gptcore.models.encoder import Encoder, draw_weights
from gptcore.nlu.inputs import MARKS
from gptcore.papers.students.layers import Counted, layer_losses


class TaughtRows:
    """Updates of fine-tuning whose micro-batches say whether they are of layers ("layers": 1) or predictions (0).

    :param data: the rows' updates, epoch after epoch.
    :param n_layer_steps: how many of the first are of layers.
    """

    def __init__(self, data: Data, n_layer_steps: int) -> None:
        self._data, self._n_layer_steps = data, n_layer_steps

    def update(self, step: int) -> Update:
        """The rows' update, each of whose micro-batches has "layers"."""
        update = self._data.update(step)
        phase = {"layers": torch.tensor(step < self._n_layer_steps)}
        return Update([batch | phase for batch in update.micro_batches], update.n_tokens)

    def documents(self, step: int) -> list[str]:
        """Where the update's rows came from, ``file:line``."""
        return self._data.documents(step)


class TaughtClassifier(nn.Module):
    """A classifier, and what brings its states to its teacher's width while it learns."""

    def __init__(self, classifier: Classifier, fit: nn.Linear | None) -> None:
        super().__init__()
        self.classifier = classifier
        self.fit = fit


def taught_classifier(
    model: Classifier, teacher: Classifier, config: DistilConfig, finetune: FinetuneConfig, where: str
) -> TaughtClassifier:
    """What is trained of a student on a task's rows.

    :param where: what holds the teacher, for the error message.
    :raises InputError: a teacher that does not fit, or answers otherwise.
    """
    if not isinstance(model.network, Encoder) or not isinstance(teacher.network, Encoder):
        raise InputError(f"{where}: only encoders learn from a teacher on a task's rows; expected two")
    its, ours = (f"{each.form} of {each.n_outputs}{', with words' * each.words}" for each in (teacher, model))
    require(its == ours, f"{where}: answers {its}, expected {ours}")
    theirs = teacher.network.config
    if theirs.n_ctx < model.network.config.n_ctx:  # rows are cut to the student's
        raise InputError(
            f"{where}: its n_ctx is {theirs.n_ctx}, expected the student's {model.network.config.n_ctx} or more"
        )
    if not finetune.layer_epochs:
        return TaughtClassifier(model, None)
    check_teacher(_of_layers(config), model.network.config, theirs, where)
    fit = nn.Linear(model.network.config.n_embd, theirs.n_embd)
    draw_weights(fit, model.network.config.init_std, rng.generator(finetune.seed, "fit"))
    return TaughtClassifier(model, fit)


_LAYER_LOSSES = ("embedding", "hidden", "attention")
"""In the order of :func:`gptcore.papers.students.layers.layer_losses`."""


def _of_layers(config: DistilConfig) -> DistilConfig:
    """The settings that are about single layers; the whole of TinyBERT's where there are none."""
    names = [f"{name}_weight" for name in _LAYER_LOSSES]
    weights = {name: getattr(config, name) for name in names}
    if not any(weights.values()):
        weights = dict.fromkeys(names, 1.0)
    return DistilConfig(
        soft_weight=0.0, word_weight=0.0, cosine_weight=0.0, start="random", layers=config.layers, **weights
    )


def taught_objective(trained: TaughtClassifier, teacher: Classifier, config: DistilConfig) -> Objective:
    """The losses of layers, or the cross-entropy with the teacher's predictions, as each batch says.

    The softmax's temperature is 1 (TinyBERT, section 4.1). Positions that only pad tell nothing. The metrics of a batch
    have the same names in both phases, those of the other one being 0.
    """
    model = trained.classifier
    student, theirs = cast(Encoder, model.network), cast(Encoder, teacher.network)
    told = _of_layers(config)
    names = [name for name in _LAYER_LOSSES if trained.fit is not None and getattr(told, f"{name}_weight")]
    loss_of: Callable[[Tensor, Tensor, Tensor], Tensor] = model.row_form.part("soft_loss")
    layers = told.layer_map(student.config.n_layer, theirs.config.n_layer) if trained.fit is not None else ()

    def of_layers(batch: MicroBatch) -> Losses:
        tokens, segments, mask = (batch[name].flatten(0, 1) for name in ("tokens", "segments", "mask"))  # (B*C, T) each
        words = mask.bool()
        weight = words * (batch["share"] / words.sum())
        counted = Counted(words.flatten().nonzero().squeeze(-1), weight, words[:, None, None, :])
        with torch.no_grad():
            its = theirs.layer_states(tokens, segments, mask, scores=True)
        ours = student.layer_states(tokens, segments, mask, scores=True)
        losses = layer_losses(trained.fit, told, layers, counted, ours, its)
        loss = torch.stack([getattr(told, f"{name}_weight") * value for name, value in losses.items()]).sum()
        zero = torch.zeros_like(loss)
        return loss, {"loss": loss, "task_loss": zero, **{f"{name}_loss": value for name, value in losses.items()}}

    def of_predictions(batch: MicroBatch) -> Losses:
        marks = {name: batch[name] for name in MARKS if name in batch}
        with torch.no_grad():
            its, _ = teacher(batch["tokens"], batch["clf_position"], **marks)
        ours, _ = model(batch["tokens"], batch["clf_position"], **marks)
        loss = loss_of(ours, its, batch["labels"]) * batch["share"]
        zeros = {f"{name}_loss": torch.zeros_like(loss) for name in names}
        return loss, {"loss": loss, "task_loss": loss, **zeros}

    return lambda batch: of_layers(batch) if bool(batch["layers"]) else of_predictions(batch)
