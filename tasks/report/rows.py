"""A row of the leaderboard as a value: a suite's scores, and what stands behind each. A board of them prints itself."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gptcore.nlu.metrics import glue_average
from gptcore.nlu.published import OURS, PUBLISHED, PublishedRow
from gptcore.nlu.registry import COLUMNS, REGISTRY, columns_of

Kind = Literal["ours", "baseline", "published"]


@dataclass(frozen=True)
class Cell:
    """What stands behind one number of ours."""

    split: str
    seeds: int
    low: float
    """The lowest and the highest seed, in per cent. Not a deviation: of the few runs of a small set some may collapse,
    which a median absolute deviation hides and the ends of the range show."""
    high: float
    stderr: float | None = None
    """Bootstrap standard error over the scored rows, in per cent: the median over seeds; None: not measured."""
    collapsed: int = 0
    """Runs that gave every dev row the same answer. They count in the median like any other."""
    commits: tuple[str, ...] = ()
    """The git commits that made the runs."""
    synthetic: bool = False
    """Whether the rows are generated."""
    own_metric: str = ""
    """The headline metric of a user's own task; empty for the twelve."""
    own_data: str = ""
    """The fingerprint of the files that an own task's rows are from, which the suite's identity leaves out."""
    own_settings: str = ""
    """What an own task's epochs are chosen on, unless dev rows, and the digest of its fine-tuning settings, which the
    suite's identity leaves out."""
    network: float | None = None
    """The median over seeds without the words and n-grams that are counted beside the network, in per cent; None: none
    are."""
    deviation: float = 0.0
    """Standard deviation over seeds, in per cent; 0: of one seed, or made before it was kept."""
    answers: tuple[str, ...] = ()
    """Addresses of the seeds' answers to the scored rows; none: not all are kept."""

    @property
    def own_select(self) -> str:
        """FinetuneConfig.select of an own task; empty for the twelve."""
        return (self.own_settings.rpartition(" ")[0] or "dev") if self.own_settings else ""


