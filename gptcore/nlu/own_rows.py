"""A user's own rows: JSON objects or a table, their fields named as the dataset names its columns, or after Figure 1.

    single       text; the form "labels", too
    pair         premise, hypothesis; text1, text2 where neither is the first by nature
    choices      document, question, answers (a list); a story has no question
    span         question, passage
    tags         text, whose words white space sets apart, or words (a list)

Of tasks about mentions in a sentence (FewRel, Open Entity) a row is as their files have it, or a text with the words
that mark them.

Other fields of a row are left alone, so that it may carry an id or a label, and stand beside its answer. A table is a
file of any format that tasks' files have, read as these are; a line that is no object is a row, too, where a row is one
text. A row without a text is not answered, which a note says; no other row is harmed by it.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gptcore.base.errors import InputError, require
from gptcore.base.filesystems import exists, file_system, is_folder, misspelt
from gptcore.nlu.examples import EmptyText
from gptcore.nlu.forms import form_of, label_number, label_text
from gptcore.nlu.readers import Example, Record, decoded_lines, example_of, lines, parse_object, rows_of, show
from gptcore.nlu.readers.dialect import as_written, cells_of, dialect_of
from gptcore.nlu.readers.mentions import HEAD, MENTION, TAIL, marked_mention, marked_relation
from gptcore.nlu.readers.own_files import OWN_FORMATS, opened, read_own
from gptcore.nlu.readers.tagged import tagged_example
from gptcore.nlu.readers.text_files import named_columns
from gptcore.nlu.registry import Dialect, Format, Source, TaskSpec

ANSWERS = "answers"
"""The list that may stand for the columns of the choices."""
LABEL = "label"
"""What a user's own rows may call the label besides its column's name."""
NOTES = ("note", "prediction note")
"""The column that says why a row is not answered, or how much of it was read; the second where a row has the first."""
TYPED = "standard input"
"""What messages call text that is in no file."""
_WRITTEN: tuple[Format, ...] = ("csv", "tsv", "jsonl", "parquet")
_PACKED = ("csv", "tsv", "jsonl", "json")  # formats that a compressed file may have
_log = logging.getLogger(__name__)

_BETWEEN_WORDS = re.compile(r"[ \t\r\n]")
"""What sets words apart in files of tagged words; a word of a list may hold other white space, as theirs may."""

Field = str | tuple[str, ...]


class Note(str):
    """Why a row is not answered, or how much of it was read."""

    share: float = 0.0
    """The share of the row's tokens that was read."""


def read_own_rows(spec: TaskSpec, lines: Iterable[bytes]) -> Iterator[Example]:
    """The rows of :func:`own_lines`, without labels.

    :raises InputError: as there, or a field that is missing or holds no text; names line and field.
    """
    return (own_example(spec, row) for row in own_lines(spec, lines))


def own_lines(spec: TaskSpec, given: Iterable[bytes], skip: bool = False, name: str = TYPED) -> Iterator[Record]:
    """Rows of lines in UTF-8: JSON objects, or texts where a row is one.

    :param skip: go on behind a line that is no row, whose record has a fault.
    :param name: what messages call the input.
    :raises InputError: no UTF-8, or another line; names it, and what a row looks like.
    """
    texts = False  # among which a blank line is one without a word; among objects it is none
    for line, text in rows_of(decoded_lines(given, name)):
        columns, fault = {}, None
        try:
            columns = _line_columns(spec, text.rstrip("\r\n"), name, line)
            texts = texts or not text.lstrip().startswith("{")
        except InputError as error:
            if not skip and (text.strip() or not texts):
                raise
            fault = EmptyText(str(error))
        yield Record(name, str(line), columns, fault=fault)


