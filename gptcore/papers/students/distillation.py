"""Pre-training a student beside its teacher: the family's own objective, and what the teacher makes of the same batch.

The teacher sees what the student sees, hidden words and all (DistilBERT, original code). It stays in eval mode, gets no
gradient, and every process holds the whole of it. Held-out text is scored as the family scores it, without a teacher,
so that a student's numbers stand beside those of models that had none.

Legend of shape comments: B sequences, T positions, N positions that count (words and marks), D width, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.config import DistilConfig, FinetuneConfig, PretrainConfig
from gptcore.data.feed import Data, Losses, MicroBatch, Objective
from gptcore.data.masking import PieceTable
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.data.shards import Shards
from gptcore.models.classifier import Classifier
from gptcore.models.encoder import Encoder, draw_weights
from gptcore.models.network import LayerStates, Network
from gptcore.models.transformer import GPT
from gptcore.nlu.inputs import EncodedExample
from gptcore.objectives.distillation import Trained
from gptcore.objectives.losses import fused_language_model_loss
from gptcore.objectives.masked import told
from gptcore.objectives.objective import PretrainingObjective, Text
from gptcore.objectives.task import FinetuneData
from gptcore.papers.students.augmentation import WordProposer, augmented
from gptcore.papers.students.layers import Counted, layer_losses
from gptcore.papers.students.losses import WordScores, cosine_loss, fused_soft_target_loss
from gptcore.papers.students.task import TaughtRows, taught_classifier, taught_objective
from gptcore.text.tokenizer import Specials


class Reading(ABC):
    """How a kind of network reads a batch, be it the student or its teacher, and so how one learns from the other.

    It is the :class:`gptcore.objectives.distillation.Distillation` of the families of that kind.
    """

    @abstractmethod
    def counted(self, batch: MicroBatch) -> Counted:
        """The positions of a batch that count, and how much each does."""

    @abstractmethod
    def layers(self, network: Network, batch: MicroBatch, scores: bool) -> LayerStates:
        """The states of all layers, and if asked the scores of their attention."""

    @abstractmethod
    def words(self, network: Network, states: Tensor) -> WordScores:
        """What the network predicts from states [N, D]."""

    @abstractmethod
    def told(self, network: Network, batch: MicroBatch, states: Tensor, probe: bool) -> dict[str, Tensor]:
        """The loss of the words that the batch asks for, and what else the family scores, by the names of its metrics.

        :param states: [B, T, D].
        :param probe: no gradient goes below the head, as nothing but it is to learn from them.
        """

    def pretraining(self, own: PretrainingObjective, teacher: Network, config: DistilConfig) -> PretrainingObjective:
        """The objective of pre-training beside a teacher."""
        return Distilled(own, self, teacher, config)

    def finetuning(
        self,
        student: Classifier,
        teacher: Classifier,
        data: FinetuneData,
        config: DistilConfig,
        settings: FinetuneConfig,
        where: str,
    ) -> Trained:
        """What is trained on a task's rows beside the teacher's model of the task."""
        model = taught_classifier(student, teacher, config, settings, where)
        objective = taught_objective(model, teacher.requires_grad_(False), config)
        n_layer_steps = data.batches_per_epoch * (settings.layer_epochs or 0)
        return Trained(model, objective, TaughtRows(data, n_layer_steps))

    def augmented(
        self,
        rows: Sequence[EncodedExample],
        proposer: Path,
        pieces: Specials,
        table: PieceTable,
        settings: FinetuneConfig,
    ) -> Iterator[EncodedExample]:
        """The training rows, and copies of each in which an encoder has replaced words."""
        words = WordProposer.load(proposer, pieces, table.tail, table.special)
        return augmented(rows, words, settings.augmentation or 0, settings.seed)


class HiddenWords(Reading):
    """How encoders read: hidden words from both sides."""

    def counted(self, batch: MicroBatch) -> Counted:
        """Words and marks count, padding does not, and is seen by none."""
        mask = batch["mask"]
        return Counted(
            mask.flatten().nonzero().squeeze(-1), mask * batch["token_weight"], mask.bool()[:, None, None, :]
        )

    def layers(self, network: Network, batch: MicroBatch, scores: bool) -> LayerStates:
        return cast(Encoder, network).layer_states(batch["tokens"], batch["segments"], batch["mask"], scores)

    def words(self, network: Network, states: Tensor) -> WordScores:
        """What an encoder's head of words predicts."""
        encoder = cast(Encoder, network)
        if encoder.word_head is None:
            raise InputError("model.words = False: a student is told words; expected True")
        return WordScores(encoder.word_head.hidden(states), encoder.embeddings.words.weight, encoder.word_head.bias)

    def told(self, network: Network, batch: MicroBatch, states: Tensor, probe: bool) -> dict[str, Tensor]:
        """The losses of hidden words and, where the batch has pairs of segments, of these."""
        states = states.detach() if probe else states
        hidden, table, bias = self.words(network, states.flatten(0, 1)[batch["places"]])
        scores = nn.functional.linear(hidden, table.detach() if probe else table, bias).float()  # (N, V)
        loss, accuracy = told(scores, batch["targets"], batch["word_weight"])
        metrics = {"word_loss": loss, "word_accuracy": accuracy}
        encoder, labels = cast(Encoder, network), batch.get("labels")
        if encoder.pair_head is not None and labels is not None and bool((labels != IGNORE_INDEX).any()):
            pair_scores = encoder.pair_scores(states).float()  # (B, 2)
            metrics["pair_loss"], metrics["pair_accuracy"] = told(pair_scores, labels, batch["pair_weight"])
        return metrics


