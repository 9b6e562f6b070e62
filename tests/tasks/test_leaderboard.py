"""Rows, averages and how the leaderboard prints."""

from __future__ import annotations

import csv
import io

import pytest

from gptcore.nlu.blimp import COLUMNS as BLIMP
from gptcore.nlu.metrics import GLUE
from gptcore.nlu.registry import COLUMNS, REGISTRY, task_spec
from tasks.report.leaderboard import Leaderboard
from tasks.report.rows import Cell, Row, published_rows
from tasks.report.score import Score, notes_on, score_of

ALL = dict.fromkeys(COLUMNS, 50.0)


def test_a_task_of_several_columns_counts_once() -> None:
    several = {"mnli_m": 80.0, "mnli_mm": 60.0, "race_m": 90.0, "race_h": 10.0, "race": 30.0}
    row = Row("x", "ours", "dev", {**ALL, **several})
    assert row.per_task["mnli"] == 70.0
    assert row.per_task["race"] == 30.0
    assert set(row.per_task) == set(REGISTRY)
    assert row.average(list(REGISTRY)) == pytest.approx((10 * 50 + 70 + 30) / 12)


def test_a_row_cut_to_some_tasks_speaks_of_these_alone() -> None:
    cells = {"mnli_m": Cell("dev", 1, 50, 50), "mnli_mm": Cell("dev", 1, 50, 50), "snli": Cell("test", 5, 50, 50)}
    row = Row("x", "ours", "dev/test", dict.fromkeys(cells, 50.0), cells, {"mnli": 50.0, "rte": 60.0})
    cut = row.only(["mnli", "rte"])
    assert (cut.split, cut.seeds) == ("dev", "1")
    assert set(cut.percent) == set(cut.cells) == {"mnli_m", "mnli_mm"}
    assert set(cut.glue_parts) == {"mnli", "rte"}
    assert (row.split, row.seeds) == ("dev/test", "1-5")


def test_an_average_is_over_the_tasks_of_all_that_was_scored_here() -> None:
    """Ours and the baselines; published rows have all twelve, and say nothing of which were asked for."""
    ours = Row("x", "ours", "dev", {"cola": 20.0, "rte": 60.0})
    floor = Row("y", "baseline", "dev", {"rte": 50.0, "mrpc": 70.0, "sst2": 90.0})
    own = Row("z", "ours", "dev", {"mine": 10.0})
    published = published_rows()
    assert Leaderboard((*published, own, floor, ours)).tasks == ["rte", "cola", "sst2", "mrpc"]
    assert Leaderboard((*published, floor)).tasks == ["rte", "sst2", "mrpc"]
    assert Leaderboard((ours, *published)).tasks == ["rte", "cola"]
    assert Leaderboard((*published,)).tasks == list(REGISTRY)
    shown = {record["suite"]: record["average"] for record in Leaderboard((ours, floor, *published)).records()}
    assert [average for suite, average in shown.items() if suite.startswith(("x", "y"))] == ["-", "-"]
    of_two = {record["suite"]: record["average"] for record in Leaderboard((ours, *published)).records()}
    assert [average for suite, average in of_two.items() if suite.startswith("x")] == ["40.0"]


def test_an_average_needs_every_task() -> None:
    row = Row("x", "ours", "dev", {"rte": 60.0, "cola": 20.0})
    assert row.average(["rte", "cola"]) == 40.0
    assert row.average(["rte", "sst2"]) is None
    assert row.average([]) is None


def test_the_papers_row_holds_tables_2_3_and_4() -> None:
    ours = published_rows()[0]
    assert ours.name == "Finetuned Transformer LM (ours) [published]"
    assert (ours.percent["snli"], ours.percent["race"], ours.percent["cola"]) == (89.9, 59.0, 45.4)
    assert set(ours.percent) == set(COLUMNS)
    assert {row.split for row in published_rows() if row.source.startswith(("Table", "GLUE"))} == {"test"}


