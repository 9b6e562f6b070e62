"""The columns of a user's file of rows, and what stands in them: what a guess at the task looks at."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gptcore.base.errors import InputError, require
from gptcore.base.tables import read_table
from gptcore.nlu.examples import Record
from gptcore.nlu.forms import FORMS, MISSING
from gptcore.nlu.forms.form import grade_of
from gptcore.nlu.readers.dialect import cells_of, dialect_of, quotes_in
from gptcore.nlu.readers.header import is_row, of_texts
from gptcore.nlu.readers.own_files import kind_of, labels_apart, listed_in, read_own, unwritten
from gptcore.nlu.readers.text_files import plain_name
from gptcore.nlu.spec import Dialect, Format, TaskSpec

CALLED = read_table(__file__, "guess.toml")
"""What columns of texts, labels and choices are mostly called."""
LOOKED_AT = 1000
"""Rows that tell whether a file has a header."""
BARE = TaskSpec("rows", "", "csv", "single", {}, (), "", (), 0, {}, dialect=Dialect())
"""A task of which nothing is known yet."""
_NAMES = {*CALLED["labels"], *CALLED["texts"], *itertools.chain(*CALLED["pairs"])}
_SEPARATORS = (";", "|", "#", "、", "，", "/", "+", ",", " ")
"""What may stand between several labels, the surest first."""
_SURE = 5
"""How many of them stand for little else: of the others half as many labels as cells must be told apart by them."""


class Said(NamedTuple):
    """What a user says of a task; what is empty is told by the rows."""

    label: str = ""
    """The column of the label."""
    labels: Sequence[str] = ()
    """The labels in the order of their classes; rows with others are left out."""
    form: str = ""
    texts: Sequence[str] = ()
    """The columns of the texts."""
    graded: bool = False
    """Whether the labels are grades, numbers of which a higher one means more."""
    dialect: Dialect = Dialect()
    """How the file is written."""


class Rows:
    """The rows of a file, and what stands in their columns; one that lies beside the training rows may lack labels."""

    def __init__(self, url: str, said: Said, beside: bool = False) -> None:
        self.url, self.file, self.headless, self.said = url, url.rpartition("/")[2], False, said
        self.format, rows = self._read(said.label, beside)
        self.rows = list(rows)
        require(self.rows, f"{url}: found no rows, expected two or more")
        self.names = list(dict.fromkeys(name for row in self.rows[:LOOKED_AT] for name in row.columns))

    def _read(self, label: str, beside: bool) -> tuple[Format, Iterable[Record]]:
        """The format, told by what stands in the file, and the rows."""
        spec = replace(BARE, format=kind_of(self.url, self.said.dialect.encoding), dialect=self.said.dialect)
        if spec.format not in ("csv", "tsv"):
            return spec.format, read_own(self.url, spec)
        dialect = dialect_of(self.url, spec, _NAMES)
        dialect = replace(dialect, quoted=dialect.quoted or all(quotes_in(self.url, dialect)))
        cells = [row for _, row in itertools.islice(cells_of(self.url, dialect), LOOKED_AT)]
        require(cells, f"{self.url}: found no rows, expected two or more")
        names, lone = cells[0], len(cells[0]) == 1 and not beside
        expected = "commas, semicolons, pipes or tabs between columns (else --delimiter), or a JSON object a line"
        require(not lone, f"{self.url}, line 1: found one column, expected {expected}")
        header = sorted(map(plain_name, names))
        columns = zip(
            *(row for row in cells if len(row) == len(names) and sorted(map(plain_name, row)) != header), strict=True
        )
        again = any(name.strip() and name in column for name, column in zip(names, columns, strict=False))
        known = (label and label in names) or any(plain_name(name) in _NAMES - {""} for name in names)
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

    def separator(self, name: str) -> str:
        """What stands between the labels in the cells of a column, most of which are made of a few that recur; empty:
        cells are one label each.
        """
        cells = {value for value in self.values(name) if isinstance(value, str) and value.strip()}
        if cells and all(isinstance(unwritten(cell), list) for cell in cells):
            return ","
        if all(grade_of(cell.replace("/", "")) is not None for cell in cells):  # numbers, some of them dates
            return ""
        for place, separator in enumerate(_SEPARATORS):
            words = separator in ", " and of_texts([*cells])
            if words or not any(separator in cell.strip() for cell in cells):
                continue
            split = [[str(part) for part in labels_apart(cell, separator)] for cell in cells]
            parts = {part for cell in split for part in cell}
            alone = parts <= {cell.strip() for cell in cells} and separator != " "
            recur = len(parts) < len(cells) and (place < _SURE or alone or 2 * len(parts) <= len(cells))
            if recur and all(split) and any(len(cell) > 1 for cell in split):
                return separator
        return ""

    def several(self, name: str) -> bool:
        """Whether rows have any number of labels in a column: lists, or texts with something between them."""
        if self.said.form:
            return FORMS[self.said.form].several
        there = [value for value in self.values(name) if value is not None]
        return bool(self.separator(name)) or (bool(there) and all(isinstance(value, list) for value in there))

    def holds_lists(self, name: str) -> bool:
        """Whether a column's cells are lists or objects, written as text or not."""
        return all(isinstance(unwritten(value), list | dict) for value in self.values(name)[:LOOKED_AT])

    def lists(self, label: str) -> list[tuple[str, int]]:
        """Where each row lists as many texts, and how many."""
        found = []
        for name in self.but(label):
            for path in (name, f"{name}.text") if self.holds_lists(name) else ():
                listed = [listed_in(row, path)[0] or [] for row in self.rows]
                texts = all(isinstance(text, str) for texts in listed for text in texts)
                if texts and len(sizes := {*map(len, listed)}) == 1 and min(sizes) > 1:
                    found.append((path, min(sizes)))
                elif texts and len(sizes) > 1 and plain_name(name).removesuffix("s") in CALLED["options"]:
                    said = f"lists of {min(sizes)} to {max(sizes)} texts, expected as many in each row"
                    raise InputError(f"{self.url}: {path}: found {said}; --form single reads the rows without them")
        return found

    def labels(self, name: str) -> list[str]:
        """The labels in a column, in their one spelling; what is none, in Python's."""
        spelled = [label for labels in self.labels_by_row(name) for label in labels]
        return [label if isinstance(label, str) else repr(label) for label in spelled]

    def labels_by_row(self, name: str) -> list[list[Any]]:
        """The labels of each row, in their one spelling; what is none stays as it is."""
        several, separator = self.several(name), self.separator(name)
        form = FORMS["labels" if several else "single"]
        values = (
            labels_apart(value, separator) if several and separator and isinstance(value, str) else value
            for value in self.values(name)
        )
        return [form.label_texts(value) for value in values]

    def numbers(self, name: str) -> list[float]:
        """The numbers that stand in a column; none where something else does."""
        given = [grade_of(label) for label in self.labels(name) if label != MISSING]
        grades = [number for number in given if number is not None and math.isfinite(number)]
        return grades if len(grades) == len(given) else []

    def grades(self, name: str) -> list[float]:
        """The numbers of a column that is called after grades, or in which some have a fraction; else none."""
        numbers = self.numbers(name)
        return numbers if plain_name(name) in CALLED["grades"] or any(number % 1 for number in numbers) else []

    def but(self, label: str = "") -> list[str]:
        """The columns besides the label's that do not only number the rows."""
        return [name for name in self.names if name != label and plain_name(name) not in CALLED["numbering"]]
