"""The task that a file of rows seems to hold: its form, columns, labels and metrics, each with the reason for it."""

from __future__ import annotations

import itertools
import json
import math
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gptcore.base.errors import InputError, nearest, require
from gptcore.base.filesystems import exists, file_system, is_folder
from gptcore.config import FinetuneConfig
from gptcore.nlu.examples import Record, show
from gptcore.nlu.forms import FORMS, MISSING, label_text
from gptcore.nlu.forms.form import grade_of
from gptcore.nlu.own_task import free_name
from gptcore.nlu.readers.dialect import cells_of, dialect_of, quotes_in
from gptcore.nlu.readers.header import few, is_row, of_texts
from gptcore.nlu.readers.own_files import kind_of, read_own
from gptcore.nlu.spec import Dialect, Format, TaskSpec

Fields = dict[str, tuple[Any, str]]
"""A field of a task's file -> its value, and the reason where there is one to give."""

_CALLED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_NAMES = {*_CALLED["labels"], *_CALLED["texts"], *itertools.chain(*_CALLED["pairs"])}
_COUNTED = re.compile(r"(.*?)[ _-]?(\d+|[a-z])")
_ALIKE = re.compile("duplicate|paraphras|similar|equivalent", re.IGNORECASE)  # in what a symmetric pair's label says
_NO_LABEL = "-"  # how SNLI writes that its raters did not agree
_LOOKED_AT = 1000  # rows that tell whether a file has a header
_LISTED = 20  # labels that a file names; where there are more, its rows do
_OF_WORDS = ("single", "labels")  # forms of rows with one text
_READINGS = 60_000  # of rows: few ones are read again (documentation, "Own tasks on real rows")
_MOST_EPOCHS = 60
_TIMES = 2  # how often the commonest label stands to the rarest where accuracy says too little
_BARE = TaskSpec("rows", "", "csv", "single", {}, (), "", (), 0, {}, dialect=Dialect())


def guess_task(url: str, label: str = "", labels: Sequence[str] = (), name: str = "", folder: str = "") -> Fields:
    """The fields of a task's file.

    :param url: any fsspec URL of the training rows.
    :param label: the column of the label; empty: the one that is called so, or the only one of few values.
    :param labels: in the order of their classes; rows with others are left out. Empty: those of the rows.
    :param name: of the task; empty: after the file's.
    :param folder: of the rows, as the task's file has to say it; empty: it lies there, too.
    :raises InputError: as the reader of the format; no rows, or none that a task can be made of; or, with the option
        that says it, what only the user knows.
    """
    if is_folder(*file_system(url)) and exists(*file_system(f"{url}/train/state.json")):  # as `datasets` saves splits
        url, folder = f"{url}/train", f"{folder}{url.rpartition('/')[2]}/"
    rows = _Rows(url, label)
    column, why = _label_column(rows, label)
    texts = _texts(rows, column, labels)
    parts, left_out = _parts(rows, column)
    share = f"no file of dev rows: this share of the {len(rows.rows):,} rows, drawn by a seed"
    return {
        "name": (name or _name(url), ""),
        "format": (rows.format, ""),
        **({"columns": (rows.names, "it has no header line")} if rows.headless else {}),
        **texts,
        "label": (column, why),
        **_answers([*parts.values()], column, FORMS[texts["form"][0]], labels),
        **{split: (folder + part.file, left_out if part is rows else "beside it") for split, part in parts.items()},
        **({} if "dev" in parts else {"holdout": (0.1 if len(rows.rows) >= _LOOKED_AT else 0.2, share)}),
        **_finetuning(texts["form"][0], len(rows.rows)),
    }


