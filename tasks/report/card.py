"""The Markdown card that every run leaves: what was done, with what, from what, at which cost.

Also the README of a model folder, in the shape that Hugging Face calls a model card; and tables on Prefect's pages:
only columns that hold something, and no cell that the page would take for Markdown.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import gptcore
from gptcore.base.files import read_json
from gptcore.base.settings import flatten
from gptcore.families import Family, recorded_family
from gptcore.nlu.forms import form_of
from gptcore.nlu.registry import TaskSpec, task_spec
from tasks.report.table import grid, rendered
from tasks.store.artifact import Artifact
from tasks.store.counts import (
    CorpusCounts,
    DatasetCounts,
    FinetuneCounts,
    Generated,
    ImportedCounts,
    PretrainCounts,
    ShardsCounts,
)
from tasks.store.lineage import ancestor, made_before
from tasks.store.store import Store
from tasks.tracking.keys import key_of

_NOTHING = ("", "-")
SYNTHETIC = "Synthetic data: the numbers are of gptmill's generated world, not of real text."


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
        parts.append(grid(("result", "value"), _lines(self.results)))
        if self.figure is not None:
            parts.append(embedded("loss curve", self.figure))
        if self.links:
            parts.append(linked(self.links))
        parts += ["## Lineage", self._lineage()]
        parts += ["## Settings", grid(("setting", "value"), _lines(flatten(self.config)))]
        return "\n\n".join(parts) + "\n"

    def _lineage(self) -> str:
        code = self.manifest["code"]
        commit = str(code["git"] or "-")[:12] + (" with local changes" if code["dirty"] else "")
        rows = [("this", self.manifest["stage"], self.manifest["digest"][:12])]
        rows += _made_from(self.manifest)
        rows += [("code", f"gptmill {code['package']}", commit)]
        rows += [("made", self.manifest["created"][:19] + " UTC", f"{self.manifest['duration_seconds']:.1f} s")]
        return grid(("what", "stage", "digest"), rows)


def stages_table(store: Store, stages: Sequence[Artifact]) -> str:
    """Every stage of a pipeline: what it was made from, and how long that took."""
    rows = []
    for artifact in stages:
        manifest = store.manifest(artifact)
        inputs = ", ".join(f"{role} {digest}" for role, _, digest in _made_from(manifest))
        seconds = f"{manifest['duration_seconds']:,.1f} s"
        rows.append((artifact.stage, artifact.short, inputs, seconds, manifest["created"][:19]))
    return grid(("stage", "digest", "made from", "took", "made (UTC)"), rows)


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
    return (SYNTHETIC,) if Generated.parse(manifest["counts"]).synthetic else ()


def start_note(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The notes of a model that was imported, or pre-trained from another one's weights, or learnt from it.

    :param manifest: of the `pretrain` or `imported` artifact.
    """
    if manifest["stage"] == "imported":
        return (_origin(manifest),)
    notes, before = [], made_before(manifest)
    if start := before.get("start"):
        seen = PretrainCounts.parse(manifest["counts"]).tokens_seen_before
        notes.append(f"Pre-training went on from the weights of {start[:12]}, which had seen {seen:,} tokens.")
    if teacher := before.get("teacher"):
        notes.append(f"A student of {teacher[:12]}.")
    return tuple(notes)


def _origin(manifest: Mapping[str, Any]) -> str:
    """Where an imported model is from, in a sentence."""
    counts, model = ImportedCounts.parse(manifest["counts"]), manifest["config"]["model"]
    revision = f" at {counts.revision[:12]}" if counts.revision else ""
    place = f"{counts.address}{revision}" if counts.address else "a folder that nobody recorded"
    licence = f"licence {counts.licence}" if counts.licence else "of no licence that its card names"
    kind = model.get("architecture") or recorded_family(model).title
    size = f"{kind}, {amount(counts.parameters or 0)} weights"
    return f"{counts.name or 'The model'} was not pre-trained here: {size}, imported from {place}, {licence}."


def from_task_note(finetune: Mapping[str, Any]) -> str:
    """What is said of a model that was fine-tuned on another task first; empty of any other.

    :param finetune: the recorded settings of its fine-tuning.
    """
    task = finetune.get("from_task")
    return f"Started from a model fine-tuned on {task_spec(task).folder}." if task else ""


def selection_note(finetune: Mapping[str, Any], rows: Mapping[str, int]) -> str:
    """How the epoch of a fine-tuned model was chosen, and on how many rows.

    :param finetune: the recorded settings of its fine-tuning.
    :param rows: split -> rows used.
    """
    if (select := finetune.get("select")) is None:
        return f"The epoch was chosen on the {rows['dev']:,} dev rows, whose score is the best of all epochs'."
    words = f"The epoch was chosen on {rows['validation']:,} held-out training rows, "
    again = "then all training rows were learnt from up to there" if select == "refit" else "which were not trained on"
    return f"{words}{again}; dev rows were scored once."


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


def embedded(title: str, picture: Path) -> str:
    """A picture (PNG) that travels inside the Markdown."""
    return f"![{title}]({data_address(picture, 'image/png')})"


def data_address(file: Path, media_type: str) -> str:
    """The address (``data:``) of a file that holds all of it."""
    return f"data:{media_type};base64,{base64.b64encode(file.read_bytes()).decode('ascii')}"


