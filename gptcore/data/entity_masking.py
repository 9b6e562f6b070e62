"""Which entities of a batch the network sees in another's place, or not at all: ERNIE's denoising entity auto-encoder.

"ERNIE: Enhanced Language Representation with Informative Entities" (Zhang et al. 2019), section 3.4: of the entities
5 % are replaced by a random one, 15 % are hidden, the rest stay; the network has to tell all of them from the tokens,
among those of the batch (original code: the paper's, of the sequence). The original code drops sequences of fewer than
five entities; here none is dropped.

Legend of shape comments: B sequences in a batch, T positions, M entities of the batch, N mentions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gptcore.base.seeds import derive_seed
from gptcore.data.draws import below, sample_bits, uniforms

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
    """[M] 1 + the number of each entity of the batch, ascending."""


def mask_entities(entities: Numbers, numbers: Numbers, seed: int) -> MaskedEntities:
    """Replace and hide entities; the numbers drawn for a sequence are a pure function of (seed, its number, T).

    An entity is replaced by one of those that the batch mentions.

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
