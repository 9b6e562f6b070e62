"""KagNET through its flow: a fine-tuned model's texts, a graph's paths, scores beside the text alone, and why."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from flows.forms.knowledge import ReasonParameters
from flows.inference import explain
from flows.knowledge.reason import reason
from gptcore.base.errors import InputError
from gptcore.knowledge.graph import KnowledgeGraph
from gptcore.storyworld.formats import Writer
from gptcore.storyworld.knowledge import FOLDER, write_graph
from tasks.report.suites import read_leaderboard
from tasks.store.store import Store
from tests.flows.world import read_csv, run_pipeline

pytestmark = pytest.mark.usefixtures("prefect_server")
FEW = {
    "transe": {"dim": 8, "steps": 30, "batch_size": 64, "negatives": 16},
    "grounding": {"max_hops": 2, "least_score": 0.0},
    "kagnet": {"epochs": 1.0, "batch_size": 8},
}
ROWS = {"train": 24, "dev": 10}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The world's graph, and some of its questions."""
    folder = tmp_path_factory.mktemp("datasets")
    write_graph(Writer(folder, seed=1))
    for split, n in ROWS.items():
        file = folder / "CommonsenseQA" / f"{split}_rand_split.jsonl"
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:n]))
    return str(folder)


@pytest.fixture(scope="module")
def chosen(world: tuple[str, str], store: str, datasets: str, prefect_server: Path) -> dict[str, Any]:
    """What a form says, once a model of the questions is there."""
    run_pipeline((world[0], datasets), store, tasks=["commonsenseqa"])
    return {"graph": str(Path(datasets) / FOLDER), "datasets": datasets, "store": store, "overrides": FEW}


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
    for question, answer in zip(asked, told, strict=True):
        assert question["id"] == answer["id"]
        for choice in answer["choices"]:
            assert sum(path["weight"] for path in choice["paths"]) <= 1 + 1e-5
            for path in choice["paths"]:
                assert graph.called(path["entities"][0]) in " ".join(question["fields"])
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

    changed = {**FEW, "transe": {**FEW.get("transe", {}), "dim": 4}}
    rows = {row.suite for row in read_leaderboard().rows}
    reason(ReasonParameters(**{**chosen, "overrides": changed}, seeds=1, questions=1))
    (added,) = {row.suite for row in read_leaderboard().rows} - rows
    (shown,) = [row for row in read_leaderboard().rows if row.suite == added]
    assert shown.name.startswith(f"KagNET on {FOLDER}, text")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "rte"}, "--task rte: found the form pair, expected a task with choices"),
        ({"task": "swag"}, "found no model for swag"),
        ({"overrides": {"kagnet": {"loss": "hinge"}}}, "kagnet.loss = 'hinge'"),
        ({"overrides": {"finetune": {}}}, "overrides: found finetune, expected transe, grounding, kagnet"),
    ],
)
def test_what_cannot_be_reasoned_about_is_refused(
    chosen: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        ReasonParameters(**{**chosen, **changes}).check()
