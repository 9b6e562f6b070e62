"""Questions with choices as parts of a graph: pairs of concepts, the paths between them, and the sub-graph of all.

Legend of shape comments: Q questions, C choices, P pairs, N paths, L entities of the longest path, M entities of
sub-graphs, X edges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path as FilePath

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from gptcore.knowledge.config import GroundingConfig
from gptcore.knowledge.grounding import Concepts
from gptcore.knowledge.paths import Path, Ways
from gptcore.nlu.readers.rows import Example

Numbers = npt.NDArray[np.int64]
NONE = -1  # where a shorter path has no entity or relation


@dataclass(frozen=True, eq=False)
class Grounded:
    """Questions of one split; a choice is the row question * C + number."""

    pair_starts: Numbers
    """[Q*C + 1] where each choice's pairs begin."""
    pairs: Numbers
    """[P, 2] a concept of the question, one of the choice."""
    path_starts: Numbers
    """[P + 1] where each pair's paths begin."""
    path_entities: Numbers
    """[N, L], -1 where a path is shorter."""
    path_relations: Numbers
    """[N, L - 1]"""
    node_starts: Numbers
    """[Q*C + 1] where each choice's entities begin."""
    nodes: Numbers
    """[M] the entities of each choice's sub-graph, each once."""
    edge_starts: Numbers
    """[Q*C + 1]"""
    edges: Numbers
    """[X, 2] places of two entities among the choice's own, in both directions."""

    def save(self, file: FilePath) -> None:
        """Write all arrays into a local file."""
        save_file({field.name: np.ascontiguousarray(getattr(self, field.name)) for field in fields(self)}, str(file))

    @classmethod
    def load(cls, file: FilePath) -> Grounded:
        """Read what :meth:`save` wrote."""
        found = load_file(str(file))
        return cls(**{field.name: found[field.name].astype(np.int64) for field in fields(cls)})

    def paths_of(self, pair: int) -> list[tuple[list[int], list[int]]]:
        """Entities and relations of a pair's paths."""
        found = []
        for row in range(self.path_starts[pair], self.path_starts[pair + 1]):
            entities = [int(entity) for entity in self.path_entities[row] if entity != NONE]
            found.append((entities, self.path_relations[row][: len(entities) - 1].tolist()))
        return found


def ground(
    examples: Sequence[Example],
    concepts: Concepts,
    ways: Ways,
    config: GroundingConfig,
    progress: Callable[[int], object] | None = None,
) -> tuple[Grounded, dict[str, float]]:
    """Lay questions over a graph.

    :param progress: called with the number of questions done since the last call.
    :returns: the questions, and what share of them has a concept, and of right and wrong choices a path.
    """
    width = config.max_hops + 1
    parts: dict[str, list[int]] = {name: [0] for name in ("pair_starts", "path_starts", "node_starts", "edge_starts")}
    pairs: list[tuple[int, int]] = []
    entities: list[list[int]] = []
    relations: list[list[int]] = []
    nodes: list[int] = []
    edges: list[tuple[int, int]] = []
    known: dict[tuple[int, int], list[Path]] = {}
    grounded, reached = 0, {True: [0, 0], False: [0, 0]}  # of right and wrong choices: with a path, in all
    for example in examples:
        asked = concepts.entities(" ".join(example.fields))
        grounded += bool(asked)
        for number, choice in enumerate(example.choices):
            answers = concepts.answer(choice)
            mine = [entity for entity in asked if entity not in answers][: config.most_concepts]
            here = dict.fromkeys([*mine, *answers])
            found_any = False
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
                    found_any |= bool(known[key])
                    parts["path_starts"].append(len(entities))
            right = example.label is not None and number == int(example.label)
            reached[right][0] += found_any
            reached[right][1] += 1
            places = {entity: place for place, entity in enumerate(here)}
            nodes += here
            edges += [
                (place, places[neighbour])
                for entity, place in places.items()
                for neighbour in ways.neighbours(entity)
                if neighbour in places
            ]
            parts["pair_starts"].append(len(pairs))
            parts["node_starts"].append(len(nodes))
            parts["edge_starts"].append(len(edges))
        if progress is not None:
            progress(1)
    arrays = {name: np.array(values, np.int64) for name, values in parts.items()}
    made = Grounded(
        **arrays,
        pairs=np.array(pairs, np.int64).reshape(-1, 2),
        path_entities=np.array(entities, np.int64).reshape(-1, width),
        path_relations=np.array(relations, np.int64).reshape(-1, width - 1),
        nodes=np.array(nodes, np.int64),
        edges=np.array(edges, np.int64).reshape(-1, 2),
    )
    coverage = {"with_concept": grounded / max(1, len(examples)), "paths": float(len(entities))}
    coverage |= {
        f"{name}_with_path": reached[right][0] / max(1, reached[right][1])
        for name, right in (("right", True), ("wrong", False))
    }
    return made, coverage
