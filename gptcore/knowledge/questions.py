"""Questions as KagNET takes them: their texts' vectors and their parts of a graph; and what counted in an answer.

Legend of shape comments: Q questions, C choices, S width of a text's vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gptcore.data.feed import MicroBatch
from gptcore.knowledge.grounded import NONE, Grounded
from gptcore.knowledge.kagnet import Attention
from gptcore.knowledge.paths import counts, ranges
from gptcore.nlu.examples import Example

_TOLD = 5  # paths of a choice that are told, the weightiest


@dataclass(frozen=True, eq=False)
class Questions:
    """A split's questions: their texts' vectors, their places in the graph, the right choices."""

    examples: Sequence[Example]
    texts: NDArray[np.float32]
    """[Q, C, S]"""
    scores: NDArray[np.float32]
    """[Q, C] of the text's model alone."""
    graph: Grounded

    @property
    def n_choices(self) -> int:
        return int(self.texts.shape[1])

    @property
    def labels(self) -> NDArray[np.int64]:
        """[Q]"""
        return np.array([int(example.label or 0) for example in self.examples], np.int64)

    def batch(self, chosen: NDArray[np.int64]) -> MicroBatch:
        """Some questions, as :meth:`gptcore.knowledge.kagnet.KagNET.attended` takes them, and their "labels" [Q]."""
        graph, C = self.graph, self.n_choices
        rows = (chosen[:, None] * C + np.arange(C)).ravel()  # choices
        pairs = ranges(graph.pair_starts, rows)
        paths = ranges(graph.path_starts, pairs)
        nodes, edges = ranges(graph.node_starts, rows), ranges(graph.edge_starts, rows)
        pair_choice = np.repeat(np.arange(len(rows)), counts(graph.pair_starts, rows))
        first = np.cumsum(counts(graph.node_starts, rows)) - counts(graph.node_starts, rows)  # in this batch
        edge_choice = np.repeat(np.arange(len(rows)), counts(graph.edge_starts, rows))
        path_pair = np.repeat(np.arange(len(pairs)), counts(graph.path_starts, pairs))
        places = {
            (choice, entity): first[choice] + place
            for choice, row in enumerate(rows.tolist())
            for place, entity in enumerate(graph.nodes[graph.node_starts[row] : graph.node_starts[row + 1]].tolist())
        }
        pair_nodes = [
            [places[choice, entity] for entity in both]
            for choice, both in zip(pair_choice.tolist(), graph.pairs[pairs].tolist(), strict=True)
        ]
        path_choice = pair_choice[path_pair].tolist()
        path_nodes = [
            [NONE if entity == NONE else places[choice, entity] for entity in path]
            for choice, path in zip(path_choice, graph.path_entities[paths].tolist(), strict=True)
        ]
        longest = graph.path_entities.shape[1]
        arrays = {
            "texts": self.texts[chosen].reshape(len(rows), -1),
            "nodes": graph.nodes[nodes].astype(np.int64),
            "edges": graph.edges[edges] + first[edge_choice][:, None],
            "pair_nodes": np.array(pair_nodes, np.int64).reshape(-1, 2),
            "pair_choice": pair_choice,
            "path_nodes": np.array(path_nodes, np.int64).reshape(-1, longest),
            "path_relations": graph.path_relations[paths].astype(np.int64),
            "path_pair": path_pair,
            "labels": self.labels[chosen],
        }
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def explained(
    questions: Questions, chosen: NDArray[np.int64], scores: NDArray[np.float32], attention: Attention
) -> list[dict[str, Any]]:
    """Each question's scores, and the weightiest paths of each choice with their weight: pair's times path's."""
    graph, C = questions.graph, questions.n_choices
    pair_at = path_at = 0
    lines = []
    for question, mine in zip(chosen.tolist(), scores.tolist(), strict=True):
        choices = []
        for choice in range(C):
            row = question * C + choice
            paths: list[tuple[float, list[int], list[int]]] = []
            for pair in range(graph.pair_starts[row], graph.pair_starts[row + 1]):
                of_pair = float(attention.pairs[pair_at])
                pair_at += 1
                for entities, relations in graph.paths_of(pair):
                    weight = of_pair * float(attention.paths[path_at])
                    path_at += 1
                    paths.append((weight, entities, relations))
            told = sorted(paths, key=lambda path: -path[0])[:_TOLD]
            said = [dict(zip(("weight", "entities", "relations"), path, strict=True)) for path in told]
            choices.append({"score": mine[choice], "paths": said})
        example = questions.examples[question]
        lines.append({"id": example.id, "row": example.row, "choices": choices})
    return lines
