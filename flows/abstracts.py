"""Abstracts from titles: arXiv's papers in, a GPT-2 fine-tuned on them, its losses and what it writes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from prefect import flow
from prefect.task_runners import ThreadPoolTaskRunner

from flows import signals
from flows.away import pretrained, train_away, trains_away
from flows.chain import WORLD_SEED
from flows.forms import list_checkpoints
from flows.names import from_form
from flows.parameters import AbstractsParameters, chosen_abstracts
from flows.references import pretrained_model
from gptcore.abstracts.config import AdaptConfig
from gptcore.abstracts.documents import SPLITS
from gptcore.abstracts.published import EVALUATION, SPLIT, SWEEPS, SweepTable
from gptcore.config import Preset
from tasks.jobs.places import slots_and_threads
from tasks.report.card import synthetic_note
from tasks.report.figures import Curve, Figure
from tasks.stages.adapt import adapt_model, adapt_recipe
from tasks.stages.analysis import Analysis, publish
from tasks.stages.corpus import clean_corpus
from tasks.stages.imported import import_model, is_model_folder
from tasks.stages.ngrams import measure_ngrams
from tasks.stages.papers import collect_papers, encode_abstracts
from tasks.stages.shards import encode_shards
from tasks.stages.storyworld import generate_world
from tasks.stages.tokenizer import train_tokenizer
from tasks.stages.written import read_written, write_and_measure
from tasks.store.artifact import Artifact
from tasks.store.lineage import ancestor, tokenizer_of
from tasks.store.store import Store

_PAPER = AdaptConfig()


@flow(
    name="abstracts",
    flow_run_name=from_form,
    persist_result=False,
    task_runner=ThreadPoolTaskRunner(max_workers=16),  # type: ignore[arg-type]  # Prefect types it by its future
)
def abstracts(parameters: AbstractsParameters) -> list[Analysis]:
    """Fine-tune on titles and abstracts, from a pre-trained model and from random weights; write abstracts; compare.

    :raises InputError: missing or broken input, before anything is computed from it.
    """
    signals.listen()
    _, own = chosen_abstracts(parameters)
    store, papers, checkpoint, ids = _ground(parameters)
    jobs = parameters.jobs or 2  # both arms side by side
    _, threads = slots_and_threads(jobs)
    models = _adapted(store, ids, checkpoint, _arms(own.adapt), jobs, threads)
    sampling, titles = own.sampling, parameters.titles or own.titles
    written = write_and_measure(store.url, models[0], papers, sampling, titles)
    found = [
        _table_1(store, papers, ids),
        _table_8(store, models, ids),
        _measured(store, written, ids),
        _page(store, written, ids),
    ]
    for analysis in found:
        publish(analysis, parameters.out)
    return found


@flow(
    name="abstracts-tables",
    flow_run_name=from_form,
    persist_result=False,
    task_runner=ThreadPoolTaskRunner(max_workers=16),  # type: ignore[arg-type]  # as above
)
def abstracts_tables(parameters: AbstractsParameters) -> list[Analysis]:
    """Tables 3 to 7 at the preset's scale: each changes one setting of 82M*; only what the store lacks is trained.

    :raises InputError: missing or broken input, before anything is computed from it.
    """
    signals.listen()
    _, own = chosen_abstracts(parameters)
    configs = dict.fromkeys(config for table in SWEEPS for _, _, config in _cells(table, own.star))
    store, _, checkpoint, ids = _ground(parameters)
    jobs = parameters.jobs or slots_and_threads(0)[0]
    _, threads = slots_and_threads(jobs)
    models = _adapted(store, ids, checkpoint, list(configs), jobs, threads)
    trained = dict(zip(configs, models, strict=True))
    found = [_sweep_table(store, table, own.star, trained, ids) for table in SWEEPS]
    for analysis in found:
        publish(analysis, parameters.out)
    return found


def _cells(table: SweepTable, star: AdaptConfig) -> list[tuple[float, float, AdaptConfig]]:
    """The paper's value of a table's setting, ours, and the settings with it."""
    own, papers = getattr(star, table.setting), getattr(_PAPER, table.setting)
    values = [(value, type(papers)(own * value / papers if table.scaled else value)) for value in table.rows]
    return [(value, ours, dataclasses.replace(star, **{table.setting: ours})) for value, ours in values]


def _adapted(
    store: Store, ids: Artifact, checkpoint: Artifact, configs: Sequence[AdaptConfig], jobs: int, threads: int
) -> list[Artifact]:
    """A model for each of the settings, ``jobs`` of them trained at the same time."""
    away = trains_away()

    def start(config: AdaptConfig) -> Any:
        given: dict[str, Any] = {"store_url": store.url, "ids": ids, "checkpoint": checkpoint, "config": config}
        if away:
            recipe = adapt_recipe(store, ids, checkpoint, config)
            return train_away.submit(f"adapt {recipe.digest[:8]}", "adapt", recipe, {**given, "threads": threads})
        return adapt_model.submit(**given, threads=threads)

    models: list[Artifact] = []
    for first in range(0, len(configs), jobs):
        futures = [start(config) for config in configs[first : first + jobs]]
        models += [future.result() for future in futures]
    return models


def _arms(config: AdaptConfig) -> list[AdaptConfig]:
    """From the pre-trained model, and the same from random weights."""
    return [dataclasses.replace(config, pretrained=pretrained) for pretrained in (True, False)]


def _ground(parameters: AbstractsParameters) -> tuple[Store, Artifact, Artifact, Artifact]:
    """What every training needs: the store, the papers, the language model to start from, the papers' ids."""
    preset, _ = chosen_abstracts(parameters)
    store = Store(parameters.store)
    corpus_url, arxiv_url = parameters.corpus, parameters.arxiv
    if not arxiv_url or not (corpus_url or parameters.checkpoint):
        world = store.local(generate_world(store.url, WORLD_SEED))
        corpus_url, arxiv_url = corpus_url or str(world / "books"), arxiv_url or str(world / "arxiv")
    papers = collect_papers(store.url, arxiv_url)
    checkpoint = _checkpoint(store, parameters, preset, corpus_url)
    ids = encode_abstracts(store.url, papers, tokenizer_of(store, checkpoint))
    return store, papers, checkpoint, ids


