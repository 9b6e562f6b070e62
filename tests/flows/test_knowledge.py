"""A knowledge graph through its flow: facts, vectors, link prediction and neighbours, found again in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.forms.knowledge import KnowledgeParameters
from flows.knowledge.flow import knowledge
from gptcore.base.errors import InputError
from gptcore.base.filesystems import mark_synthetic
from gptcore.storyworld.formats import Writer
from gptcore.storyworld.knowledge import FOLDER, write_graph
from tasks.report.analysis import Analysis
from tasks.store.store import Store
from tests.flows.world import read_csv

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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"graph": "nowhere"}, "nowhere: found no folder here, expected one with train.txt"),
        ({"columns": "head,tail"}, "--columns head,tail: expected head,relation,tail in some order"),
        ({"overrides": {"pretrain": {}}}, "overrides: found pretrain, expected transe"),
        ({"overrides": {"transe": {"norm": 3}}}, "transe.norm = 3: expected 1 or 2"),
    ],
)
def test_what_is_no_graph_is_refused_before_anything_is_made(changes: dict[str, Any], message: str, store: str) -> None:
    with pytest.raises(InputError, match=message):
        KnowledgeParameters(store=store, **changes).check()


def test_an_entity_that_nobody_knows_is_named(datasets: Path, store: str) -> None:
    with pytest.raises(InputError, match="--entities: found no entity called 'Atlantis'"):
        run(graph=str(datasets / FOLDER), store=store, entities=["Atlantis"])
