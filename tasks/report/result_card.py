"""The card that answers a started run: its score beside baselines, paper and earlier runs, then where to go on.

One task: a row a contender, a row a seed. Several: the tasks are the rows, for a page is taller than it is wide. A
number stands beside those of the other suites that MLflow holds of the same task on the same rows (:func:`contenders`).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gptcore.nlu.registry import REGISTRY, columns_of, task_spec
from tasks.report.card import linked
from tasks.report.differences import differences
from tasks.report.leaderboard import Leaderboard, published_notes
from tasks.report.rows import Row, is_paper, label_of, one_decimal
from tasks.report.score import Score
from tasks.report.score_figure import draw_scores
from tasks.report.suites import EXPERIMENT, kept_row, written_at
from tasks.report.table import Table, grid, rendered
from tasks.tracking.tracker import Tracker, scratch_folder

_SHOWN = 10  # contenders; the others are a link away
_PAPER = "paper"
_NETWORK = "the network alone"


@dataclass(frozen=True)
class ResultCard:
    """What a run of fine-tunes reached, and what that is compared with."""

    board: Leaderboard
    """Our rows (the first is what the run is about), the baselines, the published rows."""
    tasks: Sequence[str]
    """What was run."""
    scores: Sequence[Score] = ()
    """Each seed's, of the first row."""
    contenders: Sequence[Contender] = ()
    """Every suite with a number on the same rows, this run's among them; empty on a page of several tasks."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What was chosen, as a person reads it."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Words -> address: up (leaderboard, suite) and down (model, data)."""
    notes: Sequence[str] = ()
    """Shown under the title."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """Heading -> Markdown: what else this page shows (a pipeline's stages)."""

    @property
    def headline(self) -> str:
        """The result in one line: "87.0±1.9 (overlap 49.7, paper 56.0)"; "72.7 on average of 12 tasks (...)".

        Of the baselines the best alone, of one task by its name.
        """
        rows = self._rows()
        floors = [(self._floor_named(row), self._in_short(row)) for row in self.board.only(self.tasks).floors[:1]]
        arms, published = (
            [(label, self._in_short(row)) for label, row in rows[1:] if row.kind == kind]
            for kind in ("ours", "published")
        )
        said = [*arms, *floors, *published]
        beside = ", ".join(f"{label} {text}" for label, text in said if text)
        first = rows[0][1]
        if len(self.tasks) == 1:
            mine = " / ".join(self._texts(first)).replace("\\*", "*")
        else:
            over = f"average of {len(self._averaged)} tasks" if len(self._averaged) > 1 else "".join(self._averaged)
            mine = f"{text} on {over}" if (text := self._in_short(first)) else ""
        return (mine or "no score") + (f" ({beside})" if beside else "")

    @property
    def _averaged(self) -> list[str]:
        """The tasks that an average is over: users' own are in none."""
        return [task for task in self.tasks if task in REGISTRY]

    def _floor_named(self, row: Row) -> str:
        names = set(row.floors.values())
        return names.pop() if len(names) == 1 else label_of(row)

    def summary(self) -> str:
        """What fits the tile of a run's page: the number and what it stands beside, nothing else."""
        rows = [(label, self._in_short(row)) for label, row in self._rows()]
        what = self.tasks[0] if len(self.tasks) == 1 else f"{len(self.tasks)} tasks"
        body = [(f"{label}&emsp;", text) for label, text in rows[1:] if text]  # the tile sets columns without a gap
        return grid((f"{what}&emsp;", rows[0][1] or "no score"), body)

    def markdown(self) -> str:
        """The whole card: `templates/result_card.md`, which asks for its parts and leaves out those that are empty."""
        settings = Table(("setting", "value"), list(self.settings.items()))
        first, links = self._rows()[0][1], linked(self.links)
        return rendered("result_card.md", card=self, first=first, links=links, settings=settings)

    def picture(self) -> str:
        """The scores as a picture, in Markdown."""
        with scratch_folder() as folder:
            words, address = draw_scores(self.board.only(self.tasks), folder)
        return f"![{words.replace('[', '(').replace(']', ')')}]({address})"

    def average(self) -> str:
        """The first row's average and what it is over, of several tasks: "70.0 on average"."""
        average = self._rows()[0][1].average(self.tasks)
        over = "average" if len(self._averaged) > 1 else "".join(self._averaged)
        return "" if average is None else f"{average:.1f} on {over}"

    def score(self) -> str:
        """The first row's score on the only task, and the best baseline where it is ahead of that."""
        first = self._rows()[0][1]
        floors = ((column, self.board.floor_of(first, column)) for column in self._columns if column in first.percent)
        ahead = [(f.floors[c], f.percent[c]) for c, f in floors if f and f.percent[c] > first.percent[c]]
        behind = "".join(f", behind {name} ({score:.1f}), which needs no network" for name, score in ahead[:1])
        return (" / ".join(self._texts(first)) or "no score") + behind

    def metric(self) -> str:
        """What the only task's score is measured in."""
        (task,) = self.tasks
        return task_spec(task).title_of(task_spec(task).headline) if task in REGISTRY else self.board.own_metric(task)

    def _in_short(self, row: Row) -> str:
        """A row in one number or a few: the task's columns, or the average over several tasks."""
        if len(self.tasks) == 1:
            return " / ".join(f"{row.percent[column]:.1f}" for column in self._columns if column in row.percent)
        return one_decimal(row.average(self.tasks), "")

    def _rows(self) -> list[tuple[str, Row]]:
        """Who stands in the card, cut to its tasks: ours, the baselines, the paper's own row."""
        cut = self.board.only(self.tasks)
        ours = [row for row in cut.rows if row.kind == "ours"]
        rows = [(label_of(row), row) for row in ours[:1]]
        rows += [(_NETWORK, alone)] if ours and (alone := ours[0].alone) else []
        rows += [(label_of(row), row) for row in ours[1:]]
        rows += [(label_of(row), row) for row in reversed(cut.rows) if row.kind == "baseline"]  # bag of words first
        return rows + [(_PAPER, row) for row in cut.rows if is_paper(row)]

    @property
    def _columns(self) -> list[str]:
        """Leaderboard columns of these tasks that any row of ours fills."""
        mine = {column for row in self.board.rows if row.kind == "ours" for column in row.percent}
        return [column for task in self.tasks for column in columns_of(task) if column in mine]

    def _cells(self, row: Row) -> list[str]:
        return [score_text(row, column) for column in self._columns]

    def _texts(self, row: Row) -> list[str]:
        return [text for text in self._cells(row) if text]

    def by_row(self) -> Table:
        """The only task's scores: a line a row."""
        rows = self._rows()
        several = sum(row.kind == "ours" for label, row in rows if label != _NETWORK) > 1
        body = []
        for place, (label, row) in enumerate(rows):
            texts = self._cells(row)
            if place == 0:
                texts = [f"**{text}**" for text in texts]
                label = f"**{label}**" if several else f"**this run** ({label})"
            elif label == _PAPER:
                label = "the paper (test rows)"
            body.append((label, *texts))
        return Table(("", *self._columns), body)

    def by_task(self) -> Table:
        """The scores of several tasks: a line a task, their average first."""
        rows = self._rows()
        header = ("", *(f"{label} (test)" if label == _PAPER else label for label, _ in rows))
        averages = [row.average(self.tasks) for _, row in rows]
        body = [("**average**", *("" if value is None else f"**{value:.1f}**" for value in averages))]
        cells = rows[0][1].cells
        for column in self._columns:
            on = " (test)" if column in cells and cells[column].split == "test" else ""
            body.append((f"{column}{on}", *(score_text(row, column) for _, row in rows)))
        return Table(header, body)

    def by_seed(self) -> Table:
        """What each seed of the first row reached, and which of them collapsed."""
        records = []
        for score in self.scores:
            errors = {column: f"±{error:.1f}" for column, error in score.stderr.items()}
            record = {"seed": str(score.seed)}
            record |= {column: f"{score.percent[column]:.1f}{errors.get(column, '')}" for column in self._columns}
            if any(each.collapsed for each in self.scores):
                record[""] = "collapsed: one answer for every dev row" if score.collapsed else ""
            record["model"] = f"`{_short(score.model)}`" if score.model else ""
            record["MLflow"] = f"[run]({score.page})" if score.page else ""
            records.append(record)
        return Table.of(records)

    def mine(self) -> Contender | None:
        """The first row among the contenders; None where it is not there."""
        return next((item for item in self.contenders if item.row.suite == self.board.rows[0].suite), None)

    def ranking(self) -> Table:
        """The best suites on the same rows, and what each does differently; the first row is always among them."""
        mine = self.mine()
        body = []
        for place, item in enumerate(self.contenders):
            scores = self._cells(item.row)
            if item is mine:
                cells = (f"**{item.rank}**", *(f"**{text}**" for text in scores), item.row.seeds, "**this run**")
                body.append((*cells, item.when, ""))
            elif place < _SHOWN:
                what = ", ".join(item.differences) or "same settings; another task's differ"
                cells = (str(item.rank), *scores, item.row.seeds, f"[{item.row.name}]({item.page})")
                body.append((*cells, item.when, what))
        return Table(("rank", *self._columns, "seeds", "row", "last run (UTC)", "differs from this run in"), body)

    def published(self) -> Table:
        """The published rows of the only task, the best first."""
        rows = [row for row in self.board.only(self.tasks).rows if row.kind == "published"]
        rows.sort(key=lambda row: -max(row.percent.values()))
        on = {row.name: "" if row.split == "test" else f" ({row.split} rows)" for row in rows}
        body = [(label_of(row) + on[row.name], *self._cells(row), row.source) for row in rows]
        return Table(("method", *self._columns, "where"), body, list(published_notes(rows)))

    def model(self) -> Score | None:
        """The seed whose model is the one to go on with: the median one; None where none has a model."""
        with_model = [score for score in self.scores if score.model]
        ordered = sorted(with_model, key=lambda score: statistics.fmean(score.percent.values()))
        return ordered[(len(ordered) - 1) // 2] if ordered else None

    def explained(self) -> Iterator[str]:
        """How to read the card, a line each."""
        cut = self.board.only(self.tasks)
        cells = [cell for row in cut.rows if row.kind == "ours" for cell in row.cells.values()]
        splits = {cell.split for cell in cells}
        ours = "dev rows, but where a row says test" if len(splits) > 1 else f"{''.join(splits)} rows"
        yield f"scores x 100; the paper's are on test rows, ours on {ours}"
        if any(cell.stderr is not None for cell in cells):
            yield "±: bootstrap standard error over the scored rows; another seed is another matter"
        if any(cell.collapsed for cell in cells):
            yield "\\*: a run behind the number gave every dev row the same answer; it counts in the median"
        yield from self.board.notes


def score_text(row: Row, column: str) -> str:
    """A cell, see :meth:`tasks.report.rows.Row.text`, as Markdown has it."""
    return row.text(column).replace("*", "\\*")


def _short(model: str) -> str:
    return model.rpartition("/")[2][:12]


@dataclass(frozen=True)
class Contender:
    """One suite's number on a task, this run's among them."""

    rank: int
    """1 is the best; equal scores share a rank."""
    row: Row
    """Cut to the task."""
    when: str
    """The day and minute (UTC) at which the suite's run was last written."""
    page: str
    """Address of the suite's MLflow run."""
    differences: tuple[str, ...]
    """Settings, checkpoint and code in which it differs from this run, as it has them; empty for this run itself."""


def contenders(tracker: Tracker, task: str, data: str, suite: str) -> list[Contender]:
    """Every suite of ours with a score on ``task``, best first.

    :param task: one of the twelve, or a user's own.
    :param data: fingerprint of the task's files; suites of other rows, or of another share of them, are left out.
    :param suite: digest of the suite that the others are told apart from.
    """
    runs = [
        (run, row)
        for run in tracker.search(EXPERIMENT, {"kind": "ours"}, {f"data.{task}": data} if task in REGISTRY else {})
        if task in (row := kept_row(run, "ours").only([task])).per_task
        and (task in REGISTRY or row.cells[task].own_data == data)
    ]
    scored = f"settings.{task}.max_eval_rows"  # a part of the rows is another measure
    drawn = next((run.data.params.get(scored) for run, row in runs if row.suite == suite), None)
    runs = [(run, row) for run, row in runs if run.data.params.get(scored) == drawn]
    mine = next((dict(run.data.params) for run, row in runs if row.suite == suite), {})
    scores = sorted((row.per_task[task] for _, row in runs), reverse=True)
    ranked = [
        Contender(
            rank=1 + scores.index(row.per_task[task]),
            row=row,
            when=written_at(run),
            page=tracker.page(run.info.experiment_id, run.info.run_id),
            differences=() if row.suite == suite else tuple(differences(run.data.params, mine, task)),
        )
        for run, row in runs
    ]
    return sorted(ranked, key=lambda item: (item.rank, item.row.suite != suite))
