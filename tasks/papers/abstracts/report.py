"""What the flow of abstracts tells: the paper's tables made again, the measures, the page of what was written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.papers.abstracts.config import EVALUATION, SPLIT, SWEEPS, AdaptConfig, SamplingConfig, SweepTable
from gptcore.papers.abstracts.documents import SPLITS
from tasks.papers.abstracts.counts import AdaptCounts, PaperIdsCounts, PapersCounts, WrittenCounts
from tasks.report.analysis import Analysis
from tasks.report.card import amount, synthetic_note
from tasks.report.figures import Curve, Figure
from tasks.store.artifact import Artifact
from tasks.store.counts import CorpusCounts
from tasks.store.lineage import ancestor
from tasks.store.references import n_parameters
from tasks.store.store import Store

_PAPER = AdaptConfig()
_SEEN = ("train", "valid")
"""Splits that settings are chosen by."""
_Point = tuple[float, Mapping[str, float]]
"""A point of a figure: where it is, and what was measured there."""


def cells(table: SweepTable, star: AdaptConfig) -> list[tuple[float, float, AdaptConfig]]:
    """The paper's value of a table's setting, ours, and the settings with it."""
    own, papers = getattr(star, table.setting), getattr(_PAPER, table.setting)
    tried = []
    for value in table.rows:
        ours = type(papers)(value)
        if table.scaled:  # its own value exactly, whatever rounding says
            ours = own if value == papers else type(papers)(own * value / papers)
        try:
            tried.append((value, ours, dataclasses.replace(star, **{table.setting: ours})))
        except InputError as error:
            raise InputError(
                f"star.{table.setting} = {own}: Table {table.number} has the paper's multiples of it: {error}"
            ) from None
    return tried


def _notes(store: Store, ids: Artifact) -> list[str]:
    return list(synthetic_note(store.manifest(ids)))


def _kinds(splits: Sequence[str]) -> list[str]:
    return [f"{split} {name}" for name in ("loss", "PPL") for split in splits]


def _losses(result: Mapping[str, float], splits: Sequence[str]) -> tuple[str, ...]:
    return _four_decimals(result[f"{split}/{name}"] for name in ("loss", "perplexity") for split in splits)


def _four_decimals(numbers: Iterable[float]) -> tuple[str, ...]:
    return tuple(f"{number:.4f}" for number in numbers)


def _figure(store: Store, ids: Artifact, title: str, x_label: str, points: Sequence[_Point], log_x: bool) -> Figure:
    """Perplexities of models over what sets them apart: its value and what was measured of each."""
    curves = [
        Curve(split, [(x, result[f"{split}/perplexity"]) for x, result in points], color)
        for color, split in enumerate(_SEEN)
    ]
    data = "synthetic" if _notes(store, ids) else "real"
    return Figure(curves, x_label, "perplexity", f"{title} ({data} data)", log_x=log_x)


def _start_notes(store: Store, start: Artifact, ids: Artifact) -> list[str]:
    """What to know of the language model ``start`` that real papers were taught to."""
    if _notes(store, ids):
        return _notes(store, ids)
    if start.stage != "pretrain":
        return []
    synthetic = CorpusCounts.of(store, ancestor(store, start, "corpus")).synthetic
    return ["pre-trained on generated, synthetic books"] if synthetic else []


def split_table(store: Store, papers: Artifact, ids: Artifact) -> Analysis:
    """The paper's Table 1: how many papers each split has, and from when to when."""
    counts, rows = PapersCounts.of(store, papers), PaperIdsCounts.of(store, ids).distribution
    kinds = ("count", "percent", "BPE tokens")
    return Analysis(
        "abstracts-table1",
        "Table 1: papers by split",
        ("split", *kinds, "from", "to", *(f"published {kind}" for kind in ("count", "percent", "tokens"))),
        [
            (
                *(row["split"], f"{row['count']:,}", f"{row['percentage']:.2f}", f"{row['bpe_tokens']:,}"),
                *(row["from"], row["to"], *(f"{number:,}" for number in SPLIT[row["split"]])),
            )
            for row in rows
        ],
        {"ids": ids.digest},
        notes=[
            *_notes(store, ids),
            f"{counts.read:,} records of {counts.files} files, {counts.repeated:,} of papers that another "
            f"record holds, {counts.empty:,} without a title or an abstract, "
            f"{counts.of_other_categories:,} papers of other categories",
            "papers by category, the first that each names: "
            + ", ".join(f"{name} {count:,}" for name, count in counts.by_category.items()),
        ],
    )


