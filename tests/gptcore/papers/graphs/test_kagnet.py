"""KagNET: concepts found in texts, paths of a graph, the network beside plain twins, and its job."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gptcore.nlu.examples import Example
from gptcore.papers.graphs.config import GroundingConfig, KagNETConfig
from gptcore.papers.graphs.graph import KnowledgeGraph
from gptcore.papers.graphs.grounded import Concepts, Coverage, Grounded, Mention, Ways, bases, ground, shares
from gptcore.papers.graphs.kagnet import KagNET, Questions, choice_loss, explained, softmax_in_groups
from gptcore.papers.graphs.train_kagnet import kagnet_losses
from tests.expected import expected as table_of

FACTS = table_of(__file__, "FACTS")
S, C = 6, 3
CONFIG = KagNETConfig(n_hidden=7, n_graph=5, n_path=8, n_pair=6)


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    entities = tuple(dict.fromkeys(name for head, _, tail in FACTS for name in (head, tail)))
    relations = tuple(dict.fromkeys(relation for _, relation, _ in FACTS))
    rows = [(entities.index(h), relations.index(r), entities.index(t)) for h, r, t in FACTS]
    return KnowledgeGraph(entities, relations, {"train": np.array(rows, np.int64)}, {"cat": ("cat", "house cat")})


@pytest.fixture(scope="module")
def vectors(graph: KnowledgeGraph) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(5)
    sizes = (len(graph.entities), len(graph.relations))
    entities, relations = (draws.normal(size=(size, 4)).astype(np.float32) for size in sizes)
    return entities, relations


@pytest.fixture(scope="module")
def ways(graph: KnowledgeGraph, vectors: tuple[np.ndarray, np.ndarray]) -> Ways:
    return Ways(graph, *vectors)


# --- concepts


def test_mentions_know_endings_stop_words_and_the_shortest_of_what_overlaps(graph: KnowledgeGraph) -> None:
    concepts = Concepts(graph)
    names = graph.entities

    def found(text: str) -> list[str]:
        return [names[entity] for entity in concepts.entities(text)]

    assert found("The dogs chased some cats; it was a house-cat.") == ["dog", "cat"]
    assert found("They play on ice.") == ["ice"], "the shortest of the two that overlap"
    assert found("Hockey!") == ["hockey"]
    assert found("nothing of that") == []
    assert [names[entity] for entity in concepts.answer("play on ice")] == ["play_on_ice"], "an answer as a whole first"
    assert [names[entity] for entity in concepts.answer("a cat, some ice")] == ["cat", "ice"]
    ends = KnowledgeGraph(("red_car", "car_wash", "Cars"), ("r",), {"train": np.array([[0, 0, 1], [1, 0, 1]])})
    assert Concepts(ends).entities("red car wash") == [2], "the shortest"
    two = KnowledgeGraph(("red_car", "car_wash"), ("r",), {"train": np.array([[0, 0, 1], [1, 0, 1]])})
    assert Concepts(two).entities("a red car wash") == [0], "of equals the first"
    one = KnowledgeGraph(
        ("a", "b"), ("r",), {"train": np.array([[0, 0, 1], [1, 0, 1]])}, dict.fromkeys("ab", ("boat",))
    )
    assert Concepts(one).entities("two boats") == [1], "of a name's entities the one that most facts tell of"
    assert concepts.mentions("Mice? A mouse's cheese")[0] == Mention(2, 3, names.index("mouse"))


@pytest.mark.parametrize(
    ("word", "base"),
    [("stories", "story"), ("knives", "knif"), ("boxes", "box"), ("running", "run"), ("loved", "love"), ("men", "man")],
)
def test_bases_follow_the_rules_of_detachment(word: str, base: str) -> None:
    assert base in bases(word) or word == "men"  # too short for a rule
    assert (bases(word)[0], bases("cars"), bases("bus")) == (word, ["cars", "car"], ["bus"]), "three letters at least"


# --- paths


def test_paths_are_all_simple_walks_in_both_directions_shortest_first(graph: KnowledgeGraph, ways: Ways) -> None:
    names, n = graph.entities, len(graph.relations)
    edges: dict[tuple[int, int], set[int]] = {}
    for head, relation, tail in graph.facts["train"].tolist():
        edges.setdefault((head, tail), set()).add(relation)
        edges.setdefault((tail, head), set()).add(relation + n)
    for start, goal in itertools.permutations(range(len(names)), 2):
        found = ways.between(start, goal, 4, 1000)
        assert [len(path.relations) for path in found] == sorted(len(path.relations) for path in found)
        expected = {
            (start, *middle, goal)
            for hops in range(4)
            for middle in itertools.permutations(set(range(len(names))) - {start, goal}, hops)
            if all(pair in edges for pair in itertools.pairwise((start, *middle, goal)))
        }
        assert {path.entities for path in found} == expected
        assert len(found) == len(expected)
        for path in found:
            steps = itertools.pairwise(path.entities)
            assert all(r in edges[pair] for r, pair in zip(path.relations, steps, strict=True))
        assert ways.between(start, goal, 4, 1000, 0.2) == [path for path in found if path.score >= 0.2]
    assert ways.between(0, 0, 4, 10) == []
    dog, cheese = names.index("dog"), names.index("cheese")
    first, *_ = every = ways.between(dog, cheese, 4, 1000)
    assert ways.between(dog, cheese, 4, 2) == every[:2]
    likely = [path for path in every if path.score >= 0.11]
    assert [round(path.score, 2) for path in every] == [0.33, 0.39, 0.10, 0.12]
    assert ways.between(dog, cheese, 4, 3, 0.11) == likely == [first, every[1], every[3]], "pruned, then counted"


def test_a_path_is_as_likely_as_its_edges_and_the_likeliest_relation_stands(
    graph: KnowledgeGraph, ways: Ways, vectors: tuple[np.ndarray, np.ndarray]
) -> None:
    entities, relations = vectors

    def likely(head: str, relation: str, tail: str) -> float:
        h, r, t = graph.entities.index(head), graph.relations.index(relation), graph.entities.index(tail)
        step = entities[t] - entities[h]
        lengths = np.linalg.norm(step) * np.linalg.norm(relations[r])
        return float((1 + step @ relations[r] / lengths) / 2)

    both = {name: likely("cat", name, "mouse") for name in ("chases", "eats")}
    best = max(both, key=lambda name: both[name])
    (path,) = ways.between(graph.entities.index("cat"), graph.entities.index("mouse"), 1, 10)
    assert path.relations == (graph.relations.index(best),)
    assert path.score == pytest.approx(both[best], rel=1e-5)
    back = ways.between(graph.entities.index("mouse"), graph.entities.index("animal"), 2, 10)[0]
    assert back.relations[0] == graph.relations.index(best) + len(graph.relations)
    assert back.score == pytest.approx(both[best] * likely("cat", "is_a", "animal"), rel=1e-5)


def test_an_entity_with_too_many_neighbours_leads_nowhere(
    graph: KnowledgeGraph, vectors: tuple[np.ndarray, np.ndarray]
) -> None:
    narrow = Ways(graph, *vectors, most_neighbours=2)
    dog, cheese = (graph.entities.index(name) for name in ("dog", "cheese"))
    assert narrow.between(dog, cheese, 4, 10) == [], "all of them come by the cat"
    assert narrow.between(graph.entities.index("cat"), cheese, 1, 10), "but it may be an end"
    assert Ways(graph, *vectors, most_neighbours=4).between(dog, cheese, 2, 10), "it has four"
    assert not Ways(graph, *vectors, most_neighbours=3).between(dog, cheese, 4, 10)


# --- questions


@pytest.fixture(scope="module")
def questions(graph: KnowledgeGraph, ways: Ways) -> Questions:
    rows = [
        ("What do dogs and cats like?", ("cheese", "ice", "the bone"), 0.0),
        ("Who plays?", ("hockey", "a cat", "nobody"), 1.0),
        ("What does a mouse live in?", ("the wood", "cheese", "hockey"), 0.0),
    ]
    examples = [
        Example((text,), choices, label, "", f"r{n}", id=str(n)) for n, (text, choices, label) in enumerate(rows)
    ]
    found, coverage = ground(examples, Concepts(graph), ways, GroundingConfig(least_score=0.0))
    assert shares(coverage)["with_concept"] == pytest.approx(2 / 3)
    assert shares(coverage)["right_with_path"] == pytest.approx(2 / 3)
    texts = np.random.default_rng(1).normal(size=(3, C, S)).astype(np.float32)
    return Questions(examples, texts, np.zeros((3, C), np.float32), found)


def test_questions_laid_over_a_graph_in_parts_are_the_whole(graph: KnowledgeGraph, ways: Ways) -> None:
    texts = ["What do dogs and cats like?", "nobody knows", "What does a mouse live in?", "Do cats chase?"]
    examples = [Example((text,), ("cheese", "ice", "the bone"), 0.0, "", text, id=text) for text in texts]
    concepts, config = Concepts(graph), GroundingConfig(least_score=0.0)
    whole, coverage = ground(examples, concepts, ways, config)
    parts = [ground(some, concepts, ways, config) for some in (examples[:1], examples[1:2], examples[2:])]
    joined = Grounded.joined([part for part, _ in parts])
    assert sum((covered for _, covered in parts), Coverage()) == coverage
    for field in dataclasses.fields(Grounded):
        assert np.array_equal(getattr(joined, field.name), getattr(whole, field.name)), field.name
    assert len(whole.pairs)
    assert len(whole.edges)


@pytest.mark.parametrize(("question", "choice", "hops", "nodes", "edges"), table_of(__file__, "SUB_GRAPHS"))
def test_a_sub_graph_has_the_edges_of_paths_and_those_within_question_and_choice(
    graph: KnowledgeGraph, ways: Ways, question: str, choice: str, hops: int, nodes: str, edges: list[str]
) -> None:
    """Dog and mouse lead to the wood; dog and cat are neighbours, but no path that is kept has their edge."""
    example = Example((question,), ("bone ice", choice), 0.0, "", "r0", id="0")
    config = GroundingConfig(max_hops=hops, least_score=0.0, most_paths=1)
    found, _ = ground([example], Concepts(graph), ways, config)
    names = [graph.entities[node] for node in found.nodes[found.node_starts[1] :]]
    assert names == nodes.split()
    pairs = [(names[start], names[end]) for start, end in found.edges[found.edge_starts[1] :].tolist()]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {pair for edge in edges for pair in (tuple(edge.split()), tuple(reversed(edge.split())))}


def test_only_so_many_concepts_and_words_are_looked_for(graph: KnowledgeGraph, ways: Ways) -> None:
    text = ("cat dog animal mouse bone wood ice hockey",)
    config = GroundingConfig(max_hops=1, least_score=0.0, most_concepts=3)
    found, _ = ground([Example(text, ("cheese", "cat"), 0.0, "", "", id="")], Concepts(graph), ways, config)
    starts = [[graph.entities[start] for start in found.pairs[first:last, 0]] for first, last in ((0, 3), (3, 6))]
    assert starts == [["cat", "dog", "animal"], ["dog", "animal", "mouse"]], "the first three that are not the choice's"
    names = ("one_two_three_four_five", "a_b_c_d_e_f", "x")
    long = Concepts(KnowledgeGraph(names, ("r",), {"train": np.array([[0, 0, 1], [1, 0, 2]])}))
    assert long.entities("a b c d e f, one two three four five") == [0], "of five words, not of six"
    assert [long.answer(text) for text in ("a b c d e f", "one two three four five")] == [[], [0]]


def test_edges_are_those_of_the_facts_among_some_entities(graph: KnowledgeGraph, ways: Ways) -> None:
    facts = {(head, tail) for head, _, tail in graph.facts["train"].tolist() if head != tail}
    for chosen in (range(len(graph.entities)), [3, 0, 5], [2], []):
        there = list(chosen)
        found = [(there[start], there[end]) for start, end in ways.edges_among(there).tolist()]
        assert len(found) == len(set(found))
        assert set(found) == {pair for a, b in facts for pair in ((a, b), (b, a)) if {a, b} <= set(there)}


@pytest.fixture
def network(vectors: tuple[np.ndarray, np.ndarray]) -> KagNET:
    torch.manual_seed(0)
    entities, relations = map(torch.from_numpy, vectors)
    return KagNET(entities, relations, S, CONFIG).eval()


def plain_score(
    network: KagNET, questions: Questions, vectors: tuple[np.ndarray, np.ndarray], question: int, choice: int
) -> Tensor:
    """One choice's score, spelled out."""
    config, graph, row = network.config, questions.graph, question * C + choice
    text = torch.from_numpy(questions.texts[question, choice])
    nodes = graph.nodes[graph.node_starts[row] : graph.node_starts[row + 1]].tolist()
    edges = graph.edges[graph.edge_starts[row] : graph.edge_starts[row + 1]].tolist()
    entities, forwards = map(torch.from_numpy, vectors)
    relations = [*forwards, *(-relation for relation in forwards)]
    states = [entities[node] for node in nodes]
    for number, layer in enumerate(network.neighbours):
        following = []
        for place, state in enumerate(states):
            near = [states[end] for start, end in edges if start == place]
            total = sum(near, torch.zeros_like(state))
            value = layer(total / max(1, len(near)) if config.mean_of_neighbours else total)
            following.append(torch.relu(value + network.own[number](state) if config.own_weights else value))
        states = following
    both_vectors = [torch.cat([entities[node], state]) for node, state in zip(nodes, states, strict=True)]
    vector = dict(zip(nodes, both_vectors, strict=True))
    pairs, told, fits = [], [], []
    for pair in range(graph.pair_starts[row], graph.pair_starts[row + 1]):
        start, end = graph.pairs[pair].tolist()
        both = torch.cat([text, vector[start], vector[end]])
        for layer in (part for part in network.pair if isinstance(part, torch.nn.Linear)):
            both = F.leaky_relu(layer(both), 0.01)
        walked, weights = [], []
        for nodes_of, steps in graph.paths_of(pair):
            edges_of = [
                torch.cat([vector[a], relations[step], vector[b]])
                for a, step, b in zip(nodes_of, steps, nodes_of[1:], strict=False)  # the last entity starts no edge
            ]
            _, (last, _) = network.paths(torch.stack(edges_of)[None])
            walked.append(last[0, 0])
            weights.append(network.path_attention(both) @ last[0, 0])
        alpha = torch.softmax(torch.stack(weights), 0) if walked else []
        told.append(sum((a * w for a, w in zip(alpha, walked, strict=True)), torch.zeros(config.n_path)))
        pairs.append(both)
        fits.append(network.pair_attention(text) @ both)
    whole = torch.zeros(config.n_path + config.n_pair)
    if pairs:
        beta = torch.softmax(torch.stack(fits), 0)
        whole = sum((b * torch.cat([t, p]) for b, t, p in zip(beta, told, pairs, strict=True)), whole)
    found: Tensor = network.score(torch.cat([text, whole]))[0]
    return found


