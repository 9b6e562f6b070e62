"""A table as a value, and what it looks like: aligned for a terminal, in Markdown, as CSV, as a page of its own."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Table:
    """Named columns of texts."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    """How to read it, a line each."""
    caption: str = ""
    n_texts: int | None = None
    """The number of leading columns that hold words; the columns behind them hold numbers and are aligned right.
    None: the table does not say which are which."""
    groups: Sequence[str] = ()
    """The group of each row: plain text has a rule wherever it changes, and one under the header. Empty: no rules."""

    @classmethod
    def of(cls, records: Sequence[Mapping[str, str]], **more: Any) -> Table:
        """The table of records that all have the same columns in the same order; ``more``: its other fields."""
        return cls(tuple(records[0]), [tuple(record.values()) for record in records], **more)

    def grid(self) -> str:
        """The rows alone, in Markdown that is legible as plain text; no cell can break it."""
        # a line break would end the table
        cells = [[" ".join(text.replace("|", "\\|").split()) for text in row] for row in (self.columns, *self.rows)]
        widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
        rule = ["-" * width for width in widths]
        return "\n".join(_piped(map(str.ljust, row, widths)) for row in (cells[0], rule, *cells[1:]))

    def markdown(self) -> str:
        """Caption, rows and notes in Markdown; where the table says which columns are numbers, they are set right."""
        if self.n_texts is None:
            grid = self.grid()
        else:
            rule = ["---"] * self.n_texts + ["---:"] * (len(self.columns) - self.n_texts)
            grid = "\n".join(map(_piped, [self.columns, rule, *self.rows]))
        notes = "\n".join(f"- {note}" for note in self.notes)
        return "\n\n".join(filter(None, [self.caption and f"# {self.caption}", grid, notes]))

    def text(self) -> str:
        """Header and rows for a terminal, each column as wide as its widest cell."""
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]
        justify = [str.ljust if place < (self.n_texts or 0) else str.rjust for place in range(len(widths))]
        header, *lines = (
            "  ".join(set_in(text, width) for set_in, text, width in zip(justify, row, widths, strict=True)).rstrip()
            for row in (self.columns, *self.rows)
        )
        rule, before = "-" * (sum(widths) + 2 * (len(widths) - 1)), ""
        out = [header]
        for line, group in zip_longest(lines, self.groups[: len(lines)], fillvalue=""):
            out += [rule, line] if group != before else [line]
            before = group
        return "\n".join(out)

    def csv(self) -> str:
        """Header and rows as CSV, without the notes."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()

    def html(self) -> str:
        """A page that needs no other file."""
        return rendered("table.html", table=self) + "\n"

    def records(self) -> list[dict[str, str]]:
        """The rows, each as column -> text."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; see :meth:`Table.grid`."""
    return Table(columns, rows).grid()


def _piped(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def rendered(template: str, **values: Any) -> str:
    """A file of `templates/` with these values in it.

    What goes into a page (``.html``) is escaped; a value that is missing is an error.
    """
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
    )
