"""Stage `blimp`: which sentence of a minimal pair a language model prefers; networks, and n-grams beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import task

from gptcore.data.shards import Shards
from gptcore.evaluation.ngram import NgramModel, UnigramModel
from gptcore.families import recorded_family
from gptcore.nlu.blimp import BLIMP, PARADIGMS, blimp_fingerprint, read_paradigm
from gptcore.text.tokenizer import Tokenizer
from tasks.jobs.parallel import partition_map
from tasks.report.score import ZeroShot, zero_shot_of
from tasks.stages.ngrams import ORDERS, SMALL
from tasks.stages.shards import local_shards
from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact, Recipe
from tasks.store.lineage import model_folder, tokenizer_of
from tasks.store.store import Built, Store
from tasks.tracking.logs import Meter

if TYPE_CHECKING:
    from gptcore.evaluation.likelihood import Likelihood

Scores = dict[str, Any]
"""What :func:`gptcore.evaluation.blimp.score_pairs` gives back; accuracies as fractions."""


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
        tokenizer = Tokenizer.load(str(store.local(tokenizer_of(store, checkpoint))))
        likelihood = family.part("likelihood")  # brings torch along: not where the store has the scores
        network = likelihood(str(model_folder(store, checkpoint, step)), tokenizer.specials)
        return _scored(network, store, checkpoint, datasets_url, max_pairs)

    item = f"{checkpoint.short}, {'final' if step is None else f'update {step}'}"
    return _scores(
        build(store, _recipe(checkpoint, datasets_url, max_pairs, step), produce, BLIMP, _made, item, "model")
    )


@task(name="blimp-ngrams", task_run_name="blimp n-grams of shards {shards.short}", **STAGE_OPTIONS)
def score_blimp_ngrams(
    store: Store, shards: Artifact, datasets_url: str, max_pairs: int | None = None, dask_address: str = ""
) -> dict[str, Scores]:
    """Score the models of stage `ngrams` on BLiMP, and a unigram model, to which order is nothing: name -> scores.

    That stage keeps no model, which is larger than the shards: the n-grams are counted again, in seconds.

    :raises InputError: missing or broken data.
    """
    files = blimp_fingerprint(datasets_url)

    def counted(name: str, order: int) -> Built:
        def produce(out: Path) -> dict[str, Any]:
            train = Shards(local_shards(store, shards) / "train")
            done = Meter(BLIMP, "M tokens", 1_000_000).counting(name, train.n_tokens)
            with partition_map(dask_address, shared=out, small=train.n_tokens <= SMALL) as parallel:
                model = UnigramModel(train) if order == 1 else NgramModel(train, order, done, parallel)
            return _scored(model, store, shards, datasets_url, max_pairs)

        settings = {"max_pairs": max_pairs, "order": order}
        recipe = recipe_of("blimp", settings, {"shards": shards, "files": files})
        return build(store, recipe, produce, BLIMP, _made, name, "model")

    return {name: _scores(counted(name, order)) for name, order in {"unigram": 1, **ORDERS}.items()}


def kept_blimp(store: Store, checkpoint: Artifact, datasets_url: str, step: int | None = None) -> ZeroShot | None:
    """What the store holds of a pre-trained model's scores on these very files, all pairs; None where it holds nothing.

    :param step: as for :func:`score_blimp`.
    :raises InputError: one of the files is missing.
    """
    found = store.find(_recipe(checkpoint, datasets_url, None, step))
    return None if found is None else zero_shot_of(found.digest, store.manifest(found)["counts"])


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


def _recipe(checkpoint: Artifact, datasets_url: str, max_pairs: int | None, step: int | None) -> Recipe:
    settings = {"max_pairs": max_pairs, "step": step}
    return recipe_of("blimp", settings, {"checkpoint": checkpoint, "files": blimp_fingerprint(datasets_url)})


def _scored(
    model: Likelihood, store: Store, artifact: Artifact, datasets_url: str, max_pairs: int | None
) -> dict[str, Any]:
    """:param artifact: what the model was made from or is; its tokenizer is the model's."""
    from gptcore.evaluation.blimp import score_pairs

    tokenizer = Tokenizer.load(str(store.local(tokenizer_of(store, artifact))))
    return score_pairs(model, tokenizer, datasets_url, max_pairs, Meter(BLIMP, "sentences"))


def _scores(built: Built) -> Scores:
    return dict(built.manifest["counts"])


def _made(counts: Mapping[str, Any]) -> str:
    return f"{100 * counts['score']:.1f}, the mean of {len(counts['fields'])} fields"
