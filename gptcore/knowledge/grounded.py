"""Questions with choices as parts of a graph: pairs of concepts, the paths between them, and the sub-graph of all.

Legend of shape comments: Q questions, C choices, P pairs, N paths, L entities of the longest path, M entities of
sub-graphs, X edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from gptcore.knowledge.config import GroundingConfig
from gptcore.knowledge.grounding import Concepts
from gptcore.knowledge.paths import Path, Ways
from gptcore.nlu.examples import Example

Starts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
NONE = -1  # where a shorter path has no entity or relation
_STARTS = ("pair_starts", "path_starts", "node_starts", "edge_starts")


@dataclass(frozen=True, eq=False)
class Grounded:
    """Questions of one split; a choice is the row question * C + number."""

    pair_starts: Starts
    """[Q*C + 1] where each choice's pairs begin."""
    pairs: Numbers
    """[P, 2] a concept of the question, one of the choice."""
    path_starts: Starts
    """[P + 1] where each pair's paths begin."""
    path_entities: Numbers
    """[N, L], -1 where a path is shorter."""
    path_relations: Numbers
    """[N, L - 1]"""
    node_starts: Starts
    """[Q*C + 1] where each choice's entities begin."""
    nodes: Numbers
    """[M] the entities of each choice's sub-graph, each once."""
    edge_starts: Starts
    """[Q*C + 1]"""
    edges: Numbers
    """[X, 2] places of two entities among the choice's own, in both directions."""

    def save(self, file: FilePath) -> None:
        """Write all arrays into a local file."""
        save_file({field.name: np.ascontiguousarray(getattr(self, field.name)) for field in fields(self)}, str(file))

    @classmethod
    def load(cls, file: FilePath) -> Grounded:
        """Read what :meth:`save` wrote."""
        return cls(**load_file(str(file)))

    @classmethod
    def joined(cls, parts: Sequence[Grounded]) -> Grounded:
        """The questions of all parts, one after the other."""
        found: dict[str, npt.NDArray[Any]] = {}
        for field in fields(cls):
            arrays = [getattr(part, field.name) for part in parts]
            if field.name in _STARTS:
                ends = np.cumsum([0, *(array[-1] for array in arrays)])
                arrays = [np.zeros(1, np.int64), *(a[1:] + end for a, end in zip(arrays, ends, strict=False))]
            found[field.name] = np.concatenate(arrays)
        return cls(**found)

    def paths_of(self, pair: int) -> list[tuple[list[int], list[int]]]:
        """Entities and relations of a pair's paths."""
        found = []
        for row in range(self.path_starts[pair], self.path_starts[pair + 1]):
            entities = [int(entity) for entity in self.path_entities[row] if entity != NONE]
            found.append((entities, self.path_relations[row][: len(entities) - 1].tolist()))
        return found


@dataclass(frozen=True)
class Coverage:
    """How much of some questions a graph has; sums, which add up."""

    questions: int = 0
    with_concept: int = 0
    paths: int = 0
    right: int = 0
    right_with_path: int = 0
    wrong: int = 0
    wrong_with_path: int = 0

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    @property
    def shares(self) -> dict[str, float]:
        """The number of paths; of the questions those with a concept, of right and wrong choices those with a path."""
        return {
            "with_concept": self.with_concept / max(1, self.questions),
            "paths": float(self.paths),
            "right_with_path": self.right_with_path / max(1, self.right),
            "wrong_with_path": self.wrong_with_path / max(1, self.wrong),
        }


def ground(
    examples: Sequence[Example], concepts: Concepts, ways: Ways, config: GroundingConfig
) -> tuple[Grounded, Coverage]:
    """Lay questions over a graph, and say what of them the graph has."""
    width = config.max_hops + 1
    parts: dict[str, list[int]] = {name: [0] for name in _STARTS}
    pairs: list[tuple[int, int]] = []
    entities: list[list[int]] = []
    relations: list[list[int]] = []
    nodes: list[int] = []
    edges: list[Numbers] = [np.zeros((0, 2), np.int32)]
    known: dict[tuple[int, int], list[Path]] = {}
    coverage = Coverage()
    for example in examples:
        asked = concepts.entities(" ".join(example.fields))
        coverage += Coverage(questions=1, with_concept=bool(asked))
        for number, choice in enumerate(example.choices):
            answers = concepts.answer(choice)
            mine = [entity for entity in asked if entity not in answers][: config.most_concepts]
            here = dict.fromkeys([*mine, *answers])
            before = len(entities)
            for answer in answers:
                for question in mine:
                    key = (question, answer)
                    if key not in known:
                        limits = config.max_hops, config.most_paths, config.least_score
                        known[key] = ways.between(question, answer, *limits)
                    pairs.append(key)
                    for path in known[key]:
                        here |= dict.fromkeys(path.entities)
                        entities.append([*path.entities, *[NONE] * (width - len(path.entities))])
                        relations.append([*path.relations, *[NONE] * (width - 1 - len(path.relations))])
                    parts["path_starts"].append(len(entities))
            nodes += here
            edges.append(ways.edges_among(list(here)).astype(np.int32))
            parts["pair_starts"].append(len(pairs))
            parts["node_starts"].append(len(nodes))
            parts["edge_starts"].append(parts["edge_starts"][-1] + len(edges[-1]))
            new = len(entities) - before
            if example.label is not None and number == int(example.label):
                coverage += Coverage(paths=new, right=1, right_with_path=new > 0)
            else:
                coverage += Coverage(paths=new, wrong=1, wrong_with_path=new > 0)
    made = Grounded(
        **{name: np.array(values, np.int64) for name, values in parts.items()},
        pairs=np.array(pairs, np.int32).reshape(-1, 2),
        path_entities=np.array(entities, np.int32).reshape(-1, width),
        path_relations=np.array(relations, np.int32).reshape(-1, width - 1),
        nodes=np.array(nodes, np.int32),
        edges=np.concatenate(edges),
    )
    return made, coverage
