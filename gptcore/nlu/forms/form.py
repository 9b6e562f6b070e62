"""What a form of rows is: its fields, its answers, and the names of its parts, which live in the rooms above this one.

A part is named as entry points are, ``package.module:attribute``, and imported when it is asked for: listing the forms
costs no torch.

N rows, K classes, C choices or other sequences of a row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import did_you_mean
from gptcore.base.named import named_part
from gptcore.nlu.examples import Example, Record, show
from gptcore.nlu.spec import Metric, TaskSpec
from gptcore.text.word_edges import set_apart

Values = NDArray[np.float64]
Ids = NDArray[np.integer]
Sides = tuple[Sequence[Ids], Sequence[Ids]]
"""The parts of a sequence before and behind its delimiter; nothing stands behind that of a single text."""
FLOORS = {"best constant": "gptcore.nlu.floors:best_constant", "bag of words": "gptcore.nlu.floors:bag_of_words"}
"""The baselines of a row's labels."""
FLOORS_OF_TEXTS = {**FLOORS, "overlap": "gptcore.nlu.floors:overlap"}
"""The baselines of a row with several texts."""
Floor = Callable[[TaskSpec, Sequence[Example], Sequence[Example]], dict[str, float]]
"""Fits on train rows and scores dev rows; :class:`gptcore.nlu.floors.Floored` where it is compared row by row."""

_GRADED: tuple[Metric, ...] = ("pearson", "spearman")
_GRADE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_COMMA = re.compile(r"[+-]?([0-9]+,([0-9]{1,2}|[0-9]{4,})|0+,[0-9]+|[0-9]{4,},[0-9]+)", re.ASCII)
_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+", re.ASCII)
_TRUTH = {spelled: truth for truth in ("true", "false") for spelled in (truth, truth.title(), truth.upper())}

MISSING = ""
"""The text of a label that is not there: null, NaN, or nothing but blanks."""
DROPS_MISSING = 'dropped_labels = [""] leaves out rows without one'
"""What a user may do about rows without a label."""


