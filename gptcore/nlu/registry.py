"""The twelve datasets of Table 1, one declarative entry each: files, columns, labels, input form, metrics, sizes.

Adding a dataset is adding one entry here; readers, inputs, metrics and baselines are all driven by it. Sizes are those
of the public distributions, so that a report can say how much of a set was read. Label orders are pinned: they differ
between libraries, and a checkpoint's output layer means nothing without them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gptcore.errors import InputError

Form = Literal["single", "pair", "choices"]
Format = Literal["tsv", "csv", "jsonl", "parquet", "race"]
Metric = Literal["accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman"]


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
class TaskSpec:
    """Everything the pipeline knows about one dataset."""

    name: str
    folder: str
    format: Format
    form: Form
    """What a row is: one text, two texts, or a text and several answers to choose from."""
    splits: dict[str, tuple[Source, ...]]
    """``train``, ``dev`` and, where the public test rows carry labels, ``test``."""
    fields: tuple[str | tuple[str, ...], ...]
    """Columns of the text fields in input order; several columns in brackets are joined by a space into one field."""
    label: str
    """Column of the label."""
    metrics: tuple[Metric, ...]
    """The headline metric first."""
    table: int
    """Table of the paper that holds the published scores."""
    paper: dict[str, float | None]
    """This task's leaderboard columns and the paper's own score in each: per cent, test split; None: not published."""
    prompt: PromptTemplate | None = None
    """For models that nothing fine-tunes; None: the fields line by line, "Answer:", and the label texts."""
    labels: tuple[str, ...] = ()
    """Label texts in class order; none for a score. In the form "choices": the names of the right choices in order."""
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
    context: int | None = 0
    """Field that truncation cuts; None: whichever is longest, as neither side is the context."""
    seeds: int = 1
    """Fine-tunes whose median is reported: several where few rows make one run a matter of luck."""
    note: str = ""
    """What a reader of the number must know; shown beside it."""
    home: str = ""
    """Address of the folder that an own task's files are in; empty: below the folder of datasets."""

    @property
    def own(self) -> bool:
        """Whether this is a user's own task, and none of the registry's."""
        return self.name not in REGISTRY

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

        :func:`recorded_task` reads it.
        """
        return {name: _as_json(getattr(self, name)) for name in _RECORDED}

    @property
    def headline(self) -> Metric:
        """The metric that stands in the leaderboard."""
        return self.metrics[0]

    @property
    def n_outputs(self) -> int:
        """Width of the task's linear layer: 1 for choices, else the number of classes."""
        if self.form == "choices":
            return 1
        if self.score_range:
            return int(self.score_range[1] - self.score_range[0]) + 1
        return len(self.labels)

    @property
    def subsets(self) -> tuple[str, ...]:
        """Leaderboard columns of the parts of this task, in order; empty where it has no parts."""
        return tuple(dict.fromkeys(source.subset for source in self.splits["dev"] if source.subset))

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns of the text fields one by one, in input order."""
        return tuple(column for field in self.fields for column in ([field] if isinstance(field, str) else field))

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns that a file of this dataset must have."""
        return frozenset((*self.text_columns, *self.choices, self.label))

    def published_rows(self, split: str) -> int:
        """Rows of the public distribution's split, without rows that carry no gold label."""
        return sum(source.rows for source in self.splits.get(split, ()))


_NLI = ("entailment", "neutral", "contradiction")
_RTE = ("not_entailment", "entailment")

# After GPT-3's paper, appendix G, which has prompts for RTE, ANLI, RACE and Story Cloze; the others are made like them.
_THREE_WAYS = PromptTemplate("{0}\nQuestion: {1} True, False, or Neither?\nAnswer:", ("True", "Neither", "False"))
_TWO_WAYS = PromptTemplate("{0}\nQuestion: {1} True or False?\nAnswer:", ("False", "True"))
_ALIKE = PromptTemplate("{0}\n{1}\nQuestion: Do these two mean the same? Yes or No?\nAnswer:", ("No", "Yes"))

