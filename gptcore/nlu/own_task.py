"""A user's own task: a TOML file with the fields of a registry entry becomes a :class:`TaskSpec` like the twelve.

    name = "anli"                           # its column on the leaderboard
    format = "jsonl"                        # tsv, csv, jsonl, json, parquet, arrow, xlsx
    form = "pair"                           # single, labels (any number of them a row), pair, choices
    fields = ["premise", "hypothesis"]      # columns of the texts, in input order
    label = "label"                         # column of the label
    train = "train.jsonl"
    dev = "dev.jsonl"                       # or holdout = 0.1: that share of the training rows, drawn by a seed

Optional: ``test``, ``labels`` (else those of the training file, sorted), ``metrics`` (the headline first), ``positive``
(the label that f1 is of, else the second), ``choices`` (columns of the answers), ``symmetric``, ``score_range``,
``columns`` (of a file without a header line), ``delimiter``, ``encoding`` and ``quoted`` (where the files do not tell
it), ``dropped_labels`` ("": rows without a label), ``context``, ``seeds``, ``note``, ``folder``, ``[prompt]`` and
``[finetune]``, and ``[small]``, the settings of fine-tuning that small models have besides.

Paths are relative to the file, or to its ``folder``; where that folder is not beside the file, to the folder of
datasets.
"""

from __future__ import annotations

import codecs
import dataclasses
import itertools
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gptcore.base.addresses import refuse_recorded
from gptcore.base.errors import InputError
from gptcore.base.filesystems import exists, file_system, misspelt, read_toml
from gptcore.base.settings import replace_settings
from gptcore.config import FinetuneConfig, Preset
from gptcore.nlu.examples import Record, show
from gptcore.nlu.forms import DROPS_MISSING, FORMS, MISSING, Form, form_of, label_number, label_text
from gptcore.nlu.readers.dialect import as_written
from gptcore.nlu.readers.own_files import OWN_FORMATS, listed_in, unread_sheets
from gptcore.nlu.readers.tasks import unlabelled_rows
from gptcore.nlu.registry import BEYOND, COLUMNS, REGISTRY, Dialect, Holdout, PromptTemplate, Source, TaskSpec
from gptcore.nlu.toml_fields import TomlFields

SUFFIX = ".toml"
"""What tells the address of a task's file from a task's name."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_RESERVED = {
    *(*REGISTRY, *BEYOND, *COLUMNS),
    *("average", "glue", "seeds", "suite", "kind", "split", "blimp", "commits", "source"),
    *("model", "whose", "weights", "tokens", "operations", "seconds"),
}
"""Names of columns that a leaderboard, or an analysis, has already."""
_HOLDOUT_SEED = 0
_PARTS = 10_000  # a share of the rows is stated in ten-thousandths
_MAX_GRADES = 101  # classes of a graded label: one for each whole number of its range


@dataclass(frozen=True)
class Task:
    """A task, and the fine-tuning settings that it brings along."""

    spec: TaskSpec
    finetune: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Settings that differ from the paper's or the preset's: fields of :class:`FinetuneConfig`."""
    small: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Those that differ for a small model alone (:attr:`gptcore.config.Preset.small`)."""

    @property
    def name(self) -> str:
        """The task's name."""
        return self.spec.name

    def settings(self, preset: Preset) -> FinetuneConfig:
        """The task's fine-tuning settings under a preset.

        :raises InputError: settings that do not fit each other, or the task.
        """
        config = replace_settings(preset.finetune_for(self.name), self.small if preset.small else {}, "small")
        config = replace_settings(config, self.finetune, "finetune")
        check_class_weights(self.spec, config)
        return config


def check_class_weights(spec: TaskSpec, config: FinetuneConfig) -> None:
    """:raises InputError: classes are weighed of a task whose rows have not one label each."""
    form = form_of(spec)
    if config.class_weights and (form.several or form.choices or form.places or spec.score_range):
        found = f"finetune.class_weights = {config.class_weights!r}: found the task {spec.name}"
        raise InputError(f"{found}, expected a task each of whose rows has one of several labels")


