"""Published results that stand beside the rows of our analyses alone: GPT-1's ablations, and encoders' own tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gptcore.base.tables import read_table
from gptcore.nlu.published import models_of, numbers_of


@dataclass(frozen=True)
class AblationRow:
    """One row of Table 5. A type of its own, so that an ablated model never stands among the leaderboard's rows."""

    method: str
    average: float
    """The printed average: the unweighted mean of the eight cells, rounded half up to one decimal, but for the LSTM,
    whose 69.1625 is printed as 69.1. Cells are rounded to 0.05, so that their mean tells no more of the scores'."""
    percent: dict[str, float]
    """Task -> score in per cent, as printed; MNLI is one number, the mean of its two test sets."""


_tables: Mapping[str, Any] = read_table(__file__, "published.toml")
_table_5 = _tables["ablations"]

ABLATIONS: tuple[AblationRow, ...] = tuple(
    AblationRow(row["method"], row["average"], numbers_of(_table_5["columns"], row["scores"]))
    for row in _table_5["rows"]
)
"""Table 5: GLUE test scores of the paper's own runs."""
SENTENCES = models_of(_tables["sentences"])
"""What the second segment is, by the names of the setting `pretrain.pairs`."""
SHARING = models_of(_tables["sharing"])
"""ALBERT-base: the width of the embeddings, and what all layers share."""
REPLACED = models_of(_tables["replaced"])
"""ELECTRA and the controls that explain what it gains."""
SIZES = models_of(_tables["sizes"])
"""BERT by its number of layers and their width."""
