"""Knowledge graphs: files read strictly, vectors that are learnt, ranked fairly, and resumed to the bit."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from gptcore.base.errors import InputError
from gptcore.base.files import read_json
from gptcore.machine import process
from gptcore.machine.distributed import World
from gptcore.nlu.readers import load_task
from gptcore.nlu.readers.tasks import labelled_splits
from gptcore.nlu.registry import task_spec
from gptcore.papers.graphs import train_vectors as vectors
from gptcore.papers.graphs.config import TransEConfig
from gptcore.papers.graphs.graph import KnowledgeGraph, graph_files, read_graph
from gptcore.papers.graphs.transe import (
    Facts,
    TransE,
    by_relation,
    chosen_entities,
    link_prediction,
    nearest,
    ranks,
    transe_losses,
)
from gptcore.papers.storyworld.formats import Writer
from gptcore.papers.storyworld.knowledge import FOLDER, QUESTIONS, links, reached, write_graph
from tests.expected import expected as table_of
from tests.gptcore.jobs import stopped_and_resumed, wait_for_checkpoint

ALONE = World(0, 1, torch.device("cpu"))
CONFIG = TransEConfig(
    dim=4, negatives=16, batch_size=32, steps=1500, lr=2e-2, margin=2.0, eval_every=500, checkpoint_every=250
)


def write(folder: Path, **files: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.txt").write_bytes(text.encode())
    return str(folder)


def grid(n: int = 6) -> dict[str, str]:
    """Places of a square with steps east and south: a geometry that translations can tell."""
    facts = [(f"p{x}{y}", "east_of", f"p{x + 1}{y}") for x in range(n - 1) for y in range(n)]
    facts += [(f"p{x}{y}", "south_of", f"p{x}{y + 1}") for x in range(n) for y in range(n - 1)]
    order = np.random.default_rng(0).permutation(len(facts))
    lines = ["\t".join(facts[i]) for i in order]
    return {"train": "\n".join(lines[8:]), "valid": "\n".join(lines[:4]), "test": "\n".join(lines[4:8])}


# --- files


def test_both_public_layouts_are_read(tmp_path: Path) -> None:
    plain = read_graph(write(tmp_path / "a", train="x\tr\ty\r\ny\tr\tz\r\n", test="x\ts\tz \n"))
    assert plain.entities == ("x", "y", "z")
    assert plain.relations == ("r", "s")
    assert plain.facts["train"].tolist() == [[0, 0, 1], [1, 0, 2]]
    assert plain.facts["test"].tolist() == [[0, 1, 2]]
    assert "valid" not in plain.facts
    folder = write(tmp_path / "b", train="IsA\tcat\tpet \n", dev1="IsA\tdog\tpet\t1\nIsA\tpet\tdog\t0\n", dev2="")
    net = read_graph(folder, ("relation", "head", "tail"))
    assert net.entities == ("cat", "pet", "dog")
    assert net.facts["valid"].tolist() == [[2, 0, 1]]
    assert net.n_false == 1
    assert [Path(file).name for file in graph_files(folder)] == ["train.txt", "dev1.txt", "dev2.txt"]


def test_a_graph_is_kept_as_it_is_with_what_people_call_its_entities(tmp_path: Path) -> None:
    folder = Path(write(tmp_path / "a", train="/m/1\tborn_in\t/m/2\n"))
    about = {"/m/1": {"label": "Ada", "alternatives": ["Ada L."]}, "/m/9": {"label": "nobody"}}
    (folder / "entity2wikidata.json").write_text(json.dumps(about))
    graph = read_graph(str(folder))
    assert [graph.called(0), graph.called(1)] == ["Ada", "/m/2"]
    (tmp_path / "kept").mkdir()
    graph.save(tmp_path / "kept")
    again = KnowledgeGraph.load(tmp_path / "kept")
    assert (again.entities, again.relations, again.labels) == (graph.entities, graph.relations, graph.labels)
    assert again.labels == {"/m/1": ("Ada", "Ada L.")}
    assert np.array_equal(again.facts["train"], graph.facts["train"])
    (folder / "entity2wikidata.json").write_text(json.dumps({"/m/1": {"label": "Ada", "alternatives": None}}))
    assert read_graph(str(folder)).labels == {"/m/1": ("Ada",)}
    (folder / "entity2wikidata.json").write_text(json.dumps({"/m/1": {"label": "Ada", "alternatives": "Ada L."}}))
    with pytest.raises(InputError, match=r"entity2wikidata.json: /m/1, alternatives: found 'Ada L.', expected a list"):
        read_graph(str(folder))
    (folder / "entity2wikidata.json").unlink()
    (folder / "labels.tsv").write_text("/m/2\tLondon\tLondinium\n/m/2\tthe City\n")
    assert read_graph(str(folder)).labels == {"/m/2": ("London", "Londinium", "the City")}


def test_of_entities_with_one_label_the_one_of_most_facts_is_meant() -> None:
    facts = {"train": np.array([[0, 0, 2], [1, 0, 2], [3, 0, 1], [1, 0, 4]])}
    graph = KnowledgeGraph(
        ("a", "b", "c", "d", "e"), ("r",), facts, {"a": ("Paris",), "b": ("Paris",), "d": ("paris",)}
    )
    assert graph.by_degree == [1, 2, 0, 3, 4]
    assert chosen_entities(graph, ["PARIS", "d", "c"], 1) == [1, 3, 2]
    assert chosen_entities(graph, [], 2) == [1, 2]
    with pytest.raises(InputError, match="found no entity called 'London'"):
        chosen_entities(graph, ["London"], 1)


@pytest.mark.parametrize(("text", "message"), table_of(__file__, "test_a_broken_row_names_file_line_and_column"))
def test_a_broken_row_names_file_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_graph(write(tmp_path / "graph", train=text))


def test_folders_without_facts_and_columns_of_no_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found no folder here"):
        read_graph(str(tmp_path / "none"))
    a_file = write(tmp_path / "file", train="x\tr\ty\n") + "/train.txt"
    with pytest.raises(InputError, match=r"train.txt: found a file, expected a folder with train.txt"):
        read_graph(a_file)
    (tmp_path / "folders" / "train.txt").mkdir(parents=True)
    with pytest.raises(InputError, match=r"found nothing; expected train.txt or train.tsv"):
        read_graph(str(tmp_path / "folders"))
    with pytest.raises(InputError, match=r"found test.txt; expected train.txt or train.tsv"):
        read_graph(write(tmp_path / "half", test="x\tr\ty\n"))
    rows = "".join(f"lies_in\tvillage {number}\tregion {number % 9}\n" for number in range(600))
    (tmp_path / "train.txt").write_text(rows)
    assert len(read_graph(str(tmp_path), ["relation", "head", "tail"]).relations) == 1
    with pytest.raises(
        InputError, match=r"found 600 relations between 10 entities, read as the columns head, relation, t"
    ):
        read_graph(str(tmp_path))
    with pytest.raises(InputError, match="columns: found head, tail"):
        read_graph(write(tmp_path / "half", train="x\tr\ty\n"), ("head", "tail"))
    (tmp_path / "half" / "labels.tsv").write_text("x\n")
    with pytest.raises(InputError, match=r"labels.tsv, line 1: found 'x', expected an entity and its label"):
        read_graph(str(tmp_path / "half"))


@given(st.lists(st.tuples(*[st.sampled_from("abcdef")] * 3), min_size=1, max_size=30), st.booleans())
@settings(max_examples=40)
def test_every_fact_is_there_once_whatever_the_order(
    tmp_path_factory: pytest.TempPathFactory, facts: list[tuple[str, str, str]], crlf: bool
) -> None:
    text = ("\r\n" if crlf else "\n").join("\t".join(fact) for fact in facts)
    graph = read_graph(write(tmp_path_factory.mktemp("graph"), train=text))
    named = [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.facts["train"].tolist()]
    assert named == list(dict.fromkeys(facts))


# --- questions


def asked(**changes: Any) -> dict[str, Any]:
    question = {
        "stem": "Where is it?",
        "question_concept": "it",
        "choices": [{"label": label, "text": f"in {label.lower()}"} for label in "ABCDE"],
    }
    return {"id": "q1", "answerKey": "C", "question": {**question, **changes.pop("question", {})}, **changes}


def questions(folder: Path, *rows: Any, ids: str | None = None) -> str:
    (folder / "CommonsenseQA").mkdir(parents=True, exist_ok=True)
    text = "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)
    for name in ("train_rand_split.jsonl", "dev_rand_split.jsonl"):
        (folder / "CommonsenseQA" / name).write_text(text)
    if ids is not None:
        (folder / "CommonsenseQA" / "inhouse_split_qids.txt").write_text(ids)
    return str(folder)


def test_the_in_house_split_is_cut_by_its_ids(tmp_path: Path) -> None:
    rows = [asked(id=f"q{number}") for number in range(5)]
    plain = questions(tmp_path / "plain", *rows)
    assert labelled_splits(task_spec("commonsenseqa"), plain) == ["train", "dev"]
    assert len(load_task("commonsenseqa", plain, "train")) == 5
    cut = questions(tmp_path / "cut", *rows, ids="q3\nq1\n")
    found = {split: [example.id for example in load_task("commonsenseqa", cut, split)] for split in ("train", "test")}
    assert found == {"train": ["q1", "q3"], "test": ["q0", "q2", "q4"]}
    assert len(load_task("commonsenseqa", cut, "dev")) == 5
    (example,) = load_task("commonsenseqa", cut, "train")[:1]
    assert (example.fields, example.choices[2], example.label) == (("Where is it?",), "in c", 2)


@pytest.mark.parametrize(("row", "message"), table_of(__file__, "test_a_broken_question_names_line_and_field"))
def test_a_broken_question_names_line_and_field(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_task("commonsenseqa", questions(tmp_path, row), "dev")
    with pytest.raises(InputError, match="line 2, column 'id': found 'q1' again, as in line 1"):
        load_task("commonsenseqa", questions(tmp_path, asked(), asked()), "dev")


def test_the_worlds_questions_follow_from_its_graph_alone(tmp_path: Path) -> None:
    write_graph(Writer(tmp_path, seed=3))
    graph = read_graph(str(tmp_path / FOLDER))
    names = graph.entities
    leads = links([(names[h], graph.relations[r], names[t]) for h, r, t in graph.facts["train"].tolist()])
    about: dict[str, set[str]] = {}
    for split, at_least in (("train", 400), ("dev", 150)):
        found = load_task("commonsenseqa", str(tmp_path), split)
        assert len(found) >= at_least
        for example in found:
            (stem,) = example.fields
            fitting = [each for each in QUESTIONS.items() if stem.startswith(each[1].partition("{}")[0])]
            path, form = max(fitting, key=lambda each: each[1].index("{}"))
            if not stem.endswith(form.partition("{}")[2]):
                path, form = next(each for each in fitting if stem.endswith(each[1].partition("{}")[2]))
            before, _, after = form.partition("{}")
            person = stem.removeprefix(before).removesuffix(after)
            ends = reached(leads, person, path)
            assert example.label is not None
            assert [choice in ends for choice in example.choices].index(True) == example.label
            assert sum(choice in ends for choice in example.choices) == 1
            about.setdefault(split, set()).add(person)
    assert not about["train"] & about["dev"]


# --- vectors


def model_of(graph: KnowledgeGraph, norm: int = 2, rotation: bool = False) -> TransE:
    return TransE(len(graph.entities), len(graph.relations), 8, norm, torch.Generator().manual_seed(3), rotation)


def gap(entities: torch.Tensor, relations: torch.Tensor, head: int, relation: int, tail: int) -> torch.Tensor:
    """How far a fact's tail is from where it would be; angles are half as many as an entity's numbers."""
    if len(relations[0]) == len(entities[0]):
        return entities[head] + relations[relation] - entities[tail]
    numbers = torch.complex(*entities.chunk(2, dim=1))
    turned = torch.polar(torch.ones_like(relations[relation]), relations[relation])
    return torch.view_as_real(numbers[head] * turned - numbers[tail]).flatten()


@pytest.mark.parametrize(
    ("norm", "temperature", "rotation"),
    [(1, 1.0, False), (2, 1.0, False), (2, 0.0, False), (2, 2.5, False), (2, 1.0, True)],
)
def test_the_loss_and_its_gradients_are_those_spelled_out(
    tmp_path: Path, norm: int, temperature: float, rotation: bool
) -> None:
    """No negative is a fact to learn from (RotatE's loader): some have several tails, "hub" has everything for one."""
    hub = "".join(f"hub\tall\tp{x}{y}\n" for x in range(4) for y in range(4)) + "hub\tall\thub\n"
    files = grid(4)
    graph = read_graph(write(tmp_path, **{**files, "train": f"{files['train']}\np00\teast_of\tp22\n{hub}"}))
    config = dataclasses.replace(CONFIG, norm=norm, temperature=temperature, rotation=rotation)
    model = model_of(graph, norm, rotation)
    (batch,) = Facts(graph, config, ALONE).update(5).micro_batches
    loss, _ = transe_losses(model, config, batch)
    loss.backward()
    ours = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    e, r = model.entities.weight, model.relations.weight
    known = set(map(tuple, graph.facts["train"].tolist()))
    total, n_left = torch.zeros(()), []
    for head, relation, tail in batch["facts"].tolist():
        near = F.logsigmoid(config.margin - torch.linalg.vector_norm(gap(e, r, head, relation, tail), norm))
        far = []
        for side in range(2):
            facts = [
                (head, relation, other) if side == 0 else (other, relation, tail)
                for other in batch["negatives"].tolist()
            ]
            places = [gap(e, r, *fact) for fact in facts if fact not in known]
            n_left.append(len(places))
            if places:
                distances = torch.stack([torch.linalg.vector_norm(place, norm) for place in places])
                weights = torch.softmax(-temperature * distances.detach(), 0)
                far.append((weights * F.logsigmoid(distances - config.margin)).sum())
        total = total - (near + sum(far) / 2) / 2
    assert {0, config.negatives} < set(n_left), "of some facts none is left, of others all"
    expected = total / config.batch_size
    expected.backward()
    assert float(loss) == pytest.approx(float(expected), rel=1e-4)
    for name, weight in model.named_parameters():
        assert weight.grad is not None
        torch.testing.assert_close(ours[name], weight.grad, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("rotation", [False, True])
def test_ranks_are_filtered_and_ties_fair(tmp_path: Path, rotation: bool) -> None:
    graph = read_graph(write(tmp_path, **grid(4)))
    model = model_of(graph, rotation=rotation)
    facts = graph.facts["test"]
    everything = {tuple(fact) for part in graph.facts.values() for fact in part.tolist()}
    e, r = model.entities.weight.detach().double(), model.relations.weight.detach().double()
    expected = []
    for head, relation, tail in facts.tolist():
        for side in range(2):
            own, answer = float(gap(e, r, head, relation, tail).norm()), tail if side == 0 else head
            better = 0
            for other in range(len(graph.entities)):
                fact = (head, relation, other) if side == 0 else (other, relation, tail)
                if other != answer and fact not in everything:
                    better += float(gap(e, r, *fact).norm()) < own
            expected.append(1 + better)
    assert ranks(model, graph, facts, at_once=3).flatten().tolist() == expected
    with torch.no_grad():
        model.entities.weight.zero_()
    found = ranks(model, graph, facts)
    known = [sum(f[0] == h and f[1] == r for f in everything) for h, r, _ in facts.tolist()]
    assert found[:, 0].tolist() == [1 + (len(graph.entities) - n) / 2 for n in known], "all alike: the middle rank"
    scores = link_prediction(torch.tensor([[1.0, 2.0], [4.0, 20.0]]))
    assert scores == pytest.approx({"mrr": 0.45, "mean_rank": 6.75, "hits_1": 0.25, "hits_3": 0.5, "hits_10": 0.75})


def test_first_vectors_have_length_1_and_the_nearest_point_the_same_way() -> None:
    model = TransE(5, 3, 4, 2, torch.Generator().manual_seed(3))
    for part in (model.entities, model.relations):
        torch.testing.assert_close(part.weight.norm(dim=1), torch.ones(len(part.weight)))
    assert model.entities.weight.min() < 0 < model.entities.weight.max()
    vectors = torch.tensor([[1.0, 0.0], [0.1, 0.02], [0.0, 3.0], [-5.0, 0.0], [8.0, 8.0]])
    assert nearest(vectors, 0, 3) == [1, 4, 2], "by the cosine, however long, and without itself"
    assert nearest(vectors, 3, 9) == [2, 4, 1, 0]


def test_only_a_rotation_learns_what_goes_both_ways() -> None:
    """Pairs that are spouses of each other, a few of which are known one way round: a step ranks the answer second."""
    pairs = [(2 * i, 2 * i + 1) for i in range(12)]
    turned = [(b, a) for a, b in pairs]
    both = {"train": [*pairs, *turned[4:]], "test": turned[:4]}
    facts = {split: np.array([(a, 0, b) for a, b in part]) for split, part in both.items()}
    graph = KnowledgeGraph(tuple(f"p{i}" for i in range(24)), ("spouse",), facts)
    found = {}
    for rotation in (False, True):
        model = model_of(graph, rotation=rotation)
        config = dataclasses.replace(CONFIG, rotation=rotation, steps=300)
        optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
        feed = Facts(graph, config, ALONE)
        for step in range(300):
            optimizer.zero_grad()
            transe_losses(model, config, feed.update(step).micro_batches[0])[0].backward()
            optimizer.step()
        found[rotation] = link_prediction(ranks(model, graph, graph.facts["test"]))["mrr"]
    assert found[False] <= 0.5 < found[True]


def test_facts_are_told_by_relation_and_which_are_known_turned() -> None:
    train = np.array([[0, 0, 1], [2, 1, 0], [1, 0, 2]])
    test = np.array([[1, 0, 0], [0, 1, 2], [2, 0, 1], [1, 0, 3]])
    graph = KnowledgeGraph(("a", "b", "c", "d"), ("r", "s"), {"train": train, "test": test})
    ranked = torch.tensor([[1.0, 4.0], [2.0, 10.0], [11.0, 5.0], [20.0, 2.0]])
    first, second = by_relation(graph, ranked)
    assert (first.relation, first.n_facts, first.hits_10, first.both_ways) == (0, 3, pytest.approx(4 / 6), 2 / 3)
    assert first.mrr == pytest.approx((1 + 1 / 4 + 1 / 11 + 1 / 5 + 1 / 20 + 1 / 2) / 6)
    assert (second.relation, second.n_facts, second.hits_10, second.both_ways) == (1, 1, 1.0, 1.0)
    assert second.mrr == pytest.approx(0.3)


def test_held_out_facts_are_spread_and_ranked_when_they_are_due(tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path, **grid()))
    config = dataclasses.replace(CONFIG, eval_every=400, eval_facts=3)
    monitor = vectors.RankMonitor(model_of(graph), graph, config, 1500)
    assert [step for step in range(1, 1501) if monitor.due(step)] == [400, 800, 1200, 1500]
    valid = graph.facts["valid"]
    wanted = link_prediction(ranks(model_of(graph), graph, valid[[0, 1, 3]]))
    assert monitor.evaluate(400, bool) == {f"validation/{name}": value for name, value in wanted.items()}
    nothing = dataclasses.replace(graph, facts={"train": graph.facts["train"]})
    assert not vectors.RankMonitor(model_of(graph), nothing, config, 1500).due(1500)


def job_for(folder: Path, workspace: Path, **changes: Any) -> dict[str, Any]:
    kept = folder / "kept"
    kept.mkdir(exist_ok=True)
    read_graph(write(folder / "files", **grid())).save(kept)
    settings_ = dataclasses.asdict(dataclasses.replace(CONFIG, **changes))
    return {"transe": settings_, "graph": str(kept), "workspace": str(workspace), "threads": 1}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of a run that was never stopped."""
    folder = tmp_path_factory.mktemp("straight")
    vectors.run(job_for(folder, folder / "workspace"), process.StopRequest())
    return folder / "workspace"


def same_vectors(*folders: Path) -> bool:
    ours, theirs = (load_file(folder / "vectors/model.safetensors") for folder in folders)
    return all(torch.equal(ours[name], theirs[name]) for name in ("entities", "relations"))


def test_a_job_learns_the_grid_and_a_resume_changes_no_bit(straight: Path, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    result = read_json(straight / "result.json")
    assert (result["valid/mrr"] + result["test/mrr"]) / 2 > 0.4, "east and south are steps, which places follow from"
    assert result["test/hits_10"] == 1
    stopped_and_resumed(vectors.run, job_for(tmp_path, stopped), 370, 1, 620)
    assert same_vectors(stopped, straight)


def test_kill_9_of_a_child_then_resume_is_exact(straight: Path, tmp_path: Path) -> None:
    job = job_for(tmp_path, tmp_path / "killed")
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job))
    command = [sys.executable, "-m", "gptcore.papers.graphs.train_vectors", str(path)]
    child = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
    wait_for_checkpoint(job, child)
    child.kill()
    assert child.wait() in (-signal.SIGKILL, 0)
    vectors.run(job, process.StopRequest())
    assert same_vectors(tmp_path / "killed", straight)
