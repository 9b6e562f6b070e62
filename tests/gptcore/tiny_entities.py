"""A gazetteer of a few names, each of the entity of its place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gptcore.knowledge.entities import Gazetteer

N_VOCAB = 24
TAILS = (9, 10, 11)


def gazetteer(names: Sequence[Sequence[int]], n_vocab: int = N_VOCAB, tails: Sequence[int] = TAILS) -> Gazetteer:
    """:param names: their pieces."""
    tail = np.isin(np.arange(n_vocab), tails)
    pieces = np.array([piece for name in names for piece in name], np.int64)
    return Gazetteer(pieces, np.cumsum([len(name) for name in names]), np.arange(len(names)), tail)
