"""The leaderboard as a terminal shows it: what stands where, and that it always fits."""

from __future__ import annotations

import dataclasses
import io
import re

import pytest
from rich.console import Console

from gptcore.nlu.metrics import GLUE
from gptcore.nlu.registry import COLUMNS, REGISTRY
from tasks.report.leaderboard import Leaderboard
from tasks.report.rows import Cell, Kind, Row, published_rows
from tasks.report.terminal import print_board


def suite(name: str, percent: dict[str, float], kind: Kind = "ours", **cell: object) -> Row:
    cells = {
        column: Cell("test" if column == "snli" else "dev", 1, value, value, stderr=2.125, **cell)  # type: ignore[arg-type]  # any field
        for column, value in percent.items()
    }
    return Row(name, kind, "dev/test" if "snli" in percent else "dev", percent, cells, suite=name)


def all_columns(value: float) -> dict[str, float]:
    return dict.fromkeys(COLUMNS, value)


def shown(*rows: Row, terminal: bool = False, width: int = 100, published: bool = False) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, color_system="standard" if terminal else None)
    print_board(Leaderboard((*rows, *published_rows()), ("a note",)), console, published)
    return file.getvalue().splitlines()


def cells(lines: list[str], task: str) -> list[str]:
    return next(line.split() for line in lines if line.split()[:1] == [task])[1:]


BASELINES = (
    suite("best constant 111111", all_columns(33.0), "baseline"),
    suite("bag of words 222222", all_columns(40.0), "baseline"),
)


def test_one_suite_stands_beside_the_best_floor_and_the_paper() -> None:
    lines = shown(suite("pre-trained abcdef", all_columns(62.4)), *BASELINES)
    assert [line.split() for line in lines[:3]] == [
        ["best"],
        ["pre-trained", "floor", "the", "paper"],
        ["task", "rows", "abcdef", "44136f", "(test)"],
    ]
    assert cells(lines, "rte") == ["dev", "62.4±2.1", "40.0±2.1", "56.0"]
    assert cells(lines, "snli") == ["test", "62.4±2.1", "40.0±2.1", "89.9"]
    assert cells(lines, "average") == ["62.4", "40.0", "76.7"]
    assert max(map(len, lines)) <= 100
    assert lines[-1] == "a note"
    assert not any("more:" in line or "ESIM" in line for line in lines)


def test_five_suites_fit_and_the_ones_that_do_not_are_named() -> None:
    five = [
        suite(f"arm {number} with a rather long name abc{number:03}", all_columns(50.0 + number)) for number in range(5)
    ]
    many = [
        *five,
        *(suite(f"older {number} fff{number:03}", all_columns(90.0 if number == 3 else 10.0)) for number in range(6)),
    ]
    assert max(map(len, shown(*five, *BASELINES))) <= 100
    lines = shown(*many, *BASELINES)
    assert max(map(len, lines)) <= 100
    first = cells(lines, "rte")[1:]
    assert first[0] == "90.0±2.1"  # the best stays, though it is old, and stands first
    assert "50.0±2.1" in first  # and so does the newest
    ruled = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in shown(*many, *BASELINES, terminal=True)]
    assert max(map(len, ruled)) <= 100
    assert cells(ruled, "rte")[1:] == first
    (left,) = [line for line in lines if "more: " in line]
    named = " ".join(lines[lines.index(left) :]).partition("(gptmill")[0]
    assert int(left.split()[0]) == len(many) - (len(first) - 2)
    assert "older 5 fff005" in named
    assert "older 3 fff003" not in named
    assert not any(line.startswith("higher there") for line in lines)
    many[-1] = dataclasses.replace(many[-1], percent={**all_columns(10.0), "cola": 95.04})
    assert "higher there: cola 95.0 (older 5 fff005)" in shown(*many, *BASELINES)
    elsewhere = [dataclasses.replace(row, data={"cola": "real"}) for row in many[:-1]]
    others = dataclasses.replace(many[-1], data={"cola": "generated"})
    assert not any(line.startswith("higher there") for line in shown(*elsewhere, others, *BASELINES))


