"""The picture of a question about a knowledge graph: its choices, and the paths of the graph that led to each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.report.figures import COLORS, new_canvas

_WIDEST = 5.0  # points, of a path that alone counted
_PANEL = 2.4  # inches


@dataclass(frozen=True)
class Route:
    """A path in words."""

    entities: Sequence[str]
    relations: Sequence[str]
    weight: float
    """The share of the attention that the path got among all paths of its choice, 0 to 1."""


@dataclass(frozen=True)
class Choice:
    """One choice, and what led to it."""

    text: str
    score: float
    """The share of the probability that the choice gets, 0 to 1."""
    right: bool
    routes: Sequence[Route]


@dataclass(frozen=True)
class Routes:
    """The choices of one question, one panel each; the likeliest first."""

    question: str
    choices: Sequence[Choice]

    def draw(self, path: Path) -> Path:
        """Write the picture (PNG)."""
        canvas = new_canvas(10, _PANEL * len(self.choices) / 2 + 0.6)
        for axes, choice in zip(canvas.subplots(len(self.choices), 1, squeeze=False).flat, self.choices, strict=True):
            axes.axis("off")
            mark = " (the right one)" if choice.right else ""
            axes.set_title(f"{choice.text}{mark}: {choice.score:.0%}", fontsize=9, loc="left", pad=2)
            axes.set_xlim(-0.1, 1.15)  # long names stand on either end
            axes.set_ylim(-0.6, max(1, len(choice.routes)) - 0.4)
            if not choice.routes:
                axes.text(0.0, 0.0, "the graph has no path", fontsize=8, color="#888888")
            for row, route in enumerate(reversed(choice.routes)):
                color = COLORS[not choice.right]
                last = len(route.entities) - 1
                axes.plot([0, 1], [row, row], color=color, lw=0.4 + _WIDEST * route.weight, alpha=0.5, zorder=1)
                for place, name in enumerate(route.entities):
                    box = {"boxstyle": "round", "fc": "white", "ec": color, "lw": 0.8}
                    axes.text(place / last, row, name, fontsize=8, ha="center", va="center", bbox=box, zorder=3)
                for place, name in enumerate(route.relations):
                    at = (place + 0.5) / last
                    axes.text(at, row + 0.08, name, fontsize=7, ha="center", va="bottom", color="#555555", zorder=2)
                axes.text(1.11, row, f"{route.weight:.0%}", fontsize=7, ha="left", va="center", color="#555555")
        canvas.suptitle(self.question, fontsize=11)
        canvas.savefig(path)
        return path