def _finetuning(form: str, n_rows: int) -> Fields:
    """How often few rows are read, and what tells one text with a label."""
    epochs, usual = min(_MOST_EPOCHS, _READINGS // n_rows), FinetuneConfig().epochs
    often = {
        "finetune.epochs": (epochs, f"readings of {n_rows:,} rows, the best one kept; a large model needs {usual}")
    }
    pooled = {"finetune.pooling": ("mean", "all of its words tell it, not the last position alone")}
    beside = {"finetune.ngrams": (3, "what words and up to three pieces in a row tell counts, too")}
    return {
        **(often if epochs > usual else {}),
        **(pooled if form in _OF_WORDS else {}),
        **({} if FORMS[form].places else beside),
    }


def task_text(fields: Fields) -> str:
    """The task's file.

    :raises InputError: a text that no file in UTF-8 can hold.
    """
    lines = {f"{name} = {_toml(value)}": why for name, (value, why) in fields.items()}
    width = min(48, max(map(len, lines)))
    return "".join(f"{line:<{width}}  # {why}\n" if why else f"{line}\n" for line, why in lines.items())


def _toml(value: Any) -> str:
    """Texts, numbers and lists are written as in JSON, but for one control character."""
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    require(not re.search("[\ud800-\udfff]", text), f"found {show(value)}, expected text without unpaired surrogates")
    return text


def _name(url: str) -> str:
    folder, _, file = url.rpartition("/")
    alone = folder.rpartition("/")[2] or Path.cwd().name  # where the file is called train, and no more
    name = free_name(re.sub(r"[-_.]?train[-_.]?", "", file.partition(".")[0]) or alone)
    require(name, f"{url}: found no task's name in the file's, expected --name NAME")
    return name


def _plain(name: str) -> str:
    return name.strip().casefold()


class _Rows:
    """The rows of a file, and what stands in their columns; one that lies beside the training rows may lack labels."""

    def __init__(self, url: str, label: str, beside: bool = False) -> None:
        self.url, self.file, self.headless = url, url.rpartition("/")[2], False
        self.format, rows = self._read(label, beside)
        self.rows = list(rows)
        require(self.rows, f"{url}: found no rows, expected two or more")
        self.names = list(dict.fromkeys(name for row in self.rows[:_LOOKED_AT] for name in row.columns))

    def _read(self, label: str, beside: bool) -> tuple[Format, Iterable[Record]]:
        """The format, told by what stands in the file, and the rows."""
        spec = replace(_BARE, format=kind_of(self.url))
        if spec.format not in ("csv", "tsv"):
            return spec.format, read_own(self.url, spec)
        dialect = dialect_of(self.url, spec, _NAMES)
        dialect = replace(dialect, quoted=dialect.quoted or all(quotes_in(self.url, dialect)))
        cells = [row for _, row in itertools.islice(cells_of(self.url, dialect), _LOOKED_AT)]
        require(cells, f"{self.url}: found no rows, expected two or more")
        names, lone = cells[0], len(cells[0]) == 1 and not beside
        expected = "commas, semicolons, pipes or tabs between columns, or a JSON object a line"
        require(not lone, f"{self.url}, line 1: found one column, expected {expected}")
        plain = sorted(map(_plain, names))
        columns = zip(
            *(row for row in cells if len(row) == len(names) and sorted(map(_plain, row)) != plain), strict=True
        )
        again = any(name.strip() and name in column for name, column in zip(names, columns, strict=False))
        known = (label and label in names) or any(_plain(name) in _NAMES - {""} for name in names)
        self.headless = not known and (again or is_row(names))  # a label stands again, and a column's name does not
        if self.headless:
            names = [f"c{number}" for number in range(1, len(names) + 1)]
        spec = replace(spec, columns=tuple(names) if self.headless else (), dialect=dialect)
        return spec.format, read_own(self.url, spec)

    def values(self, name: str) -> list[Any]:
        return [row.columns.get(name) for row in self.rows]

    def texts(self, name: str) -> list[str]:
        """The texts in a column; the reader tells of rows without."""
        return [value for value in self.values(name) if isinstance(value, str) and value.strip()]

    def several(self, name: str) -> bool:
        """Whether rows have any number of labels in a column: lists, or texts with semicolons between them."""
        values = self.values(name)
        parts = {part for value in values for part in str(value).split(";")}
        mixed = any(";" in str(value) for value in values) and len(parts) < len({*map(str, values)})
        return mixed or all(isinstance(value, list) for value in values)

    def labels(self, name: str) -> list[str]:
        """The labels in a column, in their one spelling; what is none, in Python's."""
        form = FORMS["labels" if self.several(name) else "single"]
        spelled = [label for value in self.values(name) for label in form.label_texts(value)]
        return [label if isinstance(label, str) else repr(label) for label in spelled]

    def numbers(self, name: str) -> list[float]:
        """The numbers that stand in a column; none where something else does."""
        given = [grade_of(label) for label in self.labels(name) if label != MISSING]
        grades = [number for number in given if number is not None and math.isfinite(number)]
        return grades if len(grades) == len(given) else []

    def grades(self, name: str) -> list[float]:
        """The numbers of a column that is called after grades, or in which some have a fraction; else none."""
        numbers = self.numbers(name)
        return numbers if _plain(name) in _CALLED["grades"] or any(number % 1 for number in numbers) else []

    def but(self, label: str = "") -> list[str]:
        """The columns besides the label's that do not only number the rows."""
        return [name for name in self.names if name != label and _plain(name) not in _CALLED["numbering"]]


def _label_column(rows: _Rows, given: str) -> tuple[str, str]:
    """The column of the label, and why it is that one."""
    if given:
        require(given in rows.names, f"--label: found {given!r}, {nearest(given, rows.names)}")
        return given, "as --label says"
    called = [name for name in rows.but() if _plain(name) in _CALLED["labels"]]
    named = [name for name in called if not of_texts(rows.labels(name))]
    named = named or [name for name in called if few(rows.labels(name), named=True)]
    unnamed = [name for name in rows.but() if few([each for each in rows.labels(name) if each])]
    candidates = named or unnamed or list(filter(rows.grades, rows.but()))
    if len(candidates) == 1:
        n_values = len(set(rows.labels(candidates[0])))
        return candidates[0], "by its name" if named else f"{n_values} different values in {len(rows.rows)} rows"
    which = f"{', '.join(candidates)}, each of which could be the label" if candidates else ", ".join(rows.names)
    raise InputError(f"{rows.url}: found the columns {which}, expected --label COLUMN")


def _texts(rows: _Rows, label: str, labels: Sequence[str]) -> Fields:
    """The form, and the columns of the texts."""
    texts = [name for name in rows.but(label) if 2 * len(rows.texts(name)) > len(rows.rows)]
    named = {_plain(name): name for name in texts}
    if pair := next((pair for pair in _CALLED["pairs"] if {*pair} <= named.keys()), None):
        return _pair([named[name] for name in pair], rows, label, "by their names")
    if options := _options(rows, texts, label, labels):
        others = [name for name in texts if name not in options]
        others = ([name for name in others if of_texts(rows.texts(name))] or others)[:2]
        why = f"{show(label)} says which of {len(options)} columns is right"
        return {"form": ("choices", why), "fields": (others, ""), "choices": (options, "")}
    texts = [name for name in texts if not rows.numbers(name)]
    texts = [name for name in texts if of_texts(rows.texts(name)) or _plain(name) in _CALLED["headings"]] or texts
    require(texts, f"{rows.url}: found no column of texts among {', '.join(rows.names)}, expected one beside {label}")
    several = rows.several(label)
    if len(texts) == 2 and not several and _plain(texts[0]) not in _CALLED["headings"]:
        return _pair(texts, rows, label, f"form single with [{_toml(texts)}] joins them")
    longest = max(texts, key=lambda name: sum(map(len, rows.texts(name))))
    fields: list[Any] = [longest]
    also = ", ".join(show(name) for name in texts if name != longest)
    why = f"the longest of several texts; also {also}" if also else ""
    if len(texts) == 2:
        fields, why = [texts], "joined"
    form = ("labels", "any number of labels a row") if several else ("single", "a text with one label")
    return {"form": form, "fields": (fields, why)}


def _pair(fields: list[str], rows: _Rows, label: str, why: str) -> Fields:
    described: Fields = {"form": ("pair", "two texts with one label"), "fields": (fields, why)}
    if rows.grades(label) or _ALIKE.search(" ".join([label, *set(rows.labels(label))])):
        described["symmetric"] = (True, "neither text is the first one by nature")
    return described


def _options(rows: _Rows, texts: Sequence[str], label: str, labels: Sequence[str]) -> list[str]:
    """The columns of choices: counted ones, one of which the label names in each row; empty: there are none."""
    groups: dict[str, dict[int, str]] = defaultdict(dict)
    for name in texts:
        if counted := _COUNTED.fullmatch(_plain(name)):
            groups[counted[1]][int(counted[2]) if counted[2].isdecimal() else ord(counted[2])] = name
    for stem, group in groups.items():
        options = [group[number] for number in sorted(group) if {number - 1, number + 1} & group.keys()]
        if len(options) < 2 or len(options) == len(texts) or len(labels) not in (0, len(options)):
            continue
        spec = replace(_BARE, form="choices", label=label, choices=tuple(options))
        try:
            if not labels:
                FORMS["choices"].labels_of(spec, zip(rows.rows, rows.labels(label), strict=True))
            return options
        except InputError:
            called = f"--labels A,B,...: what {label} is where the right one is {', '.join(options)}"
            found = show(sorted(set(rows.labels(label)))[:_LISTED])
            if stem in _CALLED["options"]:
                raise InputError(f"{rows.url}: {label}: found {found}, expected {called}") from None
    return []


def _parts(rows: _Rows, label: str) -> tuple[dict[str, _Rows], str]:
    """The training rows; labelled dev and test rows beside a file which is called train; a word on unlabelled ones."""
    splits, left_out = {"train": rows}, dict[str, _Rows]()
    for split in ("dev", "test") if "train" in rows.file else ():
        urls = (rows.url.removesuffix(rows.file) + rows.file.replace("train", word) for word in _CALLED[split])
        if url := next((url for url in urls if exists(*file_system(url))), ""):
            other = _Rows(url, label, beside=True)
            there = other.names == rows.names if rows.headless else label in other.names
            (splits if there and MISSING not in other.labels(label) else left_out)[split] = other
    names = " and ".join(other.file for other in left_out.values())
    return splits, f"not {names} beside it: labels are missing there" if names else ""


def _answers(parts: Sequence[_Rows], label: str, form: Any, given: Sequence[str]) -> Fields:
    """The labels or the range of grades, the labels that are none, and the metrics.

    :param parts: the training rows, and those beside them.
    """
    if form.choices:
        return {**({"labels": (list(given), "")} if given else {}), "metrics": (["accuracy"], "")}
    place = f"{parts[0].url}: {label}"
    for row in itertools.chain(*(part.rows for part in parts)):
        if odd := [each for each in form.label_texts(row.columns.get(label)) if not isinstance(each, str)]:
            raise row.error(label, show(odd[0]), "text, a number or a truth value")
    there = {each for part in parts for each in part.labels(label)}
    tags = "O" in there and len(there) > 1 and all(re.fullmatch("O|[BI]-.+", each) for each in there)
    require(not tags, f"{place}: found tags of words; expected a label a row, as no own task is of the form tags")
    none = set() if form.several else {MISSING, _NO_LABEL}
    if unknown := next((each for each in given if label_text(each) not in there), ""):
        raise InputError(f"--labels: found {unknown!r}, which no row has; {nearest(unknown, sorted(there - none))}")
    dropped = there - {*map(label_text, given)} if given else there & none
    others = there - dropped - {"-1"}
    if not given and "-1" in there and len(others) > 1 and others == {*map(str, range(len(others)))}:
        expected = "--labels=-1,0,1 where it is a class, --labels 0,1 where such rows have none"
        require(len(others) > 2, f"{place}: found -1 beside 0 and 1, expected {expected}")
        dropped = dropped | {"-1"}
    fields: Fields = {"dropped_labels": (sorted(dropped), "such rows are left out")} if dropped else {}
    if form.graded and not given and (grades := [grade for part in parts for grade in part.grades(label)]):
        fields["score_range"] = ([math.floor(min(grades)), math.ceil(max(grades))], "grades")
        return {**fields, "metrics": (["pearson", "spearman"], "")}
    labels = list(given or form.labels_of(_BARE, ((parts[0].rows[0], each) for each in there - dropped)))
    n_labels = f"{place}: found {len(labels):,} different ({show(labels[:_LISTED])})"
    require(2 <= len(labels) <= form.most_labels, f"{n_labels}, expected 2 to {form.most_labels}, or another --label")
    if len(labels) <= _LISTED or given or len(parts) > 1:
        fields["labels"] = (labels, "in the order of their classes")
    counts = Counter(parts[0].labels(label))
    return fields | (_metrics(counts, labels) if not form.several else {"metrics": (["micro_f1", "accuracy"], "")})


def _metrics(counts: Counter[str], labels: Sequence[str]) -> Fields:
    """The metrics that suit how often each label stands in the training rows."""
    rarest, *_, commonest = sorted(labels, key=lambda each: counts[label_text(each)])
    times = counts[label_text(commonest)] / max(1, counts[label_text(rarest)])
    if times < _TIMES:
        return {"metrics": (["accuracy"], "the labels are balanced")}
    why = f"{show(commonest)} is {times:.1f} times as frequent as {show(rarest)}"
    if len(labels) > 2:
        return {"metrics": (["macro_f1", "accuracy"], why)}
    return {"metrics": (["f1", "accuracy"], why), "positive": (rarest, "the label that F1 is of")}
