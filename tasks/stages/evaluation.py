"""Stages that score a finished model: `evaluation`, `held-out`, `zero-shot` and `blimp`.

A fine-tuned model is scored on one split of its task. A pre-trained model is scored on held-out text, also by an
objective that it was not trained for; one state of it answers by the heuristics of GPT-1's section 5, and prefers one
sentence of each minimal pair, as n-grams do, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import task

from gptcore.config import PretrainConfig
from gptcore.data.shards import Shards
from gptcore.evaluation.ngram import NgramModel, UnigramModel
from gptcore.families import recorded_family
from gptcore.nlu.blimp import BLIMP, PARADIGMS, blimp_fingerprint, read_paradigm
from gptcore.text.tokenizer import Tokenizer
from tasks.jobs.parallel import partition_map
from tasks.report.score import ZeroShot, harness_columns, zero_shot_of
from tasks.stages.corpus import ORDERS, SMALL, local_shards
from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact, Recipe
from tasks.store.counts import DatasetCounts
from tasks.store.lineage import load_tokenizer, model_folder
from tasks.store.store import Store
from tasks.tracking.logs import Meter

if TYPE_CHECKING:
    from gptcore.evaluation.likelihood import Likelihood

Scores = dict[str, Any]
"""What is counted of a model, in fractions: of heuristics for each task "score", "metric", "chance", "rows" and what
else it has; of minimal pairs what :func:`gptcore.evaluation.zero_shot.score_pairs` gives back."""


@task(name="evaluation", task_run_name="evaluate {model.short} on {split}", **STAGE_OPTIONS)
def score_model(
    store: Store, model: Artifact, dataset: Artifact, split: str, max_rows: int | None = None
) -> dict[str, Any]:
    """The numbers of :func:`gptcore.evaluation.predict.evaluate`, predictions beside them in the artifact.

    :param dataset: the encoded dataset of the model's task.
    :param max_rows: at most so many rows, the same for every model; None: all.
    """
    settings = {"split": split, "max_rows": max_rows}
    recipe = recipe_of("evaluation", settings, {"model": model, "dataset": dataset})

    def produce(out: Path) -> dict[str, Any]:
        from gptcore.evaluation.predict import evaluate  # torch, as in the others: not where the store has the scores

        folder = store.local(model, "model")
        path = out / "predictions.jsonl"
        rows = DatasetCounts.of(store, dataset).splits[split].rows
        done = Meter("evaluation", "rows").counting(split, min(rows, max_rows or rows))
        return evaluate(folder, store.local(dataset), split, max_rows=max_rows, predictions=path, progress=done)

    item = f"{model.short} on {split}"
    return build(store, recipe, produce, "evaluation", lambda made: f"{100 * made['score']:.1f}", item, "score").counts


@task(name="held-out", task_run_name="held-out {checkpoint.short}, pairs {pairs}", **STAGE_OPTIONS)
def score_pairs(store: Store, checkpoint: Artifact, shards: Artifact, pairs: str) -> dict[str, float]:
    """Scores of the hidden words and of the pairs of segments of held-out text, by the model's own heads.

    :param pairs: what the second segment is, one of :data:`gptcore.config.training.PAIRS`, whatever it was in training.
    """
    recipe = recipe_of("held-out", {"pairs": pairs}, {"checkpoint": checkpoint, "shards": shards})

    def produce(_: Path) -> dict[str, Any]:
        from gptcore.objectives.objective import score_held_out

        folder, config = store.local(checkpoint, "model"), PretrainConfig(pairs=pairs)
        return score_held_out(str(folder), local_shards(store, shards), config)

    return build(store, recipe, produce, "held-out", _told, f"{checkpoint.short}, pairs {pairs}", "score").counts


def _told(counts: Mapping[str, Any]) -> str:
    told = f"words {100 * counts['word_accuracy']:.1f}"
    return f"{told}, pairs {100 * counts['pair_accuracy']:.1f}" if "pair_accuracy" in counts else told


@task(name="zero-shot", task_run_name="zero-shot {checkpoint.short} step {step}", **STAGE_OPTIONS)
def score_zero_shot(
    store: Store,
    checkpoint: Artifact,
    datasets_url: str,
    tasks: Sequence[str],
    max_rows: int | None = None,
    step: int | None = None,
) -> Scores:
    """Score a pre-trained model without training it.

    :param tasks: of :data:`gptcore.evaluation.zero_shot.ZERO_SHOT_TASKS`.
    :param max_rows: at most so many rows a task; None: all.
    :param step: which of the models kept through pre-training (:func:`tasks.store.lineage.snapshots`); None: the
        final one.
    :raises InputError: for an unknown task, or missing or broken data.
    """
    from gptcore.evaluation.zero_shot import sources_fingerprint, zero_shot

    settings = {"tasks": sorted(tasks), "max_rows": max_rows, "step": step}
    files = sources_fingerprint(datasets_url, tasks)
    recipe = recipe_of("zero-shot", settings, {"checkpoint": checkpoint, "files": files})

    def produce(out: Path) -> dict[str, Any]:
        folder, meter = model_folder(store, checkpoint, step), Meter("zero-shot", "sequences")
        return {"tasks": zero_shot(folder, load_tokenizer(store, checkpoint), datasets_url, tasks, max_rows, meter)}

    made = build(store, recipe, produce, "zero-shot", _zero_shot, _state(checkpoint, step), "model")
    return dict(made.counts["tasks"])


def _state(checkpoint: Artifact, step: int | None) -> str:
    return f"{checkpoint.short}, {'final' if step is None else f'update {step}'}"


def _zero_shot(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {100 * scores['score']:.1f}" for name, scores in counts["tasks"].items())


@task(name="blimp", task_run_name="blimp {checkpoint.short} step {step}", **STAGE_OPTIONS)
def score_blimp(
    store: Store, checkpoint: Artifact, datasets_url: str, max_pairs: int | None = None, step: int | None = None
) -> Scores:
    """Score a pre-trained model on BLiMP, without training it.

    :param max_pairs: about so many pairs a field; None: all.
    :param step: which of the models kept through pre-training (:func:`tasks.store.lineage.snapshots`); None: the
        final one.
    :raises InputError: missing or broken data.
    """

    def produce(out: Path) -> dict[str, Any]:
        family = recorded_family(store.manifest(checkpoint)["config"]["model"])
        tokenizer = load_tokenizer(store, checkpoint)
        network = family.part("likelihood")(str(model_folder(store, checkpoint, step)), tokenizer.specials)
        return _on_pairs(network, tokenizer, datasets_url, max_pairs)

    recipe = _blimp(checkpoint, datasets_url, max_pairs, step)
    return build(store, recipe, produce, BLIMP, _by_field, _state(checkpoint, step), "model").counts


@task(name="blimp-ngrams", task_run_name="blimp n-grams of shards {shards.short}", **STAGE_OPTIONS)
def score_blimp_ngrams(
    store: Store, shards: Artifact, datasets_url: str, max_pairs: int | None = None, dask_address: str = ""
) -> dict[str, Scores]:
    """Score the models of stage `ngrams` on BLiMP, and a unigram model, to which order is nothing: name -> scores.

    That stage keeps no model, which is larger than the shards: the n-grams are counted again, in seconds.

    :raises InputError: missing or broken data.
    """
    files = blimp_fingerprint(datasets_url)

    def counted(name: str, order: int) -> Scores:
        def produce(out: Path) -> dict[str, Any]:
            train = Shards(local_shards(store, shards) / "train")
            done = Meter(BLIMP, "M tokens", 1_000_000).counting(name, train.n_tokens)
            with partition_map(dask_address, shared=out, small=train.n_tokens <= SMALL) as parallel:
                model = UnigramModel(train) if order == 1 else NgramModel(train, order, done, parallel)
            return _on_pairs(model, load_tokenizer(store, shards), datasets_url, max_pairs)

        settings = {"max_pairs": max_pairs, "order": order}
        recipe = recipe_of("blimp", settings, {"shards": shards, "files": files})
        return build(store, recipe, produce, BLIMP, _by_field, name, "model").counts

    return {name: counted(name, order) for name, order in {"unigram": 1, **ORDERS}.items()}


def kept_blimp(store: Store, checkpoint: Artifact, datasets_url: str, step: int | None = None) -> ZeroShot | None:
    """What the store holds of a pre-trained model's scores on these very files, all pairs; None where it holds nothing.

    :param step: as for :func:`score_blimp`.
    :raises InputError: one of the files is missing.
    """
    scored = store.find(_blimp(checkpoint, datasets_url, None, step))
    return None if scored is None else zero_shot_of(scored.digest, store.manifest(scored)["counts"])


def kept_harness(store: Store, checkpoint: Artifact) -> dict[str, float]:
    """The leaderboard's columns of what the store holds of lm-evaluation-harness on a checkpoint, x 100."""
    made = (record.manifest for record in store.newest("harness"))
    return harness_columns(each for each in made if each["inputs"]["checkpoint"]["digest"] == checkpoint.digest)


