"""Published results, to stand beside ours: ``published.toml``.

Numbers are as printed: per cent, on the TEST split (GLUE's test server where the task belongs to GLUE), but for the
BabyLM challenge's and some encoders', which are on dev rows. A local run reports dev scores where test labels are not
public, so the split is part of every row.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gptcore.base.tables import read_table
from gptcore.nlu.blimp import BLIMP, FIELDS
from gptcore.nlu.registry import TASK_OF_COLUMN, task_spec

OURS = "Finetuned Transformer LM (ours)"
"""The paper's name of the model that this project implements."""


@dataclass(frozen=True)
class PublishedRow:
    """One method's row of one table; the paper's own rows are put together from the registry's entries."""

    method: str
    table: str
    """Where it is printed: "Table 2" and so on of the paper; anything else names its source."""
    percent: dict[str, float]
    """Leaderboard column -> score in per cent, as printed."""
    average: float | None = None
    """The table's own average, as printed. Table 4's is GLUE's score, which counts WNLI and second metrics that are
    not printed: it cannot be worked out from the cells. That of the BERT table is the plain mean of its nine cells,
    so that MNLI counts twice, and is not GLUE's average either."""
    split: str = "test"
    zero_shot: dict[str, float] = field(default_factory=dict)
    """Zero-shot column (:data:`gptcore.nlu.blimp.COLUMNS`) -> accuracy in per cent."""
    note: str = ""
    """What sets the numbers apart from ours."""


@dataclass(frozen=True)
class PublishedModel:
    """One encoder's row of a table that stands beside one of our own analyses."""

    method: str
    source: str
    """Where it is printed, and on which rows: "dev" or "test"."""
    scores: dict[str, str]
    """Task -> score in per cent, as printed; F1/EM on SQuAD."""
    average: str = ""
    """The table's own average, over the tasks that it has."""
    weights: str = ""
    operations: str = ""
    """Floating-point operations of the pre-training."""
    intrinsic: dict[str, str] = field(default_factory=dict)
    """Held-out accuracy of what pre-training tells: words, nsp, sop."""
    kept: str = ""
    """A student's share of its teacher's average."""


def _cells(columns: str, scores: str) -> dict[str, str]:
    return {column: cell for column, cell in zip(columns.split(), scores.split(), strict=True) if cell != "-"}


def numbers_of(columns: str, scores: str) -> dict[str, float]:
    """Column -> score, of what is printed; both as a table's row has them, "-" for what is not."""
    return {column: float(cell) for column, cell in _cells(columns, scores).items()}


def models_of(tables: tuple[Mapping[str, Any], ...]) -> tuple[PublishedModel, ...]:
    """The rows of some tables of encoders."""
    return tuple(
        PublishedModel(
            **row
            | {
                "source": table["source"],
                "scores": _cells(table.get("columns", ""), row.get("scores", "")),
                "intrinsic": _cells("words nsp sop", row["intrinsic"]) if "intrinsic" in row else {},
            }
        )
        for table in tables
        for row in table["rows"]
    )


def _rows(tables: Mapping[str, Mapping[str, Any]]) -> Iterator[PublishedRow]:
    for table in tables.values():
        for row in table["rows"]:
            if "of" in row:
                yield _encoder({model.method: model for model in _analyses[row["of"]]}[row["row"]], row)
                continue
            zero_shot, note = {}, table.get("note", "")
            if row["method"] == OURS:
                own = ((column, task_spec(TASK_OF_COLUMN[column]).paper[column]) for column in table["columns"].split())
                percent = {column: score for column, score in own if score is not None}
            else:
                percent = numbers_of(table["columns"], row["scores"])
            if "fields" in row:  # of BLiMP
                zero_shot = numbers_of(" ".join(f"{BLIMP}/{name}" for name in FIELDS), row["fields"])
                zero_shot = {BLIMP: round(statistics.fmean(zero_shot.values()), 1), **zero_shot}  # not printed
            if "exact" in row:
                exact = zip(percent, row["exact"].split(), strict=True)
                note = "exact match: " + ", ".join(f"{column} {float(score):.1f}" for column, score in exact)
            split = table.get("split", "test")
            yield PublishedRow(row["method"], table["table"], percent, row.get("average"), split, zero_shot, note)


def _encoder(model: PublishedModel, row: Mapping[str, str]) -> PublishedRow:
    """A row of an analysis' table on the leaderboard. Of two numbers the first counts: matched MNLI, SQuAD's F1."""
    percent = {}
    for task, printed in model.scores.items():
        first, _, second = printed.partition("/")
        percent["mnli_m" if task == "mnli" else task] = float(first)
        if task == "mnli" and second:
            percent["mnli_mm"] = float(second)
    source, _, split = model.source.rstrip(")").rpartition("(")
    average = float(model.average) if model.average else None
    return PublishedRow(row["method"], source.strip(), percent, average, split.split()[-1], note=row["note"])


_tables: Mapping[str, Any] = read_table(__file__, "published.toml")
_leaderboard = _tables["leaderboard"]
_analyses = {name: models_of(tables) for name, tables in _tables.items() if isinstance(tables, tuple)}

FAMILIES = _analyses["families"]
"""What pre-training costs and brings, of each family but GPT-2, of which none has such a table."""
DISTILLED = _analyses["distilled"]
"""Students and their teachers."""
WITHOUT = _analyses["without"]
"""What leaving out a part of distillation costs, in points of an average: "average" is the difference."""
ENTITIES = _analyses["entities"]
"""ERNIE's ablation on the paper's own split of FewRel; the rows of our analysis by the same names."""

PUBLISHED: tuple[PublishedRow, ...] = tuple(_rows(_leaderboard))
"""Every method of Tables 2, 3 and 4, the released code's own figure, the rows of BERT's GLUE table, those of its
successors, of SQuAD's and SWAG's leaderboards, and two baselines of the BabyLM challenge."""