_TASKS = (
    TaskSpec(
        name="mnli",
        folder="MNLI",
        format="tsv",
        form="pair",
        splits={
            "train": (Source("train.tsv", 392_702),),
            "dev": (Source("dev_matched.tsv", 9815, "mnli_m"), Source("dev_mismatched.tsv", 9832, "mnli_mm")),
        },
        fields=("sentence1", "sentence2"),  # premise, hypothesis
        label="gold_label",
        labels=_NLI,
        prompt=_THREE_WAYS,
        metrics=("accuracy",),
        table=2,
        paper={"mnli_m": 82.1, "mnli_mm": 81.4},
    ),
    TaskSpec(
        name="snli",
        folder="SNLI",
        format="jsonl",
        form="pair",
        splits={
            "train": (Source("snli_1.0_train.jsonl", 549_367),),
            "dev": (Source("snli_1.0_dev.jsonl", 9842),),
            "test": (Source("snli_1.0_test.jsonl", 9824),),
        },
        fields=("sentence1", "sentence2"),  # premise, hypothesis
        label="gold_label",
        labels=_NLI,
        dropped_labels=("-",),  # the annotators did not agree
        prompt=_THREE_WAYS,
        metrics=("accuracy",),
        table=2,
        paper={"snli": 89.9},
    ),
    TaskSpec(
        name="scitail",
        folder="SciTail/tsv_format",
        format="tsv",
        form="pair",
        splits={
            "train": (Source("scitail_1.0_train.tsv", 23_596),),
            "dev": (Source("scitail_1.0_dev.tsv", 1304),),
            "test": (Source("scitail_1.0_test.tsv", 2126),),
        },
        columns=("premise", "hypothesis", "label"),
        fields=("premise", "hypothesis"),
        label="label",
        labels=("neutral", "entails"),
        prompt=_TWO_WAYS,
        metrics=("accuracy",),
        table=2,
        paper={"scitail": 88.3},
    ),
    TaskSpec(
        name="qnli",
        folder="QNLI",
        format="tsv",
        form="pair",
        splits={"train": (Source("train.tsv", 104_743),), "dev": (Source("dev.tsv", 5463),)},
        # The dataset's own order, as neither the paper nor the released code reorders a pair: the question stands
        # first. What is long is the Wikipedia sentence, so that one is cut and the question never is.
        fields=("question", "sentence"),
        context=1,
        label="label",
        labels=_RTE,
        prompt=PromptTemplate("{1}\nQuestion: {0} Is the answer in it? Yes or No?\nAnswer:", ("No", "Yes")),
        metrics=("accuracy",),
        table=2,
        paper={"qnli": 88.1},
        note="version 2 (2019) of the set; the published number is on version 1",
    ),
    TaskSpec(
        name="rte",
        folder="RTE",
        format="tsv",
        form="pair",
        splits={"train": (Source("train.tsv", 2490),), "dev": (Source("dev.tsv", 277),)},
        fields=("sentence1", "sentence2"),  # premise, hypothesis
        label="label",
        labels=_RTE,
        prompt=_TWO_WAYS,
        metrics=("accuracy",),
        seeds=5,
        table=2,
        paper={"rte": 56.0},
    ),
    TaskSpec(
        name="storycloze",
        folder="StoryCloze",
        format="csv",
        form="choices",
        splits={
            "train": (Source("cloze_test_val__spring2016 - cloze_test_ALL_val.csv", 1497),),
            "dev": (Source("cloze_test_val__spring2016 - cloze_test_ALL_val.csv", 374),),
            "test": (Source("cloze_test_test__spring2016 - cloze_test_ALL_test.csv", 1871),),
        },
        holdout=Holdout(dev=374, of=1871, seed=3535999445),  # original code
        fields=(("InputSentence1", "InputSentence2", "InputSentence3", "InputSentence4"),),
        choices=("RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2"),
        label="AnswerRightEnding",
        labels=("1", "2"),
        prompt=PromptTemplate("{0}"),
        metrics=("accuracy",),
        seeds=5,
        table=3,
        paper={"storycloze": 86.5},
        note="train and dev are cut from the public validation stories (original code)",
    ),
    TaskSpec(
        name="race",
        folder="RACE",
        format="race",
        form="choices",
        splits={  # counted in questions
            "train": (Source("train/middle", 25_421, "race_m"), Source("train/high", 62_445, "race_h")),
            "dev": (Source("dev/middle", 1436, "race_m"), Source("dev/high", 3451, "race_h")),
            "test": (Source("test/middle", 1436, "race_m"), Source("test/high", 3498, "race_h")),
        },
        fields=("article", "questions"),
        choices=("option A", "option B", "option C", "option D"),
        label="answers",
        labels=("A", "B", "C", "D"),
        prompt=PromptTemplate("\nQuestion: {1}\nAnswer:", context="{0}"),
        metrics=("accuracy",),
        table=3,
        paper={"race_m": 62.9, "race_h": 57.4, "race": 59.0},
    ),
    TaskSpec(
        name="cola",
        folder="CoLA",
        format="tsv",
        form="single",
        splits={"train": (Source("train.tsv", 8551),), "dev": (Source("dev.tsv", 1043),)},
        columns=("source", "acceptable", "original_judgement", "sentence"),
        fields=("sentence",),
        label="acceptable",
        labels=("0", "1"),
        prompt=PromptTemplate("{0}\nQuestion: Is this good English? Yes or No?\nAnswer:", ("No", "Yes")),
        metrics=("matthews", "accuracy"),
        seeds=5,
        table=4,
        paper={"cola": 45.4},
    ),
    TaskSpec(
        name="sst2",
        folder="SST-2",
        format="tsv",
        form="single",
        splits={"train": (Source("train.tsv", 67_349),), "dev": (Source("dev.tsv", 872),)},
        fields=("sentence",),
        label="label",
        labels=("0", "1"),  # negative, positive
        prompt=PromptTemplate("Review: {0}\nSentiment:", ("negative", "positive")),
        metrics=("accuracy",),
        table=4,
        paper={"sst2": 91.3},
    ),
    TaskSpec(
        name="mrpc",
        folder="MRPC",
        format="tsv",
        form="pair",
        symmetric=True,
        splits={"train": (Source("train.tsv", 3668),), "dev": (Source("dev.tsv", 408),)},
        fields=("#1 String", "#2 String"),
        context=None,
        label="Quality",
        labels=("0", "1"),
        prompt=_ALIKE,
        metrics=("f1", "accuracy"),
        seeds=5,
        table=4,
        paper={"mrpc": 82.3},
    ),
    TaskSpec(
        name="stsb",
        folder="STS-B",
        format="tsv",
        form="pair",
        symmetric=True,
        splits={"train": (Source("train.tsv", 5749),), "dev": (Source("dev.tsv", 1500),)},
        fields=("sentence1", "sentence2"),
        context=None,
        label="score",
        score_range=(0.0, 5.0),  # six classes with soft labels, after Tai et al. 2015
        prompt=PromptTemplate("{0}\n{1}\nQuestion: How alike are they, from 0 to 5?\nAnswer:", tuple("012345")),
        metrics=("pearson", "spearman"),
        seeds=5,
        table=4,
        paper={"stsb": 82.0},
    ),
    TaskSpec(
        name="qqp",
        folder="QQP",
        format="tsv",
        form="pair",
        symmetric=True,
        splits={"train": (Source("train.tsv", 363_846),), "dev": (Source("dev.tsv", 40_430),)},
        fields=("question1", "question2"),
        context=None,
        label="is_duplicate",
        labels=("0", "1"),
        prompt=_ALIKE,
        metrics=("f1", "accuracy"),
        table=4,
        paper={"qqp": 70.3},
    ),
)

