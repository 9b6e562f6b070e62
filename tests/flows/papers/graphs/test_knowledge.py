"""A knowledge graph through its flow: facts, vectors, link prediction and neighbours, found again in the store."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from flows.papers.graphs.explain import explain
from flows.papers.graphs.flow import knowledge
from flows.papers.graphs.forms import KnowledgeParameters, ReasonParameters
from flows.papers.graphs.reason import reason
from gptcore.base.errors import InputError
from gptcore.base.filesystems import mark_synthetic
from gptcore.papers.graphs.graph import KnowledgeGraph
from gptcore.papers.storyworld.formats import Writer
from gptcore.papers.storyworld.knowledge import FOLDER, write_graph
from tasks.report.analysis import Analysis
from tasks.report.suites import read_leaderboard
from tasks.store.store import Store
from tests.expected import expected
from tests.flows.world import read_csv, run_pipeline

pytestmark = pytest.mark.usefixtures("prefect_server")
FEW = {"transe": {"dim": 8, "steps": 40, "batch_size": 64, "negatives": 16}}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    write_graph(Writer(folder, seed=1))
    mark_synthetic(folder, 1)
    return folder


def run(**chosen: Any) -> list[Analysis]:
    return knowledge(KnowledgeParameters(overrides=FEW, **chosen))


def test_a_graph_is_learnt_ranked_and_found_again(datasets: Path, store: str, tmp_path: Path) -> None:
    chosen = {"graph": str(datasets / FOLDER), "store": store, "out": str(tmp_path)}
    prediction, relations, neighbours = run(**chosen, entities=["Oakford", "rose"])
    rows = read_csv(tmp_path / "knowledge.csv")
    assert [row["vectors"] for row in rows] == ["TransE, 8 numbers: valid", "TransE, 8 numbers: test"]
    assert all(0 < float(row["MRR"]) <= float(row["Hits@10"]) <= 100 for row in rows)
    assert any("Synthetic" in note for note in prediction.notes)
    assert [row[0] for row in neighbours.rows] == ["Oakford", "rose"]
    assert "rose is a flower" in neighbours.rows[1][3]
    assert (tmp_path / "knowledge-neighbours.html").is_file()
    shelf = Store(store)
    counts = shelf.manifest(shelf.list("graph")[0])["counts"]
    assert counts["facts"]["valid"] == counts["facts"]["test"] == sum(counts["facts"].values()) // 20
    assert sum(int(row[1]) for row in relations.rows) == counts["facts"]["test"]
    assert relations.header[2:] == ("MRR", "Hits@10", "known turned, %")
    assert not any("those of most test facts" in note for note in relations.notes), "all of them are there"
    turned = {row[0]: float(row[4]) for row in relations.rows}
    assert turned["sibling of"] > 50
    assert turned["lives in"] == 0
    weighted = sum(int(row[1]) * float(row[2]) for row in relations.rows) / counts["facts"]["test"]
    assert weighted == pytest.approx(float(rows[1]["MRR"]), abs=0.1)
    before = {stage: len(shelf.list(stage)) for stage in ("graph", "vectors")}
    *_, most = run(**chosen)
    assert {stage: len(shelf.list(stage)) for stage in before} == before
    assert len(most.rows) == 6


@pytest.mark.parametrize(("changes", "message"), expected(__file__, "REFUSED"))
def test_what_is_no_graph_is_refused_before_anything_is_made(changes: dict[str, Any], message: str, store: str) -> None:
    with pytest.raises(InputError, match=message):
        KnowledgeParameters(store=store, **changes).check()


def test_an_entity_that_nobody_knows_is_named(datasets: Path, store: str) -> None:
    with pytest.raises(InputError, match="--entities: found no entity called 'Atlantis'"):
        run(graph=str(datasets / FOLDER), store=store, entities=["Atlantis"])


# --- KagNET: a fine-tuned model's texts, a graph's paths, scores beside the text alone, and why


SETTINGS = {
    "transe": {"dim": 8, "steps": 30, "batch_size": 64, "negatives": 16},
    "grounding": {"max_hops": 2, "least_score": 0.0},
    "kagnet": {"epochs": 1.0, "batch_size": 8},
}
ROWS = {"train": 24, "dev": 10}


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The world's graph, and some of its questions."""
    folder = tmp_path_factory.mktemp("datasets")
    write_graph(Writer(folder, seed=1))
    for split, n in ROWS.items():
        file = folder / "CommonsenseQA" / f"{split}_rand_split.jsonl"
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:n]))
    return str(folder)


@pytest.fixture(scope="module")
def chosen(world: tuple[str, str], store: str, questions: str, prefect_server: Path) -> dict[str, Any]:
    """What a form says, once a model of the questions is there."""
    run_pipeline((world[0], questions), store, tasks=["commonsenseqa"])
    return {"graph": str(Path(questions) / FOLDER), "datasets": questions, "store": store, "overrides": SETTINGS}


