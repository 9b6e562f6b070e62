"""A picture of many trials at once: an axis a setting, then one a rung, and a line a trial through what it drew.

Inselberg's parallel coordinates. A line ends at the last rung that its trial reached, is as thick as that is far, and
has the colour of what all trials have in common: the first rung's result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.report.figures import new_canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WINNER, _FAILED, _AXIS = "#e45756", "#9a9a9a", "#444444"
_WIDTH, _HEIGHT = 1.5, 5.0  # inches: of an axis, of the picture
_NARROWEST = 8.0  # inches: title and note fit
_NAMED = 3  # of the lines that failed on a rung, by name
_SPREAD = 0.008  # between neighbouring lines through one choice, which would hide one another
_BOTTOM = -0.09  # where the lines of failed trials end
_SHADES = 64
_TICKS = 5  # of a linear axis, about
_MIDDLES = (1, 2, 5)  # times a power of ten: ticks of a logarithmic axis


@dataclass(frozen=True)
class Coordinate:
    """One vertical axis."""

    title: str
    values: Sequence[float | str | None]
    """The value of each line on the axis; None where the line ends before it."""
    choices: Sequence[str] = ()
    """The words on the axis from bottom to top, where the values are words."""
    low: float | None = None
    """The value at the bottom of the axis; None takes the least of the values."""
    high: float | None = None
    log: bool = False
    downwards: bool = False
    """Whether the best, the smallest, is on top."""

    @property
    def _ends(self) -> tuple[float, float]:
        numbers = [value for value in self.values if isinstance(value, int | float)]
        low = self.low if self.low is not None else min(numbers, default=0.0)
        high = self.high if self.high is not None else max(numbers, default=1.0)
        return low, high

    def place(self, value: float | str) -> float:
        """Height of a value, 0 to 1."""
        if self.choices:
            return self.choices.index(str(value)) / max(1, len(self.choices) - 1)
        assert not isinstance(value, str), "words have choices"
        low, high = self._ends
        scale: Callable[[float], float] = math.log if self.log else float
        if low == high:
            return 1.0
        share = (scale(value) - scale(low)) / (scale(high) - scale(low))
        return 1 - share if self.downwards else share

    def ticks(self) -> list[tuple[float, str]]:
        """Heights and their labels: every choice, or the two ends and what lies well between them."""
        if self.choices:
            return [(self.place(choice), choice) for choice in self.choices]
        low, high = self._ends
        from matplotlib.ticker import MaxNLocator

        if low == high:
            return [(self.place(low), label(low))]
        ends = [(self.place(value), label(value)) for value in (low, high)]
        if self.log:
            powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            between = [middle * 10.0**power for power in powers for middle in _MIDDLES]
        else:
            between = [float(value) for value in MaxNLocator(_TICKS).tick_values(low, high)]
        inner = [(self.place(value), label(value)) for value in between if low < value < high]
        room = [tick for tick in inner if min(abs(tick[0] - end) for end, _ in ends) > 0.08]
        return [*ends, *room]


def label(value: float) -> str:
    """A number on an axis: 4 significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 and float(value).is_integer() else f"{value:.4g}"