def test_an_encoders_published_row_has_its_own_split_the_first_of_two_numbers_and_what_sets_it_apart() -> None:
    rows = {row.name.removesuffix(" [published]"): row for row in published_rows()}
    tiny, distilled, ernie = rows["TinyBERT, 4 layers"], rows["DistilBERT"], rows["ERNIE"]
    assert tiny.split == "test"
    assert [tiny.percent[name] for name in ("mnli_m", "mnli_mm", "squad")] == [82.5, 81.8, 82.1]
    assert (distilled.split, distilled.percent["mnli_m"], "mnli_mm" in distilled.percent) == ("dev", 82.1, False)
    assert (ernie.split, ernie.percent["fewrel"], ernie.source) == ("test", 88.32, "ERNIE, Zhang et al. 2019")
    assert "Spearman" in tiny.note
    assert "WNLI" in distilled.note


def board(**cells: Cell) -> Leaderboard:
    percent = {"rte": 61.25, **{column: (cell.low + cell.high) / 2 for column, cell in cells.items()}}
    return Leaderboard((*published_rows(), Row("mine", "ours", "dev", percent, cells)), ("a note",))


def with_blimp(score: float = 62.0) -> Leaderboard:
    row = Row("measured", "ours", "dev", {"rte": 60.0}, zero_shot=dict.fromkeys(BLIMP, score))
    return Leaderboard((*board().rows, row), ("a note",))


def test_zero_shot_columns_are_there_once_a_row_of_ours_has_them() -> None:
    assert board().zero_shot == []
    assert not any("blimp" in text for format in ("table", "csv", "markdown") for text in [board().render(format)])
    shown = with_blimp()
    assert shown.header == [*board().header, *BLIMP]
    records = {record["suite"]: record for record in shown.records()}
    assert (records["measured"]["blimp"], records["measured"]["blimp/binding"]) == ("62.0", "62.0")
    assert (records["mine"]["blimp"], records["BabyLM OPT-125m [published]"]["blimp/binding"]) == ("-", "67.1")
    assert records["Finetuned Transformer LM (ours) [published]"]["blimp"] == "-"
    lines = shown.render("table").splitlines()
    assert lines[0].split()[-14:] == ["glue", "blimp", *(name.removeprefix("blimp/") for name in BLIMP[1:])]
    for its, more in ((shown, BLIMP), (board(), ())):
        lines = its.render("markdown").splitlines()
        assert {line.count("|") for line in lines if line.startswith("|")} == {len(COLUMNS) + 7 + len(more)}
        assert "- a note" in lines
    assert any(note.startswith("blimp: of the checkpoint itself") for note in shown.explained())
    csv_rows = {row["suite"]: row for row in csv.DictReader(io.StringIO(shown.render("csv")))}
    assert (csv_rows["measured"]["blimp/ellipsis"], csv_rows["mine"]["blimp"]) == ("62.0", "")


def test_zero_shot_scores_are_in_no_average_and_stay_when_a_row_is_cut() -> None:
    low, high = (with_blimp(score).records()[1] for score in (10.0, 90.0))
    assert low["average"] == high["average"] == "60.0"
    assert with_blimp().tasks == ["rte"]
    (cut,) = (row for row in with_blimp().only(["rte"]).rows if row.name == "measured")
    assert set(cut.zero_shot) == set(BLIMP)


def test_babylms_rows_stand_among_the_published_with_their_note() -> None:
    shown = board().render("table")
    assert "BabyLM RoBERTa-base [published]" in shown
    assert "BabyLM OPT-125m, BabyLM RoBERTa-base: pre-trained on 10 million words" in shown
    assert "BabyLM" not in board().beside_the_paper().render("table")
    whole = Leaderboard((Row("mine", "ours", "dev", ALL), *published_rows()))
    records = {record["suite"]: record for record in whole.records()}
    its = records["BabyLM OPT-125m [published]"]
    assert [its[name] for name in ("split", "average", "sst2", "cola")] == ["dev", "-", "81.9", "-"]


