"""The Markdown card that every run leaves: what was done, with what, from what, at which cost.

Also tables on Prefect's pages: only columns that hold something, and no cell that the page would take for Markdown.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from gptcore.nlu.registry import task_spec
from tasks.store.artifact import Artifact
from tasks.store.counts import Generated, PretrainCounts
from tasks.store.store import Store
from tasks.tracking.tracker import flatten

_NOTHING = ("", "-")


@dataclass(frozen=True)
class Card:
    """One run's card."""

    title: str
    results: Mapping[str, Any]
    """The numbers to look at first."""
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]
    """The artifact's manifest: lineage, code version, duration."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Words -> address."""
    figure: Path | None = None
    """The loss curve (PNG)."""
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """The whole card; the figure travels inside it."""
        parts = [f"# {self.title}", *(f"> {note}" for note in self.notes)]
        parts.append(table(("result", "value"), [(name, shown(value)) for name, value in self.results.items()]))
        if self.figure is not None:
            image = base64.b64encode(self.figure.read_bytes()).decode("ascii")
            parts.append(f"![loss curve](data:image/png;base64,{image})")
        if self.links:
            parts.append(linked(self.links))
        parts += ["## Lineage", self._lineage()]
        parts += ["## Settings", table(("setting", "value"), [(k, shown(v)) for k, v in flatten(self.config)])]
        return "\n\n".join(parts) + "\n"

    def _lineage(self) -> str:
        code = self.manifest["code"]
        commit = str(code["git"] or "-")[:12] + (" with local changes" if code["dirty"] else "")
        rows = [("this", self.manifest["stage"], self.manifest["digest"][:12])]
        rows += _made_from(self.manifest)
        rows += [("code", f"gptmill {code['package']}", commit)]
        rows += [("made", self.manifest["created"][:19] + " UTC", f"{self.manifest['duration_seconds']:.1f} s")]
        return table(("what", "stage", "digest"), rows)


def stages_table(store: Store, stages: Sequence[Artifact]) -> str:
    """Every stage of a pipeline: what it was made from, and how long that took."""
    rows = []
    for artifact in stages:
        manifest = store.manifest(artifact)
        inputs = ", ".join(f"{role} {digest}" for role, _, digest in _made_from(manifest))
        seconds = f"{manifest['duration_seconds']:,.1f} s"
        rows.append((artifact.stage, artifact.short, inputs, seconds, manifest["created"][:19]))
    return table(("stage", "digest", "made from", "took", "made (UTC)"), rows)


def _made_from(manifest: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(role, stage, digest) of each input; the partitions of a corpus as one, by their number."""
    inputs = manifest["inputs"].items()
    parts = [item["stage"] for role, item in inputs if role.startswith("part-")]
    rows = [(f"{len(parts)} partitions", parts[0], "")] if parts else []
    rows += [
        (role, item.get("stage", "files"), item["digest"][:12]) for role, item in inputs if not role.startswith("part-")
    ]
    return rows


def synthetic_note(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The note that a card of generated data carries.

    :param manifest: of the `corpus` or `dataset` artifact behind the numbers.
    """
    if not Generated.parse(manifest["counts"]).synthetic:
        return ()
    return ("Synthetic data: the numbers are of gptmill's generated world, not of real text.",)


def start_note(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The notes of a model that was pre-trained from another one's weights, or learnt from it.

    :param manifest: of the `pretrain` artifact.
    """
    found = []
    if (start := manifest["inputs"].get("start")) is not None:
        seen = PretrainCounts.parse(manifest["counts"]).tokens_seen_before
        found.append(
            f"Pre-training went on from the weights of {start['digest'][:12]}, which had seen {seen:,} tokens."
        )
    if (teacher := manifest["inputs"].get("teacher")) is not None:
        found.append(f"A student of {teacher['digest'][:12]}.")
    return tuple(found)


def from_task_note(finetune: Mapping[str, Any]) -> str:
    """What is said of a model that was fine-tuned on another task first; empty of any other.

    :param finetune: the recorded settings of its fine-tuning.
    """
    task = finetune.get("from_task")
    return f"Started from a model fine-tuned on {task_spec(task).folder}." if task else ""


def cost(seconds: float, threads: int, device: str, processes: int = 1) -> str:
    """What a job took of a machine: GPU-hours on a GPU, core-hours (cores x hours) elsewhere."""
    if "cpu" in device.lower():
        return f"{seconds * threads * processes / 3600:.3f} core-hours"
    return f"{seconds * processes / 3600:.3f} GPU-hours"


def shown(value: Any) -> str:
    """A value as a person reads it: 4 significant digits, thousands set off."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return str(value)


def linked(links: Mapping[str, str]) -> str:
    """Words -> address as one line; what a browser cannot open (a folder, ``s3://``) stands there to be copied."""
    return " · ".join(
        f"[{words}]({address})" if address.startswith("http") else f"{words}: `{address}`"
        for words, address in links.items()
    )


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table whose cells cannot break it."""
    cells = [[_cell(text) for text in row] for row in (header, *rows)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    lines = [cells[0], ["-" * width for width in widths], *cells[1:]]
    padded = ([text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in lines)  # legible as text
    return "\n".join("| " + " | ".join(row) + " |" for row in padded)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())  # a line break would end the table


def amount(count: float) -> str:
    """A number to read: 36, 757,529 as 0.76 M, 3,225,600 as 3.2 M."""
    for size, letter in ((1e9, "G"), (1e6, "M")):
        if count >= size / 10:
            return f"{count / size:.2g} {letter}" if count < 100 * size else f"{count / size:,.0f} {letter}"
    return f"{count:,.0f}"


def filled(records: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The records without the columns that are empty in all of them; an empty cell is empty, not a dash.

    A dash alone is a list to Markdown, which the pages draw as a bullet.
    """
    columns = (
        [name for name in records[0] if any(record[name] not in _NOTHING for record in records)] if records else []
    )
    return [{name: "" if record[name] in _NOTHING else record[name] for name in columns} for record in records]


def publish_table(records: Sequence[Mapping[str, str]], key: str, description: str) -> UUID:
    """Show a table on the Prefect run's Artifacts page; its id there. ``key``: letters, digits and dashes."""
    from prefect.artifacts import create_table_artifact  # seconds, which whoever draws a card does without

    return cast(UUID, create_table_artifact(table=filled(records), key=key, description=description))
