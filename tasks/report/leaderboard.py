"""The leaderboard: which rows and columns it has, and how it prints. It is kept by `tasks/report/suites.py`."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, cast

from gptcore.base.files import sha256_json
from gptcore.config import FinetuneConfig
from gptcore.config.training import SELECTIONS
from gptcore.evaluation.comparison import LEVEL
from gptcore.nlu.blimp import BLIMP
from gptcore.nlu.blimp import COLUMNS as ZERO_SHOT
from gptcore.nlu.forms import form_of
from gptcore.nlu.published import PUBLISHED
from gptcore.nlu.registry import BEYOND, COLUMNS, REGISTRY, TASK_OF_COLUMN
from gptcore.nlu.spec import METRIC_TITLES, Metric
from tasks.report.rows import Row, is_paper, label_of, one_decimal, split_of
from tasks.report.score import HARNESS
from tasks.report.table import Table

Format = Literal["table", "markdown", "csv"]

_ORDER: dict[str, int] = {"ours": 0, "baseline": 1, "published": 2}
_HEADER = ["suite", "kind", "split", "seeds", "average", *COLUMNS, "glue"]
NGRAM_FLOOR = "words and n-grams alone"
"""The baseline that is a fine-tune's n-grams without its network."""
_TEXTS = 3  # leading columns that are no numbers
LOW = "°"
"""Marks a score that is not told apart from the best baseline's."""
BOLD = f"bold: the best of ours, and what is not told apart from it on the same rows (p >= {LEVEL:g}, by Holm's method)"


