"""Panels side by side say once what all have in common; the picture of a sweep names its lines apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.axes
import matplotlib.figure
import pytest

from tasks.report.figures import Curve, Figure, Panels
from tasks.report.parallel_coordinates import Coordinate, ParallelCoordinates
from tasks.report.sweep import shown_value


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[matplotlib.figure.Figure]:
    """The canvases that are written."""
    canvases: list[matplotlib.figure.Figure] = []
    save = matplotlib.figure.Figure.savefig

    def saved(canvas: matplotlib.figure.Figure, path: Path) -> None:
        canvases.append(canvas)
        save(canvas, path)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", saved)
    return canvases


def panel(title: str, unit: str = "x 100") -> Figure:
    return Figure([Curve("GPT-1", [(20.0, 1.0), (50.0, 2.0)], 0)], "operations", unit, title, log_x=True)


@pytest.mark.parametrize(("n_panels", "shape"), [(2, (1, 3)), (4, (1, 5)), (5, (2, 3)), (9, (2, 5)), (12, (3, 5))])
def test_panels_and_their_legend_fill_the_rows(
    n_panels: int, shape: tuple[int, int], drawn: list[matplotlib.figure.Figure], tmp_path: Path
) -> None:
    figures = [panel(str(number)) for number in range(n_panels)]
    path = Panels(figures, "all", [{}] * n_panels, one_scale=False).draw(tmp_path / "panels.png")
    assert path.stat().st_size > 1000
    place = drawn[0].axes[0].get_subplotspec()
    assert place is not None
    assert place.get_gridspec().get_geometry() == shape


def test_a_reference_of_a_later_panel_is_in_the_legend_and_looks_like_no_other(
    drawn: list[matplotlib.figure.Figure], tmp_path: Path
) -> None:
    references = [{"bag of words": 1.5}, {"chance": 1.2}, {"bag of words": 1.7}]
    Panels([panel("a"), panel("b"), panel("c")], "all", references, one_scale=False).draw(tmp_path / "panels.png")
    *panels, free = drawn[0].axes
    legend = free.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["GPT-1", "bag of words", "chance"]
    styles = [{line.get_label(): line.get_linestyle() for line in axes.lines} for axes in panels]
    assert styles[0]["bag of words"] == styles[2]["bag of words"] != styles[1]["chance"]


def test_one_unit_is_said_once_and_several_beside_their_panels(
    drawn: list[matplotlib.figure.Figure], tmp_path: Path
) -> None:
    for units in (("x 100", "x 100"), ("x 100", "perplexity")):
        figures = [panel(str(place), unit) for place, unit in enumerate(units)]
        Panels(figures, "all", [{}, {}], one_scale=False).draw(tmp_path / "panels.png")
    same, different = drawn
    assert same.get_supylabel() == "x 100"
    assert [axes.get_ylabel() for axes in same.axes[:2]] == ["", ""]
    assert different.get_supylabel() == ""
    assert [axes.get_ylabel() for axes in different.axes[:2]] == ["x 100", "perplexity"]


# --- parallel coordinates


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What is written beside lines, and the sizes of the figures."""
    found: dict[str, list[Any]] = {"words": [], "inches": []}
    annotate, save = matplotlib.axes.Axes.annotate, matplotlib.figure.Figure.savefig

    def noted(axes: Any, words: str, place: Any, *rest: Any, **style: Any) -> Any:
        found["words"].append((words, place))
        return annotate(axes, words, place, *rest, **style)

    def saved(figure: Any, *rest: Any, **style: Any) -> None:
        found["inches"].append(tuple(figure.get_size_inches()))
        save(figure, *rest, **style)

    monkeypatch.setattr(matplotlib.axes.Axes, "annotate", noted)
    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", saved)
    return found


def picture(rungs: list[list[float | None]], failed: set[int]) -> ParallelCoordinates:
    lines = range(len(rungs[0]))
    return ParallelCoordinates(
        title="Sweep of small, 5 trials by validation/bits_per_byte (bits a byte, low is good and on top)",
        settings=[Coordinate("lr", [float(line + 1) for line in lines])],
        rungs=[Coordinate(f"rung {n}", values, downwards=True) for n, values in enumerate(rungs, start=1)],
        names=[f"trial {line + 1}" for line in lines],
        winner=0,
        failed=frozenset(failed),
        note="Selected on held-out documents, never on test rows.",
    )


def test_trials_that_failed_on_a_rung_are_named_together(written: dict[str, list[Any]], tmp_path: Path) -> None:
    rungs = [[2.0, 3.0, None, None, None, None, None], [1.0, None, None, None, None, None, None]]
    picture(rungs, {1, 2, 3, 4, 5, 6}).draw(tmp_path / "a.png")
    words = dict(written["words"])
    assert words.keys() == {"trial 1", "trial 2 failed", "trial 3, trial 4, trial 5 and 2 more failed"}
    assert len(set(words.values())) == len(words), "each at a place of its own"


def test_one_axis_leaves_room_for_the_title(written: dict[str, list[Any]], tmp_path: Path) -> None:
    picture([[2.0, 3.0]], set()).draw(tmp_path / "a.png")
    assert written["inches"][0][0] >= 8.0


def test_values_that_differ_are_shown_apart() -> None:
    values = [0.999, 0.99999, 0.999999, 1e-3, 0.25, 3, True, "adamw"]
    assert [shown_value(value) for value in values[:3]] == ["0.999", "0.99999", "0.999999"]
    assert len({shown_value(value) for value in values}) == len(values)
