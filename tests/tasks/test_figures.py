"""Panels side by side: what all have in common is said once, and the legend names every line."""

from __future__ import annotations

from pathlib import Path

import matplotlib.figure
import pytest

from tasks.report.figures import Curve, Figure, Panels


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
