"""An analysis of the paper, made again: its table, its figure, and where both are kept."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import Any

from prefect.artifacts import create_markdown_artifact

from gptcore.base.files import sha256_json
from tasks.report.card import embedded, publish_table
from tasks.report.figures import Picture
from tasks.report.table import Table
from tasks.store.artifact import canonical
from tasks.tracking.keys import key_of
from tasks.tracking.provenance import run_tags
from tasks.tracking.tracker import Tracker, scratch_folder

EXPERIMENT = "gptmill/analysis"


@dataclass(frozen=True)
class Analysis:
    """The result of an analysis: its table, its numbers and its figure."""

    name: str
    """Letters, digits and dashes: "table5"."""
    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    identity: Mapping[str, Any]
    """The digests and settings that decide it: an analysis of the same identity has the same MLflow run."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    figure: Picture | None = None
    page: bool = False
    """Whether the table is long text, which a page of its own shows better than a grid: HTML beside the Markdown."""

    @property
    def table(self) -> Table:
        """The rows as a value that can be shown in several ways."""
        return Table(self.header, self.rows, self.notes, self.title)

    def markdown(self) -> str:
        """Table and notes, legible as plain text too."""
        return f"{self.table.markdown()}\n"

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
        publish_table(analysis.table.records(), f"analysis-{analysis.name}-table", analysis.title)


def publish_all(analyses: list[Analysis], out: str = "") -> list[Analysis]:
    """The analyses, once each is left where :func:`publish` says."""
    for analysis in analyses:
        publish(analysis, out)
    return analyses


def _write(analysis: Analysis, folder: Path) -> list[Path]:
    texts = {"md": analysis.markdown(), "csv": analysis.table.csv()}
    if analysis.page:
        texts["html"] = analysis.table.html()
    files = [folder / f"{key_of(analysis.name)}.{kind}" for kind in texts]
    for file, text in zip(files, texts.values(), strict=True):
        file.write_text(text, encoding="utf-8")
    return files + ([analysis.figure.draw(folder / f"{key_of(analysis.name)}.png")] if analysis.figure else [])
