"""Files of cells whose first line is a row already, where the names of the columns are expected."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import median

from gptcore.nlu.forms import form_of, label_number
from gptcore.nlu.forms.form import grade_of
from gptcore.nlu.spec import TaskSpec

_LONG = 60  # characters that no column's name has
_WORDS = 3  # of a text in the middle of a column of texts


def is_row(cells: Sequence[str]) -> bool:
    """Whether the first cells of a file are a row's: a number, or a long text, is no column's name."""
    return any(grade_of(cell) is not None or len(cell) > _LONG for cell in cells)


def of_texts(cells: Sequence[str]) -> bool:
    """Whether a column's cells are texts, not labels, numbers or names."""
    return bool(cells) and median(len(cell.split()) for cell in cells) >= _WORDS


def few(cells: Sequence[str], named: bool = False) -> bool:
    """Whether a column's cells are so few different ones that they may be labels; texts only if it is named so."""
    return 2 <= len(set(cells)) <= max(2, len(cells) // 4) and (named or not of_texts(cells))


def names_line(spec: TaskSpec, rows: Sequence[Sequence[str]]) -> str:
    """A line for a task's file that names the columns of rows: as the task does where that is evident, else c1, c2, ...

    :param rows: some of the file's, its first line among them.
    """
    columns = list(zip(*(row for row in rows if len(row) == len(rows[0])), strict=True))
    names = [f"c{number}" for number in range(1, len(columns) + 1)]
    labels = [place for place, cells in enumerate(columns) if _are_labels(spec, cells)]
    if len(labels) == 1:
        names[labels[0]] = spec.label
    wanted = (*spec.text_columns, *spec.choices)
    texts = [place for place, cells in enumerate(columns) if of_texts(cells) and [place] != labels]
    for place, name in zip(texts, wanted, strict=False) if len(texts) == len(wanted) else ():
        names[place] = name
    return f"columns = {json.dumps(names, ensure_ascii=False)}"


def _are_labels(spec: TaskSpec, cells: Sequence[str]) -> bool:
    """Whether a column's cells may be the task's label: grades of its range; its labels or, unknown, few of them."""
    if spec.score_range:
        low, high = spec.score_range
        return all((grade := grade_of(cell)) is not None and low <= grade <= high for cell in cells)
    labels = [label for cell in cells for label in form_of(spec).label_texts(cell)]
    return all(label_number(spec.labels, label) is not None for label in labels) if spec.labels else few(labels)
