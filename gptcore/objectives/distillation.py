"""What a family's networks can learn from a teacher, as the trainings ask for it: a family names one such part.

The trainings hold this protocol alone; whoever implements it brings the losses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from torch import nn

from gptcore.config import DistilConfig, FinetuneConfig
from gptcore.data.feed import Data, Objective
from gptcore.data.masking import PieceTable
from gptcore.models.classifier import Classifier
from gptcore.models.network import Network
from gptcore.nlu.inputs import EncodedExample
from gptcore.objectives.objective import PretrainingObjective
from gptcore.objectives.task import FinetuneData
from gptcore.text.tokenizer import Specials


class Trained(NamedTuple):
    """What a training loop takes of a student beside its teacher."""

    model: nn.Module
    """The student, and what is learnt with it and not kept."""
    objective: Objective
    data: Data


class Distillation(Protocol):
    """How the networks of a family learn from a teacher, on a text and on the rows of a task."""

    def pretraining(self, own: PretrainingObjective, teacher: Network, config: DistilConfig) -> PretrainingObjective:
        """The objective of pre-training beside a teacher.

        :param own: the family's objective, which makes the batches and scores held-out text.
        :param teacher: in eval mode, on the device that trains.
        """
        ...

    def finetuning(
        self,
        student: Classifier,
        teacher: Classifier,
        data: FinetuneData,
        config: DistilConfig,
        settings: FinetuneConfig,
        where: str,
    ) -> Trained:
        """What is trained on a task's rows beside the teacher's model of the task.

        The first updates, of as many epochs as the settings say, are of the teacher's layers, not of its predictions.

        :param teacher: on the device that trains.
        :param where: what holds the teacher, for the error message.
        :raises InputError: a teacher that does not fit, or answers otherwise.
        """
        ...

    def augmented(
        self,
        rows: Sequence[EncodedExample],
        proposer: Path,
        pieces: Specials,
        table: PieceTable,
        settings: FinetuneConfig,
    ) -> Iterator[EncodedExample]:
        """The training rows, and copies of each in which a model has replaced words, as many as the settings say.

        :param proposer: the folder of the pre-trained model that replaces words.
        :param pieces: the ids of the vocabulary's special pieces.
        :param table: what each piece of the vocabulary is.
        :raises InputError: a model that cannot say which words could stand in another's place.
        """
        ...
