"""Which entities the tokens of shards mention, and which of those a network sees in another's place, or not at all.

A folder has ``train/mentions.safetensors`` and ``validation/mentions.safetensors``: the ``row`` (int32), the ``place``
in it (int32) and the ``entity`` (int32, counted from 0) of each mention's first token, in that order; and
``entities.safetensors``, what is known of the entities: their vectors and their names.

Legend of shape comments: B sequences in a batch, T positions, M mentions or, of a batch, entities.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from gptcore.base.arrays import read_arrays
from gptcore.base.errors import InputError
from gptcore.base.seeds import derive_seed
from gptcore.data.draws import below, sample_bits, uniforms

MENTIONS_FILE = "mentions.safetensors"
_COLUMNS = ("row", "place", "entity")
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Mentions:
    """The mentions of a folder of shards."""

    rows: Numbers = field(repr=False)
    """[M] ascending."""
    places: Numbers = field(repr=False)
    """[M] in their rows, ascending."""
    entities: Numbers = field(repr=False)
    """[M] counted from 0."""

    @classmethod
    def of(cls, rows: Iterable[Numbers]) -> Mentions:
        """From dense rows: [T] each, 1 + the entity's number where a mention begins, else 0."""
        places, entities, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], []
        for row in rows:
            places.append(np.flatnonzero(row))
            entities.append(row[places[-1]] - 1)
            counts.append(len(places[-1]))
        return cls(np.repeat(np.arange(len(counts)), counts), np.concatenate(places), np.concatenate(entities))

    def between(self, row: int, start: int, stop: int) -> Numbers:
        """The entities of a stretch of a row: [stop - start], 1 + the entity's number, 0 where no mention begins."""
        first, last = np.searchsorted(self.rows, [row, row + 1])
        first, last = first + np.searchsorted(self.places[first:last], [start, stop])
        found = np.zeros(stop - start, np.int64)
        found[self.places[first:last] - start] = self.entities[first:last] + 1
        return found

    def save(self, folder: Path) -> None:
        """Write them into a local folder that is there."""
        columns = zip(_COLUMNS, (self.rows, self.places, self.entities), strict=True)
        save_file({name: column.astype(np.int32) for name, column in columns}, str(folder / MENTIONS_FILE))

    @classmethod
    def read(cls, folder: Path) -> Mentions:
        """Read what :meth:`save` wrote.

        :raises InputError: no such file, or none of this kind.
        """
        path = folder / MENTIONS_FILE
        found = read_arrays(path, _COLUMNS, "the mentions of a folder of shards")
        if len({len(column) for column in found.values()}) > 1:
            raise InputError(f"{path}: found columns of several lengths, expected {', '.join(_COLUMNS)} of one")
        return cls(*(found[name].astype(np.int64) for name in _COLUMNS))


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
