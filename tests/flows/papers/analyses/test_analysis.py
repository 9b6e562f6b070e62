"""The paper's analyses end in tables and figures, and add to the store what they need and no more."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.image
import pytest

from flows import analyses as module
from flows.analyses import analyses
from flows.cli.main import main
from flows.forms.parameters import AnalysisParameters
from flows.papers.analyses.paper import ablations
from flows.trainings import leaderboard
from flows.trainings.grid import Arm, Grid, arms_of, grid_of
from gptcore.base.errors import InputError
from gptcore.config import FinetuneConfig, preset_named
from gptcore.evaluation.overlap import build_set, find_in_texts, overlap, wanted_hashes
from gptcore.nlu.blimp import FIELDS
from gptcore.papers.analyses.published import ABLATIONS
from gptcore.papers.prompting.tasks import evaluation_texts
from gptcore.text.parts import read_corpus
from tasks.report import analysis as analysis_report
from tasks.report.analysis import Analysis
from tasks.report.rows import Cell, Row
from tasks.report.score import ZeroShot
from tasks.store.artifact import Artifact
from tasks.store.store import Store
from tasks.tracking.tracker import Tracker
from tests.flows.test_pipeline import newest
from tests.flows.world import OVERRIDES, read_csv, with_blimp
from tests.packages import ROOT, naming
from tests.trials.scenarios import toml

pytestmark = pytest.mark.usefixtures("prefect_server")


def run(
    name: str,
    world: tuple[str, str],
    store: str,
    out: Path,
    tasks: list[str],
    family: str = "gpt",
    preset: str = "demo",
) -> list[Analysis]:
    books, datasets = world
    form = AnalysisParameters(
        preset=preset,
        corpus=books,
        datasets=datasets,
        store=store,
        tasks=tasks,
        overrides=OVERRIDES,
        jobs=2,
        max_rows=20,
        out=str(out),
        family=family,
    )
    return analyses()[name].load()(form)


def logged(name: str) -> dict[str, Any]:
    """Metrics of the newest MLflow run of an analysis."""
    return dict(Tracker().search(analysis_report.EXPERIMENT, {"analysis": name})[0].data.metrics)


def shows_something(path: Path) -> bool:
    return bool(matplotlib.image.imread(path).std() > 0.01)


def test_table_5_compares_four_models(world: tuple[str, str], store: str, tmp_path: Path) -> None:
    run("table5", world, store, tmp_path, ["rte", "sst2"])
    rows = read_csv(tmp_path / "table5.csv")
    ours = [row for row in rows if row["whose"] == "ours"]
    assert [row["method"] for row in ours] == [row.method for row in ABLATIONS]
    for row in ours:
        scores = [float(row["rte (accuracy)"]), float(row["sst2 (accuracy)"])]
        assert float(row["average"]) == pytest.approx(sum(scores) / 2, abs=0.06)
    paper = rows[1]
    assert (paper["rte (accuracy)"], paper["average"]) == ("56.0", "73.7")  # (56.0 + 91.3) / 2
    networks = [Store(store).manifest(artifact)["config"]["model"] for artifact in Store(store).list("pretrain")]
    assert sorted("n_units" in network for network in networks) == [False, True]
    assert logged("table5")["LSTM/rte"] == pytest.approx(float(ours[3]["rte (accuracy)"]), abs=0.06)


@pytest.mark.parametrize(("preset", "full"), [("demo", "pre-trained"), ("long", "pre-trained with aux LM")])
def test_table_5_has_rows_with_and_without_the_auxiliary_objective_whatever_the_preset(preset: str, full: str) -> None:
    checkpoint, lstm = Artifact("pretrain", "a", "a"), Artifact("pretrain", "b", "b")
    settings = preset_named(preset)
    arms = ablations(settings, ["rte"], checkpoint, lstm)
    assert [arm.settings(settings.finetune_for("rte")).lm_coef for arm in arms] == [0.5, 0.5, 0.0, 0.5]
    assert [arm.pretrained for arm in arms] == [True, False, True, True]
    assert [arm.checkpoint for arm in arms] == [checkpoint, checkpoint, checkpoint, lstm]
    assert arms[0].label == full
    assert len({arm.label for arm in arms}) == 4
    assert all(re.fullmatch(r"[/\w.\- :]+", arm.label) for arm in arms)  # what MLflow takes as a metric's name


def test_table_5_of_a_preset_with_the_auxiliary_objective_on_some_tasks() -> None:
    settings = preset_named("demo", {"tasks": {"rte": {"lm_coef": 0.0}}})
    arms = ablations(settings, ["rte", "sst2"], Artifact("pretrain", "a", "a"), Artifact("pretrain", "b", "b"))
    for task in ("rte", "sst2"):
        assert [arm.settings(settings.finetune_for(task)).lm_coef for arm in arms] == [0.5, 0.5, 0.0, 0.5]


def test_networks_are_compared_without_the_ngrams_that_a_preset_counts_beside_them(
    world: tuple[str, str], store: str, tmp_path: Path
) -> None:
    before = {artifact.digest for artifact in Store(store).list("finetune")}
    run("table5", world, store, tmp_path, ["sst2"], preset="best")
    run("layers", world, store, tmp_path, ["mnli"], preset="best")
    made = [artifact for artifact in Store(store).list("finetune") if artifact.digest not in before]
    assert len(made) > 4
    assert not [artifact for artifact in made if "ngrams" in Store(store).manifest(artifact)["config"]["finetune"]]
    for name, task in (("table5", "sst2"), ("layers", "mnli")):
        page = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
        assert f"n-grams beside the network: left out, as networks are compared ({task})" in page


@pytest.mark.parametrize(
    ("preset", "overrides", "compared", "scratch"),
    [
        ("best", {}, None, None),
        ("best", {"finetune": {"ngrams": 2}}, 2, 2),
        ("best", {"tasks": {"sst2": {"ngrams": 4}}}, 4, 4),
        ("best", {"finetune": {"ngrams": 0, "epochs": 2}}, None, None),
        ("demo", {}, None, None),
    ],
)
def test_ngrams_stand_beside_compared_networks_only_where_the_users_settings_ask(
    preset: str, overrides: dict[str, Any], compared: int | None, scratch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = preset_named(preset, {"scratch": True, **overrides})
    checkpoint = Artifact("pretrain", "a", "a")
    arms = [*ablations(settings, ["sst2"], checkpoint, checkpoint), Arm("0 layers", checkpoint, {"n_transfer": 0})]
    given = (Store("memory://"), settings, "", [], {}, arms, 1)
    grid = grid_of(*given, alone=True)
    assert {grid.settings["sst2"].ngrams, *(arm.settings(grid.settings["sst2"]).ngrams for arm in arms)} == {compared}
    with_words = grid_of(*given).settings["sst2"]  # of the leaderboard's row
    assert with_words == settings.finetune_for("sst2")
    monkeypatch.setattr("flows.trainings.grid.teacher_of", lambda *_: None)
    pretrained, from_scratch = arms_of(Store("memory://"), settings, checkpoint)
    assert pretrained.settings(with_words) == with_words
    assert from_scratch.settings(with_words).ngrams == scratch


def test_figure_2_left_transfers_every_number_of_layers(world: tuple[str, str], store: str, tmp_path: Path) -> None:
    before = {artifact.digest for artifact in Store(store).list("pretrain")}
    tuned = Store(store).list("finetune")
    run("layers", world, store, tmp_path, ["mnli"])
    rows = read_csv(tmp_path / "layers.csv")
    assert [(row["layers"], row["task"]) for row in rows] == [("0", "mnli"), ("1", "mnli")]
    assert all(0 <= float(row[split]) <= 100 for row in rows for split in ("dev", "train"))
    new = [artifact for artifact in Store(store).list("finetune") if artifact not in tuned]
    configs = [Store(store).manifest(artifact)["config"] for artifact in new]
    assert [c["finetune"].get("n_transfer") for c in configs if c["task"] == "mnli"].count(0) == 1
    assert {artifact.digest for artifact in Store(store).list("pretrain")} == before or not before
    assert shows_something(tmp_path / "layers.png")


def test_figure_2_right_follows_both_networks(world: tuple[str, str], store: str, tmp_path: Path) -> None:
    run("zero-shot", world, store, tmp_path, ["rte"])
    rows = read_csv(tmp_path / "zero-shot.csv")
    traced = [row["updates"] for row in rows if (row["model"], row["task"]) == ("LSTM", "sst2")]
    assert traced == ["1", "2", "3", "6"]
    assert {row["task"] for row in rows} == {"cola", "sst2", "race", "dprd", "mean"}
    sst2 = next(row for row in rows if row["task"] == "sst2")
    assert float(sst2["relative"]) == pytest.approx((float(sst2["score"]) - 50) / (93.2 - 50), abs=2e-3)
    assert shows_something(tmp_path / "zero-shot.png")
    assert not (tmp_path / "blimp.csv").exists()
    before = len(Store(store).list("zero-shot"))
    run("zero-shot", world, store, tmp_path, ["rte"])
    assert len(Store(store).list("zero-shot")) == before == 8


def test_learning_curves_follow_the_models_kept_on_the_way(world: tuple[str, str], store: str, tmp_path: Path) -> None:
    run("learning", world, store, tmp_path, ["rte", "sst2"])
    *rows, words = read_csv(tmp_path / "learning.csv")
    tokens = 4 * 32  # an update
    assert [float(row["M tokens"]) for row in rows] == [step * tokens / 1e6 for step in (1, 2, 3, 6)]
    assert sum(name.startswith("rte/after ") for name in logged("learning")) == 4
    minutes = [float(row["minutes"].replace(",", "")) for row in rows]
    assert minutes == sorted(minutes)
    assert words["M tokens"] == "bag of words"
    for row in (*rows, words):
        assert float(row["average"]) == pytest.approx((float(row["rte"]) + float(row["sst2"])) / 2, abs=0.11)
    configs = [Store(store).manifest(artifact)["config"]["finetune"] for artifact in Store(store).list("finetune")]
    assert {config.get("snapshot") for config in configs} >= {1, 2, 3, None}
    assert shows_something(tmp_path / "learning.png")


def test_blimp_follows_both_networks_with_the_ngrams_beside_them(
    world: tuple[str, str], store: str, tmp_path: Path
) -> None:
    world = with_blimp(world, tmp_path / "datasets")
    heuristics, blimp = run("zero-shot", world, store, tmp_path, ["rte"])
    assert (heuristics.name, blimp.name) == ("zero-shot", "blimp")
    assert "blimp" not in {row[1] for row in heuristics.rows}
    rows = read_csv(tmp_path / "blimp.csv")
    assert {row["field"] for row in rows} == {"mean of the fields", *FIELDS}
    for model, updates in {"LSTM": ["1", "2", "3", "6"], "Transformer": ["1", "2", "3", "6"], "trigram": ["-"]}.items():
        assert [row["updates"] for row in rows if (row["model"], row["field"]) == (model, "binding")] == updates
    last = {row["field"]: float(row["accuracy"]) for row in rows if (row["model"], row["updates"]) == ("LSTM", "6")}
    assert last.pop("mean of the fields") == pytest.approx(sum(last.values()) / 12, abs=0.1)
    assert logged("blimp")["LSTM/binding"] == pytest.approx(last["binding"], abs=0.06)
    assert shows_something(tmp_path / "blimp.png")
    page = (tmp_path / "blimp.md").read_text(encoding="utf-8")
    assert "as BabyLM reports it" in page
    assert len(Store(store).list("blimp")) == 4 + 4 + 3
    run("zero-shot", world, store, tmp_path, ["rte"])
    assert len(Store(store).list("blimp")) == 4 + 4 + 3


def test_tables_stand_under_the_published_rows(world: tuple[str, str], store: str, tmp_path: Path) -> None:
    run("tables", world, store, tmp_path, ["rte", "sst2", "qnli"])
    counts = {(row["dataset"], row["split"]): row for row in read_csv(tmp_path / "table1.csv")}
    assert counts["rte", "train"]["rows published"] == "2,490"
    table2 = read_csv(tmp_path / "table2.csv")
    assert table2[0]["method"] == "ESIM + ELMo (5x)"
    assert table2[-1]["method"].startswith("gptmill pre-trained")
    assert float(table2[-1]["rte"]) > 0
    assert table2[-1]["snli"] == "-"
    page = (tmp_path / "table2.md").read_text(encoding="utf-8")
    assert "Synthetic data" in page
    assert "version 2" not in page  # that note is about the real QNLI
    assert (tmp_path / "table4.md").read_text(encoding="utf-8").startswith("# Table 4")


def test_an_analysis_of_tasks_that_it_is_not_about_is_refused(
    world: tuple[str, str], store: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="none of mnli, race"):
        run("layers", world, store, tmp_path, ["sst2"])


def test_blimp_on_a_row_is_that_of_the_model_it_starts_from(monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    checkpoint = Artifact("pretrain", "0" * 64, f"{store}/pretrain/{'0' * 64}")
    changes: list[dict[str, Any]] = [{"snapshot": 64}, {"n_transfer": 0}, {}, {"pretrained": False}]
    arms = [Arm(str(number), checkpoint, changed) for number, changed in enumerate(changes)]
    monkeypatch.setattr(leaderboard, "has_blimp", lambda _url: True)
    monkeypatch.setattr(
        leaderboard, "kept_blimp", lambda _store, _checkpoint, _url, step: ZeroShot({f"after {step}": 60.0})
    )

    def found(*configs: FinetuneConfig) -> list[Any]:
        settings = dict(zip(("rte", "sst2"), configs, strict=True))
        kept = [leaderboard._zero_shot(Grid(Store(store), "data", [], {}, arms, settings), arm) for arm in arms]
        return [each and next(iter(each.percent), "") for each in kept]

    plain, kept, cut = FinetuneConfig(), FinetuneConfig(snapshot=16), FinetuneConfig(n_transfer=0)
    assert found(plain, plain) == ["after 64", None, "after None", None]
    assert found(kept, kept) == ["after 64", None, "after 16", None]
    assert found(plain, kept) == ["after 64", None, None, None], "not all from one model"
    assert found(plain, cut) == [None] * 4, "by the settings, whatever the arm changes"

    def incomplete(*_: object) -> None:
        raise InputError("data/BLiMP/a.jsonl: found nothing there")

    monkeypatch.setattr(leaderboard, "kept_blimp", incomplete)  # no fine-tune reads these files
    assert found(plain, plain) == ["", None, "", None], "no column"


def test_figure_2_left_is_on_dev_rows_where_test_rows_have_labels_too() -> None:
    from flows.papers.analyses import paper

    scores = {"0": 0.3, "1": 0.5, "2": 0.4}
    counts = {seed: {"counts": {"dev/score": score, "test/score": 0.9}} for seed, score in scores.items()}
    chain: Any = SimpleNamespace(store=SimpleNamespace(manifest=lambda seed: counts[seed]))
    arm = Arm("all layers", Artifact("pretrain", "a", "a"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper, "_tuned", lambda _chain, _task, _arm, seed: str(seed))
        cell = Cell("test", 3, 80.0, 90.0)
        tested = Row("row", "ours", "test", {"race": 90.0, "race_m": 90.0, "race_h": 90.0}, {"race": cell})
        assert paper._dev_score(chain, "race", arm, tested) == 40.0
        dev = Row("row", "ours", "dev", {"race": 31.0}, {"race": Cell("dev", 3, 30.0, 32.0)})
        assert paper._dev_score(chain, "race", arm, dev) == 31.0


def test_overlap_is_that_of_the_corpus_and_trains_nothing(
    world: tuple[str, str], store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.papers.prompting.overlap._SMALL_TO_SEARCH", 0)  # in processes of its own
    before = {stage: len(Store(store).list(stage)) for stage in ("pretrain", "tokenizer")}
    (whole,) = run("overlap", world, store, tmp_path, [])
    (table,) = (found for found in newest("analysis-overlap")[1] if found["key"] == "analysis-overlap-table")
    assert [tuple(row) for row in json.loads(table["data"])] == [whole.header] * len(whole.rows)
    assert {stage: len(Store(store).list(stage)) for stage in ("pretrain", "tokenizer")} == before
    rows = {row["test set"]: row for row in read_csv(tmp_path / "overlap.csv")}
    assert {"snli dev", "snli test", "rte dev", "lambada", "cbt-ne", "dprd", "squad", "recall"} <= set(rows)
    assert any(float(row["in the corpus, %"]) > 0 for row in rows.values())
    assert rows["rte dev"]["in its own train rows, %"] != "-"
    assert rows["lambada"]["in its own train rows, %"] == "-"
    assert any("Synthetic" in note for note in whole.notes)
    shelf = Store(store)
    (built,) = shelf.list("overlap")
    digest = shelf.manifest(built)["inputs"]["corpus"]["digest"]
    folder = shelf.local(next(corpus for corpus in shelf.list("corpus") if corpus.digest == digest))
    test = build_set("made", next(e for e in evaluation_texts(world[1]) if e.name == "snli dev").rows())
    wanted = wanted_hashes([test])
    training = find_in_texts(wanted, (rows for _, rows in read_corpus(folder, "train")))
    assert shelf.manifest(built)["counts"]["sets"]["snli dev"]["corpus"] == asdict(overlap(test, wanted, training))
    (few,) = run("overlap", world, store, tmp_path, ["rte"])
    assert [row[0] for row in few.rows] == ["rte dev"]
    assert list(few.rows[0]) == list(next(row for row in whole.rows if row[0] == "rte dev"))


def test_an_analysis_costs_two_files_that_are_there() -> None:
    """Beside its own file a table of analyses, and the deployments that are made from it."""
    assert naming("toy_analysis", "pieces of the books") == []
    named = {str(path.relative_to(ROOT)) for path in naming(r"flows\.papers\.prompting\.overlap", "analysis-overlap")}
    assert named == {"flows/papers/prompting/plugin.toml", "flows/papers/prompting/overlap.py"}
    assert "flows.papers.prompting.overlap.overlap" in (ROOT / "prefect.yaml").read_text(encoding="utf-8")


def test_an_analysis_of_another_package_goes_the_whole_way(
    world: tuple[str, str], store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """An analysis is one file: the command line offers it, runs its flow with the common form, prints its table."""

    points = [EntryPoint("pieces", "tests.toy_analysis.pieces:pieces", module.ENTRY_POINTS)]
    monkeypatch.setattr(module, "entry_points", lambda group: points)
    (tmp_path / "settings.toml").write_text(toml(OVERRIDES), encoding="utf-8")
    books, datasets = world
    chain = ["--corpus", books, "--datasets", datasets, "--store", store, "--tasks", "rte"]
    settings = ["--config", str(tmp_path / "settings.toml"), "--out", str(tmp_path / "out")]
    assert main(["analysis", "pieces", *chain, *settings]) == 0
    printed = capsys.readouterr().out
    assert "# Pieces of the books" in printed
    assert [row["split"] for row in read_csv(tmp_path / "out" / "pieces.csv")] == ["train", "validation"]
    with pytest.raises(SystemExit):
        main(["analysis", "--help"])
    assert "pieces" in capsys.readouterr().out
