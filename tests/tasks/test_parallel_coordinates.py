"""The picture of a sweep: what is written stands apart, and values that differ look different."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.axes
import matplotlib.figure
import pytest

from tasks.report.parallel_coordinates import Coordinate, ParallelCoordinates
from tasks.report.sweep import shown_value


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
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


def test_trials_that_failed_on_a_rung_are_named_together(drawn: dict[str, list[Any]], tmp_path: Path) -> None:
    rungs = [[2.0, 3.0, None, None, None, None, None], [1.0, None, None, None, None, None, None]]
    picture(rungs, {1, 2, 3, 4, 5, 6}).draw(tmp_path / "a.png")
    words = dict(drawn["words"])
    assert words.keys() == {"trial 1", "trial 2 failed", "trial 3, trial 4, trial 5 and 2 more failed"}
    assert len(set(words.values())) == len(words), "each at a place of its own"


def test_one_axis_leaves_room_for_the_title(drawn: dict[str, list[Any]], tmp_path: Path) -> None:
    picture([[2.0, 3.0]], set()).draw(tmp_path / "a.png")
    assert drawn["inches"][0][0] >= 8.0


def test_values_that_differ_are_shown_apart() -> None:
    values = [0.999, 0.99999, 0.999999, 1e-3, 0.25, 3, True, "adamw"]
    assert [shown_value(value) for value in values[:3]] == ["0.999", "0.99999", "0.999999"]
    assert len({shown_value(value) for value in values}) == len(values)