def test_ours_come_first_and_published_rows_say_so() -> None:
    lines = board().render("table").splitlines()
    assert lines[0].split()[:5] == ["suite", "kind", "split", "seeds", "average"]
    assert lines[2].startswith("mine")
    assert lines[-1] == "a note"
    assert max(len(line) for line in lines[: lines.index("")]) < 230
    names = [row.name for row in published_rows()]
    assert names[0] == "Finetuned Transformer LM (ours) [published]"
    assert {"OpenAI GPT [published]", "BERT base [published]", "BERT large [published]"} <= set(names)


def test_csv_reads_back() -> None:
    cell = Cell("dev", 3, 60.0, 64.0, stderr=2.875, collapsed=1, commits=("abc", "def"))
    mine, published, *_ = csv.DictReader(io.StringIO(board(rte=cell).render("csv")))
    assert (mine["suite"], mine["seeds"], mine["rte"], mine["average"]) == ("mine", "3", "62.0", "62.0")
    found = [mine[f"rte_{what}"] for what in ("stderr", "low", "high", "seeds", "split", "collapsed")]
    assert found == ["2.88", "60.0", "64.0", "3", "dev", "1"]
    assert mine["commits"] == "abc def"
    assert mine["sst2"] == mine["sst2_stderr"] == mine["glue"] == ""
    assert published["source"] == "Table 2, Table 3, Table 4"
    assert [published[name] for name in ("kind", "seeds", "snli", "snli_low")] == ["published", "", "89.9", ""]


def test_a_cell_shows_its_standard_error_and_a_collapse() -> None:
    one, several = Cell("dev", 1, 61.25, 61.25, 2.94), Cell("dev", 5, 0.0, 24.0, 3.0, collapsed=2)
    shown = board(rte=one, cola=several)
    mine = shown.records()[0]
    assert (mine["rte"], mine["cola"], mine["sst2"]) == ("61.2±2.9", "12.0±3.0*", "-")
    assert mine["seeds"] == "1-5"
    notes = shown.explained()
    assert any(note.startswith("±: bootstrap standard error") for note in notes)
    assert any(note.startswith("*: ") and "counts in the median" in note for note in notes)
    assert "mine: medians over seeds; lowest-highest (seeds): cola 0.0-24.0 (5)" in notes


def test_nothing_is_explained_that_is_not_there() -> None:
    assert board().beside_the_paper().explained() == ["a note"]


def test_a_row_of_two_commits_says_so() -> None:
    shown = board(rte=Cell("dev", 1, 1, 1, commits=("aaa",)), cola=Cell("dev", 1, 1, 1, commits=("bbb+",)))
    assert "mine: made by 2 commits, aaa, bbb+ (+: local changes)" in shown.explained()


def test_seeds_are_a_range_where_they_differ() -> None:
    def seeds(*counts: int) -> str:
        cells = {column: Cell("dev", count, 1, 1) for column, count in zip(COLUMNS, counts, strict=False)}
        return Row("x", "ours", "dev", {}, cells).seeds

    assert (seeds(), seeds(3), seeds(3, 3), seeds(5, 1, 3)) == ("-", "3", "3", "1-5")


def test_mixed_splits_are_told_apart_by_task() -> None:
    def row(name: str, *test: str) -> Row:
        cells = {column: Cell("test" if column in test else "dev", 1, 1, 1) for column in COLUMNS}
        return Row(name, "ours", "dev/test", {**ALL}, cells)

    same = [note for note in Leaderboard((row("a", "snli"), row("b", "snli"))).explained() if "splits" in note]
    assert same == ["splits: test for snli, dev for the other tasks; published rows: test"]
    for split, theirs in (("test", "test"), ("dev", "dev where they say so, else test")):
        board = Leaderboard((row("a", "snli"), Row("p", "published", split, {**ALL})))
        assert any(note.endswith(f"published rows: {theirs}") for note in board.explained())
    first, second = (
        note for note in Leaderboard((row("a", "snli"), row("b", "race_m"))).explained() if "splits" in note
    )
    assert first.startswith("a: splits: test for snli")
    assert second.startswith("b: splits: test for race")