@dataclass(frozen=True)
class Row:
    """One suite: a checkpoint (or a baseline, or a published method) with its score on each column."""

    name: str
    kind: Kind
    split: str
    """Which split the scores are on: dev, test, or dev/test where only some sets have public test labels; where the
    rows are generated it says so: "dev/test, synthetic"."""
    percent: dict[str, float]
    """Leaderboard column -> headline metric x 100; the median over seeds."""
    cells: Mapping[str, Cell] = field(default_factory=dict)
    """Leaderboard column -> what stands behind its number; none for published rows."""
    glue_parts: Mapping[str, float] = field(default_factory=dict)
    """GLUE task -> its part of GLUE's average, in per cent; the median over seeds."""
    suite: str = ""
    """Digest of what was scored; empty for published rows."""
    source: str = ""
    """Where a published row is printed."""
    zero_shot: Mapping[str, float] = field(default_factory=dict)
    """Zero-shot column -> accuracy x 100 of the checkpoint that the row starts from; in no average."""
    note: str = ""
    """What sets a published row's numbers apart from ours."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Task -> fingerprint of the files that its rows were read from; none for published rows."""
    chosen_on: str = ""
    """The rows that the fine-tunes' epochs were chosen on (FinetuneConfig.select); empty where none was."""
    differs: str = ""
    """Settings that tell one of our rows from others of its name and checkpoint, in few words."""
    checkpoint: str = ""
    """Digest of the pre-trained model that the row's fine-tunes start from; empty where they start from none."""
    models: tuple[str, ...] = ()
    """Addresses of the row's fine-tuned models, as far as MLflow was asked for them (``read_rows``)."""
    floors: Mapping[str, str] = field(default_factory=dict)
    """Leaderboard column -> the best of several baselines, by name."""
    certain: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Leaderboard column, or "average" -> what :func:`tasks.report.paired.compare_rows` has found of its number."""

    @property
    def told(self) -> str:
        """The row's name, and what tells it from others of its name and checkpoint."""
        return f"{self.name} ({self.differs})" if self.differs else self.name

    @property
    def alone(self) -> Row | None:
        """The row's networks without the words and n-grams that are counted beside them; None where none are."""
        alone = {column: cell.network for column, cell in self.cells.items() if cell.network is not None}
        if not alone:
            return None
        cells = {column: dataclasses.replace(cell, stderr=None, collapsed=0) for column, cell in self.cells.items()}
        return dataclasses.replace(self, percent={**self.percent, **alone}, cells=cells)

    def only(self, tasks: Sequence[str]) -> Row:
        """A copy of the row with the columns of these tasks alone; the zero-shot ones, which are no task's, stay."""
        columns = [column for task in tasks for column in columns_of(task)]
        cells = {column: self.cells[column] for column in columns if column in self.cells}
        return dataclasses.replace(
            self,
            split=split_of(cells) or self.split,
            percent={column: self.percent[column] for column in columns if column in self.percent},
            cells=cells,
            glue_parts={task: part for task, part in self.glue_parts.items() if task in tasks},
        )

    def text(self, column: str) -> str:
        """A cell: ``62.4±1.9*``, median, standard error, a star where a run collapsed; empty where there is none."""
        if column not in self.percent:
            return ""
        cell = self.cells.get(column)
        error = f"±{cell.stderr:.1f}" if cell and cell.stderr is not None else ""
        return f"{self.percent[column]:.1f}{error}" + ("*" if cell and cell.collapsed else "")

    def same_rows(self, other: Row) -> bool:
        """Whether ``other`` was scored on the rows of each task that this one has, as far as both say."""
        return all(self.data[task] == other.data.get(task) for task in self.per_task if task in self.data)

    @property
    def per_task(self) -> dict[str, float]:
        """Task -> score: a task of several columns counts once (RACE by its own column, MNLI by the mean of two).

        Tasks beyond the twelve come after them.
        """
        scores = {}
        for name, spec in REGISTRY.items():
            own = [self.percent[name]] if name in self.percent else []
            parts = own or [self.percent[column] for column in spec.paper if column in self.percent]
            if parts:
                scores[name] = statistics.fmean(parts)
        return scores | {name: self.percent[name] for name in self.own_tasks}

    @property
    def own_tasks(self) -> list[str]:
        """Tasks beyond the twelve that the row has a score on, users' own among them, sorted."""
        return sorted(self.percent.keys() - set(COLUMNS))

    @property
    def seeds(self) -> str:
        """Runs behind a number: "3", or "1-5" where the cells differ; "-" where nobody said."""
        counts = sorted({cell.seeds for cell in self.cells.values()})
        return "-".join(str(count) for count in dict.fromkeys((counts[0], counts[-1]))) if counts else "-"

    @property
    def commits(self) -> list[str]:
        """The git commits that made the row's cells."""
        return sorted({commit for cell in self.cells.values() for commit in cell.commits if commit})

    @property
    def glue(self) -> float | None:
        """GLUE's average over its eight tasks here, in per cent; None unless all are there."""
        return glue_average(self.glue_parts)

    def average(self, tasks: Sequence[str]) -> float | None:
        """Unweighted mean over those of the twelve that are among ``tasks``, as the paper has it.

        None where one of them is missing, for such a mean compares with no other.
        """
        scores, twelve = self.per_task, [task for task in tasks if task in REGISTRY]
        if not twelve or any(task not in scores for task in twelve):
            return None
        return statistics.fmean(scores[task] for task in twelve)


def one_decimal(number: float | None, nothing: str = "-") -> str:
    """A score as tables print it; ``nothing``: where there is none."""
    return nothing if number is None else f"{number:.1f}"


def label_of(row: Row) -> str:
    """A row's name without its digest."""
    return row.name.rpartition(" ")[0]


def split_of(cells: Mapping[str, Cell]) -> str:
    """Which splits the cells are on, in one word; empty for no cells."""
    splits = "/".join(sorted({split for cell in cells.values() for split in cell.split.split("/")}))
    return f"{splits}, synthetic" if any(cell.synthetic for cell in cells.values()) else splits


def is_paper(row: Row) -> bool:
    """Whether a row is the paper's own."""
    return row.kind == "published" and row.name == f"{OURS} [published]"


def published_rows() -> list[Row]:
    """Every published method: one row each, a method of several tables (the paper's own) in one row."""
    merged: dict[str, dict[str, float]] = {}
    tables: dict[str, list[PublishedRow]] = {}
    for row in PUBLISHED:
        merged.setdefault(row.method, {}).update(row.percent)
        tables.setdefault(row.method, []).append(row)
    names = sorted(merged, key=lambda name: name != OURS)  # the paper's own first, the others in the tables' order
    return [
        Row(
            f"{name} [published]",
            "published",
            tables[name][0].split,
            merged[name],
            source=", ".join(row.table for row in tables[name]),
            zero_shot=tables[name][0].zero_shot,
            note=tables[name][0].note,
        )
        for name in names
    ]
