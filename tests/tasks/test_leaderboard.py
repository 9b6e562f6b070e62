"""Rows, averages and how the leaderboard prints."""

from __future__ import annotations

import csv
import io

import pytest

from gptcore.nlu.registry import COLUMNS, REGISTRY
from tasks.leaderboard import Leaderboard, Row, published_rows
from tasks.score import Score, score_of
from tasks.suites import Suite, notes_on, row_of

ALL = dict.fromkeys(COLUMNS, 50.0)


def test_a_task_of_several_columns_counts_once() -> None:
    row = Row(
        "x", "ours", "dev", {**ALL, "mnli_m": 80.0, "mnli_mm": 60.0, "race_m": 90.0, "race_h": 10.0, "race": 30.0}
    )
    assert row.per_task["mnli"] == 70.0
    assert row.per_task["race"] == 30.0
    assert set(row.per_task) == set(REGISTRY)
    assert row.average(list(REGISTRY)) == pytest.approx((10 * 50 + 70 + 30) / 12)


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
    assert all(row.split == "test" for row in published_rows())


def board() -> Leaderboard:
    return Leaderboard((*published_rows(), Row("mine", "ours", "dev", {"rte": 61.25}, seeds=3)), ("a note",))


def test_ours_come_first_and_published_rows_say_so() -> None:
    lines = board().render("table").splitlines()
    assert lines[0].split()[:5] == ["suite", "kind", "split", "seeds", "average"]
    assert lines[2].startswith("mine")
    assert lines[-1] == "a note"
    assert max(map(len, lines[:-2])) < 230


def test_csv_reads_back() -> None:
    rows = list(csv.DictReader(io.StringIO(board().render("csv"))))
    assert rows[0]["suite"] == "mine"
    assert rows[0]["rte"] == "61.2"
    assert rows[0]["average"] == "61.2"
    assert rows[0]["sst2"] == "-"
    assert rows[0]["seeds"] == "3"


def test_markdown_has_one_cell_a_column() -> None:
    lines = board().render("markdown").splitlines()
    assert {line.count("|") for line in lines if line.startswith("|")} == {len(COLUMNS) + 6}
    assert "- a note" in lines


def test_the_row_of_a_suite_is_the_median_over_seeds() -> None:
    suite = Suite("pre-trained", "ours", {"checkpoint": "c"})
    scores = [Score("rte", seed, "dev", {"rte": value}) for seed, value in enumerate((50.0, 90.0, 60.0))]
    row = row_of(suite, [*scores, Score("snli", 0, "test", {"snli": 80.0})])
    assert row.percent == {"rte": 60.0, "snli": 80.0}
    assert row.split == "dev/test"
    assert row.seeds == 1


def test_suites_differ_by_whatever_they_are_made_of() -> None:
    names = {Suite("a", "ours", {"data": data, "settings": lr}).digest for data in ("d", "e") for lr in (1, 2)}
    assert len(names) == 4


def test_a_score_prefers_the_labelled_test_split() -> None:
    results = {"dev/score": 0.5, "test/score": 0.75, "dev/accuracy": 0.5, "test/accuracy": 0.75}
    assert score_of("snli", 0, results) == Score("snli", 0, "test", {"snli": 75.0})
    mnli = score_of("mnli", 1, {"dev/score": 0.5, "dev/mnli_m": 0.25, "dev/mnli_mm": 0.75})
    assert mnli.percent == {"mnli_m": 25.0, "mnli_mm": 75.0}


def test_notes_stand_once_and_name_the_test_splits() -> None:
    scores = [Score("snli", 0, "test", {}, ("short",)), Score("rte", 0, "dev", {}, ("short",))]
    first, *rest = notes_on(scores)
    assert "test for snli" in first
    assert rest == ["short"]
