"""One cell's worth of result: what a fine-tune or a baseline reached on its task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gptcore.nlu.metrics import leaderboard_cells
from gptcore.nlu.registry import task_spec


@dataclass(frozen=True)
class Score:
    """A small record that crosses from a Prefect task to its flow."""

    task: str
    seed: int
    split: str
    """The split of ``percent``: test where the public test rows carry labels, else dev."""
    percent: dict[str, float]
    """Leaderboard column -> headline metric x 100."""
    notes: tuple[str, ...] = ()


def score_of(task: str, seed: int, results: Mapping[str, Any], notes: tuple[str, ...] = ()) -> Score:
    """A score from results named ``<split>/<metric>`` (fractions): the test split's where there is one, else dev's."""
    split = "test" if "test/score" in results else "dev"
    values = {key.partition("/")[2]: value for key, value in results.items() if key.startswith(f"{split}/")}
    cells = leaderboard_cells(task_spec(task), values)
    return Score(task, seed, split, {column: 100 * value for column, value in cells.items()}, notes)
