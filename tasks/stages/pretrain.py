"""Stage `pretrain`: shards to a language model, trained by a child process that resumes after any crash."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from prefect import Task, task

from gptcore.base.errors import InputError
from gptcore.base.files import read_json, write_json_atomic
from gptcore.base.settings import recorded
from gptcore.config import NetworkConfig, PretrainConfig
from gptcore.config.operations import pretraining_flops, teaching_flops
from gptcore.families import FAMILIES
from tasks.jobs import hosts
from tasks.jobs.placement import processes_and_threads, slots
from tasks.report.card import amount, cost, start_note, synthetic_note, write_pretrained_card
from tasks.report.entries import corpus_data, pretrained_entry
from tasks.stages.corpus import local_shards
from tasks.stages.stage import CHECKPOINTS, JOB_OPTIONS, build, recipe_of
from tasks.stages.table import STAGES
from tasks.stages.training import Distillation, Training, Work, follow_job, network_of, report
from tasks.store.artifact import Artifact, Recipe
from tasks.store.counts import NgramCounts, PretrainCounts, ShardsCounts, WeightsCounts
from tasks.store.lineage import ancestor
from tasks.store.references import check_start, check_teacher
from tasks.store.store import Built, Store
from tasks.tracking.provenance import has_inputs, log_inputs, run_tags
from tasks.tracking.registry import is_registered, register
from tasks.tracking.tracker import Run, Tracker
from tasks.tracking.views import PRETRAIN

EXPERIMENT = PRETRAIN


@dataclass(frozen=True)
class PretrainRequest(Training[Artifact]):
    """A pre-training (section 3.1), or the distillation of a teacher.

    The processes are no part of what is made: every global batch is the same.

    :raises InputError: ``start`` or the teacher does not fit the network or the text; a family that has entities beside
        words and no mentions of any, or the other way round.
    """

    stage = shown_as = "pretrain"

    shards: Artifact
    model: NetworkConfig
    """The network's settings. Its vocabulary is replaced by that of the shards, and whatever else of it the mentions
    count (how many entities there are) by their number."""
    config: PretrainConfig
    ngrams: Artifact | None = None
    """N-gram perplexities of the same shards, shown beside the model's."""
    nproc: int = 1
    """Training processes; 0: one for each GPU of a machine that trains."""
    sharded: bool = False
    """Whether each of them holds a part of the weights only."""
    start: Artifact | None = None
    """A pre-trained model whose weights it goes on from, under a new schedule and a fresh optimiser."""
    distillation: Distillation | None = None
    mentions: Artifact | None = None
    """Where the shards mention a graph's entities, for a family that has entities beside words."""
    label: str = ""
    """What people call it; empty: by its digest."""
    preset: str = ""
    """The preset that its settings are of, a user's own on top: what is fine-tuned from it takes that preset's."""

    def __post_init__(self) -> None:
        family, tokenizer = FAMILIES[self.model.family], self.encoded.tokenizer_digest
        if family.knowledge != (self.mentions is not None):
            expected = "a graph (--graph), whose entities its text mentions" if family.knowledge else "no graph"
            raise InputError(f"pretrain: {family.title}: expected {expected}")
        teacher, distil = (self.distillation.teacher, self.distillation.config) if self.distillation else (None, None)
        start = self.start.short if self.start else ""
        check_teacher(self.store, teacher, self.model, distil, start, tokenizer)
        if self.start:
            check_start(self.store, self.start, self.model, tokenizer)

    @property
    def task(self) -> Task[..., Artifact]:
        return pretrain_model

    @property
    def title(self) -> str:
        return self.label or f"pretrain {self.recipe.digest[:8]}"

    @property
    def encoded(self) -> ShardsCounts:
        """What is known of the shards."""
        return ShardsCounts.of(self.store, self.shards)

    @property
    def network(self) -> NetworkConfig:
        """What is trained, in full."""
        model = dataclasses.replace(self.model, n_vocab=self.encoded.n_vocab)
        if self.mentions is None:
            return model
        counted = self.store.manifest(self.mentions)["counts"]
        sizes = {field.name: counted[field.name] for field in dataclasses.fields(model) if field.name in counted}
        return dataclasses.replace(model, **sizes)

    @cached_property
    def recipe(self) -> Recipe:
        settings = {"model": recorded(self.network), "pretrain": recorded(self.config)}
        inputs = {"shards": self.shards, "start": self.start, "mentions": self.mentions}
        if self.distillation:
            settings["distil"], inputs["teacher"] = recorded(self.distillation.config), self.distillation.teacher
        recipe = recipe_of("pretrain", settings, {role: made for role, made in inputs.items() if made})
        anew = self.config.optimizer == "muon"  # which saw queries, keys and values as one matrix before
        return dataclasses.replace(recipe, version=recipe.version + anew)

    @property
    def work(self) -> Work:
        model = dataclasses.replace(self.model, n_vocab=self.encoded.n_vocab)
        total = self.config.total_steps(model.n_ctx, self.encoded.splits["train"].n_tokens)
        flops = pretraining_flops(model, self.config, total)
        if self.distillation:
            teacher, soft = network_of(self.store, self.distillation.teacher), self.distillation.config.soft_weight > 0
            flops += teaching_flops(model, teacher, self.config, total, soft=soft)
        return Work(flops, total)

    def room(self, jobs: int, n: int) -> int:
        """How many of ``n`` pre-trainings like this one go on here at the same time: each has its processes' GPUs."""
        return min(n, jobs or max(1, slots() // (self.nproc or 1)))

    def job(self, workspace: Path, threads: int) -> dict[str, Any]:
        store, settings = self.store, dict(self.recipe.config)
        teacher = self.distillation.teacher if self.distillation else None
        return {
            **settings,
            "shards": str(local_shards(store, self.shards)),
            "tokenizer_digest": self.encoded.tokenizer_digest,
            "workspace": str(workspace),
            "threads": threads,
            "sharded": self.sharded,
            **({"start": str(store.local(self.start, "model"))} if self.start else {}),
            **({"teacher": str(store.local(teacher, "model"))} if teacher else {}),
            **({"entities": str(store.local(self.mentions))} if self.mentions else {}),
        }


def _run_name(parameters: dict[str, Any]) -> str:
    request: PretrainRequest = parameters["request"]
    config = request.config
    length = f"{config.steps:,} updates" if config.steps else f"{config.epochs:g} epochs"
    return f"pretrain {FAMILIES[request.model.family].network_title}, {length}"


@task(name="pretrain", task_run_name=_run_name, **JOB_OPTIONS)  # type: ignore[arg-type]  # a function does fit
def pretrain_model(request: PretrainRequest, beside: int = 1) -> Artifact:
    """Pre-train in a child process, unless the store has the model.

    The artifact has model/, snapshots/ and metrics.jsonl; the job's checkpoints stay out of it.

    :param beside: such trainings that go on at the same time, and share this machine's cores; 0: one.
    """
    store, shards, recipe, start = request.store, request.shards, request.recipe, request.start
    settings, digest = dict(recipe.config), request.encoded.tokenizer_digest
    teacher = request.distillation.teacher if request.distillation else None
    before = {}
    if start:
        there = WeightsCounts.of(store, start)
        before = {"tokens_seen_before": (there.tokens_seen or 0) + there.tokens_seen_before}
    nproc, threads = processes_and_threads(request.nproc, beside or 1)
    digests = {"store_digest": recipe.digest, "data_digest": shards.digest, "tokenizer_digest": digest}
    tags = run_tags(kind="pretrain", preset=request.preset, **digests)

    with Tracker().open(EXPERIMENT, f"pretrain {recipe.digest[:8]}", recipe.digest, tags, settings) as run:
        if not has_inputs(run):
            log_inputs(run, corpus_data(store, shards))

        def produce(workspace: Path) -> dict[str, Any]:
            if (workspace / "result.json").exists():  # of hosts that nobody followed
                threads_there = read_json(workspace / "JOB.json")["threads"]
                result = {**read_json(workspace / "result.json"), "threads": threads_there, **before}
            else:
                job = request.job(workspace, threads)
                result = {**follow_job(store, recipe, job, run, "pretrain", alone=True, nproc=nproc), **before}
            write_pretrained_card(workspace / "model", store, shards, settings, result, start, teacher)
            said = {"family": request.model.family, "preset": request.preset}
            return {**result, **said, "tokenizer_digest": digest}

        built = build(store, recipe, produce, "pretrain", _made, transient=CHECKPOINTS)
        if not run.finished:
            _report(store, built, run, request.ngrams)
        if not is_registered(run):
            register(run, pretrained_entry(store, built.artifact, shards))
    return built.artifact


class _Prepared(Exception):
    """A job's file is written; somebody else starts its processes."""


def pretrain_on_hosts(request: PretrainRequest, template: str) -> str:
    """The manifest of a Job of Kubernetes that does a pre-training, whose workspace and job file lie ready afterwards.

    Once its result lies there, too, :func:`pretrain_model` makes the artifact of it.

    :param template: see :func:`tasks.jobs.hosts.manifest`.
    :raises InputError: the store has the model, or as there.
    """
    store, recipe = request.store, request.recipe

    def prepare(threads: int) -> None:
        def produce(workspace: Path) -> dict[str, Any]:
            write_json_atomic(workspace / "JOB.json", request.job(workspace, threads))
            raise _Prepared

        with contextlib.suppress(_Prepared):
            built = store.build(recipe, produce, CHECKPOINTS)
            raise InputError(f"--manifest {template}: {built.artifact.url} is there; expected something to train")

    return hosts.manifest(template, STAGES["pretrain"].job, store.workspace(recipe), request.nproc, prepare)


def _made(counts: Mapping[str, Any]) -> str:
    result = PretrainCounts.parse(counts)
    return f"held-out perplexity {result.validation_perplexity:.2f} after {amount(result.tokens_seen)} tokens"


def _report(store: Store, built: Built, run: Run, ngrams: Artifact | None) -> None:
    result = PretrainCounts.parse(built.counts)
    entropy = result.validation_unigram_entropy
    # Hidden words are told from both sides: what n-grams predict of the next one is no measure of that.
    models = store.manifest(ngrams)["counts"] if ngrams and entropy is None else {}
    counted = {name: NgramCounts.parse(counts) for name, counts in models.items()}
    results = {
        "validation perplexity": result.validation_perplexity,
        **{f"{name} perplexity": model.perplexity for name, model in counted.items()},
        **({} if entropy is None else {"unigram perplexity": math.exp(entropy)}),
        "validation tokens": result.validation_tokens,
        "tokens seen": result.tokens_seen,
        **({"tokens seen before": before} if (before := result.tokens_seen_before) else {}),
        "updates": result.steps,
        "tokens/s": result.tokens_per_second,
        "cost": cost(result.wall_seconds, result.threads or 0, result.device, result.world_size),
        "peak memory (MB)": result.peak_memory_bytes / 1e6,
        "MFU": result.mfu,
        "device": f"{result.device}, {result.precision}, {result.world_size} process(es)",
    }
    references = {name: model.nats for name, model in counted.items()}
    references |= {} if entropy is None else {"unigram entropy": entropy}
    notes = synthetic_note(store.manifest(ancestor(store, built.artifact, "corpus"))) + start_note(built.manifest)
    perplexities = {f"validation/{name}_perplexity": model.perplexity for name, model in counted.items()}
    measured = {**built.counts, **perplexities}
    title = f"Pre-training {built.artifact.short}"
    report(store, built, run, "pretrain-card", title, results, measured, notes, references)
    run.set_tags({"checkpoint": built.artifact.url})