def test_a_suite_stands_beside_the_baselines_of_its_own_rows() -> None:
    """Real rows first, then generated ones: the newest baselines are of those, and say nothing of the real model."""
    real, generated = {"rte": "real"}, {"rte": "generated"}

    def of(data: dict[str, str], name: str, score: float, kind: Kind = "ours") -> Row:
        return dataclasses.replace(suite(name, {"rte": score}, kind), data=data)

    ours = of(real, "pre-trained aaaaaa", 53.4)
    words, later = (
        of(real, "bag of words bbbbbb", 50.0, "baseline"),
        of(generated, "bag of words cccccc", 49.7, "baseline"),
    )
    assert cells(shown(ours, later, words), "rte") == ["dev", "53.4±2.1", "50.0±2.1", "56.0"]
    both = shown(of(generated, "pre-trained dddddd", 84.7), ours, later, words)
    assert cells(both, "rte") == ["dev", "84.7±2.1", "53.4±2.1", "49.7±2.1", "50.0±2.1", "56.0"]
    more = dataclasses.replace(later, data={**generated, "qnli": "x"}, percent={**later.percent, "qnli": 50.0})
    assert cells(shown(ours, more, words), "rte")[2] == "50.0±2.1"
    assert cells(shown(later, words), "rte") == ["dev", "49.7±2.1", "56.0"], "without a suite the newest"
    many = [of({"rte": f"data {n}"}, f"pre-trained aaaaa{n}", 60.0 + n) for n in range(8)]
    theirs = [of({"rte": f"data {n}"}, f"bag of words bbbbb{n}", 40.0 + n, "baseline") for n in range(8)]
    found = cells(shown(*many, *theirs), "rte")
    scores = {float(cell.partition("±")[0]) for cell in found[1:-1]}
    assert {score - 20 for score in scores if score >= 60} == {score for score in scores if score < 60}
    assert 67.0 in scores, "the best stays, and beside each that stays its own baseline"


def test_a_score_that_needs_no_network_is_marked() -> None:
    """By its difference to the best of the newest baselines on the same rows: told apart from 5 % on, or below it."""
    scores = {"rte": 56.0, "qnli": 63.0, "snli": 40.0}
    found = {"rte": {"floor": 0.05}, "qnli": {"floor": 0.0499}}
    ours = dataclasses.replace(suite("pre-trained abcdef", scores), certain=found)
    old = suite("overlap 333333", {"rte": 99.0}, "baseline")
    floors = (
        suite("overlap 444444", {"rte": 55.0, "qnli": 60.0}, "baseline"),
        suite("bag of words 222222", dict.fromkeys(scores, 50.0), "baseline"),
    )
    lines = shown(ours, *floors, old)
    assert cells(lines, "rte")[1:3] == ["56.0±2.1°", "55.0±2.1"]
    assert cells(lines, "qnli")[1:3] == ["63.0±2.1", "60.0±2.1"]
    assert cells(lines, "snli")[1:3] == ["40.0±2.1°", "50.0±2.1"]
    told = " ".join(" ".join(lines).split())
    assert "overlap (rte, qnli); bag of words (snli) °: below that, or not told apart from it by both answers" in told
    assert "not compared in some columns, for lack of answers to the same rows: pre-trained abcdef" in told
    alone = dataclasses.replace(ours, certain={**found, "snli": {"floor": 0.0}})
    assert "not compared" not in " ".join(shown(alone, *floors, old))
    board = Leaderboard((ours, *floors, old))
    assert board.record(ours)["rte"] == "56.0±2.1°"
    assert [row.name.rpartition(" ")[0] for row in board.ordered] == [
        "pre-trained",
        "overlap",
        "bag of words",
        "overlap",
        "best floor",
    ]
    elsewhere = dataclasses.replace(ours, data=dict.fromkeys(scores, "other rows"))
    assert cells(shown(elsewhere, *floors), "rte")[1] == "56.0±2.1"


def test_what_is_level_with_the_best_is_bold_on_a_terminal_and_in_markdown() -> None:
    """The best of all is hidden for lack of room, or is told apart: then no other takes its place."""
    found = [{"rte": {"level": level}, "average": {"level": level}} for level in (True, True, False)]
    rows = [
        dataclasses.replace(suite(f"arm 00000{n}", {"rte": 70.0 - n}, collapsed=n), certain=certain)
        for n, certain in enumerate(found)
    ]
    terminal = shown(*rows, terminal=True)
    assert [f"\x1b[1m{69 - n}.0" in "\n".join(terminal) for n in range(-1, 2)] == [True, True, False]
    line = "bold: the best of ours, and what is not told apart from it on the same rows (p >= 0.05, by Holm's method)"
    assert line in " ".join(re.sub(r"\x1b\[[0-9;]*m", "", " ".join(terminal)).split())
    assert not any("bold" in text for text in shown(*rows)), "a pipe has none"
    board = Leaderboard(tuple(rows))
    markdown = board.render("markdown")
    assert "| **70.0±2.1** |" in markdown
    assert "| **69.0±2.1\\*** |" in markdown
    assert "| 68.0±2.1* |" in markdown
    assert f"- {line}" in markdown
    assert "**" not in Leaderboard((rows[2], suite("x 000009", {"rte": 1.0}))).render("markdown"), (
        "its best is elsewhere"
    )
    two = Leaderboard((suite("a 000001", {"rte": 60.0}), suite("b 000002", {"rte": 61.0})))
    assert "| **61.0±2.1** |" in two.render("markdown"), "where nothing was compared, the best alone"