def _line_columns(spec: TaskSpec, text: str, name: str, line: int) -> dict[str, Any]:
    """:raises InputError: the line is no row."""
    names = form_of(spec).names_of(spec)
    if text.lstrip().startswith("{"):
        return parse_object(text, name, line, _a_row(spec))
    cells = [cell.strip(' "') for cell in re.split("[,;\t]", text)]
    known = {*names, *spec.text_columns, *spec.choices}
    if line == 1 and known & {*cells} and all(cell.isidentifier() for cell in cells):
        table = f"expected the rows of a table in a file: gptmill predict {spec.name} FILE.csv"
        raise InputError(f"{name}, line 1: found the names of columns, {show(text)}, {table}")
    plain = name == TYPED and names == ("text",) and len(spec.fields) == 1 and spec.format not in _MENTIONS
    if not plain or not text.strip():
        raise InputError(f"{name}, line {line}: found {show(text)}, expected {_a_row(spec)}")
    return {names[0]: text}


def _a_row(spec: TaskSpec) -> str:
    """What a line of a user's own rows looks like."""
    form = form_of(spec)
    row: dict[str, str | list[str]] = dict.fromkeys(form.names_of(spec)[: len(spec.fields)], "...")
    if spec.choices:
        row[ANSWERS] = ["..."] * len(spec.choices)
    return f"one JSON object a line: {json.dumps(row)}"


def table_format(path: str, written: bool = False) -> Format:
    """The format of a table by the end of its name, behind which .gz or .zst may stand, but for parquet and its like.

    :param written: whether it is one of answers, which are not written in every format that is read.
    :raises InputError: it ends in no format's name.
    """
    kinds = _WRITTEN if written else OWN_FORMATS
    end, packed = path.lower().rpartition(".")[2], path.lower().rpartition(".")[0].rpartition(".")[2]
    if end in kinds:
        return end
    if end in (("gz", "zst") if written else ("gz", "zst", "bz2", "xz")) and packed in kinds and packed in _PACKED:
        return packed
    if not written and is_folder(*file_system(path)):
        return "arrow"
    named = f".{', .'.join(kinds)}, or .gz behind another than .parquet"
    raise InputError(f"{path}: found no format, expected a name that ends in {named}")


def own_table(spec: TaskSpec, url: str, skip: bool = False) -> Iterator[Record]:
    """The rows of a user's table with every column that it has.

    Its first line names them; where the task's files have no such line, it may lack one as well. What is read of it
    otherwise than it stands there is told in the log, behind the last row.

    :param url: a file, or a folder that `datasets` saved; any fsspec URL.
    :param skip: go on behind a row with too few or too many cells, or a line that is no JSON; its record has a fault.
    :raises InputError: as the readers of tasks' files; a column of one name twice.
    """
    kind, dialect = table_format(url), spec.dialect or Dialect()
    require(exists(*file_system(url)), f"{url}: found no such file, expected a table of rows{misspelt(url)}")
    table = replace(spec, folder="", home="", splits={"rows": (Source(url, 0),)}, fields=(), choices=(), label="")
    table, notes = as_written(replace(table, format=kind, dialect=dialect, columns=()))
    if spec.columns and table.format in ("csv", "tsv"):
        _, cells = next(cells_of(url, dialect_of(url, table)), (1, []))
        if len(cells) == len(spec.columns) and not {*cells} & {*form_of(spec).names_of(spec), *spec.text_columns}:
            table = replace(table, columns=spec.columns)
    if skip and kind in ("csv", "tsv"):
        yield from _cut_to_names(url, cells_of(url, dialect_of(url, table)), list(table.columns))
    elif skip and kind == "jsonl":
        yield from own_lines(spec, (text.encode() for _, text in lines(url, dialect.encoding)), skip, url)
    else:
        yield from read_own(url, table)
    for note in notes:
        _log.warning(note)


def _cut_to_names(url: str, rows: Iterator[tuple[int, list[str]]], names: list[str]) -> Iterator[Record]:
    """Rows of cells; one that has not a cell for each of ``names``, or else of the first line's, has a fault."""
    names = names or named_columns(next(rows, (1, []))[1])
    require(len({*names}) == len(names), f"{url}, line 1: found {show(names)}, expected each of these names once")
    for line, cells in rows:
        found = f"number of columns: found {len(cells)}, expected {len(names)} ({', '.join(names)})"
        if cells == names:
            found = "the names of the columns again, expected a row"
        fault = InputError(f"{url}, line {line}, {found}") if cells == names or len(cells) != len(names) else None
        yield Record(url, str(line), dict.fromkeys(names, "") | dict(zip(names, cells, strict=False)), fault=fault)


