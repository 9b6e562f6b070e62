"""The leaderboard on a terminal: a task a line, a suite a column, the paper beside them, within 100 columns.

Colour and rules are for terminals; a pipe gets plain text. `tasks/report/leaderboard.py` keeps the value and its other
forms: a line a suite, Markdown, CSV.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gptcore.nlu.blimp import BLIMP
from gptcore.nlu.registry import COLUMNS, TASK_OF_COLUMN, task_spec
from gptcore.nlu.spec import METRIC_TITLES
from tasks.report.leaderboard import Leaderboard, published_notes
from tasks.report.rows import Row, is_paper

WIDTH = 100
_HEADING = 12  # a suite's name is wrapped, and its longer words are cut, to this many characters
_GAP = 2
_NAME = 34  # the most characters of a published method's name in a line


def print_board(board: Leaderboard, console: Console | None = None, published: bool = False) -> None:
    """Print the table and how to read it.

    :param console: where to; None: standard output, at most 100 columns of it.
    :param published: also each of the other published methods, a line each.
    """
    console = console or Console(highlight=False)
    width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    suites, left = _chosen(board, width)
    with console.capture() as captured:
        console.width = width
        console.print(_table(board, suites, console.is_terminal))
        if published:
            console.print("", _others(board, width), sep="\n")
        notes = published_notes(board.ordered) if published else ()
        for line in [*_remarks(board, suites, left, console.is_terminal), *notes]:
            console.print(
                textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False), style="dim", markup=False
            )
    text = "\n".join(line.rstrip() for line in captured.get().splitlines())
    console.file.write(f"{text}\n")  # as it is: captured text has its colours already
    console.file.flush()


@dataclass(frozen=True)
class _Column:
    """One row of the board stood upright."""

    row: Row
    texts: dict[str, str]
    """Line of the table (a leaderboard column, average, glue, blimp, seeds) -> what stands there, or nothing."""

    @property
    def heading(self) -> list[str]:
        """The name in lines of the column's width, a suite's digest on a line of its own, then how it differs."""
        if self.row.kind == "published":
            return ["the paper", "(test)"]
        label, _, digest = self.row.name.rpartition(" ")
        return [line for text in (label, digest, self.row.differs) for line in textwrap.wrap(text, self.width)]

    @property
    def width(self) -> int:
        """Characters: of the longest cell or line of the heading."""
        longest = max(map(len, self.row.told.split())) if self.row.kind != "published" else len("the paper")
        return max(min(longest, _HEADING), *map(len, self.texts.values()))


def _column(board: Leaderboard, row: Row) -> _Column:
    lines = (*COLUMNS, "average", "glue", *board.own_tasks, *board.untrained, "seeds")
    record = board.record(row, nothing="")
    return _Column(row, {line: record[line] for line in lines})


def _chosen(board: Leaderboard, width: int) -> tuple[list[_Column], list[Row]]:
    """The suites that fit, best average first, and those of ours that do not: the newest stay, and the best."""
    ours = [row for row in board.ordered if row.kind == "ours"]
    best = max(ours, key=lambda row: (row.average(board.tasks) or 0.0, len(row.percent)), default=None)
    kept = list(ours)

    def beside() -> list[Row]:
        return [*board.floors_beside(kept), *(row for row in board.rows if is_paper(row))]

    while len(kept) > 1 and _wide(board, [*kept, *beside()]) > width:
        kept.remove(next(row for row in reversed(kept) if row is not best))
    others = beside()
    while len(others) > 1 and _wide(board, [*kept, *others]) > width:
        others.pop(0)
    kept.sort(key=lambda row: -(row.average(board.tasks) or 0.0))
    return [_column(board, row) for row in [*kept, *others]], [row for row in ours if row not in kept]


def _wide(board: Leaderboard, rows: Sequence[Row]) -> int:
    names = max(map(len, (*COLUMNS, *board.own_tasks, *board.untrained, "average"))) + _GAP + len("dev/test")
    return names + sum(_GAP + _column(board, row).width for row in rows) + _GAP


def _table(board: Leaderboard, suites: Sequence[_Column], terminal: bool) -> Table:
    ruled = box.SIMPLE_HEAD if terminal else None  # it has a blank of its own between two columns
    table = Table(box=ruled, padding=(0, _GAP - (1 if terminal else 0), 0, 0), pad_edge=False, show_edge=False)
    table.add_column("task", no_wrap=True, vertical="bottom")
    table.add_column("rows", no_wrap=True, vertical="bottom")
    for suite in suites:
        style = {"ours": "", "baseline": "dim", "published": "cyan"}[suite.row.kind]
        table.add_column("\n".join(suite.heading), justify="right", no_wrap=True, style=style, vertical="bottom")
    ours = [suite for suite in suites if suite.row.kind != "published"] or list(suites)
    columns = [column for column in COLUMNS if any(column in suite.row.percent for suite in ours)]
    for column in columns:
        table.add_row(column, Text(_splits(suites, column), "dim"), *_numbers(board, suites, column))
    totals = [name for name in ("average", "glue") if len(board.tasks) > 1 and any(suite.texts[name] for suite in ours)]
    if totals or len(columns) > 1:
        table.add_section()
        if not terminal:
            table.add_row()
    for name in totals:
        table.add_row(name, "", *_numbers(board, suites, name))
    for name in board.own_tasks:
        table.add_row(name, Text(_splits(suites, name), "dim"), *_numbers(board, suites, name))
    for name in board.untrained:
        if any(suite.texts[name] for suite in ours):
            table.add_row(name, "", *_numbers(board, suites, name))
    table.add_row("seeds", "", *(Text(suite.texts["seeds"], "dim") for suite in suites))
    return table


def _splits(suites: Sequence[_Column], column: str) -> str:
    cells = [suite.row.cells[column] for suite in suites if column in suite.row.cells]
    return "/".join(sorted({split for cell in cells for split in cell.split.split("/")}))


def _numbers(board: Leaderboard, suites: Sequence[_Column], line: str) -> list[Text]:
    texts = [suite.texts[line] for suite in suites]
    best = board.bold(line, [suite.row for suite in suites], texts)
    return [Text(text, "bold" if is_best else "") for text, is_best in zip(texts, best, strict=True)]


def _others(board: Leaderboard, width: int) -> Table:
    """The other published methods, each with its numbers behind it."""
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, width=width)
    table.add_column("published (test)", overflow="fold", max_width=_NAME)
    table.add_column("")
    for row in board.ordered:
        if row.kind == "published" and not is_paper(row):
            scores = {name: row.percent[name] for name in (*COLUMNS, *board.own_tasks) if name in row.percent}
            scores |= {BLIMP: row.zero_shot[BLIMP]} if BLIMP in row.zero_shot and BLIMP in board.zero_shot else {}
            on = "" if row.split == "test" else f" ({row.split})"
            numbers = ",  ".join(f"{name}\xa0{score:.1f}" for name, score in scores.items())
            lines = textwrap.wrap(numbers, width - _NAME - _GAP)  # which breaks at no such blank
            table.add_row(row.name.removesuffix(" [published]") + on, "\n".join(lines).replace("\xa0", " "))
    return table


def _higher(board: Leaderboard, shown: Sequence[Row], left: Sequence[Row]) -> list[str]:
    """Scores above all that are shown on the same rows, of suites of ours that had no room."""
    higher = []
    for column in (*COLUMNS, *board.own_tasks):
        scored = [row for row in left if column in row.percent]
        if not scored:
            continue
        best = max(scored, key=lambda row: row.percent[column])
        task = TASK_OF_COLUMN.get(column, column)
        same = [row for row in shown if row.kind == "ours" and row.data.get(task) == best.data.get(task)]
        beside = [row for row in same if column in row.percent]
        if beside and best.percent[column] > max(row.percent[column] for row in beside):
            higher.append(f"{column} {best.percent[column]:.1f} ({best.told})")
    return [f"higher there: {', '.join(higher)}"] if higher else []


def _remarks(board: Leaderboard, suites: Sequence[_Column], left: Sequence[Row], bold: bool) -> list[str]:
    """Which suites had no room, what the numbers are, then the board's own notes on the rows that are shown."""
    names = [suite.row.name for suite in suites]
    shown = Leaderboard(tuple(row for row in board.rows if row.name in names or row.kind == "baseline"), board.notes)
    remarks = [""]
    if left:
        remarks.append(f"{len(left)} more: {', '.join(row.told for row in left)} (gptmill leaderboard --wide)")
        remarks += _higher(board, [suite.row for suite in suites], left)
    by_metric: dict[str, list[str]] = {}
    for name in shown.tasks:
        by_metric.setdefault(METRIC_TITLES[task_spec(name).headline], []).append(name)
    accuracy = ["accuracy"] if by_metric.pop("accuracy", None) else []
    metrics = [*accuracy, *(f"{metric} for {', '.join(tasks)}" for metric, tasks in by_metric.items())]
    if metrics:
        remarks.append(f"scores x 100: {'; '.join(metrics)}")
    if generated := [suite.row.name for suite in suites if "synthetic" in suite.row.split]:
        every = len(generated) == sum(suite.row.kind != "published" for suite in suites)
        remarks.append(
            "synthetic rows (generated, not the public ones)" + ("" if every else f": {', '.join(generated)}")
        )
    return [*remarks, *shown.explained(bold)]
