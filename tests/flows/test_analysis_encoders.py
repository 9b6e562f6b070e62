"""Analyses of encoders: pre-trainings side by side, each once, with published rows beside them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.analysis import analyses, budgets
from flows.forms.checks import check_graph
from flows.forms.parameters import AnalysisParameters
from flows.knowledge.graph import mentioned
from flows.trainings.chain import Chain
from gptcore.base.errors import InputError
from gptcore.config import preset_named
from gptcore.data.mentions import Mentions
from gptcore.families import FAMILIES
from gptcore.knowledge.config import TransEConfig
from gptcore.knowledge.graph import KnowledgeGraph
from gptcore.objectives.masked import MASKED_WORDS_AND_SENTENCE_ORDER
from tasks.report.analysis import Analysis
from tasks.stages.graph import link_entities
from tasks.store.artifact import Artifact
from tasks.store.lineage import ancestor
from tasks.store.store import Store
from tests.expected import expected
from tests.flows.world import OVERRIDES, read_csv, with_blimp

pytestmark = pytest.mark.usefixtures("prefect_server")

PRETRAIN = {**OVERRIDES["pretrain"], "steps": 4}


def run(name: str, world: tuple[str, str], store: str, out: Path, **changes: Any) -> list[Analysis]:
    books, datasets = world
    settings = {**OVERRIDES, "pretrain": PRETRAIN, "scratch": False}
    given = {"corpus": books, "datasets": datasets, "store": store, "tasks": ["rte"], "jobs": 2, "out": str(out)}
    return analyses()[name].load()(AnalysisParameters(preset="demo", **{**given, "overrides": settings, **changes}))


def test_pairs_are_told_by_each_models_own_head(world: tuple[str, str], store: str, tmp_path: Path) -> None:
    assert MASKED_WORDS_AND_SENTENCE_ORDER._hiding.pairs == "sop", "what the row sop takes for ALBERT's own"
    (found,) = run("sentences", world, store, tmp_path)
    rows = read_csv(tmp_path / "sentences.csv")
    assert [(row["pairs"], row["whose"]) for row in rows[::2]] == [(name, "ours") for name in ("none", "nsp", "sop")]
    assert [row["words told"] for row in rows[1::2]] == ["54.9", "54.5", "54.0"]
    assert [row["sop told"] for row in rows[1::2]] == ["53.3", "52.0", "86.5"]
    assert all(0 <= float(row[f"{pairs} told"]) <= 100 for row in rows for pairs in ("nsp", "sop"))
    assert (rows[0]["squad"], rows[1]["squad"], rows[1]["rte"]) == ("-", "88.6/81.5", "-")
    shelf = Store(store)
    configs = [shelf.manifest(artifact)["config"]["pretrain"] for artifact in shelf.list("pretrain")]
    assert sorted(config.get("pairs", "") for config in configs) == ["", "none", "nsp"]
    assert len(shelf.list("held-out")) == 9
    run("sentences", world, store, tmp_path)
    assert len(shelf.list("pretrain")) == 3
    assert any("Synthetic" in note for note in found.notes)


def test_entities_are_left_out_in_fine_tuning_and_untold_in_pre_training(
    world: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.knowledge import graph

    monkeypatch.setattr(graph, "TransEConfig", partial(TransEConfig, steps=3, dim=8, eval_facts=5))
    books, datasets = world
    store = str(tmp_path / "store")  # what is counted below is this analysis' alone
    about = (str(Path(books).parent / "chronicle"), datasets)
    overrides = {**OVERRIDES, "pretrain": PRETRAIN, "scratch": False, "model": {**OVERRIDES["model"], "n_layer": 2}}
    given: dict[str, Any] = {"tasks": ["fewrel"], "graph": f"{datasets}/StoryGraph", "family": "ernie"}
    given |= {"overrides": overrides, "seeds": 1}
    run("entities", about, store, tmp_path, **given)
    rows = read_csv(tmp_path / "entities.csv")
    ours = [row["network"] for row in rows if row["whose"] == "ours"]
    assert ours[:5] == ["ERNIE", "without entities", "without the objective", "neither", "BERT"]
    assert [row["fewrel"] for row in rows if row["whose"] != "ours"] == ["88.32", "85.79", "85.62", "84.89"]
    shelf = Store(store)
    pretrained = [shelf.manifest(artifact) for artifact in shelf.list("pretrain")]
    starts = {manifest["inputs"].get("start", {}).get("digest") for manifest in pretrained}
    [bert] = [manifest for manifest in pretrained if manifest["config"]["model"]["family"] == "bert"]
    assert starts == {None, bert["digest"]}
    weights = [manifest["config"]["pretrain"].get("entity_weight") for manifest in pretrained]
    assert (weights.count(0), weights.count(None)) == (1, 2)
    assert all(("mentions" in manifest["inputs"]) == (manifest is not bert) for manifest in pretrained)
    unlinked = [shelf.manifest(a)["config"]["finetune"].get("unlinked", False) for a in shelf.list("finetune")]
    assert sorted(unlinked) == [False, False, False, True, True]
    [vectors] = shelf.list("vectors")
    check_graph(shelf, vectors.short, "ernie")
    with pytest.raises(InputError, match="BERT has no entities beside words; expected no graph"):
        check_graph(shelf, vectors.short, "bert")
    check_links(shelf, vectors, next(a for a in shelf.list("mentions")), Path(about[0]), tmp_path)
    with pytest.raises(InputError, match=r"pretrain.entity_weight = 2.0: the analysis compares its values"):
        run("entities", about, store, tmp_path, **{**given, "overrides": {"pretrain": {"entity_weight": 2.0}}})


def check_links(store: Store, vectors: Artifact, found: Artifact, books: Path, folder: Path) -> None:
    """A name that one document says is somebody else is so in that document alone."""
    shards = ancestor(store, found, "shards")
    graph = KnowledgeGraph.load(store.local(ancestor(store, vectors, "graph")))
    book = min(path.name for path in books.glob("*.txt"))
    said = next(line for line in (books / book).read_text().splitlines() if line.startswith("Jack "))
    name = " ".join(said.split()[:2])
    unused = f"{book}\t{'Jack and Jill ' * 12}\tQ1\nother.txt\t{name}\tQ1\n"
    (folder / "links.tsv").write_text(f"{book}\t{name}\t{graph.entities[0]}\n{unused}")
    linked = link_entities(store, shards, vectors, str(folder / "links.tsv"))
    counts = store.manifest(linked)["counts"]
    assert (counts["links"], counts["links_unused"]) == (1, 2)
    before, after = (
        Counter(
            int(entity)
            for split in ("train", "validation")
            for entity in Mentions.read(store.local(artifact) / split).entities
        )
        for artifact in (found, linked)
    )
    moved = before[graph.number(name)] - after[graph.number(name)]
    assert moved >= 1
    assert after[0] - before[0] == moved
    assert after.total() == before.total()
    (folder / "links.tsv").write_text(f"other.txt\t{name}\tQ1\n")
    with pytest.raises(InputError, match=r"found links of 1 documents, the first 'other.txt', none of them a "):
        link_entities(store, shards, vectors, str(folder / "links.tsv"))
    with pytest.raises(InputError, match="none of them a "):
        mentioned(store, "", str(folder / "links.tsv"), FAMILIES["ernie"], shards)
    (folder / "links.tsv").write_text(f"{book}\t{name}\tQ1\n{book}\t{name.upper()}\tQ2\n")
    with pytest.raises(InputError, match=rf"links.tsv, document {book}: found 'Q1' for .* which are one in the vocab"):
        mentioned(store, "", str(folder / "links.tsv"), FAMILIES["ernie"], shards)
    assert store.list("vectors") == [vectors], "refused before vectors are learnt"
    check_graph(store, "", "ernie", str(folder / "links.tsv"))
    with pytest.raises(InputError, match=r"--links .*links.tsv: GPT-1 has no entities beside words; expected no links"):
        check_graph(store, "", "gpt", str(folder / "links.tsv"))


def test_objectives_take_equal_operations_for_each_budget(
    world: tuple[str, str], store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    refused = {**OVERRIDES, "pretrain": {"repeating_steps": 1}}
    before = Store(store).list("pretrain")
    with pytest.raises(InputError, match=r"pretrain.repeating_steps = 1: BERT does not learn so"):
        run("objectives", world, store, tmp_path, overrides=refused, operations=[1e8])
    assert Store(store).list("pretrain") == before, "refused before the families that learn so are trained"
    monkeypatch.setattr(budgets, "OBJECTIVES", ("gpt",))  # with the LSTM; a family more is another chain of the same
    without = {**OVERRIDES, "pretrain": {name: value for name, value in PRETRAIN.items() if name != "steps"}}
    given: dict[str, Any] = {"overrides": without, "operations": [1e8, 2e8], "max_rows": 4}
    run("objectives", with_blimp(world, tmp_path / "datasets"), store, tmp_path, **given)
    rows = read_csv(tmp_path / "objectives.csv")
    names = ["GPT-1", "GPT-1", "LSTM", "LSTM", "bag of words"]
    assert [row["model"] for row in rows] == names
    for first, second in zip(rows[:-1:2], rows[1::2], strict=False):
        assert float(first["operations"]) == pytest.approx(1e8, rel=0.3)
        assert float(second["operations"]) == pytest.approx(2e8, rel=0.3)
        assert int(second["updates"]) > int(first["updates"])
    assert all(0 <= float(row["BLiMP"]) <= 100 for row in rows[:-1])
    assert (tmp_path / "objectives.png").is_file()
    assert "next token" in rows[0]["held-out loss"]
    with pytest.raises(InputError, match=r"pretrain.steps = 4: expected --operations"):
        run("objectives", world, store, tmp_path)
    with pytest.raises(InputError, match="compares families; expected no --family"):
        run("objectives", world, store, tmp_path, family="bert", **given)


@pytest.mark.parametrize(
    ("name", "changes", "message"), expected(__file__, "test_a_family_that_an_analysis_is_not_about_is_refused")
)
def test_a_family_that_an_analysis_is_not_about_is_refused(
    world: tuple[str, str], store: str, tmp_path: Path, name: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run(name, world, store, tmp_path, **changes)


def test_an_encoders_settings_of_hidden_words_are_not_the_lstms() -> None:

    asked: list[Any] = []
    preset = preset_named("demo", {"family": "bert"})
    chain: Any = SimpleNamespace(preset=preset, pretrain=lambda *given: asked.extend(given))
    Chain.pretrain_lstm(chain)
    assert preset.pretrain.short_length == 32
    assert asked == [preset.lstm, dataclasses.replace(preset.pretrain, short_length=None, short_share=None)]