def check_blimp(store: Store, datasets_url: str) -> None:
    """Read every row, before a model is trained for hours; not again where these very files were scored before.

    :raises InputError: a file is missing, or a row is broken.
    """
    files = blimp_fingerprint(datasets_url)
    scored = (record for record in store.records("blimp") if record.manifest["inputs"]["files"]["digest"] == files)
    if any(map(store.whole, scored)):
        return
    for paradigm in PARADIGMS:
        for _ in read_paradigm(datasets_url, paradigm):
            pass


def _blimp(checkpoint: Artifact, datasets_url: str, max_pairs: int | None, step: int | None) -> Recipe:
    settings = {"max_pairs": max_pairs, "step": step}
    return recipe_of("blimp", settings, {"checkpoint": checkpoint, "files": blimp_fingerprint(datasets_url)})


def _on_pairs(model: Likelihood, tokenizer: Tokenizer, datasets_url: str, max_pairs: int | None) -> Scores:
    from gptcore.evaluation.zero_shot import score_pairs

    return score_pairs(model, tokenizer, datasets_url, max_pairs, Meter(BLIMP, "sentences"))


def _by_field(counts: Mapping[str, Any]) -> str:
    return f"{100 * counts['score']:.1f}, the mean of {len(counts['fields'])} fields"
