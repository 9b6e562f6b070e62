"""A graph's entities as a network takes them: their vectors, their names as token ids, and where these stand in texts.

    entities.safetensors     vectors of the entities, names by their pieces (:class:`Gazetteer`)
    train/, validation/      the mentions beside the shards of each split (:mod:`gptcore.papers.graphs.mentions`)

Entities are aligned as in "ERNIE: Enhanced Language Representation with Informative Entities" (Zhang et al. 2019),
where an entity stands at the first token of its mention (section 3.1). Here a mention is found by its name, a label or
an alias of the graph: of the names that begin at a word the longest one counts, and from the left each token belongs to
one mention at most. A name that several entities have is that of the one that most facts tell of; names of fewer than
three letters, and of words that mean nothing by themselves (spaCy's list), are none. Names that are linked in a
document itself (:func:`read_links`) come first there. The paper's own links are those of Wikipedia, or TAGME's.

Names are found in token ids, so that shards, rows of tasks and what a model is asked are linked by the same rule.

Legend of shape comments: B sequences, T positions or tokens of a row, N names or, of vectors, entities, K numbers of a
vector, P pieces of all names, L pieces of one, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from gptcore.base.arrays import read_arrays
from gptcore.base.errors import InputError, require
from gptcore.base.filesystems import file_system
from gptcore.base.types import Advance, Bools, Ints, quiet
from gptcore.data.encode import SPLITS
from gptcore.data.masking import PieceTable
from gptcore.data.shards import Shards
from gptcore.papers.graphs.graph import KnowledgeGraph, rows_of_names
from gptcore.papers.graphs.mentions import Mentions
from gptcore.text.tokenizer import Tokenizer

ENTITIES_FILE = "entities.safetensors"
ENTITY_SIZES = ("n_entities", "n_embd_entities", "n_names", "n_name_pieces")
"""The settings of a network that say how much is known."""
_TABLES = ("pieces", "stops", "entities", "tail")
LONGEST = 12
"""Pieces of a name that is looked for."""
_LETTERS = 3
_ODD = tuple((0x9E3779B97F4A7C15 * (2 * place + 1)) % (1 << 64) | 1 for place in range(LONGEST))
"""What spreads the tokens at each place of a name over 64 bits."""
LINK_COLUMNS = ("document", "name", "entity")
Ids = npt.NDArray[np.int64]
_Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Gazetteer:
    """Names by their pieces, each of one entity, sorted by length and then by pieces."""

    pieces: Ids = field(repr=False)
    """[P] of all names, one behind the other."""
    stops: Ids = field(repr=False)
    """[N] where each name ends in ``pieces``."""
    entities: Ids = field(repr=False)
    """[N] whose name it is, counted from 0; -1: of none of them."""
    tail: Bools = field(repr=False)
    """[V] whether a piece goes on the word of the one before it."""

    @classmethod
    def of(cls, graph: KnowledgeGraph, tokenizer: Tokenizer) -> Gazetteer:
        """The names of a graph's entities in a vocabulary.

        What a graph has no label for is called by its own name.

        :raises InputError: a vocabulary without special pieces, or none of the names is one.
        """
        from spacy.lang.en.stop_words import STOP_WORDS

        table = PieceTable.of(tokenizer)
        named: list[tuple[str, int]] = []
        for entity in graph.by_degree:
            own = graph.entities[entity]
            for name in graph.labels.get(own, (own.replace("_", " "),)):
                words = name.lower().split()
                if sum(map(str.isalpha, name)) >= _LETTERS and not all(word in STOP_WORDS for word in words):
                    named.append((name, entity))
        entity_of: dict[tuple[int, ...], int] = {}
        for ids, place in spelled([name for name, _ in named], tokenizer, table):
            entity_of.setdefault(ids, named[place][1])
        if not entity_of:
            raise InputError(
                f"graph: none of its {len(graph.entities):,} entities has a name that texts can be searched for; "
                "expected words, or labels in entity2wikidata.json or labels.tsv"
            )
        return _gazetteer(entity_of, table)

    @classmethod
    def linked(
        cls, links: Mapping[str, str], graph: KnowledgeGraph, tokenizer: Tokenizer, table: PieceTable
    ) -> Gazetteer:
        """The names that are linked in one document, all of them.

        :param links: name -> entity; one that the graph does not have stands for none.
        :param table: of the tokenizer.
        :raises InputError: see :func:`meant`.
        """
        return _gazetteer({ids: graph.number(entity) for ids, entity in meant(links, tokenizer, table).items()}, table)

    def find(self, tokens: Ids, own: Gazetteer | None = None) -> Ids:
        """The entities that texts mention, at the first piece of each mention: [B, T] ids -> [B, T].

        :param own: names of these texts themselves, which come before others of the same pieces.
        :returns: 1 + the entity's number, 0 where no mention begins.
        """
        ends, entities = self._longest(tokens)
        if own is not None:
            its_ends, its_entities = own._longest(tokens)
            first = (its_ends > 0) & (its_ends >= ends)
            ends, entities = np.where(first, its_ends, ends), np.where(first, its_entities, entities)
        return _apart(ends, entities)

    def _longest(self, tokens: Ids) -> tuple[Ids, Ids]:
        """How many pieces the longest name that begins at each place has (0: none begins), and 1 + the name's entity.

        [B, T] -> [B, T] each.
        """
        n_rows, length = tokens.shape
        ends = np.zeros((n_rows, length), np.int64)  # pieces of the longest name that begins at a position
        entities = np.zeros((n_rows, length), np.int64)
        inside = self.tail[tokens]  # (B, T)
        closes = np.ones((n_rows, length + 1), bool)  # whether a word can end before a position
        closes[:, :-1] = ~inside
        hashes = np.zeros((n_rows, length), np.uint64)
        for size in range(1, min(LONGEST, length) + 1):
            width = length - size + 1
            hashes = hashes[:, :width] + _spread(tokens[:, size - 1 :], size - 1)
            if size not in self._by_size:
                continue
            known, first = self._by_size[size]
            place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            rows, starts = np.nonzero((known[place] == hashes) & closes[:, :width] & closes[:, size:])
            name = first[place[rows, starts]]
            spelled = self.pieces[(self.stops[name] - size)[:, None] + np.arange(size)]  # (M, L)
            same = (spelled == tokens[rows[:, None], starts[:, None] + np.arange(size)]).all(1)
            rows, starts = rows[same], starts[same]
            ends[rows, starts], entities[rows, starts] = size, self.entities[name[same]] + 1
        return ends, entities

    @cached_property
    def _by_size(self) -> dict[int, tuple[_Hashes, Ids]]:
        """Pieces of a name -> the hashes of names so long, ascending, and which names these are."""
        sizes = np.diff(self.stops, prepend=0)
        by_size = {}
        for size in np.unique(sizes).tolist():
            names = np.flatnonzero(sizes == size)
            spelled = self.pieces[(self.stops[names] - size)[:, None] + np.arange(size)]  # (M, L)
            hashes = sum((_spread(spelled[:, place], place) for place in range(size)), np.zeros(len(names), np.uint64))
            order = np.argsort(hashes, kind="stable")
            by_size[size] = hashes[order], names[order]
        return by_size


def meant(links: Mapping[str, str], tokenizer: Tokenizer, table: PieceTable) -> dict[tuple[int, ...], str]:
    """The entity that each name of a document's links stands for, by the name's pieces.

    Names that are not spelled in :data:`LONGEST` pieces are left out.

    :param table: of the tokenizer.
    :raises InputError: names that are one in this vocabulary, as "Rose" and "rose" may be, of different entities.
    """
    names = list(links)
    name_of: dict[tuple[int, ...], str] = {}
    for ids, place in spelled(names, tokenizer, table):
        name = names[place]
        if links[first := name_of.setdefault(ids, name)] != links[name]:
            raise InputError(
                f"found {links[first]!r:.60} for {first!r:.60} and {links[name]!r:.60} for {name!r:.60}, "
                "which are one in the vocabulary; expected one entity a name of a document"
            )
    return {ids: links[name] for ids, name in name_of.items()}


def spelled(names: Sequence[str], tokenizer: Tokenizer, table: PieceTable) -> Iterator[tuple[tuple[int, ...], int]]:
    """The pieces and the place of each name that a vocabulary can spell in :data:`LONGEST` of them."""
    for place, ids in enumerate(tokenizer.encode_batch(names)):
        if 0 < len(ids) <= LONGEST and not table.special[list(ids)].any():
            yield tuple(ids), place


def _gazetteer(entity_of: Mapping[tuple[int, ...], int], table: PieceTable) -> Gazetteer:
    """The names' pieces one behind another, and the entity that each name stands for."""
    names = sorted(entity_of, key=lambda name: (len(name), name))
    pieces = np.array([piece for name in names for piece in name], np.int64)
    stops = np.cumsum([len(name) for name in names], dtype=np.int64)
    return Gazetteer(pieces, stops, np.array([entity_of[name] for name in names], np.int64), table.tail)