@dataclass(frozen=True)
class Form:
    """What a row is, and what it is answered with.

    The defaults are those of a row that has one label, or one grade where the task has a range of scores: a form says
    only what sets it apart from that.
    """

    name: str
    """What is recorded, and what ``form`` in a task's file says."""
    field_names: tuple[str, ...]
    """What a user's own rows may call the text fields besides the names of their columns, in input order."""
    n_fields: tuple[int, ...] = ()
    """How many text fields a user's own task may have; empty: a user's own task cannot be of this form."""
    fields_in_words: str = ""
    """What ``fields`` in a task's file has to be."""
    label_in_words: str = "a label"
    """What the column of the label has to hold."""
    most_labels: int = 1000
    """Most labels of a user's own task."""

    several: bool = False
    """Whether a row has any number of labels."""
    choices: bool = False
    """Whether a row brings its own answers, one of which is right: each becomes a sequence with a scalar of its own."""
    places: bool = False
    """Whether the answer is made of places of the last field, so that the network answers at each position."""
    over_positions: bool = False
    """Whether positions compete for being the answer, so that padding must lose; then nothing is dropped before the
    linear layer (released `run_squad.py`)."""
    graded: bool = True
    """Whether a task may have grades in the place of labels."""
    symmetric_names: tuple[str, ...] = ()
    """The ``field_names`` of a symmetric task, neither of whose texts is the first; empty: no task may be symmetric."""
    own_metrics: tuple[Metric, ...] = ()
    """The metrics of every task of this form; empty: those that follow from its labels."""
    returns: str = ""
    """What a table of answers has, for people, with {labels} for how these are told; empty: a label, or a grade."""
    outputs: int = 0
    """The width of the linear layer; 0: one output a class."""

    reads: str = "what stands for the whole sequence"
    """What the linear layer reads of an encoder, as model cards say it."""
    pipeline: str = "text-classification"
    """The hub's name of this kind of task, for model cards."""
    transformers: str = "SequenceClassification"
    """What the name of transformers' class that computes the same ends with; empty: there is none."""
    transformers_layer: str = "classifier"
    """What such a class calls the linear layer."""

    loss: str = "gptcore.objectives.losses:task_loss"
    """The loss of logits and targets."""
    soft_loss: str = "gptcore.objectives.losses:soft_class_loss"
    """The loss of a student's logits, its teacher's, and the targets."""
    rows: str = "gptcore.nlu.rows:encoded_rows"
    """Makes :class:`gptcore.nlu.rows.Rows` of an encoded split."""
    asked_rows: str = "gptcore.nlu.rows:asked_rows"
    """Makes :class:`gptcore.nlu.rows.Rows` of rows of text."""
    position_targets: str = ""
    """Makes what a batch of windows is to be answered with, where answers are places."""
    marked_words: str = ""
    """Gives the words of a batch of windows as what they look like, where answers are places."""
    word_reader: str = ""
    """Tells places by what words look like, beside an encoder's states."""
    predictions: str = "gptcore.evaluation.predictions:label_predictions"
    """Makes :class:`gptcore.evaluation.predictions.RowPredictions` of a network's logits."""
    stderrs: str = "gptcore.nlu.metrics:label_stderrs"
    """The standard errors of the scores of a file of predictions."""
    evidence: str = "gptcore.nlu.metrics:label_evidence"
    """What each row of a file of predictions adds to the headline metric."""
    own_row: str = "gptcore.nlu.own_rows:row_of_texts"
    """Reads a row that somebody asks about."""
    floors: Mapping[str, str] = field(default_factory=lambda: FLOORS)
    """Name of a baseline that needs no model -> its :data:`Floor`."""

    def part(self, name: str) -> Any:
        """The part that a field names: ``form.part("loss")`` is the function."""
        return named_part(getattr(self, name))

    def fitted_floors(self) -> dict[str, Floor]:
        """The baselines that need no model, by their names."""
        return {name: named_part(path) for name, path in self.floors.items()}

    # --- what a task of this form has ---

    def names_of(self, spec: TaskSpec) -> tuple[str, ...]:
        """What the task's fields may be called besides their columns' names, in input order."""
        return self.symmetric_names if spec.symmetric else self.field_names

    def n_outputs(self, spec: TaskSpec) -> int:
        """The width of the task's linear layer: a grade has one output for each whole number of its range."""
        return self.outputs or len(self.class_names(spec))

    def class_names(self, spec: TaskSpec) -> tuple[str, ...]:
        """The labels' texts in class order; of a graded label the whole numbers within its range."""
        if spec.score_range:
            low, high = map(int, spec.score_range)
            return tuple(map(str, range(low, high + 1)))
        return spec.labels

    def metrics(self, spec: TaskSpec) -> tuple[tuple[Metric, ...], tuple[Metric, ...]]:
        """The metrics that the task may have, and those that it has if it names none."""
        if own := self.own_metrics or (_GRADED if spec.score_range else ()):
            return own, own
        if len(spec.labels) == 2:
            return ("accuracy", "f1", "matthews", "macro_f1"), ("accuracy",)
        return ("accuracy", "macro_f1"), ("accuracy",)

    def labels_of(self, spec: TaskSpec, labelled: Iterable[tuple[Record, str]]) -> tuple[str, ...]:
        """The task's labels in class order: numbers by value, then texts.

        :param labelled: each training row with a label of its, as text.
        :raises InputError: what the labels mean cannot be told from the rows.
        """
        return tuple(sorted({label for _, label in labelled}, key=_by_number))

    # --- what a row is answered with, in data ---

    def label_texts(self, value: Any) -> list[Any]:
        """The labels that stand in a row's column, each in its one spelling; what is none stays as it is."""
        return [label_text(value)]

    def label_of(self, spec: TaskSpec, row: Record) -> float:
        """A row's label as a number: class index, index of the right choice, score, or set of labels.

        :raises InputError: the label is none of the task's.
        """
        value = row.value(spec.label)
        (label,) = self.label_texts(value)
        if spec.score_range:
            low, high = spec.score_range
            if (grade := grade_of(label)) is None or not low <= grade <= high:
                raise row.error(spec.label, show(value), f"a number from {low:g} to {high:g}")
            return grade
        if (number := label_number(spec.labels, label)) is None:
            hint = f" ({DROPS_MISSING})" if label == MISSING else ""
            hint += did_you_mean(str(label), spec.labels)
            raise row.error(spec.label, show(value), f"one of {', '.join(spec.labels)}{hint}")
        return number

    def counted(self, spec: TaskSpec, row: Example) -> list[str]:
        """What a report on the dataset counts of a row: its label, or the whole numbers that its grade lies between."""
        if row.label is None:
            return ["none"]
        label = int(row.label)
        return [f"{label} to {label + 1}" if spec.score_range else spec.labels[label]]

    def labels_in(self, spec: TaskSpec, row: Example) -> list[str]:
        """The labels of a labelled row, or of its words; of a grade the whole numbers that it lies between, or it."""
        assert row.label is not None, "labelled splits"
        if not spec.score_range:
            return [spec.labels[int(row.label)]]
        below = math.floor(row.label)
        return [f"{below}" if row.label == below else f"{below} to {below + 1}"]

    def n_words(self, row: Example) -> int:
        """How many words the texts of a row have; each letter of scripts without blanks between words is one."""
        return sum(len(set_apart(text).split()) for text in (*row.fields, *row.choices))

    def shown(self, spec: TaskSpec, row: Example) -> str:
        """A labelled row's answer, for people."""
        return f"{row.label:g}" if spec.score_range else ", ".join(self.labels_in(spec, row)) or "none"

    # --- what a network reads and says ---

    def sides(self, fields: Sequence[Ids], choices: Sequence[Ids]) -> list[Sides]:
        """The parts of each of a row's sequences: the first field, a delimiter, and the others."""
        return [(fields[:1], fields[1:])]

    def targets(self, spec: TaskSpec, labels: Values) -> NDArray[Any]:
        """Labels (N,) as what the loss compares logits with: class indices, or for grades soft labels (N, K)."""
        return soft_labels(spec, labels) if spec.score_range else labels.astype(np.int64)

    def predict(self, spec: TaskSpec, logits: NDArray[np.floating]) -> Values:
        """Predictions (N,) from logits: the likeliest class (N, K) or choice (N, C); of a grade the expected class, on
        its own scale.
        """
        scores = np.asarray(logits, dtype=np.float64)
        if spec.score_range is None:
            return np.asarray(np.argmax(scores, axis=1), dtype=np.float64)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))  # (N, K)
        classes = np.arange(self.n_outputs(spec)) + spec.score_range[0]
        return np.asarray(weights @ classes / weights.sum(axis=1), dtype=np.float64)

    # --- what a prediction looks like ---

    def spelled(self, spec: TaskSpec, value: float) -> str | list[str] | float:
        """An answer as the dataset spells it."""
        return spec.labels[int(value)] if spec.labels else float(value)

    def number_of(self, spec: TaskSpec, spelled: object) -> float | None:
        """The inverse of :meth:`spelled`; None: it is no answer of the task's."""
        if not spec.labels:
            return float(spelled) if isinstance(spelled, int | float) else None
        return float(spec.labels.index(spelled)) if isinstance(spelled, str) and spelled in spec.labels else None

    def spelled_in_words(self, spec: TaskSpec) -> str:
        """What :meth:`number_of` expects."""
        return f"one of {', '.join(spec.labels)}" if spec.labels else "a number"

    def described(self, spec: TaskSpec, logits: NDArray[np.float32]) -> dict[str, Any]:
        """A row's answer as JSON: "score" for a grade, else "label" and "probabilities" of every label.

        :param logits: (K,) classes, or (C,) choices.
        """
        value = float(self.predict(spec, logits[None])[0])
        if spec.score_range:
            return {"score": round(value, 4)}
        weights = np.exp(logits.astype(np.float64) - logits.max())  # (K,) classes or (C,) choices
        return {"label": spec.told_labels[int(value)], "probabilities": shares(spec, weights / weights.sum())}

    def signature(self, spec: TaskSpec) -> dict[str, str]:
        """The columns of a table of answers, with MLflow's names of their types."""
        if spec.score_range:
            return {"score": "double"}
        return {"label": "string", **{f"probability {label}": "double" for label in spec.told_labels}}

    def cells(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """An answer of :meth:`described` as the cells of such a table's row."""
        if "probabilities" not in answer:
            return dict(answer)
        each = {f"probability {label}": share for label, share in answer["probabilities"].items()}
        return {name: cell for name, cell in answer.items() if name != "probabilities"} | each

    def table_cells(self, spec: TaskSpec, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The cells of an answer, or of one that is blank, whose values are all None."""
        blank = all(value is None for value in answer.values())
        return dict.fromkeys(self.signature(spec)) if blank else self.cells(answer)

    def comes_back(self, spec: TaskSpec, labels: str) -> str:
        """What a table of answers has, for people.

        :param labels: how the task's labels are told.
        """
        if self.returns:
            return self.returns.format(labels=labels)
        return "`score`" if spec.score_range else f"`label` ({labels}) and `probability LABEL` of each"


def label_text(value: Any) -> Any:
    """A label in its one spelling, whichever format it was read from; what no label can be stays as it is.

    A whole number has no fraction (1.0 is 1), a truth value is in small letters, and :data:`MISSING` stands for what is
    not there.

    :param value: what JSON, parquet or a cell of text has: text, a number, a truth value, nothing.
    """
    if isinstance(value, str):
        if not value.strip() or value.lower() == "nan":
            return MISSING
        whole = _WHOLE.fullmatch(value)
        return ("0" if whole[1] == "-0" else whole[1]) if whole else _TRUTH.get(value, value)
    if value is None or value != value:
        return MISSING
    if isinstance(value, bool | np.bool_ | int):
        return str(value).lower()
    if isinstance(value, float | np.floating):  # a score stored as float32 is 3.8 again, not 3.79999995
        return np.format_float_positional(value + 0.0, trim="-")  # and what is -0.0 is 0
    if isinstance(value, Decimal):
        return f"{value.normalize() + 0:f}"
    return value


@lru_cache
def _numbers(labels: tuple[str, ...]) -> dict[str, int]:
    return {label_text(label): number for number, label in enumerate(labels)}


def label_number(labels: tuple[str, ...], label: Any) -> int | None:
    """The class of a label as :func:`label_text` spells it, however ``labels`` spell it; None: it is none of them."""
    return _numbers(labels).get(label) if isinstance(label, str) else None


def grade_of(text: Any) -> float | None:
    """The grade that a label's text is, a share in per cent; None: it is none.

    A comma stands for a point, as in much of Europe, but where it may part thousands.
    """
    if not isinstance(text, str):
        return None
    plain = text.strip().removesuffix("%").rstrip()
    if _COMMA.fullmatch(plain):
        plain = plain.replace(",", ".")
    return float(plain) if _GRADE.fullmatch(plain) else None


def shares(spec: TaskSpec, probabilities: NDArray[np.float64]) -> dict[str, float]:
    """The probability of each label, rounded."""
    return dict(zip(spec.told_labels, (round(float(share), 6) for share in probabilities), strict=True))


def soft_labels(spec: TaskSpec, scores: Values) -> NDArray[np.float32]:
    """Graded labels (N,) as distributions (N, K) over the whole numbers of the score's range.

    A score y puts floor(y) + 1 - y on class floor(y) and y - floor(y) on the next (original code; Tai et al. 2015), so
    that the distribution's expected class is y.
    """
    assert spec.score_range is not None
    first, last = spec.score_range
    n_outputs = int(last - first) + 1
    shifted = np.asarray(scores, dtype=np.float64) - first
    low = np.minimum(np.floor(shifted), n_outputs - 2).astype(np.int64)  # the top score is all on the last class
    target = np.zeros((len(shifted), n_outputs), dtype=np.float32)  # (N, K)
    row = np.arange(len(shifted))
    target[row, low] = low + 1 - shifted
    target[row, low + 1] = shifted - low
    return target


def _by_number(label: str) -> tuple[float, str]:
    """Numbers by their value, before all other labels."""
    try:
        number = float(label)
    except ValueError:
        number = math.inf
    return (number if math.isfinite(number) else math.inf), label  # "nan" is a word, and has no place among numbers
