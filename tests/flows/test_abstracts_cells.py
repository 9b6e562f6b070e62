"""Tables 3 to 7 as settings: every cell of every preset, and Table 2's rates."""

from __future__ import annotations

import dataclasses

import pytest

from gptcore.abstracts.config import PRESETS, AdaptConfig, at_size
from gptcore.abstracts.published import SWEEPS, SweepTable
from gptcore.base.errors import InputError
from gptcore.families import FAMILIES
from tasks.report.abstracts import cells


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("table", SWEEPS, ids=lambda table: table.setting)
def test_every_presets_tables_have_cells_that_can_be_trained(preset: str, table: SweepTable) -> None:
    star = PRESETS[preset].star
    made = cells(table, star)
    assert [papers for papers, _, _ in made] == list(table.rows)
    assert len({ours for _, ours, _ in made}) == len(made)
    assert sum(config == star for _, _, config in made) == 1
    if preset == "paper":
        assert [ours for _, ours, _ in made] == list(table.rows)


@pytest.mark.parametrize("epochs", [0.11, 0.14, 3.0])
def test_the_settings_own_cell_is_exact(epochs: float) -> None:
    """0.11 * 5 / 5 is another number than 0.11, and would be another training."""
    star = dataclasses.replace(PRESETS["demo"].star, epochs=epochs)
    table = next(table for table in SWEEPS if table.setting == "epochs")
    assert sum(config == star for _, _, config in cells(table, star)) == 1


def test_a_table_that_cannot_be_scaled_names_the_setting() -> None:
    table = next(table for table in SWEEPS if table.setting == "block_size")
    star = dataclasses.replace(PRESETS["demo"].star, block_size=20)
    with pytest.raises(InputError, match=r"star.block_size = 20: Table 4 has the paper's multiples of it: .*"):
        cells(table, star)


@pytest.mark.parametrize(("size", "lr"), [("82M", 5e-5), ("345M", 2e-5), ("774M", 1e-5), ("1558M", 3e-4)])
def test_each_released_size_has_its_rate_of_table_2(size: str, lr: float) -> None:
    model = {**FAMILIES["gpt2"].shapes[size], "n_ctx": 8}
    assert at_size(AdaptConfig(lr=3e-4, epochs=2), model) == AdaptConfig(lr=lr, epochs=2)
