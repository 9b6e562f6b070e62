"""What shares a row, what is refused, and what MLflow keeps of it."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gptcore.base.errors import InputError
from gptcore.nlu.metrics import GLUE
from tasks.report.differences import told_apart
from tasks.report.leaderboard import Leaderboard
from tasks.report.result_card import contenders
from tasks.report.rows import Row, label_of
from tasks.report.score import Score, commit_of, finetune_origin, zero_shot_of
from tasks.report.suites import (
    EXPERIMENT,
    PUBLISHED_EXPERIMENT,
    Suite,
    check_origin,
    kept_leaderboard,
    open_suite,
    read_leaderboard,
    record_published,
    record_row,
    row_of,
)
from tasks.tracking.tracker import Tracker
from tests.expected import expected

ORIGIN = {"checkpoint": "c1", "tokenizer": "t1", "data": "d-rte", "code": {"finetune": 1, "dataset": 1}}


def suite(label: str = "pre-trained", **changes: Any) -> Suite:
    data = {"rte": "d-rte", "mrpc": "d-mrpc", "snli": "d-snli"} | {task: f"d-{task}" for task in GLUE}
    return Suite(label, "ours", {**ORIGIN, "data": data, "settings": {}, **changes})


def made(task: str, percent: float, seed: int = 0, **changes: Any) -> Score:
    whole = {"split": "dev", "origin": {**ORIGIN, "data": f"d-{task}"}, "commit": "abc", **changes}
    return Score(task=task, seed=seed, percent={task: percent}, **whole)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One state folder for this file: creating MLflow's tables takes seconds."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPTMILL_HOME", str(folder))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield folder


@pytest.fixture(scope="module")
def tracker(home: Path) -> Tracker:
    return Tracker()


def record(tracker: Tracker, of: Suite, *scores: Score) -> Row:
    with open_suite(tracker, of) as run:
        return record_row(run, row_of(of, scores))


@pytest.mark.parametrize(
    ("select", "name", "chosen_on"),
    [("held-out", "rows", "held-out"), ("refit", "rows, select refit", "refit"), (None, "rows, select dev", "dev")],
)
def test_a_row_says_how_epochs_were_chosen_where_it_is_not_the_default(tracker, select, name, chosen_on):
    """Without a word on it older versions did: on dev rows."""
    settings = {"epochs": 3, **({"select": select} if select else {})}
    row = record(tracker, suite("rows", settings={"rte": settings}), made("rte", 80.0))
    assert (label_of(row), row.chosen_on) == (name, chosen_on)
    board = read_leaderboard(tracker)
    assert [found.chosen_on for found in board.rows if found.suite == row.suite] == [chosen_on]
    assert any(row.name in note and "epochs chosen on " in note for note in board.explained())


def test_a_row_of_generated_data_says_so_here_and_in_mlflow(tracker):
    of = suite("generated")
    row = record(tracker, of, made("rte", 80.0, synthetic=True), made("mrpc", 70.0, synthetic=True))
    assert row.split == "dev, synthetic"
    assert [found.split for found in read_leaderboard(tracker).rows if found.suite == of.digest] == ["dev, synthetic"]
    assert record(tracker, suite("real"), made("rte", 80.0)).split == "dev"


def test_suites_differ_by_whatever_they_are_made_of() -> None:
    names = {Suite("a", "ours", {"data": data, "settings": lr}).digest for data in ("d", "e") for lr in (1, 2)}
    assert len(names) == 4


def test_a_row_is_the_median_over_seeds_and_keeps_what_is_behind_it() -> None:
    runs = [
        made("rte", percent, seed, stderr={"rte": stderr}, collapsed=percent == 50, commit=commit)
        for seed, (percent, stderr, commit) in enumerate(((50.0, 3.0, "a"), (90.0, 1.0, "b"), (60.0, 2.0, "a")))
    ]
    row = row_of(suite(), [*runs, made("snli", 80.0, split="test")])
    assert row.percent == {"rte": 60.0, "snli": 80.0}
    assert (row.split, row.seeds, row.commits) == ("dev/test", "1-3", ["a", "abc", "b"])
    cell = row.cells["rte"]
    assert (cell.seeds, cell.low, cell.high, cell.stderr, cell.collapsed) == (3, 50.0, 90.0, 2.0, 1)
    assert (cell.split, row.cells["snli"].split, row.cells["snli"].stderr) == ("dev", "test", None)


def test_glues_parts_are_medians_of_the_seeds_too() -> None:
    seeds = [made("rte", 50.0, seed, glue=part) for seed, part in enumerate((20.0, 90.0, 25.0))]
    row = row_of(suite(), [*seeds, made("mrpc", 80.0, glue=85.0), made("mrpc", 60.0, 1, glue=65.0)])
    assert row.glue_parts == {"rte": 25.0, "mrpc": 75.0}
    assert (row.cells["mrpc"].low, row.cells["mrpc"].high, row.percent["mrpc"]) == (60.0, 80.0, 70.0)


def test_what_stands_behind_a_cell_is_a_median_of_the_seeds_that_have_it() -> None:
    errors, networks = (2.0, 9.0, 3.0), (40.0, 70.0, 44.0)
    runs = [made("rte", 60.0, seed, stderr={"rte": errors[seed]}, network={"rte": networks[seed]}) for seed in range(3)]
    cell = row_of(suite(), [*runs, made("rte", 61.0, 3)]).cells["rte"]
    assert (cell.seeds, cell.stderr, cell.network) == (4, 3.0, 44.0)
    assert row_of(suite(), [made("rte", 61.0)]).cells["rte"].network is None


def test_a_row_says_on_average_what_network_and_n_grams_reach_apart(tracker: Tracker) -> None:
    of, data = suite("counting"), {"rte": "d-rte", "mrpc": "d-mrpc"}
    runs = [made("rte", 60.0, seed, network={"rte": 50.0 + seed}) for seed in range(3)]
    record(tracker, of, *runs, made("mrpc", 80.0, network={"mrpc": 70.0}))
    words = Suite("words and n-grams alone", "baseline", {"data": data, "code": 1})
    record(tracker, words, *(made(task, 64.0, origin={"data": f"d-{task}", "code": 1}) for task in data))
    board = read_leaderboard(tracker)
    (row,) = (row for row in board.rows if row.suite == of.digest)
    assert row.cells["rte"].network == 51.0
    both = "the network alone 60.5, words and n-grams alone 64.0, both 70.0"
    assert board.only(["rte", "mrpc"]).apart(row) == f"on average: {both}"
    assert board.only(["rte"]).apart(row.only(["rte"])).startswith("the network alone 51.0, ")
    assert f"{row.name}, on average: {both}" in board.only(["rte", "mrpc"]).explained()
    floor = board.floor_of(row, "rte")
    assert floor is not None
    assert (floor.percent["rte"], floor.floors["rte"]) == (64.0, "words and n-grams alone")
    assert not any(board.apart(other) for other in board.rows if other.suite != of.digest)


@pytest.mark.parametrize(("part", "other", "message"), expected(__file__, "test_a_cell_of_other_digests_is_refused"))
def test_a_cell_of_other_digests_is_refused(part: str, other: Any, message: str) -> None:
    foreign = made("rte", 50.0, origin={**ORIGIN, part: other})
    with pytest.raises(InputError) as refused:
        row_of(suite(), [made("rte", 60.0), foreign])
    assert str(refused.value).startswith(f"leaderboard row {suite().name}: rte: {message}")


def test_a_task_that_the_row_is_not_about_is_refused() -> None:
    with pytest.raises(InputError, match="race: made from the data d-race, expected None"):
        row_of(suite(), [made("race", 60.0)])


def test_data_and_tokenizer_can_be_checked_before_anything_is_trained() -> None:
    known = {"data": "d-rte", "tokenizer": "t1"}
    check_origin(suite(), "rte", known, ("data", "tokenizer"))
    with pytest.raises(InputError, match="tokenizer t9, expected t1"):
        check_origin(suite(), "rte", {**known, "tokenizer": "t9"}, ("data", "tokenizer"))


def test_the_origin_is_read_off_the_manifests() -> None:
    dataset = {"inputs": {"files": {"digest": "d-rte"}}, "counts": {"tokenizer_digest": "t1"}, "version": 1}
    finetune = {"inputs": {"checkpoint": {"digest": "c1"}, "dataset": {"digest": "x"}}, "version": 1}
    assert finetune_origin(finetune, dataset) == ORIGIN
    scratch = {**finetune, "inputs": {"dataset": {"digest": "x"}}}
    assert "checkpoint" not in finetune_origin(scratch, dataset)
    code = {"package": "0.1.0", "git": "0123456789abcdef", "dirty": True}
    assert commit_of({"code": code}) == "0123456789ab+"
    assert commit_of({"code": {**code, "git": None}}) == "gptmill-0.1.0"


def test_cells_of_several_flows_come_together_in_one_row(tracker: Tracker) -> None:
    of = suite("together")
    record(tracker, of, made("rte", 50.0, 0, collapsed=True), made("rte", 60.0, 1, stderr={"rte": 2.5}))
    whole = record(tracker, of, made("snli", 80.0, split="test", commit="def"))
    assert whole.percent == {"snli": 80.0, "rte": 55.0}
    assert (whole.split, whole.seeds, whole.commits) == ("dev/test", "1-2", ["abc", "def"])
    (kept,) = (row for row in read_leaderboard(tracker).rows if row.suite == of.digest)
    assert kept == whole
    (run,) = tracker.search(EXPERIMENT, {"suite": of.digest})
    tags = {name: run.data.tags[name] for name in ("split", "seeds", "git_commits", "collapsed")}
    assert tags == {"split": "dev/test", "seeds": "1-2", "git_commits": "abc def", "collapsed": "rte 1 of 2"}
    assert run.data.metrics["rte/stderr"] == 2.5


def test_glues_average_is_there_once_its_tasks_are(tracker: Tracker) -> None:
    of, (last, *others) = suite("glue"), GLUE
    whole = record(tracker, of, *(made(task, 50.0, glue=40.0) for task in others))
    assert whole.glue is None
    whole = record(tracker, of, made(last, 50.0, glue=80.0))
    assert whole.glue == 45.0
    (run,) = tracker.search(EXPERIMENT, {"suite": of.digest})
    assert run.data.metrics["glue"] == 45.0


def test_a_row_of_another_suite_is_refused(tracker: Tracker) -> None:
    first, second = suite("first"), suite("second")
    with open_suite(tracker, first) as run, pytest.raises(InputError) as refused:
        record_row(run, row_of(second, [made("rte", 50.0)]))
    assert first.digest in str(refused.value)
    assert second.digest in str(refused.value)


def test_a_number_of_more_seeds_stays(tracker: Tracker) -> None:
    """An analysis of one seed fills the pipeline's own row again."""
    of = suite("five")
    record(tracker, of, *(made("rte", 50.0 + seed, seed, glue=50.0 + seed) for seed in range(5)))
    fresh = record(tracker, of, made("rte", 90.0, glue=90.0, split="test"), made("snli", 70.0, split="test"))
    assert fresh.percent == {"snli": 70.0, "rte": 90.0}, "the caller's own table is of its own runs"
    assert (fresh.seeds, fresh.split, fresh.glue_parts["rte"]) == ("1", "test", 90.0)
    (kept,) = (row for row in read_leaderboard(tracker).rows if row.suite == of.digest)
    assert kept.percent == {"snli": 70.0, "rte": 52.0}
    assert (kept.split, kept.cells["rte"].seeds, kept.glue_parts["rte"]) == ("dev/test", 5, 52.0)
    more = record(tracker, of, *(made("rte", 60.0 + seed, seed) for seed in range(6)))
    assert more.percent["rte"] == 62.5
    (kept,) = (row for row in read_leaderboard(tracker).rows if row.suite == of.digest)
    assert kept.percent["rte"] == 62.5


