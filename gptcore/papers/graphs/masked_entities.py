"""The entities of sequences with hidden words, as ERNIE sees them and has to tell them.

A micro-batch of :mod:`gptcore.objectives.masked_data` holds these, too::

    entities   [B, T] 1 + the number of the entity that the network sees where a mention begins, else 0
    mentions   [M] which of the B*T positions mentions begin at, ascending
    mentioned  [M] which of the candidates stands there
    candidates [K] 1 + the numbers of the entities of the whole update
    entity_weight: what a mention counts

Legend of shape comments: B sequences, T positions, M mentions, K entities of the update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from gptcore.base.seeds import below, derive_seed, sample_bits, uniforms
from gptcore.data.masking import Masked
from gptcore.data.sentence_pairs import SentenceBatch
from gptcore.objectives.masked_data import Sequences

Numbers = npt.NDArray[np.int64]
_REPLACED, _HIDDEN = 0.05, 0.15
_PLANES = 2  # numbers drawn for each position: what becomes of its entity, which other one it is


class MaskedEntities(NamedTuple):
    """The entities of a batch as the network sees them, and what it has to tell."""

    seen: Numbers
    """[B, T] 1 + an entity's number, 0 for none."""
    told: Numbers
    """[B, T] at each mention 1 + which of the candidates it is, else 0."""
    candidates: Numbers
    """[K] 1 + the number of each entity of the batch, ascending."""


def mask_entities(entities: Numbers, numbers: Numbers, seed: int) -> MaskedEntities:
    """Replace and hide entities; the numbers drawn for a sequence are a pure function of (seed, its number, T).

    ERNIE's denoising entity auto-encoder ("ERNIE: Enhanced Language Representation with Informative Entities", Zhang et
    al. 2019, section 3.4): of the entities 5 % are replaced by a random one, 15 % are hidden, the rest stay; the
    network has to tell all of them from the tokens, among those of the batch (original code: the paper's, of the
    sequence). An entity is replaced by one of those that the batch mentions. The original code drops sequences of fewer
    than five entities; here none is dropped.

    :param entities: [B, T] 1 + the number of the entity whose mention begins at a position, else 0.
    :param numbers: [B] of the sequences.
    """
    n_rows, length = entities.shape
    bits = sample_bits(derive_seed(seed, "entities", length), numbers, _PLANES * length)
    becomes, which = bits.reshape(n_rows, _PLANES, length).swapaxes(0, 1)  # [B, T] each
    candidates = np.unique(entities[entities > 0])
    told = np.where(entities > 0, np.searchsorted(candidates, entities) + 1, 0)
    if not len(candidates):
        return MaskedEntities(entities, told, candidates)
    u = uniforms(becomes)
    others = candidates[below(which, len(candidates))]
    seen = np.where(u < _REPLACED, others, np.where(u < _REPLACED + _HIDDEN, 0, entities))
    return MaskedEntities(np.where(entities > 0, seen, 0), told, candidates)


@dataclass(frozen=True)
class EntitySequences(Sequences):
    """Sequences with hidden words whose mentions are known."""

    entities: MaskedEntities

    @classmethod
    def of(cls, batch: SentenceBatch, masked: Masked, numbers: Numbers, seed: int, draws: int) -> Self:
        """Draw what belongs to the sequences of these numbers, and what becomes of their entities."""
        assert batch.entities is not None, "the objective saw to it"
        plain = Sequences.of(batch, masked, numbers, seed, draws)
        return cls(batch, masked, plain.draws, mask_entities(batch.entities, numbers, seed))

    def counts(self) -> dict[str, int]:
        """How many words, pairs, positions and mentions there are."""
        return super().counts() | {"entity_weight": int((self.entities.told > 0).sum())}

    def arrays(self, rows: slice) -> dict[str, npt.NDArray[Any]]:
        here = self.here(rows)
        told = self.entities.told[here].ravel()
        mentions = np.flatnonzero(told)
        return super().arrays(rows) | {
            "entities": self.entities.seen[here],
            "mentions": mentions,
            "mentioned": told[mentions] - 1,
            "candidates": self.entities.candidates,
        }
