"""An analysis of the paper, made again: its table, its figure, and where both are kept."""

from __future__ import annotations

import base64
import csv
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefect.artifacts import create_markdown_artifact

from gptcore.files import sha256_json
from tasks.report.card import table
from tasks.report.figures import Figure, Panels
from tasks.report.tables import publish_table
from tasks.stages.stage import scratch_folder
from tasks.store.artifact import canonical
from tasks.tracking.provenance import run_tags
from tasks.tracking.tracker import Tracker

EXPERIMENT = "gptmill/analysis"


@dataclass(frozen=True)
class Analysis:
    """What an analysis found."""

    name: str
    """Letters, digits and dashes: "table5"."""
    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    identity: Mapping[str, Any]
    """Digests and settings that it follows from: the same ones, the same MLflow run."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    figure: Figure | Panels | None = None

    def markdown(self) -> str:
        """Table and notes, legible as plain text too."""
        notes = "\n".join(f"- {note}" for note in self.notes)
        return f"# {self.title}\n\n{table(self.header, self.rows)}\n" + (f"\n{notes}\n" if notes else "")


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
            image = base64.b64encode(files[-1].read_bytes()).decode("ascii")
            page += f"\n![{analysis.title}](data:image/png;base64,{image})\n"
        create_markdown_artifact(
            f"{page}\n[MLflow run]({run.url})\n", key=f"analysis-{analysis.name}", description=analysis.title
        )
        records = [dict(zip(analysis.header, row, strict=True)) for row in analysis.rows]
        publish_table(records, f"analysis-{analysis.name}-table", analysis.title)


def _write(analysis: Analysis, folder: Path) -> list[Path]:
    """The files of an analysis; the figure, where there is one, is the last."""
    page, rows = folder / f"{analysis.name}.md", folder / f"{analysis.name}.csv"
    page.write_text(analysis.markdown(), encoding="utf-8")
    with open(rows, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([analysis.header, *analysis.rows])
    if analysis.figure is None:
        return [page, rows]
    return [page, rows, analysis.figure.draw(folder / f"{analysis.name}.png")]
