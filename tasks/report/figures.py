"""Figures: loss curves for the cards, curves and panels of them for the analyses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_POINTS = 1000  # of a curve: more than its figure has pixels
_CROWD = 4  # of curves, beyond which a legend among them hides some
_PANELS_A_ROW = 5  # at most
_FEW = 4  # places on an axis, each of which is named
COLORS = ("#4c78a8", "#e45756", "#54a24b", "#b279a2", "#f58518", "#72b7b2")


class Picture(Protocol):
    """What an analysis can show beside its table."""

    def draw(self, path: Path) -> Path:
        """Write the picture to ``path`` (PNG)."""


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
            self.plot(axes, lw=1.4, ms=4)
            ticks = sorted({x for curve in self.curves for x, _ in curve.points})
            if all(tick == round(tick, 2) for tick in ticks):
                axes.set_xticks(ticks, [f"{tick:,.0f}" if tick == round(tick) else f"{tick:g}" for tick in ticks])
            else:  # measured: their digits would cover each other
                axes.xaxis.set_major_formatter("{x:,g}")
            axes.minorticks_off()
            axes.set_title(self.title, fontsize=10)
        return path

    def plot(self, axes: Axes, lw: float, ms: float, references: Sequence[tuple[str, float, str]] = ()) -> None:
        """Put its curves and levels on these axes.

        :param lw: width of the curves' lines, ``ms``: size of their marks, in points.
        :param references: (name, level, line style) of other levels to compare with.
        """
        for curve in self.curves:
            style, color = "o--" if curve.dashed else "o-", COLORS[curve.color % len(COLORS)]
            axes.plot(*zip(*curve.points, strict=True), style, color=color, label=curve.label, lw=lw, ms=ms)
        for name, level, style in references:
            axes.axhline(level, color="#54a24b", ls=style, lw=1.0, label=name)
        if self.level is not None:
            axes.axhline(self.level, color="#999999", lw=0.8)
        if self.log_x:
            axes.set_xscale("log", base=2)


@dataclass(frozen=True)
class Panels:
    """Small figures side by side under one legend, to compare them."""

    figures: Sequence[Figure]
    """The figures, whose horizontal axes have the same label; the curves of a label look alike in all."""
    title: str
    references: Sequence[Mapping[str, float]]
    """For each figure, name -> a level to compare with, drawn as a thin line (n-gram models)."""
    one_scale: bool = True
    """Whether all panels have the same vertical axis."""

    def draw(self, path: Path) -> Path:
        """Write all of them to ``path`` (PNG)."""
        n_panels = len(self.figures)
        n_rows = n_panels // _PANELS_A_ROW + 1  # a panel stays free for the legend
        n_columns = math.ceil((n_panels + 1) / n_rows)
        canvas = new_canvas(11, 2.1 * n_rows + 0.8)
        grid = list(canvas.subplots(n_rows, n_columns, sharex=True, sharey=self.one_scale, squeeze=False).flat)
        names = dict.fromkeys(name for references in self.references for name in references)
        styles = dict(zip(names, itertools.cycle(("--", ":", "-."))))  # of a name the same in every panel
        one_unit = len({figure.y_label for figure in self.figures}) == 1
        drawn: list[Axes] = []
        for axes, figure, references in zip(grid, self.figures, self.references, strict=False):
            figure.plot(axes, 1.2, 2.5, [(name, level, styles[name]) for name, level in references.items()])
            if figure.log_x:
                axes.xaxis.set_major_formatter("{x:,g}")
                ticks = sorted({float(f"{x:.2g}") for curve in figure.curves for x, _ in curve.points})
                if len(ticks) <= _FEW:  # between which no power of two may lie
                    axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
            axes.set_title(figure.title, fontsize=9)
            axes.tick_params(labelsize=7, labelbottom=len(drawn) + n_columns >= n_panels)
            if not one_unit:
                axes.set_ylabel(figure.y_label, fontsize=7)
            drawn.append(axes)
            _open(axes)
        for axes in grid[n_panels:]:
            axes.axis("off")
        lines = {label: line for axes in drawn for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        grid[n_panels].legend(lines.values(), lines.keys(), loc="center", frameon=False)
        canvas.supxlabel(self.figures[0].x_label, fontsize=9)
        if one_unit:
            canvas.supylabel(self.figures[0].y_label, fontsize=9)
        canvas.suptitle(self.title, fontsize=10)
        canvas.savefig(path)
        return path


@contextmanager
def drawing(path: Path, x_label: str, y_label: str) -> Iterator[Axes]:
    """Axes to draw on; the figure is written to ``path`` (PNG) at the end."""
    figure = new_canvas(7.2, 4.0)
    axes = figure.subplots()
    yield axes
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    _open(axes)
    if len(axes.get_legend_handles_labels()[0]) > _CROWD:
        figure.legend(loc="outside right upper", frameon=False)
    else:
        axes.legend(frameon=False)
    figure.savefig(path)


def new_canvas(width: float, height: float) -> Canvas:
    """A canvas of so many inches; not pyplot's, whose global state is not for threads."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(canvas)
    return canvas


def _open(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def loss_curve(
    records: Sequence[Mapping[str, Any]],
    path: Path,
    references: Mapping[str, float] | None = None,
    unit: str = "nats per token",
) -> Path | None:
    """Draw training and validation loss over updates; None where the records hold no curve.

    :param records: lines of metrics.jsonl; of a training whose loss has parts, the one of words is drawn.
    :param references: name -> loss, drawn as level lines (n-gram models, the unigram's entropy).
    :param path: where the PNG goes.
    :param unit: of the loss, for the axis.
    """
    curves = {name: _curve(records, name) for name in ("train/loss", "validation/loss")}
    if words := _curve(records, "train/word_loss"):
        curves["train/loss"] = words
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
