"""ERNIE's pre-training (Zhang et al. 2019, section 3.4): hidden words and pairs as BERT's, and entities to tell.

What is told of entities is the mean over the mentions of an update, of which each is to be told from the entities of
that update by the state of its first token (equation 6).

Legend of shape comments: B sequences, T positions, D width, M mentions, K entities of the update.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_file
from gptcore.config import PretrainConfig
from gptcore.data.feed import Data, Losses, MicroBatch, Objective
from gptcore.data.masking import Masking
from gptcore.data.shards import Shards
from gptcore.models.network import Network
from gptcore.objectives.masked import Counted, MaskedWords, told, word_and_pair_losses
from gptcore.objectives.objective import Text
from gptcore.papers.graphs.entities import ENTITIES_FILE, Entities
from gptcore.papers.graphs.knowledge_encoder import KnowledgeEncoder
from gptcore.papers.graphs.masked_entities import EntitySequences
from gptcore.papers.graphs.mentions import Mentions


class CountedMentions(Counted):
    """Held-out batches whose mentions are counted, too."""

    mentions = 0

    def count(self, batch: MicroBatch) -> None:
        """Add what a batch has to score, its mentions, too."""
        super().count(batch)
        self.mentions += len(batch["mentioned"])

    def scores(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The scores of words and pairs, how many "mentions" there are, and the loss and accuracy of their entities."""
        scores = super().scores(sums) | {"mentions": float(self.mentions)}
        if self.mentions:
            scores |= {name: sums[name] / self.mentions for name in ("entity_loss", "entity_accuracy")}
        return scores


class MaskedWordsAndEntities(MaskedWords):
    """Hidden words, pairs of segments and denoised entities."""

    counting = CountedMentions
    sequences = EntitySequences

    def shards(self, folder: Path, knowledge: Path | None) -> Shards:
        """The shards of a split with the mentions of entities in them."""
        return Shards(folder, None if knowledge is None else Mentions.read(knowledge / folder.name))

    def know(self, model: Network, knowledge: Path) -> dict[str, str]:
        """Give the network the vectors and the names of the entities."""
        assert isinstance(model, KnowledgeEncoder)
        entities = Entities.read(knowledge)
        model.know(torch.from_numpy(entities.vectors), entities.gazetteer, str(knowledge))
        return {"entities": sha256_file(knowledge / ENTITIES_FILE)}

    def data(self, text: Text, micro_batch_size: int | None) -> Data:
        """Sequences of sentences with hidden words and the entities that they mention.

        :raises InputError: shards without sentence borders, or whose mentions are not known.
        """
        if text.shards.mentions is None:
            raise InputError(f"{text.shards.folder}: no mentions of entities known, expected some beside the shards")
        return super().data(text, micro_batch_size)

    def objective(self, trained: nn.Module, config: PretrainConfig) -> Objective:
        """Words, pairs and entities.

        :param trained: a :class:`KnowledgeEncoder`.
        """
        weight = 1.0 if config.entity_weight is None else config.entity_weight
        return partial(entity_losses, cast(KnowledgeEncoder, trained), weight)


def entity_losses(model: KnowledgeEncoder, weight: float, batch: MicroBatch) -> Losses:
    """What the hidden words, the pairs of segments and the entities of a micro-batch cost.

    :param weight: of the last; 0: entities are fused, and not told.
    """
    states = model.encode(batch["tokens"], batch["segments"], batch["mask"], batch["entities"])  # (B, T, D)
    metrics = word_and_pair_losses(model, states, batch)
    loss = metrics["word_loss"] + metrics["pair_loss"]
    scores = model.entity_scores(states.flatten(0, 1)[batch["mentions"]], batch["candidates"]).float()  # (M, K)
    entity_loss, entity_accuracy = _entities_told(scores, batch)
    loss = loss + weight * entity_loss
    return loss, {"loss": loss, **metrics, "entity_loss": entity_loss, "entity_accuracy": entity_accuracy}


def _entities_told(scores: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Nats and right answers; of a batch without mentions zeros that hang on the same weights."""
    if not len(batch["mentioned"]):
        return scores.sum(), torch.zeros((), device=scores.device)
    return told(scores, batch["mentioned"], batch["entity_weight"])


MASKED_WORDS_NEXT_SENTENCE_AND_ENTITIES = MaskedWordsAndEntities("nsp", Masking())
"""ERNIE (section 3.4): BERT's words and pairs, and entities."""
