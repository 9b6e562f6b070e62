"""What a network is given of a graph's entities, their vectors and their names, and the mentions of them in shards.

    entities.safetensors     vectors of the entities, names by their pieces (:mod:`gptcore.knowledge.gazetteer`)
    train/, validation/      the mentions beside the shards of each split (:mod:`gptcore.data.mentions`)

Legend of shape comments: N entities, K numbers of a vector, T tokens of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from gptcore.base.arrays import read_arrays
from gptcore.base.errors import InputError
from gptcore.data.encode import SPLITS
from gptcore.data.mentions import Mentions
from gptcore.data.shards import Shards
from gptcore.knowledge.gazetteer import Gazetteer

ENTITIES_FILE = "entities.safetensors"
ENTITY_SIZES = ("n_entities", "n_embd_entities", "n_names", "n_name_pieces")
"""The settings of a network that say how much is known."""
_TABLES = ("pieces", "stops", "entities", "tail")


@dataclass(frozen=True, eq=False)
class Entities:
    """The entities of a graph as a network takes them."""

    vectors: npt.NDArray[np.float32] = field(repr=False)
    """[N, K]"""
    gazetteer: Gazetteer = field(repr=False)

    def save(self, folder: Path) -> None:
        """Write them into a local folder that is there."""
        tables = {name: getattr(self.gazetteer, name) for name in _TABLES}
        save_file({"vectors": self.vectors, **tables}, str(folder / ENTITIES_FILE))

    @classmethod
    def read(cls, folder: Path) -> Entities:
        """Read what :meth:`save` wrote.

        :raises InputError: no such file, or none of this kind.
        """
        found = read_arrays(folder / ENTITIES_FILE, ("vectors", *_TABLES), "vectors and names of entities")
        return cls(found["vectors"], Gazetteer(*(found[name] for name in _TABLES)))

    @property
    def sizes(self) -> dict[str, int]:
        """What the settings of a network say of them."""
        found = (*self.vectors.shape, len(self.gazetteer.stops), len(self.gazetteer.pieces))
        return dict(zip(ENTITY_SIZES, found, strict=True))


def link_shards(
    shards: Path,
    gazetteer: Gazetteer,
    out: Path,
    progress: Callable[[int], object] | None = None,
    own: Callable[[str], Gazetteer | None] = lambda document: None,
) -> dict[str, dict[str, int]]:
    """Find the entities that shards mention, and write them beside one another, a folder a split.

    :param shards: a folder with ``train/`` and ``validation/``.
    :param own: of a document, by its name in the shards, the names that are linked in it.
    :param progress: called with the number of tokens searched since its last call.
    :returns: of each split the "mentions", the "entities" that are mentioned, and the "tokens" searched.
    :raises InputError: the training text mentions none.
    """
    counts = {}
    for split in SPLITS:
        its = Shards(shards / split)
        mentions = Mentions.of(_linked(its, gazetteer, own, progress))
        (out / split).mkdir(parents=True, exist_ok=True)
        mentions.save(out / split)
        different = len(np.unique(mentions.entities))
        counts[split] = {"mentions": len(mentions.places), "entities": different, "tokens": its.n_tokens}
    if not counts["train"]["mentions"]:
        raise InputError(
            f"{shards}: found no entity of the graph in {counts['train']['tokens']:,} tokens to train on; expected a "
            "text that names some of them"
        )
    return counts


def _linked(
    shards: Shards,
    gazetteer: Gazetteer,
    own: Callable[[str], Gazetteer | None],
    progress: Callable[[int], object] | None,
) -> Iterator[npt.NDArray[np.int64]]:
    for document, rows in groupby(range(shards.n_rows), key=shards.document):
        its = own(document)
        for row in rows:
            tokens = shards.tokens(row).astype(np.int64)
            yield gazetteer.find(tokens[None], its)[0]
            if progress is not None:
                progress(len(tokens))