def is_task_file(name: str) -> bool:
    """Whether a task is named by the address of its file."""
    return name.endswith(SUFFIX)


def read_own_task(url: str, datasets_url: str = "") -> Task:
    """Read a task's file, and look up what it names.

    :param url: any fsspec URL of the file.
    :param datasets_url: where the file's ``folder`` may be; empty: beside the file alone.
    :raises InputError: no such file, no TOML, a field that is missing, unknown or of another type, values that do not
        fit each other, a file of rows that is not there, or none whose labels could be read; names the field.
    """
    given = TomlFields(url, read_toml(url, "a task's file"))
    name = given.text("name")
    spelled = "a small letter, then up to 31 small letters, digits, - or _"
    given.require(_NAME.fullmatch(name), "name", name, spelled)
    given.require(name not in _RESERVED, "name", name, "a name that no task and no column of the leaderboard has")
    form = FORMS[given.one_of("form", tuple(name for name, form in FORMS.items() if form.n_fields))]
    spec = TaskSpec(
        name=name,
        folder="",
        home=_home(given, datasets_url),
        format=given.one_of("format", OWN_FORMATS),
        form=form.name,
        splits=_splits(given),
        fields=_fields(given, form),
        label=given.text("label"),
        labels=given.labels("labels"),
        choices=() if isinstance(given.raw("choices"), str) else given.texts("choices"),
        metrics=given.texts("metrics"),  # type: ignore[arg-type]  # which of them fit follows from the labels
        table=0,
        paper={name: None},
        prompt=_prompt(given),
        symmetric=given.flag("symmetric"),
        score_range=_score_range(given),
        columns=given.texts("columns"),
        dropped_labels=tuple(map(label_text, given.labels("dropped_labels"))),
        holdout=_holdout(given),
        may_be_empty=True,
        dialect=_dialect(given),
        context=given.whole("context", 0, 0),
        seeds=given.whole("seeds", 1, 1),
        note=given.text("note", ""),
    )
    for source in itertools.chain.from_iterable(spec.splits.values()):
        refuse_recorded(f"{spec.home}/{source.path}")
    finetune, small, positive = given.table("finetune"), given.table("small"), given.raw("positive")
    given.check_all_read()
    replace_settings(FinetuneConfig(), finetune, f"{url}: finetune")  # an unknown field, or a wrong value
    alone = replace_settings(FinetuneConfig(), small, f"{url}: small")
    replace_settings(alone, finetune, f"{url}: finetune")
    spec = _with_metrics(_with_labels(_told(_fitting(given, _with_options(spec))), given), given)
    check_class_weights(spec, replace_settings(alone, finetune, f"{url}: finetune"))
    return Task(_with_positive(spec, positive, given), finetune, small)


def free_name(text: str) -> str:
    """A name that a task may have, made of what a file or a folder is called; empty: it has letters beyond a to z."""
    plain = re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFKD", text).casefold())  # letters without accents
    name = re.sub(r"[^\w-]+", "-", plain).strip("-_")
    if not name or not name.isascii():
        return ""
    name = name if name[:1].isalpha() else f"task-{name}"
    return (f"own-{name}" if name in _RESERVED else name)[:32]


def own_task_name(url: str) -> str:
    """The name that a task's file gives, whatever else is wrong with it: who asks a model needs no rows.

    :raises InputError: no such file, no TOML, or no name.
    """
    return TomlFields(url, read_toml(url, "a task's file")).text("name")


# --- fields of the file ----------------------------------------------------------------------------------------------


