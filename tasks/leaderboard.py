"""The leaderboard as a value: rows, columns, averages, and how it prints. Where it is kept is `tasks/suites.py`."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from gptcore.nlu.published import OURS, PUBLISHED
from gptcore.nlu.registry import COLUMNS, REGISTRY

Kind = Literal["ours", "baseline", "published"]
Format = Literal["table", "markdown", "csv"]

_ORDER: dict[str, int] = {"ours": 0, "baseline": 1, "published": 2}


@dataclass(frozen=True)
class Row:
    """One suite: a checkpoint (or a baseline, or a published method) with its score on each column."""

    name: str
    kind: Kind
    split: str
    """Which split the scores are on: dev, test, or dev/test where only some sets have public test labels."""
    percent: dict[str, float]
    """Leaderboard column -> headline metric x 100; the median over seeds."""
    seeds: int = 1
    """Fewest runs behind any cell."""
    suite: str = ""
    """Digest of what was scored; empty for published rows."""

    @property
    def per_task(self) -> dict[str, float]:
        """Task -> score: a task of several columns counts once (RACE by its own column, MNLI by the mean of two)."""
        scores = {}
        for name, spec in REGISTRY.items():
            own = [self.percent[name]] if name in self.percent else []
            parts = own or [self.percent[column] for column in spec.paper if column in self.percent]
            if parts:
                scores[name] = statistics.fmean(parts)
        return scores

    def average(self, tasks: Sequence[str]) -> float | None:
        """Unweighted mean over ``tasks``; None where one of them is missing, for such a mean compares with no other."""
        scores = self.per_task
        if not tasks or any(task not in scores for task in tasks):
            return None
        return statistics.fmean(scores[task] for task in tasks)


@dataclass(frozen=True)
class Leaderboard:
    """Rows to compare, and what a reader must know about them."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def tasks(self) -> list[str]:
        """The tasks that any of our rows has: what the average is over."""
        ours = [row for row in self.rows if row.kind != "published"] or list(self.rows)
        return [name for name in REGISTRY if any(name in row.per_task for row in ours)]

    def render(self, format: Format = "table") -> str:
        """The table as aligned text, Markdown or CSV; scores in per cent, the best of each column is not marked."""
        header = ["suite", "kind", "split", "seeds", "average", *COLUMNS]
        rows = sorted(self.rows, key=lambda row: _ORDER[row.kind])
        body = [self._cells(row) for row in rows]
        if format == "csv":
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([header, *body])
            return text.getvalue().rstrip("\n")
        notes = [f"average: over {len(self.tasks)} tasks ({', '.join(self.tasks)})", *self.notes]
        if format == "markdown":
            lines = [header, ["---", "---", "---", *["---:"] * (len(header) - 3)], *body]
            table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
            return table + "\n\n" + "\n".join(f"- {note}" for note in notes)
        return _aligned(header, body, [row.kind for row in rows]) + "\n\n" + "\n".join(notes)

    def _cells(self, row: Row) -> list[str]:
        average = row.average(self.tasks)
        scores = [row.percent.get(column) for column in COLUMNS]
        seeds = str(row.seeds) if row.kind != "published" else "-"
        return [row.name, row.kind, row.split, seeds, *("-" if s is None else f"{s:.1f}" for s in [average, *scores])]


def _aligned(header: list[str], body: list[list[str]], kinds: list[str]) -> str:
    """Columns padded to their widest cell, names left and numbers right, a rule between kinds of rows."""
    widths = [max(len(cells[i]) for cells in [header, *body]) for i in range(len(header))]

    def line(cells: list[str]) -> str:
        padded = [c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return "  ".join(padded).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    lines = [line(header), rule]
    for i, cells in enumerate(body):
        if i and kinds[i] != kinds[i - 1]:
            lines.append(rule)
        lines.append(line(cells))
    return "\n".join(lines)


def published_rows() -> list[Row]:
    """Every method of Tables 2, 3 and 4: one row each, a method of several tables (the paper's own) in one row."""
    merged: dict[str, dict[str, float]] = {}
    for row in PUBLISHED:
        merged.setdefault(row.method, {}).update(row.percent)
    names = sorted(merged, key=lambda name: name != OURS)  # the paper's own first, the others in the tables' order
    return [Row(f"{name} [published]", "published", "test", merged[name]) for name in names]
