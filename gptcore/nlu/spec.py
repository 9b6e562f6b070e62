"""What the pipeline knows about a dataset, as data: files, columns, labels, input form, metrics, sizes.

Readers, inputs, metrics and baselines are all driven by it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

OwnFormat = Literal["tsv", "csv", "jsonl", "json", "parquet", "arrow", "xlsx"]
"""What a user's own rows may lie in."""
Format = OwnFormat | Literal["race", "squad", "conll", "commonsense", "fewrel", "open-entity", "superglue"]
Metric = Literal[
    "accuracy", "f1", "macro_f1", "micro_f1", "matthews", "pearson", "spearman", "span_f1", "exact_match", "entity_f1"
]

METRIC_TITLES: dict[Metric, str] = {
    "accuracy": "accuracy",
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1 of labels",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "span_f1": "F1 of words",
    "exact_match": "exact match",
    "entity_f1": "F1 of entities",
}
"""What people are shown."""


@dataclass(frozen=True)
class Source:
    """One file of a split (a folder of passages for RACE), relative to the dataset's folder."""

    path: str
    rows: int
    """Rows published, after rows without a gold label are dropped."""
    subset: str = ""
    """Leaderboard column of this file's rows where a split consists of several parts (MNLI, RACE)."""


@dataclass(frozen=True)
class Holdout:
    """Train and dev are cut from one file as scikit-learn's ``train_test_split`` does with this seed."""

    dev: int
    of: int
    """``dev`` rows of a file of ``of`` rows; files of another size are cut in the same proportion."""
    seed: int


@dataclass(frozen=True)
class PromptTemplate:
    """How a row is put to a language model that is not fine-tuned; {0} and {1} stand for its text fields."""

    question: str
    """The answer goes on from here."""
    answers: tuple[str, ...] = ()
    """Words for the classes, in their order; none: the row's own choices are the answers."""
    context: str = ""
    """Stands before the question, and is cut where the whole does not fit."""


@dataclass(frozen=True)
class Dialect:
    """How the files of a user's own rows are written; what is left out is told by each file."""

    delimiter: str = ""
    """What stands between two cells of a line."""
    encoding: str = ""
    quoted: bool | None = None
    """Whether the quotes around a cell are syntax; if not, they are text."""
    separator: str = ""
    """What stands between the labels of a cell that holds any number of them; empty: semicolons, or it is a list."""
    options: str = ""
    """The column that lists a row's choices; behind a dot, a list in its object: ``choices.text``."""


@dataclass(frozen=True)
class TaskSpec:
    """Everything the pipeline knows about one dataset."""

    name: str
    folder: str
    format: Format
    form: str
    """What a row is, by the name of its form: :func:`gptcore.nlu.forms.form_of` knows all of it."""
    splits: dict[str, tuple[Source, ...]]
    """``train``, ``dev`` and, where the public test rows carry labels, ``test``."""
    fields: tuple[str | tuple[str, ...], ...]
    """Columns of the text fields in input order; several columns in brackets are joined by a space into one field."""
    label: str
    """Column of the label."""
    metrics: tuple[Metric, ...]
    """The headline metric first."""
    table: int
    """Table of GPT-1's paper that holds the published scores; 0: in none of them."""
    paper: dict[str, float | None]
    """This task's leaderboard columns and the paper's own score in each: per cent, test split; None: not published."""
    prompt: PromptTemplate | None = None
    """For models that nothing fine-tunes; None: the fields line by line, "Answer:", and the label texts."""
    labels: tuple[str, ...] = ()
    """Label texts in class order; none for a score. Of choices the names of the right ones in order."""
    label_names: tuple[str, ...] = ()
    """What the labels are called in answers, where the dataset's files have numbers for them; none: the same."""
    choices: tuple[str, ...] = ()
    """Columns of the choices, in order."""
    symmetric: bool = False
    """Whether neither text of a pair is the first one by nature: the same label holds for them exchanged."""
    score_range: tuple[float, float] | None = None
    """Bounds of a graded label (STS-B); its classes are the whole numbers in between."""
    columns: tuple[str, ...] = ()
    """Names of the columns of a file without a header line."""
    dropped_labels: tuple[str, ...] = ()
    """Rows with these labels are no examples: dropped and counted."""
    holdout: Holdout | None = None
    cut: Holdout | None = None
    """How train and dev are cut from the one file that is there, where the other one is not; None: it is missed."""
    may_be_empty: bool = False
    """Whether published rows have a text that is empty, beside one that is not: it is read as it is."""
    context: int | None = 0
    """Field that truncation cuts; None: whichever is longest, as neither side is the context."""
    seeds: int = 1
    """Fine-tunes whose median is reported: several where few rows make one run a matter of luck."""
    note: str = ""
    """What a reader of the number must know; shown beside it."""
    home: str = ""
    """Address of the folder that an own task's files are in; empty: below the folder of datasets."""
    dialect: Dialect | None = None
    """None: files are written as the public ones are, in UTF-8, with commas in CSV, and quotes are text in TSV."""

    @property
    def own(self) -> bool:
        """Whether this is none of the paper's twelve tasks: a user's own, or one of those beyond them."""
        return self.table == 0

    def root(self, datasets_url: str) -> str:
        """Address of the folder that ``folder`` is in."""
        return (self.home or datasets_url).rstrip("/")

    def address(self, datasets_url: str, path: str) -> str:
        """Address of one of the files; ``path``: as in ``splits``, or an address already."""
        if "://" in path or path.startswith("/"):
            return path
        return "/".join(part for part in (self.root(datasets_url), self.folder, path) if part)

    def record(self) -> dict[str, Any]:
        """What makes a model of an own task what it is, as JSON: neither where the files lie, nor notes and prompt.

        :func:`gptcore.nlu.registry.recorded_task` reads it.
        """
        whole = json.loads(json.dumps(asdict(self)))
        return {name: whole[name] for name in (*self.read_by, "symmetric", "context", "metrics")}

    @property
    def read_by(self) -> tuple[str, ...]:
        """The parts that decide what is read from a file; notes and published scores do not."""
        return _READ_BY if self.dialect in (None, Dialect()) else (*_READ_BY, "dialect")

    @property
    def headline(self) -> Metric:
        """The metric that stands in the leaderboard."""
        return self.metrics[0]

    def title_of(self, metric: Metric) -> str:
        """What people are shown of a metric; F1 is that of one label, the second."""
        return f"{METRIC_TITLES[metric]} of {self.labels[1]}" if metric == "f1" else METRIC_TITLES[metric]

    @property
    def subsets(self) -> tuple[str, ...]:
        """Leaderboard columns of the parts of this task, in order; empty where it has no parts."""
        return tuple(dict.fromkeys(source.subset for source in self.splits["dev"] if source.subset))

    @property
    def told_labels(self) -> tuple[str, ...]:
        """The labels as answers have them, in class order."""
        return self.label_names or self.labels

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns of the text fields one by one, in input order."""
        return tuple(column for field in self.fields for column in ([field] if isinstance(field, str) else field))

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns that a file of this dataset must have."""
        options = self.dialect.options.partition(".")[0] if self.dialect else ""
        return frozenset((*self.text_columns, *((options,) if options else self.choices), self.label)) - {""}

    def published_rows(self, split: str) -> int:
        """Rows of the public distribution's split, without rows that carry no gold label."""
        return sum(source.rows for source in self.splits.get(split, ()))


_READ_BY = (
    "form",
    "format",
    "splits",
    "fields",
    "choices",
    "label",
    "labels",
    "columns",
    "dropped_labels",
    "score_range",
    "holdout",
)
