"""KagNET: a graph's paths reasoned over to answer questions ("Knowledge-Aware Graph Networks", Lin et al. 2019).

For each choice: a graph convolution over its sub-graph, an LSTM over each path between a concept of the question and
one of the choice, attention over the paths of a pair and over the pairs, and a score of all that beside the text's
vector. Where paper and released code differ, a setting of :class:`KagNETConfig` names it, and the paper is the default.

What no setting names: the vectors stay as TransE has learnt them, where the code trains them on; against its direction
a relation has the vector of the other sign, TransE's step back, where the code has a copy that is trained apart;
attention has no bias and the LSTM's step is an edge (paper, sections 4.2 and 4.3; in the code an entity and the
relation behind it); a score is linear (code; the paper's "MLP" has no size).

Legend of shape comments: Q questions, C choices of each, B choices of a batch, M their entities, X edges, P pairs, N
paths, L entities of the longest path, S width of the text's vector, D of the graph's vectors, G of the convolution's, W
of both together, H of the LSTM's, E entities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from gptcore.data.feed import MicroBatch
from gptcore.nlu.examples import Example
from gptcore.papers.graphs.config import KagNETConfig
from gptcore.papers.graphs.graph import counts, ranges
from gptcore.papers.graphs.grounded import NONE, Grounded

_TOLD = 5  # paths of a choice that are told, the weightiest


class Attention(NamedTuple):
    """How much each part counted."""

    paths: Tensor
    """[N] of each path among those of its pair."""
    pairs: Tensor
    """[P] of each pair among those of its choice."""


class KagNET(nn.Module):
    """Scores of choices from their text's vectors and their parts of a graph.

    :param entities: vectors of the graph's entities, [E, D]; they stay as they are, as do the relations'.
    :param relations: [R, D]; against its direction a relation has the vector of the other sign.
    :param n_text: S.
    """

    def __init__(self, entities: Tensor, relations: Tensor, n_text: int, config: KagNETConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("entities", entities, persistent=False)
        self.register_buffer("relations", torch.cat([relations, -relations]), persistent=False)
        D = entities.shape[1]
        widths = (D, config.n_hidden, config.n_graph)
        G = widths[-1]
        self.neighbours = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        own = config.own_weights
        self.own = nn.ModuleList(nn.Linear(*pair, bias=False) for pair in pairwise(widths) if own)
        W = D + G
        self.paths = nn.LSTM(2 * W + D, config.n_path, batch_first=True)
        layers = []
        for width, following in pairwise((n_text + 2 * W, 2 * config.n_pair, config.n_pair)):
            layers += [nn.Linear(width, following), nn.Dropout(config.pdrop), nn.LeakyReLU()]
        self.pair = nn.Sequential(*layers)
        self.path_attention = nn.Linear(config.n_pair, config.n_path, bias=False)
        self.pair_attention = nn.Linear(n_text, config.n_pair, bias=False)
        self.score = nn.Linear(n_text + config.n_path + config.n_pair, 1)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Scores of choices: [B]. See :meth:`attended` for the batch."""
        return self.attended(batch)[0]

    def attended(self, batch: dict[str, Tensor]) -> tuple[Tensor, Attention]:
        """Scores [B], and what counted in them.

        :param batch: "texts" [B, S]; "nodes" [M] entities; "edges" [X, 2] places in M; "pair_nodes" [P, 2] places in M;
            "pair_choice" [P]; "path_nodes" [N, L] places in M, -1 behind a path's end; "path_relations" [N, L - 1];
            "path_pair" [N].
        """
        texts, n_choices, n_pairs = batch["texts"], len(batch["texts"]), len(batch["pair_choice"])
        own = self.get_buffer("entities")[batch["nodes"]]  # (M, D)
        states = torch.cat([own, self.convolved(own, batch["edges"])], dim=-1)  # (M, W)
        starts, ends = states[batch["pair_nodes"][:, 0]], states[batch["pair_nodes"][:, 1]]  # (P, W) each
        asked = texts[batch["pair_choice"]]  # (P, S)
        pairs = self.pair(torch.cat([asked, starts, ends], dim=-1))  # (P, n_pair)
        walked = self.walked(states, batch["path_nodes"], batch["path_relations"])  # (N, H)
        fits = (self.path_attention(pairs)[batch["path_pair"]] * walked).sum(-1)  # (N,)
        of_paths = softmax_in_groups(fits, batch["path_pair"], n_pairs)
        told = sums_of_groups(of_paths[:, None] * walked, batch["path_pair"], n_pairs)  # (P, H)
        of_pairs = softmax_in_groups((self.pair_attention(asked) * pairs).sum(-1), batch["pair_choice"], n_choices)
        graph = sums_of_groups(of_pairs[:, None] * torch.cat([told, pairs], dim=-1), batch["pair_choice"], n_choices)
        scores = self.score(torch.cat([texts, graph], dim=-1))[:, 0]
        return scores, Attention(of_paths, of_pairs)

    def convolved(self, states: Tensor, edges: Tensor) -> Tensor:
        """Entities' vectors with their neighbours' (equation 1): [M, D] and [X, 2] -> [M, G]."""
        start, end = edges.unbind(-1)
        degrees = sums_of_groups(states.new_ones(len(edges), 1), start, len(states))
        for number, layer in enumerate(self.neighbours):
            around = sums_of_groups(states[end], start, len(states))
            messages = layer(around / degrees.clamp_min(1.0) if self.config.mean_of_neighbours else around)
            states = torch.relu(messages + self.own[number](states) if self.config.own_weights else messages)
        return states

    def walked(self, states: Tensor, path_nodes: Tensor, path_relations: Tensor) -> Tensor:
        """The LSTM's last state of each path, an edge a step (section 4.2): [N, L] and [N, L - 1] -> [N, H]."""
        if not len(path_nodes):
            return states.new_zeros(0, self.config.n_path)
        hops = (path_nodes >= 0).sum(1) - 1  # (N,)
        there = states[path_nodes.clamp_min(0)]  # (N, L, W)
        steps = self.get_buffer("relations")[path_relations.clamp_min(0)]  # (N, L - 1, D)
        edges = torch.cat([there[:, :-1], steps, there[:, 1:]], dim=-1)
        packed = pack_padded_sequence(edges, hops.cpu(), batch_first=True, enforce_sorted=False)
        _, (last, _) = self.paths(packed)
        state: Tensor = last[0]
        return state