@pytest.mark.parametrize(
    "changes",
    [{}, {"own_weights": False}, {"mean_of_neighbours": False}, {"own_weights": False, "mean_of_neighbours": False}],
    ids=["paper", "no own weights", "sums", "released"],
)
def test_the_network_is_its_plain_twin(
    changes: dict[str, Any], vectors: tuple[np.ndarray, np.ndarray], questions: Questions
) -> None:
    torch.manual_seed(0)
    entities, relations = map(torch.from_numpy, vectors)
    network = KagNET(entities, relations, S, dataclasses.replace(CONFIG, **changes)).eval()
    batch = questions.batch(np.array([2, 0, 1]))
    found, attention = network.attended(batch)
    expected = torch.stack([plain_score(network, questions, vectors, q, c) for q in (2, 0, 1) for c in range(C)])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    sums = torch.zeros(len(found)).index_add(0, batch["pair_choice"], attention.pairs)
    assert set(sums.round(decimals=4).tolist()) <= {0.0, 1.0}
    found.sum().backward()
    ours = {name: part.grad.clone() for name, part in network.named_parameters() if part.grad is not None}
    network.zero_grad()
    expected.sum().backward()
    for name, part in network.named_parameters():
        if part.grad is not None:
            torch.testing.assert_close(ours[name], part.grad, atol=1e-4, rtol=1e-3)