def test_a_rank_is_among_rows_scored_on_the_same_rows(tracker: Tracker) -> None:
    data, scores = {"rte": "d-ranked"}, {}
    for label, most, score in (("whole", None, 60.0), ("again", None, 70.0), ("few rows", 64, 90.0)):
        settings = {"rte": {"max_eval_rows": most, "lr": 1e-3}}
        scores[label] = suite(label, data=data, settings=settings)
        record(tracker, scores[label], made("rte", score, origin={**ORIGIN, "data": "d-ranked"}))
    ranked = contenders(tracker, "rte", "d-ranked", scores["whole"].digest)
    assert [(item.row.name, item.rank) for item in ranked] == [(scores["again"].name, 1), (scores["whole"].name, 2)]
    assert [item.rank for item in contenders(tracker, "rte", "d-ranked", scores["few rows"].digest)] == [1]


def test_a_published_row_that_was_wrong_is_put_right(tracker: Tracker) -> None:
    record_published(tracker)
    right = {run.info.run_name: run for run in tracker.search(PUBLISHED_EXPERIMENT, {"kind": "published"})}
    wrong, other = right["ESIM + ELMo (5x) [published]"], right["CAFE (5x) [published]"]
    tracker.client.log_metric(wrong.info.run_id, "snli", 12.3)
    tracker.client.set_tag(other.info.run_id, "table", "another")
    record_published(tracker)
    found = {run.info.run_name: run for run in tracker.search(PUBLISHED_EXPERIMENT, {"kind": "published"})}
    assert found.keys() == right.keys()
    assert found[wrong.info.run_name].data.metrics["snli"] == 89.3
    assert found[other.info.run_name].data.tags["table"] == "Table 2"
    same = [name for name in right if found[name].info.run_id == right[name].info.run_id]
    assert len(same) == len(right) - 2