def labelled_rows(spec: TaskSpec, rows: Iterable[Record]) -> Iterator[Example]:
    """A user's rows with their labels, as the task's files or its answers spell them.

    Rows with a label that the task drops are left out.

    :raises InputError: a field or a label that is missing, or a label that is none of the task's.
    """
    for row in rows:
        column = spec.label if spec.label in row.columns or LABEL not in row.columns else LABEL
        value = row.value(column)
        if label_text(value) in spec.dropped_labels:
            continue
        number: float | None = label_number(spec.label_names, value)
        if number is None:
            number = form_of(spec).label_of(spec, replace(row, columns={**row.columns, spec.label: value}))
        yield replace(own_example(spec, row), label=number)


def own_example(spec: TaskSpec, row: Record) -> Example:
    """A row that somebody asks about, without a label.

    What is missing in a cell is an empty text.

    :raises InputError: a field that is missing or holds no text; names row and field.
    """
    if row.fault is not None:
        raise row.fault
    if any(value is None or value != value for value in row.columns.values()):
        row = replace(row, columns={n: "" if cell is None or cell != cell else cell for n, cell in row.columns.items()})
    read: Callable[[TaskSpec, Record], Example] = form_of(spec).part("own_row")
    return read(spec, row)


def asked_about(spec: TaskSpec, row: Record, skip: bool = False) -> Example | Note:
    """A row that somebody asks about among others, or why it cannot be answered.

    :param skip: pass over any broken row, not only over one without a text.
    :raises InputError: a row that is not to be passed over; names row and field.
    """
    try:
        return own_example(spec, row)
    except InputError as error:
        if not skip and not isinstance(error, EmptyText):
            raise
        return Note(str(error).removeprefix(f"{row.file}, {row.unit} {row.line}").lstrip(",: "))