def _spread(tokens: Ids, place: int) -> _Hashes:
    """What a token adds to the hash of a name in which it stands at this place; sums wrap around.

    Two names of one hash would hide one of them: over 64 bits that has never been seen, and a wrong match cannot be, as
    pieces are compared.
    """
    mixed: _Hashes = (tokens.astype(np.uint64) + np.uint64(1)) * np.uint64(_ODD[place])
    mixed ^= mixed >> np.uint64(29)
    return mixed * np.uint64(_ODD[0])


def _apart(ends: Ids, entities: Ids) -> Ids:
    """Keep of mentions that overlap those that begin further left: [B, T] each -> [B, T]."""
    rows, starts = np.nonzero(ends)
    kept = np.zeros(len(rows), bool)
    row, free = -1, 0
    columns = (column.tolist() for column in (rows, starts, ends[rows, starts]))
    for number, (its, start, size) in enumerate(zip(*columns, strict=True)):
        if its != row:
            row, free = its, 0
        if start >= free:
            kept[number], free = True, start + size
    apart = np.zeros_like(entities)
    apart[rows[kept], starts[kept]] = entities[rows[kept], starts[kept]]
    return apart


def read_links(url: str) -> dict[str, dict[str, str]]:
    """Read a file of links, anywhere fsspec reaches: what names mean in single documents, between tabs.

        98-0.txt    Lucie       lucie_manette
        98-0.txt    the Vengeance   the_vengeance

    The document is a corpus file's path below the corpus' root, the name what stands in its text, the entity one of the
    graph's; one that the graph does not have says that the name is none of its entities there. A name means one entity
    throughout a document (Gale, Church and Yarowsky 1992, "One Sense Per Discourse"), as in ERNIE's release, which has
    marked every stretch of an article that reads like one of its links.

    :returns: document -> name -> entity.
    :raises InputError: no such file, no row, a row of other columns or without one of them, a name of two entities in
        one document. Names file, line and column.
    """
    system, path = file_system(url)
    expected = ", ".join(LINK_COLUMNS)
    require(system.isfile(path), f"{url}: found no file there, expected rows of {expected}")
    linked: dict[str, dict[str, str]] = {}
    for number, (document, name, entity) in rows_of_names(url, LINK_COLUMNS, (len(LINK_COLUMNS),), expected):
        before = linked.setdefault(document, {}).setdefault(name, entity)
        if before != entity:
            raise InputError(
                f"{url}, line {number}, entity: found {entity!r:.60} for {name!r:.60} of {document}, which an earlier "
                f"line has for {before!r:.60}; expected one entity a name of a document"
            )
    require(linked, f"{url}: found no link, expected rows of {expected}")
    return linked


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
        arrays = read_arrays(folder / ENTITIES_FILE, ("vectors", *_TABLES), "vectors and names of entities")
        return cls(arrays["vectors"], Gazetteer(*(arrays[name] for name in _TABLES)))

    @property
    def sizes(self) -> dict[str, int]:
        """What the settings of a network say of them."""
        sizes = (*self.vectors.shape, len(self.gazetteer.stops), len(self.gazetteer.pieces))
        return dict(zip(ENTITY_SIZES, sizes, strict=True))


def link_shards(
    shards: Path,
    gazetteer: Gazetteer,
    out: Path,
    progress: Advance = quiet,
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
    shards: Shards, gazetteer: Gazetteer, own: Callable[[str], Gazetteer | None], progress: Advance
) -> Iterator[Ints]:
    for document, rows in groupby(range(shards.n_rows), key=shards.document):
        its = own(document)
        for row in rows:
            tokens = shards.tokens(row).astype(np.int64)
            yield gazetteer.find(tokens[None], its)[0]
            progress(len(tokens))