@dataclass(frozen=True)
class ParallelCoordinates:
    """The picture. All coordinates have the same lines, in the same order."""

    title: str
    settings: Sequence[Coordinate]
    rungs: Sequence[Coordinate]
    """What was reached on each rung."""
    names: Sequence[str]
    """Of the lines."""
    winner: int | None = None
    """The line to find: drawn last and named."""
    failed: frozenset[int] = frozenset()
    """Lines that end in a failure, on the rung after their last."""
    note: str = ""

    def draw(self, path: Path) -> Path:
        """Write the picture to ``path`` (PNG)."""
        from matplotlib import colormaps
        from matplotlib.colors import LinearSegmentedColormap

        coordinates = [*self.settings, *self.rungs]
        figure = new_canvas(max(_WIDTH * (len(coordinates) + 0.8), _NARROWEST), _HEIGHT)
        axes = figure.subplots()
        # from pale to dark: the palest yellows of the map would vanish on white
        shades = LinearSegmentedColormap.from_list("shades", colormaps["viridis_r"](np.linspace(0.12, 1.0, _SHADES)))
        for place, coordinate in enumerate(coordinates):
            _axis(axes, place, coordinate)
        for height in np.linspace(0.0, 1.0, _SHADES):  # what a colour means, along the axis it is read from
            step = 1 / _SHADES
            place = len(self.settings)
            axes.plot([place] * 2, [height - step / 2, height + step / 2], color=shades(height), lw=5, zorder=2)
        self._name_failed(axes, len(self.settings))
        order = [line for line in range(len(self.names)) if line != self.winner]
        for line in [*order, *([] if self.winner is None else [self.winner])]:
            self._line(axes, line, coordinates, shades)
        axes.set_xlim(-0.35, len(coordinates) - 1 + 0.75)
        axes.set_ylim(_BOTTOM - 0.04, 1.16)
        axes.set_axis_off()
        axes.set_title(self.title, fontsize=11, loc="left")
        figure.supxlabel(self.note, fontsize=8.5, color=_AXIS, x=0.01, ha="left")
        figure.savefig(path)
        return path

    def _line(self, axes: Axes, line: int, coordinates: Sequence[Coordinate], shades: Any) -> None:
        first = self.rungs[0].values[line]
        rungs = sum(rung.values[line] is not None for rung in self.rungs)
        points = [(x, c.place(v)) for x, c in enumerate(coordinates) if (v := c.values[line]) is not None]
        offset = _SPREAD * (line - (len(self.names) - 1) / 2) / max(1, len(self.names) / 12)
        xs = [x for x, _ in points]
        ys = [y + (offset if coordinates[x].choices else 0.0) for x, y in points]
        style: dict[str, Any] = {"lw": 0.6 + 0.9 * rungs, "color": _FAILED, "zorder": 3 + rungs}
        if line == self.winner:
            style |= {"color": _WINNER, "lw": 3.2, "zorder": 20}
            axes.annotate(
                self.names[line], (xs[-1], ys[-1]), (9, 0), textcoords="offset points", va="center", fontsize=10,
                color=_WINNER, fontweight="bold", zorder=21,
            )  # fmt: skip
        elif first is not None:
            style["color"] = shades(self.rungs[0].place(first))
        if failed := line in self.failed:
            xs.append(xs[-1] + 1)
            ys.append(_BOTTOM)
        axes.plot(xs, ys, ls="--" if failed else "-", **style)
        axes.plot(xs[-1:], ys[-1:], marker="x" if failed else "o", ms=5, **{**style, "lw": 0})

    def _name_failed(self, axes: Axes, first: int) -> None:
        """Under each rung, which lines end there in a failure.

        :param first: place of the first rung's axis.
        """
        for place, rung in enumerate(self.rungs):
            before = self.rungs[place - 1].values if place else None
            lost = [n for n in sorted(self.failed) if rung.values[n] is None and (not before or before[n] is not None)]
            if lost:
                named = ", ".join(self.names[n] for n in lost[:_NAMED]) + (
                    f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
                )
                axes.annotate(
                    f"{named} failed", (first + place, _BOTTOM), (6, 0), textcoords="offset points", va="center",
                    fontsize=7.5, color=_FAILED,
                )  # fmt: skip


def _axis(axes: Axes, place: int, coordinate: Coordinate) -> None:
    """The line, its ticks to the left of it, its name above."""
    axes.plot([place, place], [0, 1], color=_AXIS, lw=1.0, zorder=1)
    for height, text in coordinate.ticks():
        axes.plot([place - 0.02, place], [height] * 2, color=_AXIS, lw=1.0, zorder=1)
        box = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.75}
        axes.text(place - 0.05, height, text, ha="right", va="center", fontsize=8, color=_AXIS, zorder=25, bbox=box)
    axes.text(place, 1.07, coordinate.title, ha="center", va="bottom", fontsize=9)