def _checkpoint(store: Store, parameters: AbstractsParameters, preset: Preset, corpus_url: str) -> Artifact:
    """The language model that was asked for, or one that is pre-trained on the books."""
    if parameters.checkpoint and is_model_folder(parameters.checkpoint):
        return import_model(store.url, parameters.checkpoint)
    if parameters.checkpoint:
        return pretrained_model(store, parameters.checkpoint)
    corpus = clean_corpus(store.url, corpus_url, preset.corpus)
    tokenizer = train_tokenizer(store.url, corpus, preset.tokenizer)
    shards = encode_shards(store.url, corpus, tokenizer, preset.shards)
    ngrams = measure_ngrams(store.url, shards)
    checkpoint = pretrained(
        store_url=store.url,
        shards=shards,
        model=preset.model,
        config=preset.pretrain,
        ngrams=ngrams,
        nproc=parameters.nproc,
    )
    list_checkpoints(store.url)
    return checkpoint


def _notes(store: Store, ids: Artifact) -> list[str]:
    return list(synthetic_note(store.manifest(ids)))


def _table_1(store: Store, papers: Artifact, ids: Artifact) -> Analysis:
    counts = store.manifest(papers)["counts"]
    rows = store.manifest(ids)["counts"]["distribution"]
    return Analysis(
        "abstracts-table1",
        "Table 1: papers by split",
        (
            "split",
            "count",
            "percent",
            "BPE tokens",
            "from",
            "to",
            "published count",
            "published percent",
            "published tokens",
        ),
        [
            (
                row["split"],
                f"{row['count']:,}",
                f"{row['percentage']:.2f}",
                f"{row['bpe_tokens']:,}",
                row["from"],
                row["to"],
                *(f"{number:,}" for number in SPLIT[row["split"]]),
            )
            for row in rows
        ],
        {"ids": ids.digest},
        notes=[
            *_notes(store, ids),
            f"{counts['read']:,} records of {counts['files']} files, {counts['repeated']:,} of papers that another "
            f"record holds, {counts['empty']:,} without a title or an abstract",
        ],
    )


def _table_8(store: Store, models: Sequence[Artifact], ids: Artifact) -> Analysis:
    rows: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    for label, model in zip(("pre-trained", "from scratch"), models, strict=True):
        result = store.manifest(model)["counts"]
        numbers = [result[f"{split}/{name}"] for name in ("loss", "perplexity") for split in SPLITS]
        rows.append((f"{label} ({model.short})", *(f"{number:.4f}" for number in numbers)))
        name = label.replace(" ", "_").replace("-", "_")
        metrics |= {f"{name}/{split}_perplexity": result[f"{split}/perplexity"] for split in SPLITS}
    rows += [(f"published {size}", *(f"{number:.4f}" for number in numbers)) for size, numbers in EVALUATION.items()]
    adapt = store.manifest(models[0])["config"]["adapt"]
    seen = store.manifest(models[0])["counts"]["tokens_seen"]
    return Analysis(
        "abstracts-table8",
        "Table 8: loss and perplexity",
        ("model", *(f"{split} {name}" for name in ("loss", "PPL") for split in SPLITS)),
        rows,
        {"models": [model.digest for model in models]},
        metrics,
        [
            *_notes(store, ids),
            f"{seen:,} tokens seen: {adapt['epochs']:g} epochs of blocks of {adapt['block_size']}, "
            f"{adapt['batch_size']} x {adapt['accumulation']} an update, rate {adapt['lr']:g}",
            f"train: {adapt['eval_blocks']} blocks spread over the training documents; valid and test: all of them",
            "a token is one of its own vocabulary: perplexities of different vocabularies do not compare",
            "published 345M: loss and perplexity on train do not agree (exp 2.2768 is 9.7); as printed",
        ],
    )


