"""Stage `pretrain`: shards to a language model, trained by a child process that resumes after any crash."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.config import DistilConfig, NetworkConfig, PretrainConfig
from gptcore.families import FAMILIES
from gptcore.knowledge.entities import ENTITY_SIZES
from tasks.jobs.launch import run_job
from tasks.jobs.placement import processes_and_threads
from tasks.report.card import Card, amount, cost, start_note, synthetic_note
from tasks.report.entries import corpus_data, pretrained_entry
from tasks.report.figures import loss_curve
from tasks.report.model_card import write_pretrained_card
from tasks.stages.shards import local_shards
from tasks.stages.stage import CHECKPOINTS, JOB_OPTIONS, build, publish_card
from tasks.store.artifact import Artifact, Recipe
from tasks.store.lineage import ancestor
from tasks.store.references import check_start, check_teacher
from tasks.store.store import Built, Store
from tasks.tracking.observer import JobObserver
from tasks.tracking.provenance import cross_links, has_inputs, log_inputs, run_tags
from tasks.tracking.registry import is_registered, register
from tasks.tracking.tracker import Run, Tracker, read_metrics, scratch_folder
from tasks.tracking.views import PRETRAIN

VERSION = 1
EXPERIMENT = PRETRAIN
RECIPE = ("shards", "model", "config", "start", "teacher", "distil", "mentions")
"""What a pre-trained model is made from, of all that its training is given."""


def _run_name(parameters: dict[str, Any]) -> str:
    model, config = parameters["model"], parameters["config"]
    length = f"{config.steps:,} updates" if config.steps else f"{config.epochs:g} epochs"
    return f"pretrain {FAMILIES[model.family].network_title}, {length}"


@task(name="pretrain", task_run_name=_run_name, **JOB_OPTIONS)  # type: ignore[arg-type]  # a function does fit
def pretrain_model(
    store: Store,
    shards: Artifact,
    model: NetworkConfig,
    config: PretrainConfig,
    ngrams: Artifact | None = None,
    nproc: int = 1,
    start: Artifact | None = None,
    sharded: bool = False,
    beside: int = 1,
    teacher: Artifact | None = None,
    distil: DistilConfig | None = None,
    mentions: Artifact | None = None,
) -> Artifact:
    """Pre-train (section 3.1), or distil a teacher.

    The processes are no part of the digest: every global batch is the same.

    The artifact has model/, snapshots/ and metrics.jsonl; the job's checkpoints stay out of it.

    :param model: its ``n_vocab`` is replaced by that of the shards.
    :param ngrams: n-gram perplexities of the same shards, shown beside the model's.
    :param nproc: training processes; 0: one for each GPU of a machine that trains.
    :param sharded: each of them holds a part of the weights only.
    :param beside: such trainings that go on at the same time, and share this machine's cores.
    :param start: a pre-trained model whose weights it goes on from, under a new schedule and a fresh optimiser.
    :param teacher: a pre-trained model, or one that was imported, that the network learns from as ``distil`` says.
    :param mentions: of a graph's entities in the shards, for a family that has them beside words.
    :raises InputError: ``start`` or ``teacher`` does not fit the network or the text.
    """
    encoded = store.manifest(shards)["counts"]
    recipe = pretrain_recipe(store, shards, model, config, start, teacher, distil, mentions)
    settings = dict(recipe.config)
    if teacher and distil:
        check_teacher(store, teacher, model, distil, encoded["tokenizer_digest"])
    before = {}
    if start:
        check_start(store, start, model, encoded["tokenizer_digest"])
        there = store.manifest(start)["counts"]
        before = {"tokens_seen_before": there.get("tokens_seen", 0) + there.get("tokens_seen_before", 0)}
    nproc, threads = processes_and_threads(nproc, beside)
    tags = run_tags(
        kind="pretrain",
        store_digest=recipe.digest,
        data_digest=shards.digest,
        tokenizer_digest=encoded["tokenizer_digest"],
    )

    with Tracker().open(EXPERIMENT, f"pretrain {recipe.digest[:8]}", recipe.digest, tags, settings) as run:
        if not has_inputs(run):
            log_inputs(run, corpus_data(store, shards))

        def produce(workspace: Path) -> dict[str, Any]:
            job = {
                **settings,
                "shards": str(local_shards(store, shards)),
                "tokenizer_digest": encoded["tokenizer_digest"],
                "workspace": str(workspace),
                "threads": threads,
                "sharded": sharded,
                **({"start": str(store.local(start, "model"))} if start else {}),
                **({"teacher": str(store.local(teacher, "model"))} if teacher else {}),
                **({"entities": str(store.local(mentions))} if mentions else {}),
            }
            observer = JobObserver("pretrain", run, "pretrain-progress", lambda: store.sync_partial(recipe, workspace))
            result = run_job(
                "gptcore.training.pretrain",
                job,
                workspace,
                nproc=nproc,
                on_metrics=observer,
                on_waiting=observer.waiting,
            )
            result = {**result, "threads": threads, **before}
            write_pretrained_card(workspace / "model", store, shards, settings, result, start, teacher)
            return {**result, "family": model.family, "tokenizer_digest": encoded["tokenizer_digest"]}

        built = build(store, recipe, produce, "pretrain", _made, transient=CHECKPOINTS)
        if not run.finished:
            _report(store, built, run, ngrams)
        if not is_registered(run):
            register(run, pretrained_entry(store, built.artifact, shards))
    return built.artifact


def pretrain_recipe(
    store: Store,
    shards: Artifact,
    model: NetworkConfig,
    config: PretrainConfig,
    start: Artifact | None = None,
    teacher: Artifact | None = None,
    distil: DistilConfig | None = None,
    mentions: Artifact | None = None,
) -> Recipe:
    """What a pre-trained model is made from; ``model``'s vocabulary is that of the shards, and so are its entities.

    :raises InputError: a teacher without what is learnt from it, or the other way round; a family that has entities
        beside words and no mentions of any, or the other way round.
    """
    if (teacher is None) != (distil is None):
        raise InputError("pretrain: a teacher and what is learnt from it: expected both or neither")
    model = dataclasses.replace(model, n_vocab=store.manifest(shards)["counts"]["n_vocab"])
    family = FAMILIES[model.family]
    if family.knowledge != (mentions is not None):
        expected = "a graph (--graph), whose entities its text mentions" if family.knowledge else "no graph"
        raise InputError(f"pretrain: {family.title}: expected {expected}")
    if mentions:
        counts = store.manifest(mentions)["counts"]
        model = dataclasses.replace(model, **{name: counts[name] for name in ENTITY_SIZES})
    settings = {"model": recorded(model), "pretrain": recorded(config)}
    inputs = {"shards": shards, **({"start": start} if start else {}), **({"mentions": mentions} if mentions else {})}
    if teacher and distil:
        settings["distil"], inputs["teacher"] = recorded(distil), teacher
    return Recipe("pretrain", VERSION, settings, inputs)


def _made(counts: Mapping[str, Any]) -> str:
    return f"held-out perplexity {counts['validation/perplexity']:.2f} after {amount(counts['tokens_seen'])} tokens"


def _report(store: Store, built: Built, run: Run, ngrams: Artifact | None) -> None:
    """The final numbers, the curve and the card, on the MLflow run and on the Prefect run."""
    result = built.manifest["counts"]
    entropy = result.get("validation/unigram_entropy")
    # Hidden words are told from both sides: what n-grams predict of the next one is no measure of that.
    counted = store.manifest(ngrams)["counts"] if ngrams and entropy is None else {}
    records = read_metrics(store.local(built.artifact, "metrics.jsonl"))
    results = {
        "validation perplexity": result["validation/perplexity"],
        **{f"{name} perplexity": counted[name]["perplexity"] for name in counted},
        **({} if entropy is None else {"unigram perplexity": math.exp(entropy)}),
        "validation tokens": result["validation/tokens"],
        "tokens seen": result["tokens_seen"],
        **({"tokens seen before": before} if (before := result.get("tokens_seen_before")) else {}),
        "updates": result["steps"],
        "tokens/s": result["tokens_per_second"],
        "cost": cost(result["wall_seconds"], result["threads"], result["device"], result["world_size"]),
        "peak memory (MB)": result["peak_memory_bytes"] / 1e6,
        "MFU": result["mfu"],
        "device": f"{result['device']}, {result['precision']}, {result['world_size']} process(es)",
    }
    with scratch_folder() as folder:
        references = {name: counts["nats"] for name, counts in counted.items()}
        references |= {} if entropy is None else {"unigram entropy": entropy}
        figure = loss_curve(records, folder / "loss.png", references)
        links = cross_links(run, built.artifact)
        title = f"Pre-training {built.artifact.short}"
        notes = synthetic_note(store.manifest(ancestor(store, built.artifact, "corpus"))) + start_note(built.manifest)
        card = Card(title, results, built.manifest["config"], built.manifest, links, figure, notes)
        publish_card(card, "pretrain-card")
        (folder / "card.md").write_text(card.markdown(), encoding="utf-8")
        run.log_metrics(records)  # also what an earlier, killed process could not deliver any more
        run.log_results(
            {**result, **{f"validation/{name}_perplexity": counted[name]["perplexity"] for name in counted}}
        )
        for path in (folder / "card.md", figure):
            if path is not None:
                run.log_artifact(path)
    run.set_tags({"checkpoint": built.artifact.url})