def losses_table(store: Store, models: Sequence[Artifact], ids: Artifact, start: Artifact) -> Analysis:
    """Table 8: the arm from the pre-trained ``start``, then the one from random weights, above the published sizes."""
    rows: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    for label, model in zip(("pre-trained", "from scratch"), models, strict=True):
        result = AdaptCounts.of(store, model).figures
        rows.append((f"{label} ({model.short})", *_losses(result, SPLITS)))
        name = label.replace(" ", "_").replace("-", "_")
        metrics |= {f"{name}/{split}_perplexity": result[f"{split}/perplexity"] for split in SPLITS}
    rows += [(f"published {size}", *_four_decimals(numbers)) for size, numbers in EVALUATION.items()]
    adapt = store.manifest(models[0])["config"]["adapt"]
    seen = AdaptCounts.of(store, models[0]).tokens_seen
    return Analysis(
        "abstracts-table8",
        "Table 8: loss and perplexity",
        ("model", *_kinds(SPLITS)),
        rows,
        {"models": [model.digest for model in models]},
        metrics,
        [
            *_start_notes(store, start, ids),
            f"{seen:,} tokens seen: {adapt['epochs']:g} epochs of blocks of {adapt['block_size']}, "
            f"{adapt['batch_size']} x {adapt['accumulation']} an update, rate {adapt['lr']:g}",
            f"train: {adapt['eval_blocks']} blocks spread over the training documents; valid and test: all of them",
            "a token is one of its own vocabulary: perplexities of different vocabularies do not compare",
            "published 345M: loss and perplexity on train do not agree (exp 2.2768 is 9.7); as printed",
        ],
    )


def sweep_table(
    store: Store,
    table: SweepTable,
    star: AdaptConfig,
    trained: Mapping[AdaptConfig, Artifact],
    ids: Artifact,
    start: Artifact,
) -> Analysis:
    """One of Tables 3 to 7, and its curves.

    :param trained: what came of each cell; a cell that is not there failed.
    :param start: the language model that all were fine-tuned from.
    """
    rows: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    points: list[_Point] = []
    made, what = cells(table, star), table.title.lower()
    for papers, ours, config in made:
        losses: tuple[str, ...] = ("failed",) * 4
        if config in trained:
            result = AdaptCounts.of(store, trained[config]).figures
            losses = _losses(result, _SEEN)
            metrics[f"{table.setting} {ours:g}/valid_perplexity"] = result["valid/perplexity"]
            points.append((ours, result))
        mark = "*" if config == star else ""
        rows.append((f"{ours:g}{mark}", *losses, f"{papers:g}", *_four_decimals(table.rows[papers])))
    title, log_x = f"Table {table.number}: {what}", table.setting not in ("epochs", "weight_decay")
    figure = _figure(store, ids, title, what, sorted(points, key=lambda point: point[0]), log_x)
    models = [trained[config].digest for _, _, config in made if config in trained]
    shared = dict.fromkeys(each.setting for each in SWEEPS if each.setting != table.setting)
    others = ", ".join(f"{name} {getattr(star, name):g}" for name in shared)
    notes = _start_notes(store, start, ids)
    if len(models) < len(made):
        notes.append("failed: this run's log says why; the same command trains those alone")
    if any(config == star for _, _, config in made):
        notes.append(f"*: the settings that the other tables share; here also {others}")
    notes.append(f"train: {star.eval_blocks} blocks spread over the documents, whatever their size; valid: all of it")
    notes += [table.note] if table.note else []
    if table.scaled:
        notes.append("values: the paper's multiples of the preset's own")
    header = (what, *_kinds(_SEEN), "published", *(f"published {kind}" for kind in _kinds(_SEEN)))
    return Analysis(
        f"abstracts-{table.name}", title, header, rows, {"models": models}, metrics, notes, figure if models else None
    )