def _sweep_table(
    store: Store, table: SweepTable, star: AdaptConfig, trained: Mapping[AdaptConfig, Artifact], ids: Artifact
) -> Analysis:
    rows: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    curves: dict[str, list[tuple[float, float]]] = {"train": [], "valid": []}
    for papers, ours, config in _cells(table, star):
        result = store.manifest(trained[config])["counts"]
        losses = [result[f"{split}/{name}"] for name in ("loss", "perplexity") for split in ("train", "valid")]
        mark = "*" if config == star else ""
        printed = (f"{number:.4f}" for number in table.rows[papers])
        rows.append((f"{ours:g}{mark}", *(f"{number:.4f}" for number in losses), f"{papers:g}", *printed))
        metrics[f"{table.setting} {ours:g}/valid_perplexity"] = result["valid/perplexity"]
        for split, points in curves.items():
            points.append((ours, result[f"{split}/perplexity"]))
    kinds = [f"{split} {name}" for name in ("loss", "PPL") for split in ("train", "valid")]
    title = f"Table {table.number}: {table.title.lower()}"
    figure = Figure(
        [Curve(split, sorted(points), color) for color, (split, points) in enumerate(curves.items())],
        table.title.lower(),
        "perplexity",
        f"{title} ({'synthetic' if _notes(store, ids) else 'real'} data)",
        log_x=table.setting not in ("epochs", "weight_decay"),
    )
    others = ", ".join(f"{name} {value:g}" for name, value in _shared(star).items() if name != table.setting)
    notes = [*_notes(store, ids), f"*: the settings that the other tables share; here also {others}"]
    notes += [table.note] if table.note else []
    if table.scaled:
        notes.append("values: the paper's multiples of the preset's own")
    models = [trained[config].digest for _, _, config in _cells(table, star)]
    header = (table.title.lower(), *kinds, "published", *(f"published {kind}" for kind in kinds))
    return Analysis(f"abstracts-table{table.number}", title, header, rows, {"models": models}, metrics, notes, figure)


def _shared(star: AdaptConfig) -> dict[str, float]:
    return {table.setting: getattr(star, table.setting) for table in SWEEPS}


def _measured(store: Store, written: Artifact, ids: Artifact) -> Analysis:
    counts = store.manifest(written)["counts"]
    names = list(dict.fromkeys([*counts["generated"], *counts["real"]]))
    future = counts["future"]
    notes = [
        f"titles of the test split: {future['new_words']:,.0f} times a word that no text before them has"
        + "".join(
            f", {kind} words' perplexity {future[f'{kind}_word_perplexity']:,.0f}"
            for kind in ("new", "known")
            if f"{kind}_word_perplexity" in future
        )
    ]
    return Analysis(
        "abstracts-measures",
        "Generated abstracts beside the real ones, counted",
        ("measure", "generated", "real"),
        [(name, *(_number(counts[kind].get(name)) for kind in ("generated", "real"))) for name in names],
        {"written": written.digest},
        {f"{kind}/{name}": value for kind in ("generated", "real", "future") for name, value in counts[kind].items()},
        [*_notes(store, ids), _writer(store, written), *notes, "what is counted: gptcore/abstracts/measures.py"],
    )


def _page(store: Store, written: Artifact, ids: Artifact) -> Analysis:
    lines = read_written(store, written)
    return Analysis(
        "abstracts-generated",
        "Abstracts from titles",
        ("title", "generated", "real"),
        [(line["title"], line["generated"] + ("" if line["ended"] else " ..."), line["real"] or "") for line in lines],
        {"written": written.digest},
        page=True,
        notes=[
            *_notes(store, ids),
            _writer(store, written),
            "...: cut at the most tokens that may be written; no real one: a title from the paper",
        ],
    )


def _writer(store: Store, written: Artifact) -> str:
    """Who wrote, and how it was drawn."""
    model, config = ancestor(store, written, "adapt"), store.manifest(written)["config"]
    perplexity = store.manifest(model)["counts"]["test/perplexity"]
    drawn = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in config.items() if name != "titles")
    return f"written by the model {model.short} (test perplexity {perplexity:.1f}); {drawn}"


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.3g}"