def linked(links: Mapping[str, str]) -> str:
    """Words -> address as one line; what a browser cannot open (a folder, ``s3://``) stands there to be copied."""
    return " · ".join(
        f"[{words}]({address})" if address.startswith("http") else f"{words}: `{address}`"
        for words, address in links.items()
    )


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
    """Show a table on the Prefect run's Artifacts page; its id there."""
    from prefect.artifacts import create_table_artifact  # seconds, which whoever draws a card does without

    return cast(UUID, create_table_artifact(table=filled(records), key=key_of(key), description=description))


_OF_HIDDEN_WORDS = {
    "validation/unigram_entropy": "unigram entropy, nats a word",
    "validation/word_accuracy": "hidden words told",
    "validation/pair_accuracy": "pairs of segments told",
    "validation/replaced_share": "hidden words that the generator replaced",
    "validation/replaced_recall": "replaced words found",
    "validation/replaced_precision": "found words that were replaced",
}
_SYNTHETIC = "synthetic: gptmill's generated world, no real text"


def write_pretrained_card(
    folder: Path,
    store: Store,
    shards: Artifact,
    settings: Mapping[str, Any],
    result: Mapping[str, Any],
    start: Artifact | None = None,
    teacher: Artifact | None = None,
) -> None:
    """README.md beside a pre-trained model: data, training, results, limits.

    :param settings: {"model": ..., "pretrain": ...}.
    :param result: the job's result.json.
    :param start: the model whose weights it went on from.
    :param teacher: the model that it learnt from.
    """
    corpus = ancestor(store, shards, "corpus")
    read, encoded = CorpusCounts.of(store, corpus), ShardsCounts.of(store, shards)
    training_tokens = encoded.splits["train"].n_tokens
    seen = result["tokens_seen"]
    data = {
        **({"origin": _SYNTHETIC} if read.synthetic else {}),
        "documents": read.documents.kept,
        **({"documents left out": read.documents.left_out} if read.documents.left_out else {}),
        "words": read.words,
        **({"files": read.kinds_of_files} if read.kinds_of_files else {}),
        "training tokens": training_tokens,
        **{f"read of {pattern}": f"{weight:g} times" for pattern, weight in encoded.weights},
        "held-out tokens": encoded.splits["validation"].n_tokens,
        "vocabulary": encoded.n_vocab,
        "corpus": corpus.short,
        "tokenizer": encoded.tokenizer_digest[:12],
    }
    before = {"went on from": start.short, "tokens seen before": result["tokens_seen_before"]} if start else {}
    before |= {"student of": teacher.short} if teacher else {}
    hidden = "validation/unigram_entropy" in result  # words were told from both sides
    unit = "a hidden word" if hidden else "a token"
    results = {
        f"held-out perplexity, {unit}": result["validation/perplexity"],
        f"held-out loss, nats {unit}": result["validation/loss"],
        **{title: result[name] for name, title in _OF_HIDDEN_WORDS.items() if name in result},
    }
    training = {**_cost(result), "tokens seen": seen, "epochs": seen / training_tokens, **before, **flatten(settings)}
    facts = {"Training data": data, "Training": training, "Results": results}
    _write(folder, "pretrained.md", facts, hidden=hidden, seen=seen)


def write_finetuned_card(
    folder: Path,
    spec: TaskSpec,
    dataset: DatasetCounts,
    settings: Mapping[str, Any],
    result: Mapping[str, Any],
    origin: Sequence[str] = (),
) -> None:
    """README.md beside a fine-tuned model.

    :param dataset: counts of the encoded dataset's manifest.
    :param origin: what is said of the checkpoint that it started from (:func:`start_note`).
    """
    tuning, synthetic = settings["finetune"], dataset.synthetic
    rows = {"origin": _SYNTHETIC} if synthetic else {}
    for split, counts in dataset.splits.items():
        of = f" of {counts.published:,} published" if counts.published and not synthetic else ""
        rows[f"{split} rows"] = f"{counts.rows:,}{of}"
    data = {**rows, "used": json.dumps(result["rows"]), "labels": ", ".join(spec.labels) or str(spec.score_range)}
    training = {**_cost(result), "best epoch": result["best_epoch"], **flatten(settings)}
    _write(
        folder,
        "finetuned.md",
        {"Training data": data, "Training": training, "Results": FinetuneCounts.parse(result).scores},
        spec=spec,
        form=form_of(spec),
        words_too=bool(tuning.get("words") and form_of(spec).word_reader),
        notes=list(filter(None, [*origin, from_task_note(tuning)])),
        tuning=tuning,
        result=result,
        selected=selection_note(tuning, result["rows"]),
        published=[f"{column} {value}" for column, value in spec.paper.items() if value is not None],
        findings=[*([spec.note] if spec.note and not synthetic else []), *(dataset.findings if spec.own else ())],
    )


def _cost(result: Mapping[str, Any]) -> dict[str, Any]:
    spent = cost(result["wall_seconds"], result["threads"], result["device"], result.get("world_size", 1))
    return {"device": f"{result['device']}, {result['precision']}", "cost": spent, "updates": result["steps"]}


def _family(folder: Path) -> Family:
    config = read_json(folder / "config.json")
    return recorded_family(config.get("model", config))  # a fine-tuned model's file holds the head's settings, too


def _write(folder: Path, template: str, facts: Mapping[str, Mapping[str, Any]], **values: Any) -> None:
    """Write README.md from a template that extends `templates/model_card.md`.

    :param facts: heading -> what is told under it, each with its value.
    """
    tables = {heading: grid(("what", "value"), _lines(told)) for heading, told in facts.items()}
    text = rendered(template, family=_family(folder), version=gptcore.__version__, tables=tables, **values)
    (folder / "README.md").write_text(text, encoding="utf-8")


def _lines(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, shown(value)) for name, value in told.items()]
