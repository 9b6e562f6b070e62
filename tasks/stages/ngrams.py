"""Stages `ngrams` and `overlap`: what counting n-grams says of a text.

Counting alone predicts held-out documents so well, to stand beside the model's perplexity; and so much of every test
set stands in the training text, and in the task's own training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.data.shards import Shards
from gptcore.evaluation.ngram import ngram_perplexity
from gptcore.evaluation.overlap import N, build_set, find_in_corpus, find_in_texts, overlap, wanted_hashes
from gptcore.prompting.evaluation_sets import evaluation_texts, fingerprint
from gptcore.text.parts import part_files
from tasks.jobs.parallel import partition_map
from tasks.stages.corpus import local_shards
from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact
from tasks.store.counts import NgramCounts, OverlapCounts
from tasks.store.store import Built, Store
from tasks.tracking.logs import Meter

SMALL = 8_000_000
"""Tokens that are counted before other processes have started."""
ORDERS = {"bigram": 2, "trigram": 3}
"""Name of a model -> its order."""
_SMALL = 4  # parts of a corpus that are read before other processes have started


@task(name="ngrams", task_run_name="n-grams of shards {shards.short}", **STAGE_OPTIONS)
def measure_ngrams(store: Store, shards: Artifact, dask_address: str = "") -> Artifact:
    """Interpolated Kneser-Ney bigram and trigram, counted on the training documents, scored on the held-out ones.

    The manifest's counts hold, for each, ``perplexity``, ``nats`` (a token) and ``tokens`` (scored).
    """
    recipe = recipe_of("ngrams", {"orders": sorted(ORDERS.values())}, {"shards": shards})

    def produce(out: Path) -> dict[str, Any]:
        folder = local_shards(store, shards)
        train, validation = Shards(folder / "train"), Shards(folder / "validation")
        meter = Meter("n-grams", "M tokens", 1_000_000)
        with partition_map(dask_address, shared=out, small=train.n_tokens <= SMALL) as parallel:
            return {
                name: ngram_perplexity(train, validation, order, meter.counting(name, train.n_tokens), parallel)
                for name, order in ORDERS.items()
            }

    return build(store, recipe, produce, "n-grams", _perplexities).artifact


def _perplexities(counts: Mapping[str, Any]) -> str:
    return "held-out perplexity: " + ", ".join(
        f"{name} {NgramCounts.parse(counts[name]).perplexity:.1f}" for name in ORDERS
    )


@task(name="overlap", task_run_name="overlap with corpus {corpus.short}", **STAGE_OPTIONS)
def measure_overlap(store: Store, corpus: Artifact, datasets_url: str, dask_address: str = "") -> Built:
    """Count the 8-grams of every test set that stand in a corpus' training documents, and in the set's own train rows.

    The manifest's counts hold "sets", for each test set by name "corpus" and "train" with what
    :class:`gptcore.evaluation.overlap.Overlap` has; "train" is None where the task has no training rows.

    :raises InputError: missing or broken data.
    """
    recipe = recipe_of("overlap", {"n": N}, {"corpus": corpus, "files": fingerprint(datasets_url)})

    def produce(out: Path) -> dict[str, Any]:
        texts = evaluation_texts(datasets_url)
        sets = [build_set(each.name, each.rows()) for each in texts]
        wanted = wanted_hashes(sets)
        parts = part_files(store.local(corpus), "train")
        meter = Meter("overlap", "parts")
        with partition_map(dask_address, shared=out, small=len(parts) <= _SMALL) as parallel:
            found = find_in_corpus(wanted, parts, out, parallel, lambda done, of: meter("corpus", done, of))
        counts: dict[str, Any] = {}
        for each, test in zip(texts, sets, strict=True):
            own = None
            if each.train is not None:
                mine = wanted_hashes([test])
                train = ((text,) for row in each.train() for text in row)
                own = asdict(overlap(test, mine, find_in_texts(mine, train)))
            counts[each.name] = {"corpus": asdict(overlap(test, wanted, found)), "train": own}
        return {"sets": counts}

    return build(store, recipe, produce, "overlap", _overlapping)


def _overlapping(counts: Mapping[str, Any]) -> str:
    found = [each.corpus for each in OverlapCounts.parse(counts).sets.values()]
    share = sum(each.found for each in found) / max(1, sum(each.ngrams for each in found))
    return f"{100 * share:.2f} % of the {N}-grams of {len(found)} test sets"
