"""Shards with sentence borders, each of whose tokens occurs once; and a gazetteer of a few names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gptcore.data.masking import PieceTable
from gptcore.data.shards import Shards, write_shards
from gptcore.papers.graphs.entities import Gazetteer

PAD, CLS, SEP, MASK, FIRST = 0, 1, 2, 3, 4

Documents = list[list[int]]
"""Lengths of the sentences of each document."""


def table(n_vocab: int) -> PieceTable:
    """Ids 0..3 are marks, every other one is a word."""
    special = np.arange(n_vocab) < FIRST
    return PieceTable(n_vocab, PAD, CLS, SEP, MASK, special, np.zeros(n_vocab, bool))


def sentence_shards(
    folder: Path, documents: Documents, max_tokens: int = 10**6
) -> tuple[Shards, list[list[list[int]]]]:
    """The shards, and each document's sentences as ids."""
    ids, counter = [], FIRST
    for lengths in documents:
        ids.append(
            [list(range(start, start + n)) for n, start in zip(lengths, np.cumsum([counter, *lengths]), strict=False)]
        )
        counter += sum(lengths)
    rows = [(f"d{number}", [[*sentence, SEP] for sentence in its]) for number, its in enumerate(ids)]
    write_shards(rows, folder, n_vocab=counter, max_tokens=max_tokens)
    return Shards(folder), ids


N_VOCAB = 24
TAILS = (9, 10, 11)


def gazetteer(names: Sequence[Sequence[int]], n_vocab: int = N_VOCAB, tails: Sequence[int] = TAILS) -> Gazetteer:
    """:param names: their pieces."""
    tail = np.isin(np.arange(n_vocab), tails)
    pieces = np.array([piece for name in names for piece in name], np.int64)
    return Gazetteer(pieces, np.cumsum([len(name) for name in names]), np.arange(len(names)), tail)
