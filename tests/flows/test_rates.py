"""Which of several learning rates a task gets, and what is said of the others."""

from __future__ import annotations

import pytest

from flows.forms.readers import learning_rates
from flows.trainings.rates import _as_table, _best
from gptcore.base.errors import InputError


def test_the_best_dev_score_wins_and_of_equal_ones_the_first() -> None:
    assert _best({5e-5: 0.7, 3e-5: 0.8, 2e-5: 0.8}) == 3e-5
    assert _best({5e-5: ArithmeticError("loss = nan"), 2e-5: 0.1}) == 2e-5
    assert _best({5e-5: ArithmeticError("loss = nan")}) is None


def test_the_card_shows_every_rate_its_dev_score_and_the_choice() -> None:
    tried = {
        "rte": {5e-5: 0.7012, 3e-5: 0.8},
        "cola": {5e-5: ArithmeticError("loss = nan"), 3e-5: 0.25},
        "mrpc": {5e-5: InputError("no row"), 3e-5: InputError("no row")},
    }
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")] for line in _as_table([5e-5, 3e-5], tried).splitlines()
    ]
    assert rows[0] == ["dev score x 100, seed 0", "5e-5", "3e-5", "chosen"]
    assert rows[2:] == [
        ["rte", "70.1", "**80.0**", "3e-5"],
        ["cola", "ArithmeticError: loss = nan", "**25.0**", "3e-5"],
        ["mrpc", "no row", "no row", "-"],
    ]


def test_rates_are_read_as_numbers() -> None:
    assert learning_rates("2e-5, 3e-5,0.001") == [2e-5, 3e-5, 1e-3]
    with pytest.raises(InputError, match="--rates: found '2e-5;3e-5', expected numbers"):
        learning_rates("2e-5;3e-5")
