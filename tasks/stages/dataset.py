"""Stages `dataset`, `baseline` and `ngram-floor`: one task's rows, and what numbers on them must beat.

The rows are validated and encoded once, before any training starts. The baselines are those of the task's form, which
need no model; where fine-tunes count words and n-grams beside the network, these alone are one more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.base.filesystems import is_synthetic
from gptcore.config import FinetuneConfig
from gptcore.families import FAMILIES
from gptcore.nlu.encoded import dataset_fingerprint, encode_task
from gptcore.nlu.floors import Floored
from gptcore.nlu.forms import form_of
from gptcore.nlu.readers import iterate, labelled_splits
from gptcore.nlu.registry import TaskSpec, task_settings
from gptcore.text.tokenizer import Tokenizer
from tasks.report.score import Score, commit_of, dataset_origin, score_of
from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.stages.training import network_of
from tasks.store.artifact import Artifact
from tasks.store.counts import DatasetCounts
from tasks.store.lineage import own_tokenizer
from tasks.store.store import Store
from tasks.tracking.logs import logger


@task(name="dataset", task_run_name="dataset {spec.name}", **STAGE_OPTIONS)
def encode_dataset(store: Store, datasets_url: str, spec: TaskSpec, tokenizer: Artifact) -> Artifact:
    """Read, check and encode every split of a task.

    :raises InputError: names file, line, column, what was found and what was expected.
    """
    inputs: dict[str, Artifact | str] = {"files": dataset_fingerprint(spec, datasets_url), "tokenizer": tokenizer}
    recipe = recipe_of("dataset", task_settings(spec), inputs)

    def produce(out: Path) -> dict[str, Any]:
        report = encode_task(spec, datasets_url, Tokenizer.load(str(store.local(tokenizer))), out)
        dropped = ((split, *each) for split, its in report["splits"].items() for each in its["dropped"].items())
        left_out = [f"{count:,} rows of {split} are left out, with {reason}" for split, reason, count in dropped]
        for note in (spec.note, *left_out, *report["findings"]) if spec.own else ():
            if note:
                logger().warning("%s: %s", spec.name, note)
        return report

    return build(store, recipe, produce, "datasets", _made, spec.name).artifact


def _made(counts: Mapping[str, Any]) -> dict[str, int]:
    return {"rows": sum(split.rows for split in DatasetCounts.parse(counts).splits.values())}


@task(name="baseline", task_run_name="baselines {spec.name}", **STAGE_OPTIONS)
def score_baselines(store: Store, datasets_url: str, spec: TaskSpec) -> dict[str, Score]:
    """The baselines of one task, by their names, fitted on train and scored on dev and test."""
    recipe = recipe_of("baseline", task_settings(spec), {"files": dataset_fingerprint(spec, datasets_url)})

    def produce(out: Path) -> dict[str, Any]:
        splits = labelled_splits(spec, datasets_url)
        rows = {split: list(iterate(spec, datasets_url, split)) for split in splits}
        scores: dict[str, dict[str, float]] = {}
        for baseline, fit_and_score in form_of(spec).fitted_floors().items():
            scored = scores.setdefault(baseline, {})
            for split in (split for split in splits if split != "train"):
                found = fit_and_score(spec, rows["train"], rows[split])
                scored |= {f"{split}/{metric}": value for metric, value in found.items()}
                if isinstance(found, Floored):
                    found.write(out / baseline / f"{split}.jsonl")
        return scores

    built = build(store, recipe, produce, "baselines", ", ".join, spec.name)
    manifest, commit = built.manifest, commit_of(built.manifest)
    origin = {"data": manifest["inputs"]["files"]["digest"], "code": manifest["version"]}
    synthetic = is_synthetic(spec.root(datasets_url))
    return {
        baseline: score_of(spec, 0, results, (), origin, commit, synthetic, f"{built.artifact.url}/{baseline}")
        for baseline, results in manifest["counts"].items()
    }


@task(name="ngram-floor", task_run_name="words and n-grams {spec.name}", **STAGE_OPTIONS)
def score_ngram_floor(
    store: Store, dataset: Artifact, spec: TaskSpec, checkpoint: Artifact, config: FinetuneConfig
) -> Score:
    """What words and n-grams tell of a task without the network that they are counted beside.

    :param dataset: the task's encoded rows.
    :param checkpoint: of the network, which is asked for no more than how it reads rows.
    :param config: of its fine-tune, see :func:`gptcore.training.ngram_floor.score_ngrams`.
    """
    network = network_of(store, checkpoint)
    settings = {**task_settings(spec), "reads": {"family": network.family, "n_ctx": network.n_ctx}}
    asked = {name: getattr(config, name) for name in ("ngrams", "select", "max_train_rows", "max_eval_rows", "seed")}
    recipe = recipe_of("ngram-floor", {**settings, "finetune": asked}, {"dataset": dataset})

    def produce(out: Path) -> dict[str, Any]:
        from gptcore.training.ngram_floor import score_ngrams  # torch: not where the store has the scores

        edges = Tokenizer.load(str(store.local(own_tokenizer(store, checkpoint)))).word_edges
        reader = FAMILIES[network.family].part("inputs")(spec, network.n_ctx, network.n_vocab)
        return score_ngrams(store.local(dataset), reader, edges, config, out, lambda: False)

    built = build(store, recipe, produce, "baselines", lambda made: f"{100 * made['dev/score']:.1f}", spec.name)
    rows = store.manifest(dataset)
    origin = {**dataset_origin(rows), "code": built.manifest["version"]}
    synthetic = DatasetCounts.parse(rows["counts"]).synthetic
    return score_of(spec, 0, built.counts, (), origin, commit_of(built.manifest), synthetic, built.artifact.url)
