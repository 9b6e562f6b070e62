"""A knowledge graph's files, read strictly: one fact a line, its head, relation and tail between tabs.

    FB15k-237, WN18RR   train.txt, valid.txt, test.txt: head, relation, tail
    ConceptNet-100K     train.txt, dev1.txt, dev2.txt, test.txt: relation, head, tail, in the dev files 1 or 0

A fourth column says whether the fact is true; what is false is no fact, and counted. Blanks around a name are no part
of it. What people call entities, where a file says it: ``entity2wikidata.json`` (label, aliases), or ``labels.tsv``
(entity, label, further ones; an entity may have several lines).

Legend of shape comments: N facts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from gptcore.base.errors import InputError, require
from gptcore.base.files import read_object, write_json_atomic
from gptcore.base.filesystems import file_system, is_folder, misspelt
from gptcore.nlu.readers.text_files import lines
from gptcore.text.vocabulary import parse_object, read_text

Triples = npt.NDArray[np.int64]
Places = npt.NDArray[np.int64]
COLUMNS = ("head", "relation", "tail")
SPLITS = ("train", "valid", "test")
_FILES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "train": (("train",),),
    "valid": (("valid",), ("dev1", "dev2"), ("dev",)),
    "test": (("test",),),
}
"""Split -> the files that it may be made of, the first that are there."""
_ENDINGS = (".txt", ".tsv")
_MANY = 50  # relations, of which a small graph may have so many for its entities
_TRUTH = {"1": True, "0": False}
_WIKIDATA, _LABELS = "entity2wikidata.json", "labels.tsv"
_NAMES, _FACTS = "graph.json", "facts.safetensors"


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """Facts of three splits over numbered entities and relations, in the order in which they were first named."""

    entities: tuple[str, ...]
    relations: tuple[str, ...]
    facts: Mapping[str, Triples] = field(repr=False)
    """Split -> numbers of head, relation and tail, int64 [N, 3]; a split without a file has none."""
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """Entity -> what people call it, the best name first."""
    n_false: int = 0
    """Rows that say of themselves that they are false."""

    def number(self, name: str) -> int:
        """An entity's number; -1: there is none of this name."""
        return self._numbers.get(name, -1)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.entities)}

    @cached_property
    def by_degree(self) -> list[int]:
        """The entities, those that most facts to learn from tell of first."""
        degrees = np.bincount(self.facts["train"][:, (0, 2)].ravel(), minlength=len(self.entities))
        order: list[int] = np.argsort(-degrees, kind="stable").tolist()
        return order

    def called(self, entity: int) -> str:
        """What people call an entity."""
        name = self.entities[entity]
        return self.labels[name][0] if name in self.labels else name.replace("_", " ")

    def spoken(self, relation: int) -> str:
        """A relation as a person reads it, the last part of its name; one against its direction is marked."""
        backwards, number = divmod(relation, len(self.relations))
        name = self.relations[number].strip("/_").rpartition("/")[2].replace("_", " ")
        return f"\u2190 {name}" if backwards else name

    def save(self, folder: Path) -> None:
        """Write the graph into a local folder that is there."""
        save_file(dict(self.facts), str(folder / _FACTS))
        names = {
            "entities": list(self.entities),
            "relations": list(self.relations),
            "labels": {entity: list(labels) for entity, labels in self.labels.items()},
            "false": self.n_false,
        }
        write_json_atomic(folder / _NAMES, names)

    @classmethod
    def load(cls, folder: Path) -> KnowledgeGraph:
        """Read what :meth:`save` wrote.

        :raises InputError: the folder holds no graph.
        """
        kinds = {"entities": list, "relations": list, "labels": dict, "false": int}
        names = read_object(folder / _NAMES, "the names of a knowledge graph", kinds)
        labels = {entity: tuple(texts) for entity, texts in names["labels"].items()}
        facts = {split: rows.astype(np.int64) for split, rows in load_file(str(folder / _FACTS)).items()}
        return cls(tuple(names["entities"]), tuple(names["relations"]), facts, labels, names["false"])


def path_in_words(entities: Sequence[str], relations: Sequence[str]) -> str:
    """A path as a line of text, from what its entities and relations are called: "cat --chases--> mouse"."""
    steps = zip(relations, entities[1:], strict=True)
    return entities[0] + "".join(f" --{relation}--> {entity}" for relation, entity in steps)


def counts(starts: Places, rows: Places) -> Places:
    """How much lies between each row's start and the next one."""
    return starts[rows + 1] - starts[rows]


def ranges(starts: Places, rows: Places) -> Places:
    """What lies between each row's start and the next one, row after row."""
    lengths = counts(starts, rows)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    places: Places = np.repeat(starts[rows], lengths) + within
    return places


