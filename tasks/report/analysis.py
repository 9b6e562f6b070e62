"""An analysis of the paper, made again: its table, its figure, and where both are kept."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from textwrap import fill
from typing import Any

from prefect.artifacts import create_markdown_artifact

from gptcore.base.files import sha256_json
from tasks.report.card import embedded, publish_table, table
from tasks.report.figures import Figure, Panels, Routes
from tasks.store.artifact import canonical
from tasks.tracking.keys import key_of
from tasks.tracking.provenance import run_tags
from tasks.tracking.tracker import Tracker, scratch_folder

EXPERIMENT = "gptmill/analysis"
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:80em;padding:0 1em;color:#222;background:#fff}"
    "table{border-collapse:collapse;width:100%;table-layout:fixed}th,td{vertical-align:top;text-align:left;"
    "padding:.6em .8em;border-bottom:1px solid #ddd;overflow-wrap:anywhere}th:first-child{width:20%}"
    "td:first-child{font-weight:600}ul{color:#555}"
)


@dataclass(frozen=True)
class Analysis:
    """What an analysis found."""

    name: str
    """Letters, digits and dashes: "table5"."""
    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    identity: Mapping[str, Any]
    """The digests and settings that decide it: an analysis of the same identity has the same MLflow run."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    figure: Figure | Panels | Routes | None = None
    page: bool = False
    """Whether the table is long text, which a page of its own shows better than a grid: HTML beside the Markdown."""

    def markdown(self) -> str:
        """Table and notes, legible as plain text too."""
        notes = "\n".join(f"- {note}" for note in self.notes)
        return f"# {self.title}\n\n{table(self.header, self.rows)}\n" + (f"\n{notes}\n" if notes else "")

    def text(self) -> str:
        """The analysis for a terminal: a table, or, where the cells are long texts, one cell below the other."""
        if not self.page:
            return self.markdown()
        rows = [
            "\n\n".join(
                fill(f"{name}: {cell}", 100, initial_indent=indent, subsequent_indent=indent)
                for name, cell, indent in zip(self.header, row, ("", *["    "] * len(row)), strict=False)
                if cell
            )
            for row in self.rows
        ]
        notes = "\n".join(fill(f"- {note}", 100, subsequent_indent="  ") for note in self.notes)
        return "\n\n".join([f"# {self.title}", *rows, notes]) + "\n"

    def html(self) -> str:
        """The analysis as a page that needs no other file."""
        cells = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self.rows]
        head = "".join(f"<th>{escape(name)}</th>" for name in self.header)
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        rows = "".join(f"<tr>{row}</tr>\n" for row in cells)
        return (
            f'<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>{escape(self.title)}</title>\n'
            f"<style>{_STYLE}</style>\n<h1>{escape(self.title)}</h1>\n<ul>{notes}</ul>\n"
            f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>\n</html>\n"
        )


def publish(analysis: Analysis, out: str = "") -> None:
    """Leave table, CSV and figure on an MLflow run and on the calling Prefect run.

    :param out: a local folder that gets them too; empty: none.
    """
    key = sha256_json(canonical({"analysis": analysis.name, **analysis.identity}))
    tags = run_tags(kind="analysis", analysis=analysis.name)
    with scratch_folder() as folder, Tracker().open(EXPERIMENT, analysis.name, key, tags, analysis.identity) as run:
        files = _write(analysis, folder)
        for path in files:
            run.log_artifact(path)
            if out:
                Path(out).mkdir(parents=True, exist_ok=True)
                shutil.copy(path, out)
        run.log_results(analysis.metrics)
        page = analysis.markdown()
        if analysis.figure is not None:
            page += f"\n{embedded(analysis.title, files[-1])}\n"
        create_markdown_artifact(
            f"{page}\n[MLflow run]({run.url})\n", key=key_of(f"analysis-{analysis.name}"), description=analysis.title
        )
        records = [dict(zip(analysis.header, row, strict=True)) for row in analysis.rows]
        publish_table(records, f"analysis-{analysis.name}-table", analysis.title)


def publish_all(analyses: list[Analysis], out: str = "") -> list[Analysis]:
    """The analyses, once each is left where :func:`publish` says."""
    for analysis in analyses:
        publish(analysis, out)
    return analyses


def _write(analysis: Analysis, folder: Path) -> list[Path]:
    name = key_of(analysis.name)
    page, rows = folder / f"{name}.md", folder / f"{name}.csv"
    page.write_text(analysis.markdown(), encoding="utf-8")
    with open(rows, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([analysis.header, *analysis.rows])
    files = [page, rows]
    if analysis.page:
        files.append(folder / f"{name}.html")
        files[-1].write_text(analysis.html(), encoding="utf-8")
    if analysis.figure is None:
        return files
    return [*files, analysis.figure.draw(folder / f"{name}.png")]