class NextTokens(Reading):
    """How decoders read: every token from those before it."""

    def counted(self, batch: MicroBatch) -> Counted:
        """Positions with a token to tell count; each sees itself and those before it."""
        real = batch["targets"] != IGNORE_INDEX  # (B, T)
        T = real.shape[1]
        before = torch.ones(T, T, dtype=torch.bool, device=real.device).tril()[None, None]
        return Counted(real.flatten().nonzero().squeeze(-1), real * batch["weight"], before)

    def layers(self, network: Network, batch: MicroBatch, scores: bool) -> LayerStates:
        decoder = cast(GPT, network)
        return decoder.layer_states(batch["inputs"], decoder.table(), scores)

    def words(self, network: Network, states: Tensor) -> WordScores:
        """What a decoder predicts by its tied softmax."""
        decoder = cast(GPT, network)
        return WordScores(states, decoder.words(decoder.tokens.weight))

    def told(self, network: Network, batch: MicroBatch, states: Tensor, probe: bool) -> dict[str, Tensor]:
        """The loss of the next tokens; a probe of a tied softmax has nothing to learn."""
        hidden, table, _ = self.words(network, states.detach() if probe else states)
        weights = (batch["targets"] != IGNORE_INDEX) * batch["weight"]
        loss = fused_language_model_loss(hidden, table.detach() if probe else table, batch["targets"], weights)
        return {"word_loss": loss}


HIDDEN_WORDS = HiddenWords()
NEXT_TOKENS = NextTokens()


class Student(nn.Module):
    """A student, and what brings its states to its teacher's width while it learns.

    :param fit: one linear layer for the states of all layers, as in TinyBERT's release; None: none is compared.
    """

    def __init__(self, network: Network, fit: nn.Linear | None) -> None:
        super().__init__()
        self.network = network
        self.fit = fit


class Distilled(PretrainingObjective):
    """A family's objective with a teacher. What brings states to the teacher's width is not kept.

    :param own: the family's, which makes the batches and scores held-out text.
    :param reading: how its networks read a batch.
    :param teacher: in eval mode, on the device that trains.
    """

    def __init__(self, own: PretrainingObjective, reading: Reading, teacher: Network, config: DistilConfig) -> None:
        self._own, self._reading, self._teacher, self._config = own, reading, teacher.requires_grad_(False), config

    def shards(self, folder: Path, knowledge: Path | None) -> Shards:
        return self._own.shards(folder, knowledge)

    def know(self, model: Network, knowledge: Path) -> dict[str, str]:
        return self._own.know(model, knowledge)

    def data(self, text: Text, micro_batch_size: int | None) -> Data:
        return self._own.data(text, micro_batch_size)

    def network(self, model: Network, config: PretrainConfig, generator: torch.Generator) -> nn.Module:
        """The student, started as the settings say."""
        if self._config.start == "teacher":
            start_from_teacher(model, self._teacher, self._map(model))
        if not (self._config.embedding_weight or self._config.hidden_weight):
            return Student(model, None)
        fit = nn.Linear(model.config.n_embd, self._teacher.config.n_embd)
        draw_weights(fit, model.config.init_std, generator)
        return Student(model, fit)

    def objective(self, trained: nn.Module, config: PretrainConfig) -> Objective:
        """The weighted sum of the settings' losses; in eval mode the family's own, of which no teacher is asked."""
        assert isinstance(trained, Student)
        return distillation_objective(trained, self._teacher, self._reading, self._config, self._map(trained.network))

    def score(
        self, objective: Objective, text: Text, max_tokens: int | None, interrupted: Callable[[], bool]
    ) -> dict[str, float]:
        return self._own.score(objective, text, max_tokens, interrupted)

    def _map(self, model: Network) -> tuple[int, ...]:
        configs: Any = (model.config, self._teacher.config)  # those of both kinds say how many layers there are
        return self._config.layer_map(*(config.n_layer for config in configs))