def sums_of_groups(values: Tensor, group: Tensor, n_groups: int) -> Tensor:
    """Rows added up by their group: [N, W] and [N] -> [n_groups, W]."""
    return values.new_zeros(n_groups, values.shape[1]).index_add(0, group, values)


def softmax_in_groups(scores: Tensor, group: Tensor, n_groups: int) -> Tensor:
    """A softmax over the members of each group: [N] and [N] -> [N]."""
    if not len(scores):
        return scores
    highest = scores.new_full((n_groups,), -torch.inf).scatter_reduce(0, group, scores.detach(), "amax")
    weights = torch.exp(scores - highest[group])
    sums = scores.new_zeros(n_groups).index_add(0, group, weights)
    return weights / sums[group]


def choice_loss(scores: Tensor, labels: Tensor, config: KagNETConfig) -> Tensor:
    """What the scores of questions cost: [Q, C] and [Q] -> the mean over questions."""
    if config.loss == "cross-entropy":
        return F.cross_entropy(scores, labels)
    likely = torch.sigmoid(scores)  # (Q, C)
    short = (config.margin - likely.gather(1, labels[:, None]) + likely).clamp_min(0.0)
    others = torch.ones_like(scores).scatter(1, labels[:, None], 0.0)
    return (short * others).sum(1).mean() / (scores.shape[1] - 1)


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
        """Some questions, as :meth:`KagNET.attended` takes them, and their "labels" [Q]."""
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
