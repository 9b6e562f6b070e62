"""A result's card: what a person who started a run must find on its page, and what must not be there."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from gptcore.nlu.registry import REGISTRY
from tasks.report.card import filled, linked
from tasks.report.leaderboard import Leaderboard
from tasks.report.result_card import Contender, ResultCard, differences
from tasks.report.result_page import with_result
from tasks.report.rows import Cell, Row, published_rows
from tasks.report.score import Score
from tests.tasks.markdown import tables

MODEL = "/store/finetune/" + "ab" * 32


def row(name: str, kind: Any = "ours", stderr: float | None = 1.5, collapsed: int = 0, **percent: float) -> Row:
    cells = {column: Cell("dev", 3, score - 1, score + 1, stderr, collapsed) for column, score in percent.items()}
    return Row(name, kind, "dev", percent, cells, suite=f"digest of {name}")


def card(*ours: Row, tasks: list[str], **more: Any) -> ResultCard:
    baselines = [
        row("best constant 111111", "baseline", rte=50.0, sst2=50.0, mnli_m=33.0, mnli_mm=33.5),
        row("bag of words 222222", "baseline", rte=49.7, sst2=65.3, mnli_m=51.3, mnli_mm=49.0),
    ]
    return ResultCard(Leaderboard((*ours, *baselines, *published_rows()), ("a note",)), tasks, **more)


def test_the_card_of_a_fine_tune_says_score_error_seeds_baselines_and_paper_first() -> None:
    seeds = [
        Score("rte", 0, "dev", {"rte": 60.0}, stderr={"rte": 2.0}, model=MODEL, page="http://mlflow/run0"),
        Score("rte", 1, "dev", {"rte": 50.0}, collapsed=True, model=MODEL.replace("ab", "cd")),
        Score("rte", 2, "dev", {"rte": 70.0}, model=MODEL.replace("ab", "ef")),
    ]
    text = card(row("pre-trained abc123", rte=60.0, collapsed=1), tasks=["rte"], scores=seeds).markdown()
    assert text.startswith("# rte: 60.0±1.5\\*\n\naccuracy x 100, dev rows, median of 3 seeds\n")
    first, each = tables(text)[:2]
    assert first[2:] == [
        ["**this run** (pre-trained)", "**60.0±1.5\\***"],
        ["bag of words", "49.7±1.5"],
        ["best constant", "50.0±1.5"],
        ["the paper (test rows)", "56.0"],
    ]
    assert each[2] == ["0", "60.0±2.0", "", "`abababababab`", "[run](http://mlflow/run0)"]
    assert each[3][:3] == ["1", "50.0", "collapsed: one answer for every dev row"]
    assert "gptmill predict rte FILE.csv --model abababababab --store /store" in text
    assert f"Of the median seed, at `{MODEL}`:" in text
    one = card(row("pre-trained abc123", rte=60.0), tasks=["rte"], scores=seeds[:1]).markdown()
    assert f"Of this seed, at `{MODEL}`:" in one
    assert "\\*: a run behind the number" in text
    assert "- a note" in text


def test_the_first_line_says_which_floor_is_ahead() -> None:
    one = card(row("pre-trained abc123", sst2=60.0, rte=60.0), tasks=["sst2"]).markdown()
    assert one.startswith("# sst2: 60.0±1.5, behind bag of words (65.3), which needs no network\n")


def test_every_column_of_a_task_is_there_and_no_other() -> None:
    text = card(row("pre-trained abc123", mnli_m=68.3, mnli_mm=73.3, rte=60.0), tasks=["mnli"]).markdown()
    assert text.startswith("# mnli: 68.3±1.5 / 73.3±1.5\n")
    assert tables(text)[0][0] == ["", "mnli_m", "mnli_mm"]
    assert tables(text)[0][-1] == ["the paper (test rows)", "82.1", "81.4"]
    assert "rte" not in re.sub(r"data:image[^)]*", "", text)


def test_a_card_opens_with_its_picture() -> None:
    alone = row("name [of] brackets abc123", rte=60.0, sst2=70.0)
    for tasks in (["rte"], ["rte", "sst2"]):
        text = card(alone, tasks=tasks).markdown()
        (words,) = re.findall(r"!\[([^]]*)\]\(data:image/png;base64,[^)]+\)\n\n\| ", text)
        assert words.startswith("1 of 1 rows, a task a line, on average: name (of) brackets abc123 ")


def test_the_rank_among_earlier_runs_says_what_they_did_otherwise() -> None:
    mine, better = row("pre-trained abc123", rte=60.0), row("pre-trained def456", rte=80.0)
    others = [
        Contender(1, better, "2026-01-01 10:00", "http://mlflow/1", ("lr 0.0005", "epochs 3")),
        Contender(2, mine, "2026-01-02 10:00", "http://mlflow/2", ()),
        *(
            Contender(3 + n, row(f"pre-trained {n:06}", rte=50.0), "2026-01-01 09:00", "http://mlflow/3", ())
            for n in range(40)
        ),
    ]
    text = card(mine, tasks=["rte"], contenders=others).markdown()
    assert "## Rank 2 of 42 on these rows" in text
    ranked = next(found for found in tables(text) if found[0][0] == "rank")
    link = "[pre-trained def456](http://mlflow/1)"
    assert ranked[2] == ["1", "80.0±1.5", "3", link, "2026-01-01 10:00", "lr 0.0005, epochs 3"]
    assert ranked[3][:4] == ["**2**", "**60.0±1.5**", "3", "**this run**"]
    assert len(ranked) == 2 + 10
    assert "and 32 more in the leaderboard" in text


def test_this_run_is_shown_however_far_down_it_ranks() -> None:
    mine = row("pre-trained abc123", rte=10.0)
    others = [Contender(n + 1, row(f"x {n:06}", rte=90.0 - n), "", "", ()) for n in range(30)]
    text = card(mine, tasks=["rte"], contenders=[*others, Contender(31, mine, "", "", ())]).markdown()
    ranked = next(found for found in tables(text) if found[0][0] == "rank")
    assert ranked[-1][0] == "**31**"
    assert len(ranked) == 2 + 11


def test_several_tasks_are_rows_beside_bag_of_words_and_paper() -> None:
    ours = [row("pre-trained abc123", rte=60.0, sst2=80.0), row("from scratch def456", rte=50.0, sst2=70.0)]
    several = card(*ours, tasks=["rte", "sst2"], sections={"Stages": "the stages"})
    text = several.markdown()
    assert text.startswith("# 2 tasks: 70.0 on average\n")
    assert tables(text)[0] == [
        ["", "pre-trained", "from scratch", "bag of words", "best constant", "paper (test)"],
        tables(text)[0][1],
        ["**average**", "**70.0**", "**60.0**", "**57.5**", "**50.0**", "**73.7**"],
        ["rte", "60.0±1.5", "50.0±1.5", "49.7±1.5", "50.0±1.5", "56.0"],
        ["sst2", "80.0±1.5", "70.0±1.5", "65.3±1.5", "50.0±1.5", "91.3"],
    ]
    assert text.index("| rte") < text.index("## Stages\n\nthe stages")
    assert several.headline == "70.0 on average of 2 tasks (from scratch 60.0, best floor 57.6, paper 73.7)"
    one = card(row("pre-trained abc123", rte=60.0, squad=80.0), tasks=["rte", "squad"])
    assert one.headline.startswith("60.0 on rte (")
    assert one.markdown().startswith("# 2 tasks: 60.0 on rte\n")


@pytest.mark.parametrize("task", list(REGISTRY))
def test_the_headline_and_the_tile_hold_the_number_its_baseline_and_the_paper(task: str) -> None:
    spec = REGISTRY[task]
    percent = dict.fromkeys(spec.paper, 61.3)
    board = Leaderboard((row("pre-trained abc123", **percent), row("bag of words 2", "baseline", **percent)))
    whole = ResultCard(dataclasses.replace(board, rows=(*board.rows, *published_rows())), [task])
    papers = [f"{value:.1f}" for value in spec.paper.values() if value is not None]
    for text in (whole.headline, whole.summary()):
        assert "61.3" in text
        assert "bag of words" in text
        assert all(paper in text for paper in papers)
    assert "&" not in whole.headline


def test_a_task_scored_on_test_rows_says_so() -> None:
    cells = {"snli": Cell("test", 1, 80, 80), "rte": Cell("dev", 1, 60, 60)}
    mine = Row("pre-trained abc123", "ours", "dev/test", {"snli": 80.0, "rte": 60.0}, cells)
    text = card(mine, tasks=["snli", "rte"]).markdown()
    assert [found[0] for found in tables(text)[0][2:]] == ["**average**", "snli (test)", "rte"]
    assert "ours on dev rows, but where a row says test" in text


def test_a_table_has_no_column_without_values_and_no_bullet() -> None:
    records = [
        {"suite": "a", "rte": "1.0", "cola": "-", "sst2": "-"},
        {"suite": "b", "rte": "-", "cola": "-", "sst2": "2.0"},
    ]
    assert filled(records) == [{"suite": "a", "rte": "1.0", "sst2": ""}, {"suite": "b", "rte": "", "sst2": "2.0"}]
    assert filled([]) == []


def test_the_leaderboards_rows_for_one_task_are_those_that_have_it() -> None:
    board = card(row("pre-trained abc123", rte=60.0, sst2=80.0), tasks=["rte"]).board.only(["rte"])
    assert all(set(found.percent) == {"rte"} for found in board.rows)
    columns = set(filled(board.records())[0])
    assert {"suite", "rte"} <= columns
    assert not columns & {"sst2", "mnli_m", "glue"}


SETTINGS = {"settings.rte.lr": "6.25e-05", "settings.rte.epochs": "3", "settings.sst2.lr": "0.1", "tokenizer": "t" * 64}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"settings.rte.lr": "0.0005"}, ["lr 0.0005"]),
        ({"settings.sst2.lr": "0.5"}, []),  # another task's
        ({"settings.rte.n_transfer": "2"}, ["n_transfer 2"]),
        ({"checkpoint": "d" * 64}, ["checkpoint dddddddddddd"]),
        ({"checkpoint": None}, ["random weights"]),
        ({"tokenizer": "u" * 64}, ["tokenizer uuuuuuuuuuuu"]),
        ({"code.finetune": "2"}, ["code of finetune 2"]),
    ],
)
def test_only_what_decides_the_number_is_called_a_difference(changes: dict[str, str | None], words: list[str]) -> None:
    mine = {**SETTINGS, "checkpoint": "c" * 64, "code.finetune": "1"}
    theirs = {name: value for name, value in {**mine, **changes}.items() if value is not None}
    assert list(differences(theirs, mine, "rte")) == words


def test_what_a_browser_cannot_open_is_no_link() -> None:
    text = linked({"run": "http://127.0.0.1:5000/#/x", "artifact": "/store/pretrain/ab", "far": "s3://bucket/x"})
    assert text == "[run](http://127.0.0.1:5000/#/x) · artifact: `/store/pretrain/ab` · far: `s3://bucket/x`"


def test_the_result_stands_before_what_a_page_cuts_off() -> None:
    assert with_result("finetune rte, lr 0.0005, 2 seeds", "75.0") == "finetune rte → 75.0; lr 0.0005, 2 seeds"
    assert with_result("pipeline demo", "72.7") == "pipeline demo → 72.7"


def test_published_dev_rows_say_so_and_what_sets_them_apart() -> None:
    text = card(row("pre-trained abc123", rte=60.0), tasks=["rte"]).markdown()
    published = next(table for table in tables(text) if table[0][0] == "method")
    cells = {line[0]: line[1:] for line in published}
    assert cells["BabyLM OPT-125m (dev rows)"][0] == "60.0"
    assert cells["BERT large"][0] == "70.1"
    assert "*BabyLM RoBERTa-base, BabyLM OPT-125m: pre-trained on 10 million words; " in text
    assert "BabyLM" not in card(row("pre-trained abc123", snli=60.0), tasks=["snli"]).markdown()
