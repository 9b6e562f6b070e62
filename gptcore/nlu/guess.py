"""The task that a file of rows seems to hold: its form, columns, labels and metrics, each with the reason for it."""

from __future__ import annotations

import itertools
import json
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gptcore.base.errors import InputError, nearest, require
from gptcore.base.filesystems import exists, file_system, is_folder
from gptcore.config import FinetuneConfig
from gptcore.nlu.columns import BARE, CALLED, LOOKED_AT, Rows, Said
from gptcore.nlu.examples import EmptyText, show
from gptcore.nlu.forms import FORMS, MISSING, label_text
from gptcore.nlu.forms.form import grade_of
from gptcore.nlu.own_task import free_name
from gptcore.nlu.readers.header import few, of_texts
from gptcore.nlu.readers.own_files import opened
from gptcore.nlu.readers.text_files import in_words, plain_name
from gptcore.nlu.spec import Dialect

Fields = dict[str, tuple[Any, str]]
"""A field of a task's file -> its value, and the reason where there is one to give."""

_COUNTED = re.compile(r"(.*?)[ _-]?(\d+|[a-z])")
_ALIKE = re.compile("duplicate|paraphras|similar|equivalent", re.IGNORECASE)  # in what a symmetric pair's label says
_UNKNOWN = {MISSING, "-1"}  # labels of rows with choices of which nobody says which is right
_INFINITE = re.compile("[+-]?inf(inity)?", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_LEFT_OUT = "such rows are left out"
_NO_LABEL = "-"  # how SNLI writes that its raters did not agree
_LISTED = 20  # labels that a file names; where there are more, its rows do
_OF_WORDS = ("single", "labels")  # forms of rows with one text
_READINGS = 60_000  # of rows: few ones are read again (documentation, "Own tasks on real rows")
_MOST_EPOCHS = 60
_TIMES = 2  # how often the commonest label stands to the rarest where accuracy says too little


class Unclear(InputError):
    """What the rows do not tell.

    :param option: the one of the command that says it, ``answers``: what it may say.
    """

    def __init__(self, message: str, option: str, answers: Sequence[str]) -> None:
        super().__init__(message)
        self.option, self.answers = option, answers


_NOTHING = Said()


def guess_task(url: str, said: Said = _NOTHING, name: str = "", folder: str = "") -> Fields:
    """The fields of a task's file.

    :param url: any fsspec URL of the training rows.
    :param name: of the task; empty: after the file's.
    :param folder: of the rows, as the task's file has to say it; empty: it lies there, too.
    :raises InputError: as the reader of the format; no rows, or none that a task can be made of.
    :raises Unclear: only the user knows it.
    """
    if is_folder(*file_system(url)) and exists(*file_system(f"{url}/train/state.json")):  # as `datasets` saves splits
        url, folder = f"{url}/train", f"{folder}{url.rpartition('/')[2]}/"
    rows = Rows(url, said)
    column, why = _label_column(rows, said.label)
    texts = _texts(rows, column, said)
    parts, left_out = _parts(rows, column)
    share = f"no file of dev rows: this share of the {len(rows.rows):,} rows, drawn by a seed"
    return {
        "name": (name or _name(url), ""),
        "format": (rows.format, ""),
        **{field: (value, "") for field, value in asdict(said.dialect).items() if value},
        **({"columns": (rows.names, "it has no header line")} if rows.headless else {}),
        **texts,
        "label": (column, why),
        **_answers([*parts.values()], column, FORMS[texts["form"][0]], said),
        **{split: (folder + part.file, left_out if part is rows else "beside it") for split, part in parts.items()},
        **({} if "dev" in parts else {"holdout": (0.1 if len(rows.rows) >= LOOKED_AT else 0.2, share)}),
        **_finetuning(texts["form"][0], len(rows.rows)),
    }


def _finetuning(form: str, n_rows: int) -> Fields:
    """What small models are fine-tuned with: how often few rows are read, and what tells one text with a label."""
    epochs = min(_MOST_EPOCHS, _READINGS // n_rows)
    often = {"small.epochs": (epochs, f"of a small model: readings of {n_rows:,} rows, the best one kept")}
    pooled = {"small.pooling": ("mean", "all of its words tell it, not the last position alone")}
    beside = {"small.ngrams": (3, "what words and up to three pieces in a row tell counts, too")}
    return {
        **(often if epochs > FinetuneConfig().epochs else {}),
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


def _label_column(rows: Rows, given: str) -> tuple[str, str]:
    """The column of the label, and why it is that one."""
    if given:
        require(given in rows.names, f"--label: found {given!r}, {nearest(given, rows.names)}")
        return given, "as --label says"
    called = [name for name in rows.but() if plain_name(name) in CALLED["labels"]]
    named = [name for name in called if not of_texts(rows.labels(name))]
    named = named or [name for name in called if few(rows.labels(name), named=True)]
    unnamed = [name for name in rows.but() if few([each for each in rows.labels(name) if each])]
    candidates = named or unnamed or list(filter(rows.grades, rows.but()))
    if len(candidates) == 1:
        n_values = len(set(rows.labels(candidates[0])))
        return candidates[0], "by its name" if named else f"{n_values} different values in {len(rows.rows)} rows"
    which = f"{in_words(candidates)}, each of which could be the label" if candidates else in_words(rows.names)
    found = f"{rows.url}: found the columns {which}, expected --label COLUMN"
    raise Unclear(found, "--label", candidates or rows.but())


def _texts(rows: Rows, label: str, said: Said) -> Fields:
    """The form, and the columns of the texts."""
    for name in said.texts:
        require(name in rows.names, f"--text: found {name!r}, {nearest(name, rows.names)}")
    texts = [name for name in rows.but(label) if 2 * len(rows.texts(name)) > len(rows.rows)]
    named = {plain_name(name): name for name in texts if not said.texts or name in said.texts}
    pair = next((pair for pair in CALLED["pairs"] if {*pair} <= named.keys()), None)
    asked, several = FORMS.get(said.form), rows.several(label)
    if pair and not several and (asked is None or asked.symmetric_names):
        return _pair([named[name] for name in pair], rows, label, "by their names")
    none = (asked and not asked.choices) or rows.several(label)
    options, listed = ([], "") if none else _options(rows, texts, label, said.labels)
    if options:
        others = [name for name in texts if name not in options and not listed.startswith(name)]
        others = [*said.texts] or ([name for name in others if of_texts(rows.texts(name))] or others)[:2]
        why = f"{show(label)} says which of {len(options)} {'texts in a list' if listed else 'columns'} is right"
        return {"form": ("choices", why), "fields": (others, ""), "choices": (listed or options, "")}
    found = f"{rows.url}: found no choices that {label} names one of"
    require(not (asked and asked.choices), f"{found}, expected another --form")
    texts = [name for name in texts if not rows.numbers(name)]
    texts = [name for name in texts if of_texts(rows.texts(name)) or plain_name(name) in CALLED["headings"]] or texts
    texts = [*said.texts] or texts
    require(texts, f"{rows.url}: found no column of texts among {in_words(rows.names)}, expected one beside {label}")
    headings = [name for name in texts if plain_name(name) in CALLED["headings"]]
    texts = texts if said.texts else [*headings, *(name for name in texts if name not in headings)]
    several, two = rows.several(label), len(texts) == 2 and not (asked or headings)
    if (asked and asked.symmetric_names) or (two and not several):
        require(len(texts) == 2, f"{rows.url}: found the texts {', '.join(texts)}, expected two as --text A,B")
        why = "as --form says" if asked else f"form single with [{_toml(texts)}] joins them"
        return _pair(texts, rows, label, why)
    longest = max(texts, key=lambda name: sum(map(len, rows.texts(name))))
    fields: list[Any] = [longest]
    also = ", ".join(show(name) for name in texts if name != longest)
    why = f"the longest of several texts; also {also}" if also else ""
    if len(texts) == 2 or (said.texts and also):
        fields, why = [texts], "joined"
    if unread := [name for name in rows.but(label) if name not in texts and rows.holds_lists(name)]:
        why = "; ".join(filter(None, [why, f"not read: {', '.join(map(show, unread))}, with lists"]))
    form = ("labels", "any number of labels a row") if several else ("single", "a text with one label")
    separator = rows.separator(label) if several else ""
    apart = {"separator": (separator, "stands between the labels of a row")} if separator not in ("", ";") else {}
    return {"form": form, "fields": (fields, why), **apart}


def _pair(fields: list[str], rows: Rows, label: str, why: str) -> Fields:
    described: Fields = {"form": ("pair", "two texts with one label"), "fields": (fields, why)}
    if rows.grades(label) or _ALIKE.search(" ".join([label, *set(rows.labels(label))])):
        described["symmetric"] = (True, "neither text is the first one by nature")
    return described


def _options(rows: Rows, texts: Sequence[str], label: str, labels: Sequence[str]) -> tuple[list[str], str]:
    """The columns of choices: counted ones, one of which the label names in each row; and the column that lists them,
    where one does. Empty: there are none.
    """
    groups: dict[str, dict[int, str]] = defaultdict(dict)
    for name in texts:
        if counted := _COUNTED.fullmatch(plain_name(name)):
            groups[counted[1]][int(counted[2]) if counted[2].isdecimal() else ord(counted[2])] = name
    candidates = []
    for stem, group in groups.items():
        options = [group[number] for number in sorted(group) if {number - 1, number + 1} & group.keys()]
        candidates += [(stem, options, "")] if len(options) != len(texts) else []
    candidates += [(path, [f"{path} {n}" for n in range(1, size + 1)], path) for path, size in rows.lists(label)]
    for stem, options, listed in candidates:
        if len(options) < 2 or len(labels) not in (0, len(options)):
            continue
        spec = replace(BARE, form="choices", label=label, choices=tuple(options), dialect=Dialect(options=listed))
        try:
            if not labels:
                there = ((row, label_text(row.columns.get(label))) for row in (opened(row, spec) for row in rows.rows))
                FORMS["choices"].labels_of(spec, ((row, each) for row, each in there if each not in _UNKNOWN))
            return options, listed
        except InputError as error:
            called = f"--labels A,B,...: what {label} is where the right one is {', '.join(options)}"
            found = show(sorted(set(rows.labels(label)))[:_LISTED])
            if listed or stem in CALLED["options"]:
                if isinstance(error, EmptyText):
                    raise
                raise Unclear(f"{rows.url}: {label}: found {found}, expected {called}", "--labels", ()) from None
    return [], ""


def _parts(rows: Rows, label: str) -> tuple[dict[str, Rows], str]:
    """The training rows; labelled dev and test rows beside a file which is called train; a word on unlabelled ones."""
    splits, left_out = {"train": rows}, list[str]()
    for split in ("dev", "test") if "train" in rows.file else ():
        urls = (rows.url.removesuffix(rows.file) + rows.file.replace("train", word) for word in CALLED[split])
        if url := next((url for url in urls if exists(*file_system(url))), ""):
            other = Rows(url, rows.said._replace(label=label), beside=True)
            there = other.names == rows.names if rows.headless else label in other.names
            found = {*other.labels(label)} if there else {MISSING}
            withheld = MISSING in found or (len(found) == 1 and found.isdisjoint(rows.labels(label)))
            if withheld:
                as_what = "" if MISSING in found else f", where each row has {show(*found)}"
                left_out.append(f"not {other.file} beside it: labels are missing there{as_what}")
            else:
                splits[split] = other
    return splits, "; ".join(left_out)


def _answers(parts: Sequence[Rows], label: str, form: Any, said: Said) -> Fields:
    """The labels or the range of grades, the labels that are none, and the metrics.

    :param parts: the training rows, and those beside them.
    """
    given = said.labels
    if form.choices:
        which = sorted(_UNKNOWN & {each for part in parts for each in part.labels(label)})
        left_out: Fields = {"dropped_labels": (which, _LEFT_OUT)} if which else {}
        return {**left_out, **({"labels": (list(given), "")} if given else {}), "metrics": (["accuracy"], "")}
    place = f"{parts[0].url}: {label}"
    there = {each for part in parts for each in part.labels(label)}
    numbers = all(grade_of(each) is not None for each in there if each != MISSING and not _INFINITE.fullmatch(each))
    for row, its in itertools.chain(*(zip(part.rows, part.labels_by_row(label), strict=True) for part in parts)):
        if odd := [each for each in its if not isinstance(each, str)]:
            raise row.error(label, show(odd[0]), "text, a number or a truth value")
        if numbers and any(map(_INFINITE.fullmatch, its)):
            raise row.error(label, json.dumps(row.columns[label], default=str), "a finite number")
        if len({*its}) < len(its):
            raise row.error(label, show(row.columns[label]), "each label once")
    tags = "O" in there and len(there) > 1 and all(re.fullmatch("O|[BI]-.+", each) for each in there)
    require(not tags, f"{place}: found tags of words; expected a label a row, as no own task is of the form tags")
    none = {MISSING} if form.several else {MISSING, _NO_LABEL}
    if unknown := next((each for each in given if label_text(each) not in there), ""):
        raise InputError(f"--labels: found {unknown!r}, which no row has; {nearest(unknown, sorted(there - none))}")
    dropped = there - {*map(label_text, given)} if given else there & none
    others = there - dropped - {"-1"}
    if not given and "-1" in there and len(others) > 1 and others == {*map(str, range(len(others)))}:
        expected = "--labels=-1,0,1 where it is a class, --labels 0,1 where such rows have none"
        if len(others) == 2:
            raise Unclear(f"{place}: found -1 beside 0 and 1, expected {expected}", "--labels", ("-1,0,1", "0,1"))
        dropped = dropped | {"-1"}
    fields: Fields = {"dropped_labels": (sorted(dropped), _LEFT_OUT)} if dropped else {}
    told = [part.numbers(label) if said.graded else part.grades(label) for part in parts]
    require(not said.graded or all(told), f"{place}: found labels that are no numbers, expected grades for --graded")
    if form.graded and not given and (grades := list(itertools.chain(*told))):
        fields["score_range"] = ([math.floor(min(grades)), math.ceil(max(grades))], "grades")
        return {**fields, "metrics": (["pearson", "spearman"], "")}
    numbered = plain_name(label) in CALLED["grades"] and all(map(_DIGIT.search, there - dropped))
    if form.graded and not given and numbered and there - dropped:
        expected = "numbers for grades, or --labels A,B,... for classes"
        raise Unclear(f"{place}: found {show(sorted(there - dropped)[:_LISTED])}, expected {expected}", "--labels", ())
    names = {value for part in parts for value in part.values(label) if value in ("nan", "NaN")}
    if not given and names and MISSING in dropped and not form.several and _is_named_nan(parts, label):
        dropped, there = dropped - {MISSING}, there - {MISSING} | names
        fields.pop("dropped_labels", None)
    elif names and MISSING in dropped:
        fields["dropped_labels"] = (sorted(dropped), f"{_LEFT_OUT}, those with {in_words(sorted(names))}, too")
    labels = list(given or form.labels_of(BARE, ((parts[0].rows[0], each) for each in there - dropped)))
    n_labels = f"{place}: found {len(labels):,} different ({show(labels[:_LISTED])})"
    require(2 <= len(labels) <= form.most_labels, f"{n_labels}, expected 2 to {form.most_labels}, or another --label")
    if len(labels) <= _LISTED or given or names or len(parts) > 1:
        numbered = form.graded and len(labels) > 2 and all(grade_of(each) is not None for each in labels)
        also = "; --graded reads them as grades" * numbered
        fields["labels"] = (labels, f"in the order of their classes{_alike(labels)}{also}")
    counts = Counter(parts[0].labels(label))
    return fields | (_metrics(counts, labels) if not form.several else {"metrics": (["micro_f1", "accuracy"], "")})


def _is_named_nan(parts: Sequence[Rows], label: str) -> bool:
    """Whether "nan" is the name of a class, as of a language: beside other words, where no cell is empty."""
    values = [value for part in parts for value in part.values(label)]
    words = [value for value in values if isinstance(value, str) and value.strip() and value.lower() != "nan"]
    named = all(isinstance(value, str) and value.strip() for value in values)
    return named and not any(grade_of(word) is not None for word in words)


def _alike(labels: Sequence[str]) -> str:
    """A word on labels that differ in a way that is easily overlooked; empty: none do."""
    spelled: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        plain = unicodedata.normalize("NFKC", label).strip().casefold()
        with suppress(ValueError):
            plain = f"{float(plain):g}"
        spelled[plain].append(label)
    twins = [" and ".join(map(show, ways)) for ways in spelled.values() if len(ways) > 1]
    return f"; {', '.join(twins)} are classes of their own" if twins else ""


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