def test_entities_are_convolved_on_the_device_that_they_are_on(network: KagNET) -> None:
    """The meta device stands for a GPU: what is made on the way must not be on the CPU."""
    states, edges = torch.zeros(3, 4, device="meta"), torch.tensor([[0, 1], [1, 0]], device="meta")
    assert copy.deepcopy(network).to("meta").convolved(states, edges).is_meta


def test_a_question_scores_the_same_whatever_stands_beside_it(network: KagNET, questions: Questions) -> None:
    together = network(questions.batch(np.array([0, 1, 2])))
    alone = torch.cat([network(questions.batch(np.array([number]))) for number in range(3)])
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-5)


def test_the_five_weightiest_paths_are_told_with_the_product_of_both_attentions(
    network: KagNET, questions: Questions, graph: KnowledgeGraph
) -> None:
    chosen = np.array([2, 0])
    scores, attention = network.attended(questions.batch(chosen))
    lines = explained(questions, chosen, scores.view(2, C).detach().numpy(), attention)
    assert [(line["id"], line["row"]) for line in lines] == [("2", "r2"), ("0", "r0")]
    grounded, pair_at, path_at, most = questions.graph, 0, 0, 0
    for line, question in zip(lines, (2, 0), strict=True):
        for choice, told in enumerate(line["choices"]):
            assert told["score"] == float(scores.view(2, C)[list(chosen).index(question), choice])
            wanted = []
            for pair in range(*grounded.pair_starts[[question * C + choice, question * C + choice + 1]]):
                for entities, relations in grounded.paths_of(pair):
                    weight = float(attention.pairs[pair_at]) * float(attention.paths[path_at])
                    wanted.append({"weight": weight, "entities": entities, "relations": relations})
                    path_at += 1
                pair_at += 1
            most = max(most, len(wanted))
            assert told["paths"] == sorted(wanted, key=lambda path: path["weight"], reverse=True)[:5]
    assert most > 5