def test_glue_stands_only_where_its_eight_tasks_are() -> None:
    parts = dict.fromkeys(GLUE, 40.0) | {"mnli": 80.0}
    row = Row("x", "ours", "dev", ALL, glue_parts=parts)
    shown = Leaderboard((row, *published_rows()))
    assert row.glue == 45.0
    assert [record["glue"] for record in shown.records()] == ["45.0"] + ["-"] * (len(shown.ordered) - 1)
    assert any(note.startswith("glue: ") and "without WNLI" in note and "72.8" in note for note in shown.explained())
    del parts["rte"]
    assert Row("x", "ours", "dev", ALL, glue_parts=parts).glue is None


def test_a_score_prefers_the_labelled_test_split() -> None:
    results = {"dev/score": 0.5, "test/score": 0.75, "dev/accuracy": 0.5, "test/accuracy": 0.75}
    assert score_of(task_spec("snli"), 0, results) == Score("snli", 0, "test", {"snli": 75.0})
    mnli = score_of(task_spec("mnli"), 1, {"dev/score": 0.5, "dev/mnli_m": 0.25, "dev/mnli_mm": 0.75})
    assert mnli.percent == {"mnli_m": 25.0, "mnli_mm": 75.0}


def test_a_score_brings_standard_errors_glues_part_and_its_origin() -> None:
    results = {"dev/score": 0.5, "dev/f1": 0.5, "dev/accuracy": 0.75, "dev/score_stderr": 0.02}
    found = score_of(task_spec("mrpc"), 1, {**results, "majority_collapse": True}, (), {"data": "d"}, "abc")
    assert (found.percent, found.stderr, found.glue) == ({"mrpc": 50.0}, {"mrpc": 2.0}, 62.5)
    assert (found.collapsed, found.origin, found.commit) == (True, {"data": "d"}, "abc")
    parts = {f"test/{part}{what}": 0.25 for part in ("score", "race_m", "race_h", "race") for what in ("", "_stderr")}
    race = score_of(task_spec("race"), 0, {"dev/score": 0.5, "dev/score_stderr": 0.5, **parts})
    assert race.stderr == race.percent == dict.fromkeys(("race_m", "race_h", "race"), 25.0)
    assert race.glue is None


def test_notes_stand_once() -> None:
    scores = [Score("snli", 0, "test", {}, ("short",)), Score("rte", 0, "dev", {}, ("short", "long"))]
    assert notes_on(scores) == ("short", "long")


@pytest.mark.parametrize(
    ("own_settings", "said"),
    [
        ("3ad1", "x (accuracy, select dev)"),
        ("refit 3ad1", "x (accuracy, select refit)"),
        ("held-out 3ad1", "x (accuracy)"),
    ],
)
def test_how_an_own_tasks_epochs_were_chosen_is_said_where_it_is_not_the_default(own_settings: str, said: str) -> None:
    """Versions before there was a choice chose on dev rows and recorded the settings' digest alone."""
    cells = {"x": Cell("dev", 1, 20.0, 20.0, own_metric="accuracy", own_settings=own_settings)}
    board = Leaderboard((Row("y", "ours", "dev", {"x": 20.0}, cells=cells),))
    assert f"beyond the twelve, in no average: {said}" in board.explained()


def test_published_answers_stand_only_beside_ours() -> None:
    twelve = Row("x", "ours", "dev", ALL)
    cells = {"squad": Cell("dev", 1, 20.0, 20.0, own_metric="span_f1")}
    answers = Row("y", "ours", "dev", {"squad": 20.0}, cells=cells)
    without, both = (Leaderboard((*rows, *published_rows())) for rows in ([twelve], [twelve, answers]))
    assert without.own_tasks == []
    assert not any(row.name.startswith("BERT (single") for row in without.ordered)
    assert both.own_tasks == ["squad"]
    found = {record["suite"]: record["squad"] for record in both.records()}
    assert found["BERT (single model) [published]"] == "91.8"
    assert not any(name.startswith("ESIM + GloVe, SWAG") for name in found)
    assert "exact match: squad 85.1, squad2 80.0" in "".join(both.explained())
    assert both.own_metric("squad") == "F1 of words"
