"""Figures: loss curves for the cards, the paper's Figure 2 for the analyses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 1000  # of a curve: more than its figure has pixels
_CROWD = 4  # of curves, beyond which a legend among them hides some
_PANELS = 4  # in a row
_COLORS = ("#4c78a8", "#e45756", "#54a24b", "#b279a2", "#f58518", "#72b7b2")


@dataclass(frozen=True)
class Curve:
    """One line of a figure."""

    label: str
    points: Sequence[tuple[float, float]]
    color: int
    """Curves that belong together share a number."""
    dashed: bool = False


@dataclass(frozen=True)
class Figure:
    """Curves and their axes."""

    curves: Sequence[Curve]
    x_label: str
    y_label: str
    title: str
    log_x: bool = False
    """Powers of two on the horizontal axis."""
    level: float | None = None
    """A thin horizontal line there."""

    def draw(self, path: Path) -> Path:
        """Write the figure, a mark at every point, to ``path`` (PNG)."""
        with drawing(path, self.x_label, self.y_label) as axes:
            for curve in self.curves:
                style, color = "o--" if curve.dashed else "o-", _COLORS[curve.color % len(_COLORS)]
                axes.plot(*zip(*curve.points, strict=True), style, color=color, label=curve.label, lw=1.4, ms=4)
            if self.level is not None:
                axes.axhline(self.level, color="#999999", lw=0.8)
            if self.log_x:
                axes.set_xscale("log", base=2)
            ticks = sorted({x for curve in self.curves for x, _ in curve.points})
            axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
            axes.minorticks_off()
            axes.set_title(self.title, fontsize=10)
        return path


@dataclass(frozen=True)
class Panel:
    """One of several small figures that share their horizontal axis."""

    title: str
    points: Sequence[tuple[float, float]]
    level: float | None = None
    """A dashed horizontal line there."""


@dataclass(frozen=True)
class Panels:
    """Small figures side by side, each with a vertical axis of its own."""

    panels: Sequence[Panel]
    x_label: str
    title: str
    level_is: str
    """What the dashed lines are."""

    def draw(self, path: Path) -> Path:
        """Write all panels to ``path`` (PNG); the horizontal axis is in powers of two."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        rows = -(-len(self.panels) // _PANELS)
        figure = Figure(figsize=(9.6, 0.8 + 1.9 * rows), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, min(_PANELS, len(self.panels)), squeeze=False).flatten()
        for axes, panel in zip(grid, self.panels, strict=False):
            axes.plot(*zip(*panel.points, strict=True), "o-", color=_COLORS[0], lw=1.4, ms=4)
            if panel.level is not None:
                axes.axhline(panel.level, color=_COLORS[1], ls="--", lw=1.0)
            axes.set_xscale("log", base=2)
            ticks = [x for x, _ in panel.points]
            axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks], fontsize=7)
            axes.minorticks_off()
            axes.tick_params(axis="y", labelsize=7)
            axes.grid(alpha=0.25)
            axes.set_title(panel.title, fontsize=9)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
        for axes in grid[len(self.panels) :]:
            axes.set_visible(False)
        figure.supxlabel(self.x_label, fontsize=9)
        figure.suptitle(f"{self.title}\ndashed: {self.level_is}", fontsize=10)
        figure.savefig(path)
        return path


@contextmanager
def drawing(path: Path, x_label: str, y_label: str) -> Iterator[Axes]:
    """Axes to draw on; the figure is written to ``path`` (PNG) at the end."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.0), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)  # not pyplot: its global state is not for threads
    axes = figure.subplots()
    yield axes
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.25)
    if len(axes.get_legend_handles_labels()[0]) > _CROWD:
        figure.legend(loc="outside right upper", frameon=False)
    else:
        axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path)


def loss_curve(
    records: Sequence[Mapping[str, Any]],
    path: Path,
    references: Mapping[str, float] | None = None,
    unit: str = "nats per token",
) -> Path | None:
    """Draw training and validation loss over updates; None where the records hold no curve.

    :param records: lines of metrics.jsonl.
    :param references: name -> loss, drawn as level lines (n-gram models).
    :param path: where the PNG goes.
    :param unit: of the loss, for the axis.
    """
    curves = {name: _curve(records, name) for name in ("train/loss", "validation/loss")}
    if not any(curves.values()):
        return None
    with drawing(path, "updates", f"loss ({unit})") as axes:
        for (name, points), (color, style) in zip(curves.items(), (("#4c78a8", "-"), ("#e45756", "o-")), strict=True):
            if points:
                axes.plot(*zip(*points, strict=True), style, color=color, label=name.replace("/loss", ""), lw=1.4, ms=4)
        for (name, loss), style in zip((references or {}).items(), ("--", ":", "-."), strict=False):
            axes.axhline(loss, color="#54a24b", ls=style, lw=1.2, label=name)
    return path


def _curve(records: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    points = [(record["step"], record["metrics"][name]) for record in records if name in record["metrics"]]
    thin = points[:: max(1, len(points) // _POINTS)]
    return thin if not points or thin[-1] == points[-1] else [*thin, points[-1]]