def test_losses_are_those_of_their_names() -> None:
    scores, labels = torch.tensor([[1.0, 0.9, 3.0], [2.0, 0.0, 1.0]]), torch.tensor([0, 0])
    assert choice_loss(scores, labels, CONFIG) == F.cross_entropy(scores, labels)
    margin = choice_loss(scores, labels, dataclasses.replace(CONFIG, loss="margin"))
    # sigmoids: .731 .711 .953 and .881 .5 .731, so that .2 - .731 + .711 = .180, .2 - .731 + .953 = .422, .050
    assert float(margin) == pytest.approx((0.1799 + 0.4215 + 0.0 + 0.0503) / 2 / 2, abs=1e-4)
    weights = softmax_in_groups(torch.tensor([1.0, 2.0, 300.0]), torch.tensor([0, 0, 2]), 3)
    torch.testing.assert_close(weights[:2], torch.softmax(torch.tensor([1.0, 2.0]), 0))
    assert weights[2] == 1


def test_it_learns_what_the_paths_tell(network: KagNET, questions: Questions) -> None:
    network.train()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    batch = questions.batch(np.arange(3))
    for _ in range(120):
        optimizer.zero_grad()
        loss, metrics = kagnet_losses(network, C, batch)
        loss.backward()
        optimizer.step()
    assert float(metrics["accuracy"]) == 1


def test_what_was_grounded_is_kept_as_it_is(questions: Questions, tmp_path: Path) -> None:
    questions.graph.save(tmp_path / "dev.safetensors")
    again = Grounded.load(tmp_path / "dev.safetensors")
    for field in dataclasses.fields(Grounded):
        assert np.array_equal(getattr(again, field.name), getattr(questions.graph, field.name))