def start_from_teacher(student: Network, teacher: Network, layers: Sequence[int]) -> None:
    """Take over the teacher's weights, in place; what it does not have stays as it was drawn.

    :param student: of the teacher's kind and widths.
    :param layers: for each of the student's layers the teacher's, counted from 1.
    """
    pairs = [
        pair
        for mine, its in enumerate(layers)
        for pair in zip(student.layer_parts(mine), teacher.layer_parts(its - 1), strict=True)
    ]
    outside = dict(teacher.named_children())
    pairs += [
        (part, outside[name])
        for name, part in student.named_children()
        if name in outside and not isinstance(part, nn.ModuleList)
    ]
    with torch.no_grad():
        for mine, its in pairs:
            known = its.state_dict()
            for name, tensor in mine.state_dict().items():
                if name in known:
                    tensor.copy_(known[name][: len(tensor)])  # a student may have fewer positions


def distillation_objective(
    trained: Student, teacher: Network, reading: Reading, config: DistilConfig, layers: tuple[int, ...]
) -> Objective:
    """What a student loses, as an objective of the training loop.

    A student that is told nothing of words has a head all the same, which learns to read the states as they are: so its
    held-out loss says what they know. It moves nothing below the head; where the norm of all gradients is clipped, the
    head's count in it.

    :param layers: the teacher's, counted from 1, that the student's stand for.
    """
    student, probe = trained.network, not config.tells_words
    own_weight = 1.0 if probe else config.word_weight

    def objective(batch: MicroBatch) -> Losses:
        asked = trained.training
        ours = reading.layers(student, batch, asked and config.attention_weight > 0)
        metrics = reading.told(student, batch, ours.states[-1], probe)
        own = metrics["word_loss"] + metrics["pair_loss"] if "pair_loss" in metrics else metrics["word_loss"]
        if not asked:
            return own, {"loss": own, **metrics}
        with torch.no_grad():
            theirs = reading.layers(teacher, batch, config.attention_weight > 0)
        counted = reading.counted(batch)
        losses = _told_losses(student, teacher, reading, config, counted, ours, theirs)
        losses |= layer_losses(trained.fit, config, layers, counted, ours, theirs)
        weighted = [getattr(config, f"{name}_weight") * loss for name, loss in losses.items()]
        loss = own_weight * own
        if weighted:
            loss = loss + torch.stack(weighted).sum()
        return loss, {"loss": loss, **metrics, **{f"{name}_loss": value for name, value in losses.items()}}

    return objective


def _told_losses(
    student: Network,
    teacher: Network,
    reading: Reading,
    config: DistilConfig,
    counted: Counted,
    ours: LayerStates,
    theirs: LayerStates,
) -> dict[str, Tensor]:
    """What is told of predictions and of the last states, by the names of the weights in the settings."""
    losses: dict[str, Tensor] = {}
    last, its_last = (states.states[-1].flatten(0, 1)[counted.places] for states in (ours, theirs))  # (N, D)
    weight = counted.weight.flatten()[counted.places]  # (N,)
    if config.soft_weight:
        with torch.no_grad():
            told_by = reading.words(teacher, its_last)
        losses["soft"] = fused_soft_target_loss(reading.words(student, last), told_by, config.temperature, weight)
    if config.cosine_weight:
        losses["cosine"] = cosine_loss(last, its_last, weight)
    return losses
