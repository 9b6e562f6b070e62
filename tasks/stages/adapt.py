"""Stage `adapt`: a pre-trained language model goes on with the documents of a domain, in a child process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.abstracts.config import AdaptConfig
from gptcore.abstracts.documents import N_MARKS, SPLITS
from gptcore.base.settings import recorded
from gptcore.families import recorded_family
from tasks.jobs.launch import run_job
from tasks.report.card import Card, amount, cost, synthetic_note
from tasks.report.figures import loss_curve
from tasks.stages.stage import CHECKPOINTS, JOB_OPTIONS, build, publish_card
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Built, Store
from tasks.tracking.observer import JobObserver
from tasks.tracking.provenance import cross_links, run_tags
from tasks.tracking.tracker import Run, Tracker, read_metrics, scratch_folder
from tasks.tracking.views import ABSTRACTS

VERSION = 2  # scores in float32


@task(name="adapt", task_run_name="adapt {checkpoint.short}", **JOB_OPTIONS)
def adapt_model(
    store: Store, ids: Artifact, checkpoint: Artifact, config: AdaptConfig, threads: int | None = None
) -> Artifact:
    """Fine-tune a language model on encoded papers (sections 3.2 and 4).

    :param checkpoint: a `pretrain` artifact; where ``config.pretrained`` is off, its shape alone is used.
    :param threads: of the job; None: all of the machine's.
    :raises InputError: another tokenizer than the papers', or fewer positions than a block has.
    """
    encoded = store.manifest(ids)["counts"]
    recipe = adapt_recipe(store, ids, checkpoint, config)
    settings = dict(recipe.config)
    tags = run_tags(
        kind="adapt",
        store_digest=recipe.digest,
        data_digest=ids.digest,
        tokenizer_digest=encoded["tokenizer_digest"],
        checkpoint_digest=checkpoint.digest,
    )
    name = "pre-trained" if config.pretrained else "from scratch"
    title = f"{recorded_family(settings['model']).titled(name)} {recipe.digest[:6]}"
    with Tracker().open(ABSTRACTS, title, recipe.digest, tags, settings) as run:

        def produce(workspace: Path) -> dict[str, Any]:
            job = {
                "adapt": settings["adapt"],
                "model": str(store.local(checkpoint, "model")),
                "n_special": N_MARKS,
                "shards": str(store.local(ids)),
                "tokenizer_digest": encoded["tokenizer_digest"],
                "workspace": str(workspace),
                "threads": threads,
            }
            observer = JobObserver("adapt", run, None, lambda: store.sync_partial(recipe, workspace), name)
            result = run_job("gptcore.training.adapt", job, workspace, on_metrics=observer, on_waiting=observer.waiting)
            return {**result, "threads": threads, "tokenizer_digest": encoded["tokenizer_digest"]}

        built = build(store, recipe, produce, "adapt", _made, name, transient=CHECKPOINTS)
        if not run.finished:
            _report(store, built, run, title, encoded)
    return built.artifact


def adapt_recipe(store: Store, ids: Artifact, checkpoint: Artifact, config: AdaptConfig) -> Recipe:
    """What a model of this stage is made from."""
    settings = {"adapt": recorded(config), "model": store.manifest(checkpoint)["config"]["model"]}
    return Recipe("adapt", VERSION, settings, {"ids": ids, "checkpoint": checkpoint})


def _made(counts: Mapping[str, Any]) -> str:
    return f"test perplexity {counts['test/perplexity']:.2f} after {amount(counts['tokens_seen'])} tokens"


def _report(store: Store, built: Built, run: Run, title: str, encoded: Mapping[str, Any]) -> None:
    """The final numbers, the curve and the card, on the MLflow run and on the Prefect run."""
    result = built.manifest["counts"]
    records = read_metrics(store.local(built.artifact, "metrics.jsonl"))
    results = {
        **{f"{split} {name}": result[f"{split}/{name}"] for name in ("perplexity", "loss") for split in SPLITS},
        "tokens seen": result["tokens_seen"],
        "updates": result["steps"],
        "tokens/s": result["tokens_per_second"],
        "cost": cost(result["wall_seconds"], result["threads"] or 0, result["device"], result["world_size"]),
        "peak memory (MB)": result["peak_memory_bytes"] / 1e6,
        "device": f"{result['device']}, {result['precision']}, {result['world_size']} process(es)",
    }
    with scratch_folder() as folder:
        figure = loss_curve(records, folder / "loss.png", {})
        notes = synthetic_note({"counts": encoded})
        links = cross_links(run, built.artifact)
        card = Card(title, results, built.manifest["config"], built.manifest, links, figure, notes)
        publish_card(card, "adapt-card")
        (folder / "card.md").write_text(card.markdown(), encoding="utf-8")
        run.log_metrics(records)
        run.log_results(result)
        for path in (folder / "card.md", figure):
            if path is not None:
                run.log_artifact(path)