def _splits(given: TomlFields) -> dict[str, tuple[Source, ...]]:
    """The files of each split; dev rows cut from the training file are read from there."""
    train = given.text("train")
    dev = given.text("dev", "")
    if bool(dev) == ("holdout" in given):
        found = "both dev and holdout" if dev else "neither dev nor holdout"
        raise InputError(
            f'{given.url}: found {found}, expected one of the two: dev = "FILE" with rows to score on; or '
            "holdout = 0.1, the share of train's rows that are kept for it"
        )
    splits: dict[str, tuple[Source, ...]] = {"train": (Source(train, 0),), "dev": (Source(dev or train, 0),)}
    if test := given.text("test", ""):
        splits["test"] = (Source(test, 0),)
    return splits


def _holdout(given: TomlFields) -> Holdout | None:
    share = given.raw("holdout")
    seed = given.whole("holdout_seed", _HOLDOUT_SEED, 0)
    if share is None:
        return None
    fits = isinstance(share, float) and 1 / _PARTS <= share <= 0.5
    given.require(fits, "holdout", share, f"the share of rows to hold out, {1 / _PARTS} to 0.5")
    return Holdout(dev=round(share * _PARTS), of=_PARTS, seed=seed)


def _fields(given: TomlFields, form: Form) -> tuple[str | tuple[str, ...], ...]:
    """The text fields in input order; a list of columns in the list is joined into one field."""
    value = given.raw("fields")
    if value is None:
        raise InputError(f"{given.url}: found no fields, expected {form.fields_in_words}")
    joined = isinstance(value, list) and [[item] if isinstance(item, str) else item for item in value]
    good = joined and all(
        isinstance(columns, list) and columns and all(isinstance(column, str) and column for column in columns)
        for columns in joined
    )
    given.require(good and len(value) in form.n_fields, "fields", value, form.fields_in_words)
    return tuple(item if isinstance(item, str) else tuple(item) for item in value)


def _score_range(given: TomlFields) -> tuple[float, float] | None:
    value = given.raw("score_range")
    if value is None:
        return None
    whole = isinstance(value, list) and all(type(bound) in (int, float) and bound % 1 == 0 for bound in value)
    fits = whole and len(value) == 2 and 1 <= value[1] - value[0] < _MAX_GRADES
    given.require(fits, "score_range", value, f"[lowest, highest], whole numbers up to {_MAX_GRADES - 1} apart")
    return float(value[0]), float(value[1])


def _dialect(given: TomlFields) -> Dialect:
    """How the files are written, as far as the task's file says it."""
    options = given.raw("choices")
    dialect = Dialect(
        given.text("delimiter", ""),
        given.text("encoding", ""),
        given.raw("quoted"),
        given.text("separator", ""),
        options if isinstance(options, str) else "",
    )
    one = len(dialect.delimiter) < 2 and dialect.delimiter not in ('"', "\r", "\n")
    given.require(one, "delimiter", dialect.delimiter, 'the character between two cells, such as ";" or "\\t"')
    try:
        known = codecs.lookup(dialect.encoding or "utf-8")._is_text_encoding
    except LookupError:
        known = False
    given.require(known, "encoding", dialect.encoding, "the name of an encoding, such as cp1252 or utf-16-le")
    given.require(isinstance(dialect.quoted, bool | None), "quoted", dialect.quoted, "true or false")
    return dialect


def _prompt(given: TomlFields) -> PromptTemplate | None:
    """How the task is put to a model that is not fine-tuned; None: fields line by line, "Answer:", the labels."""
    values = given.table("prompt")
    if not values:
        return None
    own = TomlFields(f"{given.url}: prompt", values)
    template = PromptTemplate(own.text("question"), own.texts("answers"), own.text("context", ""))
    own.check_all_read()
    return template


# --- what does not follow from one field alone -----------------------------------------------------------------------