@dataclass(frozen=True)
class Leaderboard:
    """Rows to compare, and what a reader must know about them."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())

    @cached_property
    def _scored(self) -> list[Row]:
        """Ours and the baselines: all but the published ones."""
        return [row for row in self.rows if row.kind != "published"]

    @property
    def tasks(self) -> list[str]:
        """The tasks among the twelve that any of our rows has: what the average is over."""
        return [name for name in REGISTRY if any(name in row.per_task for row in self._scored or self.rows)]

    @property
    def zero_shot(self) -> list[str]:
        """The zero-shot columns that any of our rows has; where none has one there are none."""
        there = {column for row in self._scored for column in row.zero_shot}
        return [*(column for column in ZERO_SHOT if column in there), *sorted(there - {*ZERO_SHOT})]

    @property
    def untrained(self) -> list[str]:
        """The zero-shot columns without BLiMP's single fields."""
        return [column for column in self.zero_shot if column not in ZERO_SHOT[1:]]

    @property
    def own_tasks(self) -> list[str]:
        """Tasks beyond the twelve that any of our rows has: columns beside the average, never in it."""
        return sorted({name for row in self._scored for name in row.own_tasks})

    @cached_property
    def floors(self) -> list[Row]:
        """For each set of rows that baselines were scored on, the best of the newest of these in every column."""
        floors = []
        baselines = [row for row in self.rows if row.kind == "baseline"]
        for data in {sha256_json(dict(row.data)): row.data for row in baselines}.values():
            best: dict[str, Row] = {}
            for row in {label_of(row): row for row in reversed(baselines) if row.data == data}.values():
                best |= {c: row for c, score in row.percent.items() if c not in best or score > best[c].percent[c]}
            cells = {column: row.cells[column] for column, row in best.items() if column in row.cells}
            percent = {column: row.percent[column] for column, row in best.items()}
            names = {column: label_of(row) for column, row in best.items()}
            suite = f"best floor {sha256_json(dict(data))[:6]}"
            floors.append(Row(suite, "baseline", split_of(cells), percent, cells, data=data, floors=names))
        return floors

    def floors_beside(self, rows: Sequence[Row]) -> list[Row]:
        """The best baselines of each set of rows that any of ``rows`` was scored on; else the newest."""
        return [floor for floor in self.floors if any(row.same_rows(floor) for row in rows)] or self.floors[:1]

    def floor_of(self, row: Row, column: str) -> Row | None:
        """The best baselines on the rows that a score is on; None: there are none."""
        data = self.data(row, column)
        return next((each for each in self.floors if column in each.percent and data == self.data(each, column)), None)

    def data(self, row: Row, column: str) -> tuple[list[str | None], str]:
        """What tells the rows of data behind a number of a row, or behind its average, from others."""
        tasks = self.tasks if column == "average" else [TASK_OF_COLUMN.get(column, column)]
        return [row.data.get(task) for task in tasks], row.cells[column].own_data if column in row.cells else ""

    def apart(self, row: Row) -> str:
        """What network and n-grams reach apart, of a row that counts both, in words; empty for any other.

        "on average: the network alone 62.1, words and n-grams alone 64.6, both 66.9".
        """
        if row.kind != "ours" or (alone := row.alone) is None:
            return ""
        tasks = [task for task in row.per_task if task in self.tasks] or self.own_tasks
        words = next((each for each in self.rows if label_of(each) == NGRAM_FLOOR and row.same_rows(each)), None)
        arms = {"the network alone": alone, NGRAM_FLOOR: words, "both": row}
        means = {name: _mean(each, tasks) for name, each in arms.items() if each is not None}
        told = ", ".join(f"{name} {mean:.1f}" for name, mean in means.items() if mean is not None)
        return f"{'on average: ' if len(tasks) > 1 else ''}{told}"

    def is_low(self, row: Row, column: str) -> bool:
        """Whether a score of ours is not above the best baseline, or not told apart from it by the answers of both."""
        if row.kind != "ours" or column not in row.cells or (floor := self.floor_of(row, column)) is None:
            return False
        return row.percent[column] <= floor.percent[column] or row.certain.get(column, {}).get("floor", 0.0) >= LEVEL

    def bold(self, column: str, rows: Sequence[Row], texts: Sequence[str]) -> list[bool]:
        """Whether each of the cells in one column is of what :data:`BOLD` says; where none was compared, the best of
        several rows of ours.

        :param texts: what stands in the column, a text a row.
        """
        level = [row.certain.get(column, {}).get("level") for row in rows]
        if level.count(None) < len(rows):
            return list(map(bool, level))
        ours = [row.kind == "ours" for row in rows]
        scores = [float(text.partition("±")[0].rstrip(f"*{LOW}-") or "-inf") for text in texts]
        best = max(itertools.compress(scores, ours), default=0.0)
        return [
            mine and sum(ours) > 1 and score == best > float("-inf") for mine, score in zip(ours, scores, strict=True)
        ]

    def in_markdown(self, rows: Sequence[Row]) -> list[dict[str, str]]:
        """:meth:`record` of each row, with :meth:`bold` cells."""
        records = [self.record(row) for row in rows]
        for column in self.header[_HEADER.index("average") :]:
            bold = self.bold(column, rows, [record[column] for record in records])
            for record in itertools.compress(records, bold):
                record[column] = "**{}**".format(record[column].replace("*", "\\*"))
        return records

    @property
    def header(self) -> list[str]:
        """The names of a row's texts, in order."""
        return [*_HEADER, *self.own_tasks, *self.zero_shot]

    @property
    def ordered(self) -> list[Row]:
        """Ours, the baselines, the best of them, then the published rows that have a number in any of the columns."""
        columns = {*COLUMNS, *self.own_tasks, *self.zero_shot}
        shown = (row for row in self.rows if row.kind != "published" or columns & {*row.percent, *row.zero_shot})
        return sorted([*shown, *self.floors], key=lambda row: _ORDER[row.kind])

    def only(self, tasks: Sequence[str]) -> Leaderboard:
        """A copy of the board with the columns of these tasks alone, without the rows that have none of them."""
        rows = (row.only(tasks) for row in self.rows)
        return Leaderboard(tuple(row for row in rows if row.percent), self.notes)

    def beside_the_paper(self) -> Leaderboard:
        """A copy of the board with the paper's own row as the only published one."""
        return Leaderboard(tuple(row for row in self.rows if row.kind != "published" or is_paper(row)), self.notes)

    def records(self) -> list[dict[str, str]]:
        """What :meth:`record` says of each row."""
        return [self.record(row) for row in self.ordered]

    def record(self, row: Row, nothing: str = "-") -> dict[str, str]:
        """Column -> text of one row: ``62.4±1.9*`` is the median over seeds, its standard error, a collapse.

        :param nothing: what stands for a score that is not there.
        """
        texts = {column: row.text(column) + (LOW if self.is_low(row, column) else "") for column in row.percent}
        texts |= {"average": one_decimal(row.average(self.tasks), nothing), "glue": one_decimal(row.glue, nothing)}
        texts |= {column: one_decimal(row.zero_shot.get(column), nothing) for column in self.zero_shot}
        texts |= {"suite": row.told, "kind": row.kind, "split": row.split, "seeds": row.seeds if row.cells else nothing}
        return {name: texts.get(name, nothing) for name in self.header}

    def render(self, format: Format = "table") -> str:
        """The table as aligned text or Markdown, with its notes, or as CSV; scores in per cent.

        CSV has plain numbers, empty where there is none, and for each column six more: ``<column>_stderr``, ``_low``,
        ``_high``, ``_seeds``, ``_split`` and ``_collapsed``; then the commits, where a published row is printed, what
        settings tell a row from others of its checkpoint, and, where any of our rows has them, the zero-shot columns.
        """
        if format == "csv":
            return Table.of([self._plain(row) for row in self.ordered]).csv().rstrip("\n")
        rows = self.ordered  # a row of one task is no row of dashes
        records = self.in_markdown(rows) if format == "markdown" else [self.record(row, "") for row in rows]
        table = Table(
            [name.removeprefix(f"{BLIMP}/") for name in self.header],
            [list(record.values()) for record in records],
            self.explained(bold=format == "markdown"),
            n_texts=_TEXTS,
            groups=[row.kind for row in self.ordered],
        )
        return table.markdown() if format == "markdown" else "\n".join([table.text(), "", *table.notes])

    def explained(self, bold: bool = False) -> list[str]:
        """How to read the table, what sets single rows apart, then the notes that came with it.

        :param bold: whether the table has bold cells.
        """
        several = len(self.tasks) > 1
        average = [f"average: over {len(self.tasks)} tasks ({', '.join(self.tasks)})"] if several else []
        grouped = bold and any("level" in each for row in self.rows for each in row.certain.values())
        return [*average, *([BOLD] if grouped else []), *self._legend(), *self.notes]

    def _legend(self) -> Iterator[str]:
        ours = [row for row in self.ordered if row.kind != "published"]
        cells = [cell for row in ours for cell in row.cells.values()]
        if any(row.glue is not None for row in ours):
            printed = [f"{row.method} {row.average}" for row in PUBLISHED if row.table == "Table 4" and row.average]
            yield (
                "glue: GLUE's average without WNLI, which the paper leaves out (MNLI m/mm averaged first; MRPC, QQP "
                f"and STS-B over both metrics); as printed, with WNLI: {', '.join(printed)}"
            )
        if any(cell.stderr is not None for cell in cells):
            yield "±: bootstrap standard error over the scored rows; another seed is another matter"
        for chosen_on in sorted({row.chosen_on for row in ours} - {""}):
            rows = ", ".join(row.name for row in ours if row.chosen_on == chosen_on)
            yield f"{rows}: epochs chosen on {SELECTIONS.get(chosen_on, chosen_on)}"
        on_dev = any(row.kind == "published" and row.split == "dev" for row in self.rows)
        theirs = "dev where they say so, else test" if on_dev else "test"
        tested: dict[str, list[str]] = {}
        for row in ours:
            if row.split.startswith("dev/test"):
                tested.setdefault(_tested(row), []).append(row.name)
        for tasks, names in tested.items():
            rows = f"{', '.join(names)}: " if len(tested) > 1 else ""
            yield f"{rows}splits: test for {tasks}, dev for the other tasks; published rows: {theirs}"
        for floor in self.floors:
            by_name: dict[str, list[str]] = {}
            for column, baseline in floor.floors.items():
                by_name.setdefault(baseline, []).append(column)
            best = "; ".join(f"{baseline} ({', '.join(columns)})" for baseline, columns in by_name.items())
            yield f"{floor.name}, the best number that needs no network: {best}"
        if any(self.is_low(row, column) for row in ours for column in row.cells):
            yield f"{LOW}: below that, or not told apart from it by both answers to the same rows (p >= {LEVEL:g})"
        if lacking := [row.name for row in ours if row.kind == "ours" and self._lacks(row)]:
            yield f"not compared in some columns, for lack of answers to the same rows: {', '.join(lacking)}"
        if any(cell.collapsed for cell in cells):
            yield "*: a run behind the number gave every dev row the same answer; it counts in the median all the same"
        if self.own_tasks:
            named = (
                f"{name} ({', '.join([self.own_metric(name), *self._own_protocols(name)])})" for name in self.own_tasks
            )
            yield f"beyond the twelve, in no average: {', '.join(named)}"
        if places := [name for name in self.own_tasks if name in BEYOND and form_of(BEYOND[name]).places]:
            yield (
                f"bag of words of {', '.join(places)}: the sentence that shares the rarest words with the question, or "
                "the phrases that are entities in the train rows"
            )
        if self.untrained and self.untrained != [BLIMP]:
            yield f"{HARNESS}TASK/METRIC: of the checkpoint itself, x 100, by lm-evaluation-harness; in no average"
        if BLIMP in self.zero_shot:
            yield (
                f"{BLIMP}: of the checkpoint itself, without fine-tuning: accuracy x 100 on minimal pairs, the mean of "
                f"its {len(ZERO_SHOT) - 1} fields (chance: 50); in no average"
            )
        for row in ours:
            if words := self.apart(row):
                yield f"{row.name}, {words}"
        for row in ours:
            several = {column: cell for column, cell in row.cells.items() if cell.seeds > 1}
            spread = [f"{column} {cell.low:.1f}-{cell.high:.1f} ({cell.seeds})" for column, cell in several.items()]
            if spread:
                yield f"{row.name}: medians over seeds; lowest-highest (seeds): {', '.join(spread)}"
            if len(row.commits) > 1:
                yield f"{row.name}: made by {len(row.commits)} commits, {', '.join(row.commits)} (+: local changes)"
        yield from published_notes(self.ordered)

    def _lacks(self, row: Row) -> bool:
        """Whether a row stands beside a baseline with which it is not compared."""
        return any(self.floor_of(row, c) and "floor" not in row.certain.get(c, {}) for c in row.cells)

    def _own_protocols(self, task: str) -> list[str]:
        """How else than by default epochs of an own task were chosen: its own settings say so, not its row's."""
        protocols = {row.cells[task].own_select for row in self.rows if task in row.cells}
        return [f"select {each}" for each in sorted(protocols - {"", FinetuneConfig.select})]

    def own_metric(self, task: str) -> str:
        """What the metric of a column beyond the twelve is called."""
        metric = next(row.cells[task].own_metric for row in self.rows if task in row.cells)
        return METRIC_TITLES.get(cast(Metric, metric), metric)  # a newer version's metrics have names as they are

    def _plain(self, row: Row) -> dict[str, str]:
        """Column -> text of one row as CSV has it."""
        columns = (*COLUMNS, *self.own_tasks)
        scores = {"average": row.average(self.tasks), **{column: row.percent.get(column) for column in COLUMNS}}
        scores |= {"glue": row.glue, **{column: row.percent.get(column) for column in self.own_tasks}}
        texts = {"suite": row.name, "kind": row.kind, "split": row.split, "seeds": row.seeds.strip("-")}
        texts |= {name: one_decimal(number, "") for name, number in scores.items()}
        for column in columns:
            for name, form in _CSV_CELL.items():
                value = getattr(row.cells.get(column), name, None)
                texts[f"{column}_{name}"] = "" if value is None else form.format(value)
        texts |= {"commits": " ".join(row.commits), "source": row.source, "settings": row.differs}
        return texts | {column: one_decimal(row.zero_shot.get(column), "") for column in self.zero_shot}


_CSV_CELL = {"stderr": "{:.2f}", "low": "{:.1f}", "high": "{:.1f}", "seeds": "{}", "split": "{}", "collapsed": "{}"}
"""Field of a cell -> its format in CSV."""


def _mean(row: Row, tasks: Sequence[str]) -> float | None:
    scores = row.per_task
    return statistics.fmean(scores[task] for task in tasks) if all(task in scores for task in tasks) else None


def published_notes(rows: Sequence[Row]) -> Iterator[str]:
    """The notes of published rows, each note once, behind the names of the rows that it is of."""
    for note in dict.fromkeys(row.note for row in rows if row.note):
        names = ", ".join(row.name.removesuffix(" [published]") for row in rows if row.note == note)
        yield f"{names}: {note}"


def _tested(row: Row) -> str:
    """The tasks of a row that were scored on test rows: the twelve first, then the others."""
    tasks = {TASK_OF_COLUMN.get(column, column): None for column, cell in row.cells.items() if cell.split == "test"}
    return ", ".join(sorted(tasks, key=[*REGISTRY, *tasks].index))