def test_published_rows_stand_once(tracker: Tracker) -> None:
    record_published(tracker)
    before = tracker.search(PUBLISHED_EXPERIMENT, {"kind": "published"})
    record_published(tracker)
    assert len(tracker.search(PUBLISHED_EXPERIMENT, {})) == len(before) > 20
    assert tracker.search(EXPERIMENT, {"kind": "published"}) == []
    assert all(run.data.tags["table"] for run in before)
    found = {run.info.run_name.removesuffix(" [published]"): run.data for run in before}
    others = sorted(name for name, data in found.items() if data.tags["split"] != "test")
    assert others == expected(__file__, "test_published_rows_stand_once")
    metrics = found["BabyLM OPT-125m"].metrics
    assert (metrics["blimp"], metrics["blimp/island_effects"], metrics["sst2"]) == (62.6, 48.6, 81.9)
    assert "average" not in metrics


def test_a_row_has_the_zero_shot_scores_of_its_checkpoint(tracker: Tracker) -> None:
    of, measured = suite("measured"), zero_shot_of("ab" * 32, {"score": 0.62345, "fields": {"binding": 0.5}})
    with open_suite(tracker, of) as run:
        row = record_row(run, row_of(of, [made("rte", 50.0)]), measured)
    assert row.zero_shot == {"blimp": 62.3, "blimp/binding": 50.0}
    (kept,) = (found for found in read_leaderboard(tracker).rows if found.suite == of.digest)
    assert kept == row
    (logged,) = tracker.search(EXPERIMENT, {"suite": of.digest})
    assert logged.data.tags["zero_shot_digest"] == "ab" * 32
    assert logged.data.metrics["blimp"] == 62.3
    assert record(tracker, of, made("mrpc", 60.0)).zero_shot == row.zero_shot  # a later flow that measured nothing
    assert record(tracker, suite("unmeasured"), made("rte", 50.0)).zero_shot == {}