def _fitting(given: TomlFields, spec: TaskSpec) -> TaskSpec:
    """The task whose fields fit each other: a symmetric pair has no context.

    :raises InputError: naming the field that does not fit.
    """
    form = form_of(spec)
    fits = given.require
    choices = list(spec.choices)
    fits(form.choices == bool(choices), "choices", choices, "the columns of the answers in the form choices, else none")
    fits(not form.choices or len(choices) > 1, "choices", choices, "two columns or more")
    columns = [*spec.text_columns, *choices]
    twice = next((column for column in columns if columns.count(column) > 1), None)
    fits(twice is None, "fields", columns, f"each column once, not {twice!r} twice")
    fits(spec.label not in columns, "label", spec.label, "a column that is none of the texts")
    bounds = list(spec.score_range or ())
    alone = form.graded and not spec.labels
    fits(alone or not bounds, "score_range", bounds, "no labels and no choices beside it, nor their forms")
    dropped = list(spec.dropped_labels)
    question = spec.prompt and spec.prompt.question
    none = not form.several or set(dropped) <= {MISSING}
    fits(none, "dropped_labels", dropped, 'only "" in the form labels, of which no label drops a row')
    fits(not (question and form.several), "prompt", question, "none in the form labels: a prompt has one answer")
    fits(form.symmetric_names or not spec.symmetric, "symmetric", True, "the form pair")
    last = len(spec.fields) - 1
    fits((spec.context or 0) <= last, "context", spec.context, f"the number of a field, 0 to {last}")
    names = list(spec.columns)
    fits(not names or spec.format in ("tsv", "csv"), "columns", names, "none: only tsv and csv may lack a header line")
    dialect = dataclasses.asdict(spec.dialect or Dialect())
    fits(form.several or not dialect["separator"], "separator", dialect["separator"], "none but in the form labels")
    for field, value in dialect.items():
        if field in ("separator", "options"):
            continue
        formats = ("tsv", "csv") if field != "encoding" else ("tsv", "csv", "jsonl", "json")
        fits(value in (None, "") or spec.format in formats, field, value, f"none: it is for {', '.join(formats)}")
    for column in sorted(spec.required_columns) if names else ():
        fits(column in names, "columns", names, f"{column!r} among them")
    for split, sources in spec.splits.items():
        for source in sources:
            address = spec.address("", source.path)
            if not exists(*file_system(address)):
                found = f"nothing at {address}, expected a file{misspelt(address)}"
                raise InputError(f"{given.url}: {split} = {source.path!r}: found {found}")
    return replace(spec, context=None) if spec.symmetric else spec


def _with_options(spec: TaskSpec) -> TaskSpec:
    """The task with a name for each choice that its first row lists, where one column lists them all."""
    if spec.dialect is None or not spec.dialect.options:
        return spec
    row = next(unlabelled_rows(spec, "train"), None)
    listed = listed_in(row, spec.dialect.options)[0] if row else None
    if row and listed is None:
        column = spec.dialect.options.partition(".")[0]
        raise row.error(column, show(row.value(column)), "a list of texts, as choices says")
    return replace(spec, choices=tuple(f"{spec.dialect.options} {number}" for number, _ in enumerate(listed or (), 1)))


def _told(spec: TaskSpec) -> TaskSpec:
    """The task with what its files tell of quotes; what is read otherwise than it stands there is in its note."""
    spec, told = as_written(spec)
    if spec.format == "xlsx":
        paths = dict.fromkeys(source.path for sources in spec.splits.values() for source in sources)
        sheets = {path: unread_sheets(spec.address("", path)) for path in paths}
        told = [f"{path}: {sheet}" for path, sheet in sheets.items() if sheet]
    return replace(spec, note="; ".join(filter(None, [spec.note, *told])))