REGISTRY: dict[str, TaskSpec] = {spec.name: spec for spec in _TASKS}
"""Task name -> entry, in the order of Tables 2, 3 and 4."""

COLUMNS = tuple(column for spec in _TASKS for column in spec.paper)
"""The leaderboard's columns, in the order of Tables 2, 3 and 4."""


_RECORDED = (
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
    "symmetric",
    "context",
    "metrics",
)


def _as_json(value: Any) -> Any:
    """A part of an entry as JSON has it."""
    if isinstance(value, Source | Holdout):
        return asdict(value)
    if isinstance(value, dict):
        return {name: _as_json(part) for name, part in value.items()}
    return [_as_json(part) for part in value] if isinstance(value, tuple) else value


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def recorded_task(config: Mapping[str, Any]) -> TaskSpec:
    """The task of a dataset or a model: an entry of the registry, or what was recorded of an own task.

    :param config: settings with "task", the name, and of an own task "spec" (:meth:`TaskSpec.record`).
    :raises InputError: neither.
    """
    if "spec" not in config:
        return task_spec(config["task"])
    parts = dict(config["spec"])
    splits = {split: tuple(Source(**source) for source in sources) for split, sources in parts.pop("splits").items()}
    holdout = parts.pop("holdout")
    name = config["task"]
    return TaskSpec(
        name=name,
        folder="",
        splits=splits,
        holdout=Holdout(**holdout) if holdout else None,
        table=0,
        paper={name: None},
        **{part: _as_tuples(value) for part, value in parts.items()},
    )


def task_settings(spec: TaskSpec) -> dict[str, Any]:
    """What :func:`recorded_task` reads: the name alone of an entry of the registry."""
    return {"task": spec.name, **({"spec": spec.record()} if spec.own else {})}


def columns_of(task: str) -> tuple[str, ...]:
    """A task's columns on the leaderboard; of an own task its name."""
    return tuple(REGISTRY[task].paper) if task in REGISTRY else (task,)


def task_spec(name: str) -> TaskSpec:
    """The entry of one task.

    :raises InputError: if there is no such task; names the tasks that exist and the nearest one.
    """
    if name in REGISTRY:
        return REGISTRY[name]
    near = difflib.get_close_matches(name.lower(), REGISTRY, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise InputError(f"task: found {name!r}, expected one of {', '.join(REGISTRY)}{hint}")
