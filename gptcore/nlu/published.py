"""The paper's result rows (Tables 2, 3 and 4), to stand beside ours.

Numbers are as printed: per cent, on the TEST split (GLUE's test server where the task belongs to GLUE). A local run
reports dev scores where test labels are not public, so the split is part of every row.
"""

from __future__ import annotations

from dataclasses import dataclass

from gptcore.nlu.registry import REGISTRY

OURS = "Finetuned Transformer LM (ours)"
"""The paper's name of the model that this project implements."""


@dataclass(frozen=True)
class PublishedRow:
    """One method's row of one table; the paper's own rows are put together from the registry's entries."""

    method: str
    table: int
    percent: dict[str, float]
    """Leaderboard column -> score in per cent, as printed."""
    split: str = "test"


def _row(table: int, columns: str, method: str, *scores: float | None) -> PublishedRow:
    cells = dict(zip(columns.split(), scores, strict=True))
    return PublishedRow(method, table, {column: score for column, score in cells.items() if score is not None})


def _ours(table: int) -> PublishedRow:
    specs = [spec for spec in REGISTRY.values() if spec.table == table]
    return PublishedRow(
        OURS, table, {c: score for spec in specs for c, score in spec.paper.items() if score is not None}
    )


_2 = "mnli_m mnli_mm snli scitail qnli rte"
_3 = "storycloze race_m race_h race"
_4 = "cola sst2 mrpc stsb qqp"

PUBLISHED: tuple[PublishedRow, ...] = (
    _row(2, _2, "ESIM + ELMo (5x)", None, None, 89.3, None, None, None),
    _row(2, _2, "CAFE (5x)", 80.2, 79.0, 89.3, None, None, None),
    _row(2, _2, "Stochastic Answer Network (3x)", 80.6, 80.1, None, None, None, None),
    _row(2, _2, "CAFE", 78.7, 77.9, 88.5, 83.3, None, None),
    _row(2, _2, "GenSen", 71.4, 71.3, None, None, 82.3, 59.2),
    _row(2, _2, "Multi-task BiLSTM + Attn", 72.2, 72.1, None, None, 82.1, 61.7),
    _ours(2),
    _row(3, _3, "val-LS-skip", 76.5, None, None, None),
    _row(3, _3, "Hidden Coherence Model", 77.6, None, None, None),
    _row(3, _3, "Dynamic Fusion Net (9x)", None, 55.6, 49.4, 51.2),
    _row(3, _3, "BiAttention MRU (9x)", None, 60.2, 50.3, 53.3),
    _ours(3),
    _row(4, _4, "Sparse byte mLSTM", None, 93.2, None, None, None),
    _row(4, _4, "TF-KLD", None, None, 86.0, None, None),
    _row(4, _4, "ECNU (mixed ensemble)", None, None, None, 81.0, None),
    _row(4, _4, "Single-task BiLSTM + ELMo + Attn", 35.0, 90.2, 80.2, 55.5, 66.1),
    _row(4, _4, "Multi-task BiLSTM + ELMo + Attn", 18.9, 91.6, 83.5, 72.8, 63.3),
    _ours(4),
)
