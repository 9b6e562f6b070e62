"""Which entities the tokens of shards mention.

Beside a folder of shards lie ``train/mentions.safetensors`` and ``validation/mentions.safetensors``: the ``row``
(int32), the ``place`` in it (int32) and the ``entity`` (int32, counted from 0) of each mention's first token, in that
order. ``entities.safetensors`` has what is known of the entities (:mod:`gptcore.papers.graphs.entities`).

Legend of shape comments: T positions, M mentions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from gptcore.base.arrays import read_arrays
from gptcore.base.errors import InputError
from gptcore.base.types import Ints

_FILE = "mentions.safetensors"
_COLUMNS = ("row", "place", "entity")


@dataclass(frozen=True, eq=False)
class Mentions:
    """The mentions of a folder of shards."""

    rows: Ints = field(repr=False)
    """[M] ascending."""
    places: Ints = field(repr=False)
    """[M] in their rows, ascending."""
    entities: Ints = field(repr=False)
    """[M] counted from 0."""

    @classmethod
    def of(cls, rows: Iterable[Ints]) -> Mentions:
        """Mentions in dense rows [T], which hold 1 + the entity's number where a mention begins, else 0."""
        places, entities, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], []
        for row in rows:
            places.append(np.flatnonzero(row))
            entities.append(row[places[-1]] - 1)
            counts.append(len(places[-1]))
        return cls(np.repeat(np.arange(len(counts)), counts), np.concatenate(places), np.concatenate(entities))

    def between(self, row: int, start: int, stop: int) -> Ints:
        """The entities of a stretch of a row: [stop - start], 1 + the entity's number, 0 where no mention begins."""
        first, last = np.searchsorted(self.rows, [row, row + 1])
        first, last = first + np.searchsorted(self.places[first:last], [start, stop])
        dense = np.zeros(stop - start, np.int64)
        dense[self.places[first:last] - start] = self.entities[first:last] + 1
        return dense

    def save(self, folder: Path) -> None:
        """Write them into a local folder that is there."""
        columns = zip(_COLUMNS, (self.rows, self.places, self.entities), strict=True)
        save_file({name: column.astype(np.int32) for name, column in columns}, str(folder / _FILE))

    @classmethod
    def read(cls, folder: Path) -> Mentions:
        """Read what :meth:`save` wrote.

        :raises InputError: no such file, or none of this kind.
        """
        path = folder / _FILE
        columns = read_arrays(path, _COLUMNS, "the mentions of a folder of shards")
        if len({len(column) for column in columns.values()}) > 1:
            raise InputError(f"{path}: found columns of several lengths, expected {', '.join(_COLUMNS)} of one")
        return cls(*(columns[name].astype(np.int64) for name in _COLUMNS))
