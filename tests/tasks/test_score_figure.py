"""The picture of the scores: what is grey and hollow, that it is light and grey, and the words beside it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from PIL import Image

from gptcore.nlu.registry import COLUMNS
from tasks.report.leaderboard import Leaderboard
from tasks.report.rows import Cell, Kind, Row, published_rows
from tasks.report.score_figure import draw_scores

GREY = "#999999"


def row(name: str, percent: dict[str, float], kind: Kind = "ours", seeds: int = 1, **certain: Any) -> Row:
    cells = {
        column: Cell("dev", seeds, score, score, stderr=3.0, deviation=4.0 * seeds**0.5 if seeds > 1 else 0.0)
        for column, score in percent.items()
    }
    return Row(name, kind, "dev", percent, cells, suite=name, certain=certain)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What is plotted: (x, mark or None, colour, inside)."""
    calls: list[tuple[Any, ...]] = []
    plot = Axes.plot

    def noted(self: Axes, x: Any, y: Any, mark: str | None = None, **how: Any) -> Any:
        calls.append((x, mark, how["color"], how.get("mfc")))
        return plot(self, x, y, *([mark] if mark else []), **how)

    monkeypatch.setattr(Axes, "plot", noted)
    return calls


def test_grey_is_not_told_apart_from_the_floor_and_hollow_is_below_the_best(
    drawn: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    sure = {"floor": 0.01, "level": True}
    first = row("first 000001", {"rte": 70.0, "cola": 40.0, "sst2": 99.0}, rte=sure, cola=sure, sst2=sure)
    second = row("second 000002", {"rte": 60.0, "cola": 30.0}, rte={**sure, "level": False}, cola={"floor": 0.2})
    floor = row("bag of words 000003", {"rte": 50.0, "cola": 10.0, "sst2": 80.0}, "baseline")
    board = Leaderboard((second, first, floor, *published_rows())).beside_the_paper()
    words = draw_scores(board, tmp_path)[0]
    marks = {(x, mark): (color, inside) for x, mark, color, inside in drawn if mark}
    assert marks == {
        (70.0, "o"): ("black", "black"),
        (40.0, "o"): ("black", "black"),
        (99.0, "o"): ("black", "black"),
        (60.0, "s"): ("black", "white"),
        (30.0, "s"): (GREY, GREY),
        **{(score, "x"): ("black", "black") for score in (56.0, 45.4, 91.3)},
    }
    lines = [tuple(x) for x, mark, *_ in drawn if not mark]
    assert lines.count((50.0, 50.0)) == 2, "the floor, in each row's slot"
    assert (pytest.approx(70.0 - 1.96 * 3), pytest.approx(70.0 + 1.96 * 3)) in lines
    assert (pytest.approx(99.0 - 1.96 * 3), 100.0) in lines
    assert words.startswith("2 of 2 rows, a task a line, on average: first 000001 69.7, second 000002 -.")
    assert "Grey: not told apart from the best floor; hollow: below the best of ours for certain." in words


def test_an_interval_of_several_seeds_is_over_rows_and_seeds(drawn: list[tuple[Any, ...]], tmp_path: Path) -> None:
    """Errors of 3 over rows and of 4 over seeds are one of 5."""
    draw_scores(Leaderboard((row("a 000001", {"rte": 50.0}, seeds=4),)), tmp_path)
    assert (pytest.approx(50.0 - 1.96 * 5), pytest.approx(50.0 + 1.96 * 5)) in [
        tuple(x) for x, mark, *_ in drawn if not mark
    ]


def test_what_was_not_compared_is_grey(drawn: list[tuple[Any, ...]], tmp_path: Path) -> None:
    floor = row("bag of words 000003", {"rte": 50.0}, "baseline")
    draw_scores(Leaderboard((row("a 000001", {"rte": 90.0}), floor)), tmp_path)
    assert (90.0, "o", GREY, GREY) in drawn


@pytest.mark.parametrize(("n_rows", "own"), [(1, ()), (3, ("mood $x$ and $y$",)), (8, ()), (12, ("mood",))])
def test_the_picture_is_light_grey_and_as_wide_as_a_page(n_rows: int, own: tuple[str, ...], tmp_path: Path) -> None:
    percent = dict.fromkeys((*COLUMNS, *own), 50.0)
    rows = [
        row(f"a name of many words, number {n} {n:06}", {c: s + n for c, s in percent.items()}) for n in range(n_rows)
    ]
    rows[-1] = dataclasses.replace(rows[-1], percent={"rte": 77.0})
    words = draw_scores(Leaderboard((*rows, row("bag of words 1", percent, "baseline"))), tmp_path)[0]
    picture = Image.open(tmp_path / "scores.png")
    assert picture.width == 1280
    assert (tmp_path / "scores.png").stat().st_size < 100_000
    colors = picture.convert("RGB").getcolors()
    assert colors is not None
    assert all(len(set(color)) == 1 for _, color in colors)
    assert words.startswith(f"{min(n_rows, 8)} of {n_rows} rows, a task a line, on average: ")


def test_races_parts_have_a_line_only_where_race_has_none(drawn: list[tuple[Any, ...]], tmp_path: Path) -> None:
    whole, part = row("a 1", {"race_m": 31.0, "race_h": 32.0, "race": 33.0}), row("b 2", {"race_m": 41.0})
    draw_scores(Leaderboard((whole,)), tmp_path)
    assert [x for x, mark, *_ in drawn if mark] == [33.0]
    drawn.clear()
    draw_scores(Leaderboard((part,)), tmp_path)
    assert [x for x, mark, *_ in drawn if mark] == [41.0]