def passed_on(spec: TaskSpec, row: Record) -> dict[str, Any]:
    """The columns of a row that are none of the task's texts, as its id: they stand beside its answer.

    :raises InputError: text that no encoding can store, in any column.
    """
    its = _MENTIONS[spec.format].columns if spec.format in _MENTIONS else ()
    texts, left = {*spec.text_columns, *spec.choices, *form_of(spec).names_of(spec), ANSWERS, *its}, {}
    for column, cell in row.columns.items():
        try:
            json.dumps([column, cell], ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError:  # of a text in a list, too
            raise row.error(column, show(cell), "text without unpaired surrogates") from None
        if column not in texts:
            left[column] = as_json(cell)
    return left


def as_json(value: Any) -> Any:
    """A value as JSON can hold it: null for what is not a number, "inf" for what is infinite."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, dict):
        return {name: as_json(inner) for name, inner in value.items()}
    return [as_json(inner) for inner in value] if isinstance(value, list) else value


def row_of_texts(spec: TaskSpec, row: Record) -> Example:
    """A row of the texts that a task's columns hold."""
    if spec.format in _MENTIONS:
        row = _with_marks(spec, row)
    return example_of(replace(spec, fields=_fields_of(spec, row)), _with_choices(spec, row))


class _Mentions(NamedTuple):
    """How a task's sentences say what they are about."""

    columns: tuple[str, ...]
    """The columns of the task's own files."""
    marked: Callable[[Record], str]
    """The sentence of such columns with its mentions marked."""
    marks: tuple[str, ...]
    """The words that mark them, each twice."""


_MENTIONS: Mapping[Format, _Mentions] = {
    "fewrel": _Mentions(("tokens", "h", "t"), marked_relation, (HEAD, TAIL)),
    "open-entity": _Mentions(("left_context_token", "mention_span", "right_context_token"), marked_mention, (MENTION,)),
}


def _with_marks(spec: TaskSpec, row: Record) -> Record:
    """The row with its sentence, whose mentions are marked, as the only text.

    :raises InputError: a text without the marks.
    """
    its, (column,) = _MENTIONS[spec.format], spec.text_columns
    if any(name in row.columns for name in its.columns if name != column):
        return replace(row, columns={column: its.marked(row)})
    named = _only_column(spec, row)
    words = row.text(named).split()
    if not all(_encloses(mark, words) for mark in its.marks):
        columns = f"the columns {', '.join(its.columns)} of the task's own files"
        expected = f"a sentence with marks, as {example_text(spec, named)!r}, or {columns}"
        raise row.error(named, show(row.text(named)), expected)
    return row


def _encloses(mark: str, words: Sequence[str]) -> bool:
    """Whether some words stand between the first of these marks and the last; the sentence itself may have it, too."""
    places = [at for at, word in enumerate(words) if word == mark]
    return len(places) > 1 and places[-1] - places[0] > 1


def example_text(spec: TaskSpec, column: str) -> str:
    """What may stand in a column of texts."""
    its = _MENTIONS.get(spec.format)
    return " ".join(f"{mark} NAME {mark}" for mark in its.marks) if its else f"A text for {column}."


def _only_column(spec: TaskSpec, row: Record) -> str:
    """The column of a row's only text, by the task's name of it or the form's.

    :raises InputError: it is missing.
    """
    names = (*spec.text_columns, *form_of(spec).names_of(spec))
    for name in names:
        if name in row.columns:
            return name
    raise _lacks(row, *names[:2])


def row_of_words(spec: TaskSpec, row: Record) -> Example:
    """A row of words, which are told by a list or by white space."""
    column = _only_column(spec, row)
    given = row.columns[column]
    words = given if isinstance(given, list) else row.text(column).split()
    if not words:
        raise row.error(column, show(given), "one word or more")
    for number, word in enumerate(words, start=1):
        named = f"{column}, number {number}"
        text = replace(row, columns={named: word}).text(named)
        if text != text.strip() or _BETWEEN_WORDS.search(text):
            raise row.error(named, show(word), "a word without a space, tab or line end")
    return tagged_example(words, [""] * len(words), "", f"{row.file}:{row.line}")


def _fields_of(spec: TaskSpec, row: Record) -> tuple[Field, ...]:
    """The columns of the fields by the names that the row gives them: the task's or, for what is missing, the form's;
    the form's for all where one of these is another field's column, so that no text fills two fields.

    :raises InputError: a field that is missing.
    """
    names = form_of(spec).names_of(spec)[: len(spec.fields)]
    columns_of = [(field,) if isinstance(field, str) else field for field in spec.fields]
    missing = [[column for column in columns if column not in row.columns] for columns in columns_of]
    fields: list[Field] = []
    for field, columns, other in zip(spec.fields, missing, names, strict=True):
        if columns and other in spec.text_columns and all(name in row.columns for name in names):
            return names
        if columns and (other not in row.columns or other in spec.text_columns):
            raise _lacks(row, columns[0], other)
        fields.append(other if columns else field)
    return tuple(fields)


def _with_choices(spec: TaskSpec, row: Record) -> Record:
    """The row with its answers under the columns of the choices."""
    if spec.dialect and spec.dialect.options.partition(".")[0] in row.columns:
        return opened(row, spec)
    missing = [column for column in spec.choices if column not in row.columns]
    if not missing:
        return row
    if ANSWERS not in row.columns:
        raise _lacks(row, missing[0], ANSWERS)
    answers = row.listed(ANSWERS, f"a list of {len(spec.choices)} texts", length=len(spec.choices))
    for number, answer in enumerate(answers, start=1):
        named = f"{ANSWERS}, number {number}"
        replace(row, columns={named: answer}).text(named)
    return replace(row, columns={**row.columns, **dict(zip(spec.choices, answers, strict=True))})


def _lacks(row: Record, column: str, other: str) -> InputError:
    found = f"only {', '.join(map(show, row.columns))}" if row.columns else "no field at all"
    wanted = repr(column) if column == other else f"{column!r} or {other!r}"
    return InputError(f"{row.file}, {row.unit} {row.line}: found {found}, expected the field {wanted}")