def test_scores_stand_beside_the_texts_alone_and_say_why(chosen: dict[str, Any], tmp_path: Path) -> None:
    found = reason(ReasonParameters(**chosen, seeds=2, questions=2, out=str(tmp_path)))
    assert [analysis.name for analysis in found] == ["kagnet", "kagnet-why-1", "kagnet-why-2"]
    rows = read_csv(tmp_path / "kagnet.csv")
    assert [row["answers by"] for row in rows[:3]] == ["the text alone", "KagNET, 2 seed(s)", "difference"]
    assert len(rows) == 3, "published scores are of the test split, which is not here"
    assert any("of the right choices" in note for note in found[0].notes)
    row = next(row for row in read_leaderboard().rows if row.name.startswith(f"KagNET on {FOLDER}, text"))
    assert row.percent["commonsenseqa"] == pytest.approx(found[0].metrics["dev/kagnet"], abs=0.1), "of two, the mean"
    assert 0 < row.cells["commonsenseqa"].stderr < 50
    shelf = Store(chosen["store"])
    (grounded,) = shelf.list("grounded")
    trained = shelf.list("kagnet")
    assert not list(shelf.local(trained[0]).glob("texts-*")), "only a job that resumes needs them"
    assert len(trained) == 2
    counts = shelf.manifest(trained[0])["counts"]
    assert counts["dev/rows"] == ROWS["dev"]
    (tuned,) = shelf.list("finetune")
    assert counts["dev/text_score"] == pytest.approx(shelf.manifest(tuned)["counts"]["dev/score"], abs=0.11)
    graph = KnowledgeGraph.load(shelf.local(shelf.list("graph")[0]))
    asked, told = (
        [json.loads(line) for line in (shelf.local(artifact) / "dev.jsonl").read_text().splitlines()]
        for artifact in (grounded, trained[0])
    )
    right = []
    for question, answer in zip(asked, told, strict=True):
        assert question["id"] == answer["id"]
        scores = [choice["score"] for choice in answer["choices"]]
        right.append(float(scores.index(max(scores)) == question["label"]))
        for choice in answer["choices"]:
            assert sum(path["weight"] for path in choice["paths"]) <= 1 + 1e-5
            for path in choice["paths"]:
                assert graph.called(path["entities"][0]) in " ".join(question["fields"])
    assert counts["dev/score"] == pytest.approx(statistics.fmean(right))
    assert counts["dev/score_stderr"] == pytest.approx(statistics.pstdev(right) / len(right) ** 0.5)
    page = (tmp_path / "kagnet-why-1.html").read_text(encoding="utf-8")
    assert "--" in page
    assert (tmp_path / "kagnet-why-1.png").is_file()
    shares = [float(row[1].removesuffix("%")) for row in found[1].rows]
    assert shares == sorted(shares, reverse=True)
    assert math.isclose(sum(shares), 100, abs_tol=3)


def test_a_question_of_ones_own_is_answered_with_the_paths_that_led_there(chosen: dict[str, Any]) -> None:
    reason(ReasonParameters(**chosen, seeds=2, questions=1))
    store = Store(chosen["store"])
    (grounded,) = store.list("grounded")
    question = json.loads((store.local(grounded) / "dev.jsonl").read_text().splitlines()[0])
    row = {"document": question["fields"][0], "answers": question["choices"]}
    (answer,) = explain(store, "commonsenseqa", [json.dumps(row).encode()])
    assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-3)
    assert list(answer["why"]) == question["choices"]
    trained = {artifact.short: store.manifest(artifact)["counts"]["dev/score"] for artifact in store.list("kagnet")}
    short, _, graph = answer["by"].partition(" on ")
    assert (trained[short], graph) == (max(trained.values()), FOLDER)
    paths = [path["path"] for paths in answer["why"].values() for path in paths]
    assert any(" --" in path for path in paths)
    with pytest.raises(InputError, match="--explain: found no KagNET for swag"):
        explain(store, "swag", [])


def test_other_vectors_have_a_row_of_their_own(chosen: dict[str, Any]) -> None:
    changed = {**SETTINGS, "transe": {**SETTINGS.get("transe", {}), "dim": 4}}
    rows = {row.suite for row in read_leaderboard().rows}
    reason(ReasonParameters(**{**chosen, "overrides": changed}, seeds=1, questions=1))
    (added,) = {row.suite for row in read_leaderboard().rows} - rows
    (shown,) = [row for row in read_leaderboard().rows if row.suite == added]
    assert shown.name.startswith(f"KagNET on {FOLDER}, text")


@pytest.mark.parametrize(("changes", "message"), expected(__file__, "test_what_cannot_be_reasoned_about_is_refused"))
def test_what_cannot_be_reasoned_about_is_refused(
    chosen: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        ReasonParameters(**{**chosen, **changes}).check()
