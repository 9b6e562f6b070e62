"""What a user must know of a task's rows before a training, and a reader beside its score."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal

from gptcore.base.errors import InputError
from gptcore.nlu.examples import Example, show
from gptcore.nlu.forms import form_of
from gptcore.nlu.forms.form import grade_of
from gptcore.nlu.spec import TaskSpec

_MAJORITY = 0.9  # share of one label beyond which accuracy says little
_NAMED = 3  # examples
_OF_SEVERAL = ("pearson", "spearman", "matthews")  # metrics that are 0/0 where all rows have one label
_FEW_DEV_ROWS = 50
_AROUND = " \t\r\n\xa0\"'"  # blanks and quotes
_LIKE_MISSING = ("none", "null", "na", "n/a", "<na>", "?", "unlabeled")  # how other programs write that there is none


class Findings:
    """What is told of rows that are looked at one after the other, train rows before all others."""

    def __init__(self, spec: TaskSpec) -> None:
        self._spec, self._form = spec, form_of(spec)
        self._rows = Counter[str]()
        self._without = Counter[str]()
        self._labels: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._train: dict[int, str] = {}
        self._train_again: list[str] = []
        self.dropped = Counter[str]()
        """How many rows of all splits are no examples, as :func:`gptcore.nlu.readers.iterate` counts them."""
        self._again: defaultdict[str, list[str]] = defaultdict(list)
        self._empty: defaultdict[str, list[str]] = defaultdict(list)

    def add(self, split: str, row: Example) -> None:
        """Look at a labelled row."""
        self._rows[split] += 1
        graded, form = self._spec.score_range, self._form
        labels = [form.shown(self._spec, row)] if graded else form.labels_in(self._spec, row)
        self._labels[split].update(labels)
        self._without[split] += not labels and form.several
        if not all(text.strip() for text in row.fields):
            self._empty[split].append(row.row)
        texts = hash(texts_of(self._spec, row))  # the texts themselves would be the file in memory
        if split == "train":
            label = "" if form.places else form.shown(self._spec, row)
            if (first := self._train.setdefault(texts, label)) != label:
                self._train_again.append(f"{row.row} has {label}, an earlier one {first}")
        elif texts in self._train:
            self._again[split].append(row.row)

    def check_scorable(self) -> None:
        """Refuse rows on which a score means nothing, in any split but train.

        :raises InputError: all its rows have one label, and the task's first metric is none of a single label.
        """
        for split, counts in self._labels.items():
            if split != "train" and len(counts) == 1 and self._spec.headline in _OF_SEVERAL:
                metric = self._spec.title_of(self._spec.headline)
                raise InputError(
                    f"{self._spec.name}: {split}: found {show(next(iter(counts)))} as the label of every row, expected "
                    f"two or more, without which {metric} is undefined"
                )

    def notes(self) -> Iterator[str]:
        """Whole sentences, of the labels first, then of each split."""
        spec = self._spec
        for label in spec.dropped_labels if spec.own else ():
            if not self.dropped[dropped_as(label)]:
                like = [other for other in spec.labels if _plain(other) == _plain(label)]
                hint = f"; but for case or blanks it is {', '.join(map(show, like))}" if like else ""
                yield f"no row has {show(label)}, which `dropped_labels` names{hint}"
        alike: defaultdict[str, list[str]] = defaultdict(list)
        for label in spec.labels:
            alike[_plain(label)].append(label)
        for plain, labels in alike.items():
            named = ", ".join(map(show, labels))
            if len(labels) > 1:
                differ = "differ only by case or blanks, or in how characters or numbers are written"
                yield f"the labels {named} {differ}, yet each is a class of its own"
            elif labels[0] != labels[0].strip(_AROUND):
                yield f"the label {named} begins or ends with blanks or quotes, which are part of it"
            if plain in _LIKE_MISSING or (plain == "-1" and not all(grade_of(other) is not None for other in alike)):
                yield f"the label {named} is a class like any other, though it may stand for a missing one"
            if self._form.several and any("," in label for label in labels):
                yield f"the label {named} is a single one: semicolons set labels apart, commas do not"
        for split, counts in self._labels.items():
            yield from self._of_split(split, counts)

    def _of_split(self, split: str, counts: Counter[str]) -> Iterator[str]:
        spec, rows = self._spec, self._rows[split]
        if empty := self._empty[split]:
            yield f"{len(empty):,} of {rows:,} {split} rows have an empty text, which is read as it is ({empty[0]})"
        if (without := self._without[split]) and counts:
            yield f"{without:,} of {rows:,} {split} rows have none of the labels, which is learnt as an answer, too"
        what = "grade" if spec.score_range else "label"
        if not counts and not self._form.places:
            yield f"no row of {split} has a label: every score on it is 0"
        if len(counts) == 1 and rows > 1 and not self._form.places:
            undefined = [spec.title_of(metric) for metric in spec.metrics if metric in _OF_SEVERAL]
            cost = f"; undefined on it: {', '.join(undefined)}" if undefined and split != "train" else ""
            cost += ", so a fine-tune is refused" if cost and spec.headline in _OF_SEVERAL else ""
            yield f"every row of {split} has the same {what}, {next(iter(counts))}{cost}"
        elif counts and not self._form.places and not self._form.several and not spec.score_range:
            label, count = counts.most_common(1)[0]
            if count > _MAJORITY * rows:
                yield f"{count / rows:.1%} of the {split} rows have the label {label}: that accuracy needs no model"
        if split == "train":
            if again := self._train_again:
                yield f"an earlier row's texts with another label: {len(again):,} of {rows:,} train rows ({again[0]})"
            return
        if rows < _FEW_DEV_ROWS:
            moves = f": a score moves by {100 / rows:.1f} with each of them" if not spec.score_range else ""
            yield f"{rows} {split} row{'s' if rows > 1 else ''}{moves or ' alone: a score says little'}"
        if again := self._again[split]:
            named = ", ".join(again[:_NAMED]) + (", ..." if len(again) > _NAMED else "")
            share = f"{len(again):,} of {rows:,} {split} rows ({len(again) / rows:.1%})"
            yield f"{share} are trained on, too: their score is higher than on new rows ({named})"
        missing = sorted(counts.keys() - self._labels["train"].keys())
        if missing and not spec.score_range:
            yield f"no training row has the label {', '.join(missing[:5])}, which {split} rows have"


def dropped_as(label: str) -> str:
    """What rows that are dropped for this label are counted by."""
    return f"label {label}" if label else "no label"


def texts_of(spec: TaskSpec, row: Example) -> tuple[Sequence[str], ...]:
    """The texts of a row that is the same as others but for case, runs of blanks, and sides without an order."""
    fields, choices = ([" ".join(text.casefold().split()) for text in texts] for texts in (row.fields, row.choices))
    return tuple(sorted(fields) if spec.symmetric else fields), tuple(choices)


def _plain(label: str) -> str:
    """What a label has in common with others that a person would take for the same."""
    folded = unicodedata.normalize("NFKC", label).casefold()
    shown = "".join(mark for mark in folded if unicodedata.category(mark) != "Cf")  # no byte order mark, no joiner
    text = " ".join(shown.strip(_AROUND).split())
    grade = grade_of(text)
    return text if grade is None else str(Decimal(repr(grade)).normalize())