def read_graph(url: str, columns: Sequence[str] = COLUMNS) -> KnowledgeGraph:
    """Read a folder of facts, anywhere fsspec reaches.

    :param columns: what the first three columns are; ConceptNet's files have the relation first.
    :raises InputError: no train file; a row of another number of columns, without a name, or whose fourth column is
        neither 0 nor 1; no fact at all; far too many relations. Names file, line and column.
    """
    if sorted(columns) != sorted(COLUMNS):
        raise InputError(f"columns: found {', '.join(columns)}; expected {', '.join(COLUMNS)} in some order")
    url = url.rstrip("/")
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    facts: dict[str, Triples] = {}
    n_false = 0
    for split, files in _files(url).items():
        rows: dict[tuple[int, int, int], None] = {}  # a fact that is there twice is one
        for file in files:
            for names, true in _rows(file, columns):
                n_false += not true
                if true:
                    head, relation, tail = (names[column] for column in COLUMNS)
                    numbers = (
                        entities.setdefault(head, len(entities)),
                        relations.setdefault(relation, len(relations)),
                        entities.setdefault(tail, len(entities)),
                    )
                    rows[numbers] = None
        facts[split] = np.array(list(rows), np.int64).reshape(-1, 3)
    require(len(facts["train"]), f"{url}: found no fact to learn from, expected some in the train file")
    if len(relations) > max(_MANY, len(entities) / 10):  # as where the relation stands first and is taken for the head
        raise InputError(
            f"{url}: found {len(relations):,} relations between {len(entities):,} entities, read as the columns "
            f"{', '.join(columns)}; expected a tenth at most: is another column the relation? "
            "`gptmill knowledge --columns` reads it so, and other commands take its vectors"
        )
    return KnowledgeGraph(tuple(entities), tuple(relations), facts, _labels(url, entities), n_false)


def graph_files(url: str) -> list[str]:
    """The addresses of the files that :func:`read_graph` reads, for a fingerprint of them.

    :raises InputError: no train file.
    """
    there = _there(url.rstrip("/"))
    facts = [file for files in _files(url.rstrip("/")).values() for file in files]
    return [*facts, *(there[name] for name in (_WIKIDATA, _LABELS) if name in there)]


def _there(url: str) -> dict[str, str]:
    """Name -> address of what stands in a folder."""
    system, path = file_system(url)
    if system.isfile(path):
        raise InputError(f"{url}: found a file, expected a folder with train.txt")
    if not is_folder(system, path):
        raise InputError(f"{url}: found no folder here, expected one with train.txt{misspelt(url)}")
    entries = system.ls(path, detail=True)
    names = [each["name"].rstrip("/").rpartition("/")[2] for each in entries if each["type"] != "directory"]
    return {name: f"{url}/{name}" for name in names}


def _files(url: str) -> dict[str, list[str]]:
    """Split -> its files."""
    there = _there(url)
    splits: dict[str, list[str]] = {}
    for split, choices in _FILES.items():
        for stems in choices:
            files = [there[stem + end] for stem in stems for end in _ENDINGS if stem + end in there]
            if files:
                splits[split] = files
                break
    if "train" not in splits:
        raise InputError(f"{url}: found {', '.join(sorted(there)[:5]) or 'nothing'}; expected train.txt or train.tsv")
    return splits


def rows_of_names(
    file: str, columns: Sequence[str], numbers: Collection[int], expected: str
) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells of each line of a file that has names between tabs; blank lines are left out.

    :param numbers: how many cells a line may have, of which those of ``columns`` have to hold a name.
    :param expected: the same in words.
    :raises InputError: naming file, line and column.
    """
    for number, line in lines(file):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.rstrip("\r\n").split("\t")]
        if len(cells) not in numbers:
            raise InputError(f"{file}, line {number}: found {len(cells)} columns between tabs, expected {expected}")
        for column, cell in zip(columns, cells, strict=False):
            if not cell:
                raise InputError(f"{file}, line {number}, {column}: found nothing, expected a name")
        yield number, cells


def _rows(file: str, columns: Sequence[str]) -> Iterator[tuple[dict[str, str], bool]]:
    """The names of a fact by column, and whether the row says that it is true."""
    for number, cells in rows_of_names(file, columns, (3, 4), "3, or 4"):
        if len(cells) == 4 and cells[3] not in _TRUTH:
            raise InputError(f"{file}, line {number}, column 4: found {cells[3]!r:.40}, expected 1 (true) or 0")
        yield dict(zip(columns, cells, strict=False)), len(cells) == 3 or _TRUTH[cells[3]]


def _labels(url: str, entities: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """What people call the entities, where a file says so."""
    there = _there(url)
    labels: dict[str, tuple[str, ...]] = {}
    if _WIKIDATA in there:
        labels = _wikidata_labels(there[_WIKIDATA])
    elif _LABELS in there:
        for number, line in lines(there[_LABELS]):
            cells = [cell.strip() for cell in line.rstrip("\r\n").split("\t")]
            if not line.strip():
                continue
            if len(cells) < 2 or not all(cells[:2]):
                raise InputError(
                    f"{there[_LABELS]}, line {number}: found {line.strip()!r:.60}, expected an entity and its label"
                )
            labels[cells[0]] = (*labels.get(cells[0], ()), *filter(None, cells[1:]))
    return {entity: names for entity, names in labels.items() if entity in entities}


def _wikidata_labels(file: str) -> dict[str, tuple[str, ...]]:
    labels: dict[str, tuple[str, ...]] = {}
    for entity, about in parse_object(read_text(file), file, "an object of entities with their labels").items():
        label = about.get("label") if isinstance(about, dict) else None
        if not isinstance(label, str) or not label:
            raise InputError(f"{file}: {entity}: found {about!r:.60}, expected an object with a label")
        others = about.get("alternatives") or []
        if not isinstance(others, list):
            raise InputError(f"{file}: {entity}, alternatives: found {others!r:.60}, expected a list of names")
        labels[entity] = (label, *(name for name in others if isinstance(name, str) and name))
    return labels
