"""Stage `adapt`: a pre-trained language model goes on with the documents of a domain, in a child process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from prefect import Task, task

from gptcore.abstracts.config import AdaptConfig
from gptcore.abstracts.documents import N_MARKS, SPLITS
from gptcore.base.settings import recorded
from gptcore.config.operations import network_flops
from gptcore.families import recorded_family
from tasks.jobs.placement import slots, slots_and_threads
from tasks.report.card import amount, cost, synthetic_note
from tasks.stages.stage import CHECKPOINTS, JOB_OPTIONS, build
from tasks.stages.training import Training, Work, follow_job, network_of, report
from tasks.store.artifact import Artifact, Recipe
from tasks.store.counts import AdaptCounts, PaperIdsCounts
from tasks.store.store import Built
from tasks.tracking.observer import JobObserver
from tasks.tracking.provenance import run_tags
from tasks.tracking.tracker import Run, Tracker
from tasks.tracking.views import ABSTRACTS

VERSION = 2  # scores in float32


@dataclass(frozen=True)
class AdaptRequest(Training[Artifact]):
    """The fine-tuning of a language model on encoded papers (sections 3.2 and 4)."""

    stage = "adapt"

    ids: Artifact
    """Of the papers."""
    checkpoint: Artifact
    """A `pretrain` artifact; where ``config.pretrained`` is off, its shape alone is used."""
    config: AdaptConfig

    @property
    def task(self) -> Task[..., Artifact]:
        return adapt_model

    @property
    def title(self) -> str:
        return f"adapt {self.recipe.digest[:8]}"

    @property
    def encoded(self) -> PaperIdsCounts:
        """What is known of the papers' ids."""
        return PaperIdsCounts.of(self.store, self.ids)

    @cached_property
    def recipe(self) -> Recipe:
        settings = {"adapt": recorded(self.config), "model": self.store.manifest(self.checkpoint)["config"]["model"]}
        return Recipe("adapt", VERSION, settings, {"ids": self.ids, "checkpoint": self.checkpoint})

    @property
    def work(self) -> Work:
        config, model = self.config, network_of(self.store, self.checkpoint)
        n_tokens = config.epochs * self.encoded.tokens["train"]
        updates = n_tokens / (config.block_size * config.batch_size * config.accumulation)
        return Work(network_flops(model, model.n_ctx, 1.0) * n_tokens, updates)

    def job(self, workspace: Path, threads: int) -> dict[str, Any]:
        """What the training's process is told."""
        return {
            "adapt": self.recipe.config["adapt"],
            "model": str(self.store.local(self.checkpoint, "model")),
            "n_special": N_MARKS,
            "shards": str(self.store.local(self.ids)),
            "tokenizer_digest": self.encoded.tokenizer_digest,
            "workspace": str(workspace),
            "threads": threads,
        }


@task(name="adapt", task_run_name="adapt {request.checkpoint.short}", **JOB_OPTIONS)
def adapt_model(request: AdaptRequest, beside: int = 0) -> Artifact:
    """Fine-tune in a child process, unless the store has the model.

    :param beside: trainings that go on at the same time, and share this machine's cores; 0: as many as a worker takes.
    :raises InputError: another tokenizer than the papers', or fewer positions than a block has.
    """
    store, recipe, encoded = request.store, request.recipe, request.encoded
    settings = dict(recipe.config)
    _, threads = slots_and_threads(beside or slots())
    tags = run_tags(
        kind="adapt",
        store_digest=recipe.digest,
        data_digest=request.ids.digest,
        tokenizer_digest=encoded.tokenizer_digest,
        checkpoint_digest=request.checkpoint.digest,
    )
    name = "pre-trained" if request.config.pretrained else "from scratch"
    title = f"{recorded_family(settings['model']).titled(name)} {recipe.digest[:6]}"
    with Tracker().open(ABSTRACTS, title, recipe.digest, tags, settings) as run:

        def produce(workspace: Path) -> dict[str, Any]:
            observer = JobObserver("adapt", run, None, lambda: store.sync_partial(recipe, workspace), name)
            result = follow_job(request, observer, workspace, threads)
            return {**result, "tokenizer_digest": encoded.tokenizer_digest}

        built = build(store, recipe, produce, "adapt", _made, name, transient=CHECKPOINTS)
        if not run.finished:
            _report(built, run, title, request)
    return built.artifact


def _made(counts: Mapping[str, Any]) -> str:
    found = AdaptCounts.parse(counts)
    return f"test perplexity {found.figures['test/perplexity']:.2f} after {amount(found.tokens_seen)} tokens"


def _report(built: Built, run: Run, title: str, request: AdaptRequest) -> None:
    """The final numbers, the curve and the card, on the MLflow run and on the Prefect run."""
    measured = built.manifest["counts"]
    result = AdaptCounts.parse(measured)
    results = {
        **{f"{split} {name}": result.figures[f"{split}/{name}"] for name in ("perplexity", "loss") for split in SPLITS},
        "tokens seen": result.tokens_seen,
        "updates": result.steps,
        "tokens/s": result.tokens_per_second,
        "cost": cost(result.wall_seconds, result.threads or 0, result.device, result.world_size),
        "peak memory (MB)": result.peak_memory_bytes / 1e6,
        "device": f"{result.device}, {result.precision}, {result.world_size} process(es)",
    }
    notes = synthetic_note(request.store.manifest(request.ids))
    report(request.store, built, run, "adapt-card", title, results, measured, notes)
