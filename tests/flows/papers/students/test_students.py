"""Analyses of students and of other encoders: the plans that follow from settings, the forms, the flows end to end."""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.analyses import analyses
from flows.forms.checks import check_graph
from flows.forms.parameters import AnalysisParameters, PipelineParameters, PretrainParameters
from flows.papers.analyses import budgets
from flows.papers.graphs.graph import mentioned
from flows.papers.students.checks import ablations_of, plans, students_of, teachers_form
from flows.papers.students.forms import DistillationParameters, DistilParameters, StudentsParameters
from flows.trainings.chain import Chain
from flows.trainings.grid import Arm
from gptcore.base.errors import InputError
from gptcore.config import EncoderConfig, ModelConfig, preset_named
from gptcore.config.distillation import DistilConfig, check_teacher
from gptcore.objectives.masked import MASKED_WORDS_AND_SENTENCE_ORDER
from gptcore.papers.graphs.config import TransEConfig
from gptcore.papers.graphs.graph import KnowledgeGraph
from gptcore.papers.graphs.mentions import Mentions
from tasks.papers.graphs.stages import link_entities
from tasks.report.analysis import Analysis
from tasks.store.artifact import Artifact
from tasks.store.lineage import ancestor
from tasks.store.store import Store
from tests.expected import expected
from tests.flows.world import OVERRIDES, read_csv, with_blimp

DEEPER = {**OVERRIDES, "model": {**OVERRIDES["model"], "n_layer": 2}, "scratch": False}
NOWHERE = Artifact("pretrain", "0" * 64, "/nowhere")


# --- plans, of settings alone ---


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (ModelConfig(n_layer=4, smeared_keys=True, rotary=True), [("gpt", 2), ("gpt", 1), ("gpt", 2)]),
        (ModelConfig(n_layer=2, family="gpt2"), [("gpt2", 1), ("gpt2", 1)]),
        (EncoderConfig(n_layer=12), [("distilbert", 6), ("distilbert", 3), ("tinybert", 6), ("bert", 6)]),
        (EncoderConfig(n_layer=5), [("distilbert", 2), ("distilbert", 1), ("bert", 2)]),
        (EncoderConfig(n_layer=2, family="distilbert"), [("distilbert", 1), ("tinybert", 1), ("bert", 1)]),
    ],
)
def test_a_teacher_has_students_of_its_kind(network: Any, expected: list[tuple[str, int]]) -> None:
    found = students_of(network)
    assert [(student.family, student.n_layer) for student in found] == expected
    assert [student.alone for student in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize(("depth", "half"), [(2, 1), (4, 2), (5, 1), (9, 3), (12, 6)])
def test_an_ablations_students_stand_for_equal_parts_of_the_teacher(depth: int, half: int) -> None:
    form = StudentsParameters(preset="demo")
    teacher = dataclasses.replace(preset_named("demo", {"family": "bert"}).model, n_layer=depth)
    found = plans(form, teacher, "here", ablations_of)
    assert {plan.shape.layers for plan in found} == {half}
    assert [plan.student.label for plan in found if plan.taught["taught"]] == [
        *("TinyBERT", "no attention", "no hidden states", "no embeddings")
    ]
    assert len({tuple(dataclasses.asdict(plan.distil).items()) for plan in found}) == len(found)


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_who_learns_alone_has_as_many_updates_as_the_students(family: str) -> None:
    teacher = preset_named("demo", {"family": family}).model
    found = plans(StudentsParameters(preset="demo"), teacher, "here", students_of)
    assert [plan.student.alone for plan in found] == [False, False, False, True]
    assert found[-1].shape.family == family
    assert {plan.pretrain.steps for plan in found} == {1000}


def test_settings_of_fine_tunes_that_are_taught_reach_those_alone() -> None:
    form = StudentsParameters(preset="demo", overrides={"finetune": {"layer_epochs": 7, "lr": 1e-4}})
    found = plans(form, preset_named("demo", {"family": "bert"}).model, "here", students_of)
    assert [plan.taught["layer_epochs"] for plan in found] == [None, None, 7, None]
    assert {plan.preset.finetune.lr for plan in found} == {1e-4}


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        (EncoderConfig(n_layer=1), "here: its n_layer is 1; expected 2 or more, so that a student has fewer"),
        (preset_named("demo", {"family": "electra"}).model, "here: ELECTRA has no students; expected one that has"),
        (preset_named("demo").model, "--teacher: found GPT-1, expected BERT, whose students these are"),
    ],
)
def test_nobodys_teacher_is_refused(teacher: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        plans(StudentsParameters(preset="demo"), teacher, "here", ablations_of)


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        ({"hidden_weight": 1.0, "cosine_weight": 0.0}, {"n_layer": 0}, "model.n_layer = 0: expected 1 or more, where"),
        ({}, {"words": False}, "model.words = False: DistilBERT learns words; expected True, or 0 as"),
    ],
)
def test_a_student_without_what_is_told_is_refused(config: Any, changes: Any, message: str) -> None:
    student = dataclasses.replace(preset_named("demo", {"family": "distilbert"}).model, **changes)
    teacher = dataclasses.replace(preset_named("demo", {"family": "bert"}).model)
    with pytest.raises(InputError, match=f"^{message}"):
        check_teacher(DistilConfig(**config), student, teacher, "here")