def test_a_task_that_nobody_has_is_no_row_and_a_missing_number_is_a_blank() -> None:
    lines = shown(suite("a 000001", {"rte": 60.0, "snli": 70.0}), suite("b 000002", {"rte": 61.0}))
    assert cells(lines, "rte")[1:3] == ["60.0±2.1", "61.0±2.1"]
    assert cells(lines, "snli") == ["test", "70.0±2.1", "89.9"]
    whole, part = (next(line for line in lines if line.startswith(task)) for task in ("rte", "snli"))
    assert part.index("89.9") == whole.index("56.0")
    assert part[whole.index("61.0") : whole.index("56.0")].isspace(), "under the suite that lacks it"
    assert {line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in COLUMNS} == {"rte", "snli"}
    assert cells(lines, "average") == ["65.0", "73.0"]
    assert not any(line.startswith("glue") for line in lines)


def test_one_task_alone_has_no_average() -> None:
    whole = suite("a 000001", all_columns(60.0))
    board = Leaderboard((whole, *BASELINES, *published_rows())).only(["rte"])
    file = io.StringIO()
    print_board(board, Console(file=file, width=100))
    lines = file.getvalue().splitlines()
    assert cells(lines, "rte") == ["dev", "60.0±2.1", "40.0±2.1", "56.0"]
    assert not any(line.startswith(("average", "snli")) for line in lines)


def test_glue_seeds_a_collapse_and_synthetic_rows_are_told() -> None:
    row = suite("a 000001", all_columns(50.0), collapsed=1, synthetic=True)
    row = Row(row.name, "ours", "dev/test, synthetic", row.percent, row.cells, dict.fromkeys(GLUE, 40.0), row.suite)
    lines = shown(row)
    assert cells(lines, "rte")[1] == "50.0±2.1*"
    assert cells(lines, "glue")[0] == "40.0"
    assert cells(lines, "seeds")[0] == "1"
    assert any(line.startswith("synthetic rows") for line in lines)
    assert any(line.startswith("*: ") for line in lines)


def test_blimp_stands_under_the_averages_where_a_row_has_it() -> None:
    measured = dataclasses.replace(
        suite("a 000001", all_columns(50.0)), zero_shot={"blimp": 62.0, "blimp/binding": 9.0}
    )
    lines = shown(measured, suite("b 000002", all_columns(60.0)), *BASELINES)
    assert cells(lines, "blimp") == ["62.0"]
    names = [line.split()[0] for line in lines if line.split()]
    assert names.index("average") < names.index("blimp") < names.index("seeds")
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("blimp: of the checkpoint itself") for line in lines)
    assert not any("binding" in line for line in lines)
    without = shown(suite("a 000001", all_columns(50.0)), suite("b 000002", all_columns(60.0)), *BASELINES)
    assert [line for line in lines if "blimp" not in line and "fields (chance" not in line] == without


def test_published_methods_are_asked_for() -> None:
    lines = shown(suite("a 000001", all_columns(50.0)), published=True)
    assert max(map(len, lines)) <= 100
    (opt,) = [line for line in lines if line.startswith("BabyLM OPT-125m (dev)")]
    assert "mnli_m 57.6" in opt
    assert any(
        line.startswith("BabyLM OPT-125m, BabyLM RoBERTa-base: pre-trained on 10 million words") for line in lines
    )
    (bert,) = [line for line in lines if line.startswith("BERT large")]
    assert "mnli_m 86.7,  mnli_mm 85.9" in bert
    for width in (60, 80):
        lines = shown(suite("a 000001", all_columns(50.0)), terminal=True, width=width, published=True)
        told = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in lines]
        assert max(map(len, told)) <= width
        first = next(n for n, line in enumerate(told) if line.startswith("published"))
        assert not [line for line in told[first : first + 12] if re.search(r" (mnli_m|mnli_mm|snli|rte|qnli)$", line)]


@pytest.mark.parametrize("rows", [(), (suite("a 000001", {"cola": 0.0}),)])
def test_an_empty_or_a_small_board_prints(rows: tuple[Row, ...]) -> None:
    lines = shown(*rows)
    assert max(map(len, lines)) <= 100
    assert any(line.split()[:1] == ["cola"] for line in lines)


def test_colour_and_rules_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (suite("a 000001", all_columns(50.0)), suite("b 000002", all_columns(60.0)))
    assert not any("\x1b" in line or "─" in line for line in shown(*rows))
    terminal = shown(*rows, terminal=True)
    assert any("\x1b[1m60.0±2.1" in line for line in terminal)
    assert any("─" in line for line in terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any("\x1b[3" in line for line in shown(*rows, terminal=True))


def test_every_task_has_a_metric_with_a_name() -> None:
    lines = " ".join(shown(suite("a 000001", all_columns(50.0))))
    assert "accuracy; Matthews correlation for cola; F1 for mrpc, qqp" in lines
    assert all(name in lines for name in REGISTRY)