def test_the_same_score_again_changes_nothing(tracker: Tracker) -> None:
    of = suite("again")
    assert record(tracker, of, made("rte", 50.0)) == record(tracker, of, made("rte", 50.0))
    better = dataclasses.replace(made("rte", 50.0), percent={"rte": 70.0})
    assert record(tracker, of, better).percent == {"rte": 70.0}


def test_kept_rows_are_those_of_mlflow_until_it_changes(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tracker, suite("kept"), made("rte", 61.5))
    assert kept_leaderboard(tracker)[0] == read_leaderboard(tracker)
    with monkeypatch.context() as patch:
        patch.setattr("tasks.report.suites.read_rows", lambda _: pytest.fail("MLflow was asked"))
        kept = kept_leaderboard(Tracker())
    assert kept[0] == read_leaderboard(tracker)
    assert kept[1] == "MLflow: `gptmill up` opens its pages"
    record(tracker, suite("kept"), made("rte", 70.5))
    (row,) = [row for row in kept_leaderboard(tracker)[0].rows if row.name == suite("kept").name]
    assert row.percent == {"rte": 70.5}


def test_a_broken_file_of_kept_rows_is_written_anew(tracker: Tracker, home: Path) -> None:
    kept_leaderboard(tracker)
    (home / "leaderboard.json").write_text("{", encoding="utf-8")
    assert kept_leaderboard(tracker)[0] == read_leaderboard(tracker)


def test_rows_of_one_checkpoint_say_in_what_their_settings_differ() -> None:
    """From the usual value of the rows of the same label and checkpoint; of equals from the older one's."""

    def params(checkpoint: str = "a" * 64, **changes: str) -> dict[str, str]:
        usual = {
            f"{task}.{name}": value for task in ("rte", "sst2") for name, value in (("lr", "0.0005"), ("epochs", "3"))
        }
        settings = {f"settings.{name}": value for name, value in {**usual, **changes}.items()}
        return {"checkpoint": checkpoint, "tokenizer": "t", **settings}

    paper = {"rte.lr": "6.25e-05", "sst2.lr": "6.25e-05", "rte.epochs": "1", "sst2.from_task": "mnli"}
    rows = [params(), params(**paper), params(), params("b" * 64, **paper)]
    assert told_apart([("pre-trained", row) for row in rows]) == [
        "",
        "lr 6.25e-5, 1 epoch (rte), from mnli (sst2)",
        "",
        "",
    ]
    older = params(**{"rte.max_train_rows": "100", "sst2.max_train_rows": "100"}), params()
    assert told_apart([("pre-trained", row) for row in older]) == ["100 rows", ""]
    assert told_apart([("pre-trained", row) for row in reversed(older)]) == ["all rows", ""]
    many = params(**{f"{task}.{name}": "1" for task in ("rte", "sst2") for name in ("lr", "warmup", "seed", "epochs")})
    assert told_apart([("a", many), ("b", params()), ("a", params())])[:2] == ["lr 1, seed 1, 1 epoch, ...", ""]
    row = Row("pre-trained 123456", "ours", "dev", {"rte": 50.0}, differs="lr 1e-4")
    board = Leaderboard((row,))
    assert board.record(row)["suite"] == "pre-trained 123456 (lr 1e-4)"
    assert next(csv.DictReader(board.render("csv").splitlines()))["settings"] == "lr 1e-4"