@pytest.mark.parametrize(("teacher", "fields", "message"), expected(__file__, "test_a_students_family_is_said_once"))
def test_a_students_family_is_said_once(teacher: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        DistilParameters(preset="demo", **fields).student_preset(
            "demo", preset_named("demo", {"family": teacher}).model, "abc"
        )


def test_a_students_size_may_be_a_published_one() -> None:
    teacher = preset_named("demo", {"family": "bert"}).model
    form = DistilParameters(preset="demo", family="tinybert", overrides={"shape": "tinybert-4"})
    with pytest.raises(
        InputError, match=r"its n_head is \d+, the student's 12; expected equal, or distil.attention_wei"
    ):
        form.student_preset("demo", teacher, "abc")
    found = form.student_preset("demo", dataclasses.replace(teacher, n_embd=384, n_head=12), "abc").model
    assert (found.n_layer, found.n_embd, found.n_inner) == (4, 312, 1200)  # type: ignore[union-attr]  # an encoder's


def test_a_tinyberts_students_are_taught_as_their_own_family_has_it() -> None:
    teacher = preset_named("demo", {"family": "tinybert"}).model
    form = StudentsParameters(preset="demo")
    theirs = teachers_form(form, "tinybert").chosen_preset.finetune_for("rte")
    assert theirs.taught
    for plan in plans(form, teacher, "here", students_of):
        arm = Arm(plan.student.label, NOWHERE, plan.taught, Arm("teacher", NOWHERE))
        assert arm.settings(theirs).taught == (plan.student.family == "tinybert")


def test_a_setting_of_taught_fine_tunes_is_of_all_tasks() -> None:
    form = StudentsParameters(preset="demo", overrides={"tasks": {"rte": {"layer_epochs": 5}}})
    with pytest.raises(InputError, match=r"^tasks.rte.layer_epochs: of all tasks here or of none; expected finetune"):
        plans(form, preset_named("demo", {"family": "bert"}).model, "here", students_of)


@pytest.mark.parametrize("form", [StudentsParameters, DistillationParameters])
@pytest.mark.parametrize(("fields", "message"), expected(__file__, "test_what_a_form_of_students_asks_in_vain"))
def test_what_a_form_of_students_asks_in_vain(form: Any, fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        form(preset="demo", store=str(tmp_path), **fields).check()


@pytest.mark.parametrize("form", [PipelineParameters, PretrainParameters])
def test_muon_is_not_sharded(form: Any, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^--shard: preset best has pretrain.optimizer = 'muon'; expected adam beside"
    ):
        form(preset="best", shard=True, store=str(tmp_path)).check()


@pytest.mark.parametrize("name", ["soft_weight", "cosine_weight", "word_weight", "start", "attention_weight"])
def test_an_ablation_varies_its_weights_itself(name: str, tmp_path: Path) -> None:
    given = {"start": "random"}.get(name, 0.5)
    nowhere = str(tmp_path / "nowhere")  # which is told after the settings
    form = DistillationParameters(
        preset="demo", store=str(tmp_path), corpus=nowhere, overrides={"distil": {name: given}}
    )
    with pytest.raises(InputError, match=rf"^distil.{name} = {given!r}: the analysis compares its values"):
        form.check()


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
    from flows.papers.graphs import graph

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
        mentioned(store, "", str(folder / "links.tsv"), shards)
    (folder / "links.tsv").write_text(f"{book}\t{name}\tQ1\n{book}\t{name.upper()}\tQ2\n")
    with pytest.raises(InputError, match=rf"links.tsv, document {book}: found 'Q1' for .* which are one in the vocab"):
        mentioned(store, "", str(folder / "links.tsv"), shards)
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