def sizes_table(
    store: Store,
    sizes: Mapping[str, Artifact],
    models: Sequence[Artifact],
    ids: Artifact,
    origin: str,
    name: str = "abstracts-sizes",
) -> Analysis:
    """Models of several sizes under the same settings but the rate, above the sizes of Table 8.

    :param sizes: name -> the language model that the one of ``models`` in its place was fine-tuned from.
    :param origin: where these language models come from, in words.
    :param name: of the analysis.
    """
    rows: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    points: list[_Point] = []
    for (size, start), model in zip(sizes.items(), models, strict=True):
        result, weights = AdaptCounts.of(store, model).figures, n_parameters(store, start)
        rows.append((size, amount(weights), *_losses(result, SPLITS)))
        metrics[f"{size}/valid_perplexity"] = result["valid/perplexity"]
        points.append((round(weights / 1e6, 2), result))
    rows += [(f"published {size}", "", *_four_decimals(numbers)) for size, numbers in EVALUATION.items()]
    title = "Size of the model"
    figure = _figure(store, ids, title, "million weights", points, True)
    adapts = [store.manifest(model)["config"]["adapt"] for model in models]
    rates = ", ".join(dict.fromkeys(f"{adapt['lr']:g}" for adapt in adapts))
    notes = [
        *_start_notes(store, next(iter(sizes.values())), ids),
        f"{origin}, then {adapts[0]['epochs']:g} epochs of the papers, "
        f"rate {rates}; the other settings are those that Tables 3 to 7 share",
        "published: Table 8, released weights and another vocabulary; what compares is the direction",
    ]
    identity = {"models": [model.digest for model in models]}
    return Analysis(name, title, ("size", "weights", *_kinds(SPLITS)), rows, identity, metrics, notes, figure)


def measures_table(store: Store, written: Artifact, ids: Artifact) -> Analysis:
    """What was counted of generated abstracts, beside the real ones."""
    counts = WrittenCounts.of(store, written)
    kinds = {"generated": counts.generated, "real": counts.real}
    names = list(dict.fromkeys([*counts.generated, *counts.real]))
    future = counts.future
    notes = [
        f"test abstracts say {future['new_words']:,.0f} words of their titles that no training text has"
        + "".join(
            f", {kind} words' perplexity {future[f'{kind}_word_perplexity']:,.0f}"
            for kind in ("new", "known")
            if f"{kind}_word_perplexity" in future
        )
    ]
    if (chance := counts.field_by_chance) is not None:
        notes.append(f"field: by chance {chance:.3f}; what the classifier reaches on real abstracts is its own limit")
    return Analysis(
        "abstracts-measures",
        "Generated abstracts beside the real ones, counted",
        ("measure", "generated", "real"),
        [(name, *("" if (n := told.get(name)) is None else f"{n:.3g}" for told in kinds.values())) for name in names],
        {"written": written.digest},
        {f"{kind}/{name}": n for kind, told in {**kinds, "future": future}.items() for name, n in told.items()},
        [
            *_notes(store, ids),
            _written_by(store, written),
            *notes,
            "what is counted: gptcore/papers/abstracts/measures.py",
        ],
    )


def generated_page(store: Store, written: Artifact, lines: Sequence[Mapping[str, Any]], ids: Artifact) -> Analysis:
    """Title, generated and real abstract side by side.

    :param lines: what the artifact ``written`` holds, one for each title.
    """
    return Analysis(
        "abstracts-generated",
        "Abstracts from titles",
        ("title", "generated", "real"),
        [(line["title"], line["generated"] + ("" if line["ended"] else " ..."), line["real"] or "") for line in lines],
        {"written": written.digest},
        page=True,
        notes=[
            *_notes(store, ids),
            _written_by(store, written),
            "...: cut at the most tokens that may be written; no real one: a title from the paper",
        ],
    )


def own_page(store: Store, model: Artifact, written: Sequence[tuple[str, str]], sampling: SamplingConfig) -> Analysis:
    """Abstracts under somebody's own titles."""
    drawn = recorded(sampling)
    return Analysis(
        "generated",
        "Abstracts under your titles",
        ("title", "generated"),
        list(written),
        {"model": model.digest, "titles": [title for title, _ in written], **drawn},
        page=True,
        notes=[_writer(store, model, drawn)],
    )


def _writer(store: Store, model: Artifact, drawn: Mapping[str, float]) -> str:
    perplexity = AdaptCounts.of(store, model).figures["test/perplexity"]
    settings = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in drawn.items())
    return f"written by the model {model.short} (test perplexity {perplexity:.1f}); {settings}"


def _written_by(store: Store, written: Artifact) -> str:
    config = store.manifest(written)["config"]
    drawn = {name: value for name, value in config.items() if name != "titles"}
    return _writer(store, ancestor(store, written, "adapt"), drawn)
