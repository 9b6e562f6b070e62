"""What the paper's tables print, as printed, and the titles of its appendix: ``published.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gptcore.base.tables import read_table

Losses = tuple[float, float, float, float]
"""Loss on train and valid, then the perplexities."""

_tables = read_table(__file__, "published.toml")

SPLIT: Mapping[str, tuple[int, float, int]] = _tables["split"]
"""Table 1: split -> papers, percentage, tokens."""
RATES: Mapping[str, float] = _tables["rates"]
"""Table 2: size -> learning rate."""
EVALUATION: Mapping[str, tuple[float, float, float, float, float, float]] = _tables["evaluation"]
"""Table 8: size -> loss on train, valid and test, then the perplexities."""
TITLES: tuple[str, ...] = _tables["appendix"]["titles"]
"""Those under which the paper's appendix A shows a generated abstract."""


@dataclass(frozen=True)
class SweepTable:
    """One of Tables 3 to 7: a setting of 82M* changed, all others as they are."""

    number: int
    setting: str
    """A field of :class:`gptcore.abstracts.config.AdaptConfig`."""
    title: str
    rows: Mapping[float, Losses]
    """Value of the setting -> what the paper prints."""
    note: str = ""
    """What a reader of the printed rows must know."""
    scaled: bool = False
    """Whether another preset has the same multiples of its own value instead."""

    @property
    def name(self) -> str:
        """As it is asked for."""
        return f"table{self.number}"


STAR_BATCH = 8
"""Blocks an update in Tables 3 to 7. Section 4.2 says that 82M* has a batch of 1, Table 7 that it has 8: its row there
has the losses that 82M* has in all the other tables, and its row for 1 those of Table 8. So 8 here, 1 for Table 8."""

SWEEPS = tuple(
    SweepTable(**{**table, "rows": {row[0]: row[1:] for row in table["rows"]}}) for table in _tables["sweeps"]
)

BY_SIZE = "sizes"
TABLES = (*(table.name for table in SWEEPS), BY_SIZE)
"""Names of what can be made: Tables 3 to 7, and what stands for Table 8's sizes where a language model is trained."""