def _with_labels(spec: TaskSpec, given: TomlFields) -> TaskSpec:
    """The task with its labels: those of the file, else those of the training rows, sorted.

    :raises InputError: fewer than two labels.
    """
    if spec.score_range:
        return spec
    form = form_of(spec)
    spellings: defaultdict[str, set[str]] = defaultdict(set)
    labels = spec.labels or form.labels_of(spec, _labels_in(spec, form, spellings))
    merged = [
        f"{' and '.join(sorted(ways))} are read as the label {label}"
        for label, ways in spellings.items()
        if len(ways) > 1
    ]
    wanted = len(spec.choices) or None
    if not labels:
        raise InputError(f"{given.url}: {_no_labels(spec)}")
    if not 2 <= len(labels) <= form.most_labels or (wanted and len(labels) != wanted):
        expected = f"{wanted}, one for each column of choices" if wanted else f"2 to {form.most_labels}"
        expected += "" if spec.labels else f" in {spec.splits['train'][0].path}"
        raise InputError(f"{given.url}: labels: found {len(labels)} ({show(list(labels)[:20])}), expected {expected}")
    return replace(spec, labels=labels, note="; ".join([*([spec.note] if spec.note else []), *merged]))


def _no_labels(spec: TaskSpec) -> str:
    address = spec.address("", path := spec.splits["train"][0].path)
    if next(unlabelled_rows(spec, "train"), None) is not None:
        return f"dropped_labels = {show(list(spec.dropped_labels))}: found no other label in {path}, expected 2 or more"
    filesystem, file = file_system(address)
    found = "a header and no rows" if filesystem.size(file) else "an empty file"
    expected = ", ".join([*spec.text_columns, *spec.choices, spec.label])
    return f"train = {path!r}: found {found} at {address}, expected rows with {expected}"


def _labels_in(spec: TaskSpec, form: Form, spellings: defaultdict[str, set[str]]) -> Iterator[tuple[Record, str]]:
    """The training rows, each with a label of its; how the rows spell a label is added to ``spellings``."""
    for row in unlabelled_rows(spec, "train"):
        value = row.value(spec.label)
        for label in form.label_texts(value):
            if label in spec.dropped_labels:
                continue
            if not isinstance(label, str) or label == MISSING:
                expected = form.label_in_words if form.several else f"{form.label_in_words} ({DROPS_MISSING})"
                raise row.error(spec.label, show(value), expected)
            if not form.several:
                spellings[label].add(value if isinstance(value, str) else repr(value))
            yield row, label


def _with_metrics(spec: TaskSpec, given: TomlFields) -> TaskSpec:
    """The task with its metrics: those of the file, which must be some that its labels have.

    :raises InputError: another metric.
    """
    fitting, default = form_of(spec).metrics(spec)
    what = "a graded score" if spec.score_range else f"{len(spec.labels)} labels"
    some = f"some of {', '.join(fitting)}, which {what} can have"
    given.require(set(spec.metrics) <= set(fitting), "metrics", list(spec.metrics), some)
    return replace(spec, metrics=spec.metrics or default)


def _with_positive(spec: TaskSpec, positive: Any, given: TomlFields) -> TaskSpec:
    """The task with the label that F1 is of as its second.

    :raises InputError: there is no F1 among the metrics, or no such label.
    """
    if positive is None and "f1" in spec.metrics:
        told = f"F1 is of {spec.labels[1]}, the second label; `positive` in the task's file names another"
        return replace(spec, note="; ".join([*([spec.note] if spec.note else []), told]))
    if positive is None:
        return spec
    chosen = label_number(spec.labels, label_text(positive))
    if "f1" not in spec.metrics or chosen is None:
        raise given.error("positive", positive, f"one of {', '.join(spec.labels)}, with f1 among the metrics")
    return replace(spec, labels=(spec.labels[1 - chosen], spec.labels[chosen]))


def _home(given: TomlFields, datasets_url: str) -> str:
    """The address of the folder that the file's paths are relative to."""
    folder = given.text("folder", "").strip("/")
    beside = given.url.rpartition("/")[0] if "/" in given.url else "."
    if not folder:
        return beside
    places = [f"{beside}/{folder}", *([f"{datasets_url.rstrip('/')}/{folder}"] if datasets_url else [])]
    train = given.text("train")
    for place in places:
        if exists(*file_system(f"{place}/{train}")):
            return place
    raise InputError(f"{given.url}: folder = {folder!r}: found no {train} in {' nor in '.join(places)}")
