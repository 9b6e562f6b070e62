"""Stage `overlap`: how much of every test set stands in the training text, and in the task's own training rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.evaluation.overlap import N, Overlap, build_set, find_in_corpus, find_in_texts, overlap, wanted_hashes
from gptcore.papers.prompting import tasks as prompt_tasks
from gptcore.text.parts import part_files
from tasks.jobs.parallel import partition_map
from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact
from tasks.store.counts import Counts
from tasks.store.store import Built, Store
from tasks.tracking.logs import Meter

_SMALL_TO_SEARCH = 4  # parts of a corpus that are read before other processes have started


class SetOverlap(Counts):
    """How much of a test set stands in the training text, and in the task's own training rows (None: it has none)."""

    corpus: Overlap
    train: Overlap | None


class OverlapCounts(Counts):
    """Stage `overlap`."""

    sets: Mapping[str, SetOverlap]


@task(name="overlap", task_run_name="overlap with corpus {corpus.short}", **STAGE_OPTIONS)
def measure_overlap(store: Store, corpus: Artifact, datasets_url: str, dask_address: str = "") -> Built:
    """Count the 8-grams of every test set that stand in a corpus' training documents, and in the set's own train rows.

    The manifest's counts hold "sets", for each test set by name "corpus" and "train" with what
    :class:`gptcore.evaluation.overlap.Overlap` has; "train" is None where the task has no training rows.

    :raises InputError: missing or broken data.
    """
    recipe = recipe_of("overlap", {"n": N}, {"corpus": corpus, "files": prompt_tasks.fingerprint(datasets_url)})

    def produce(out: Path) -> dict[str, Any]:
        texts = prompt_tasks.evaluation_texts(datasets_url)
        sets = [build_set(each.name, each.rows()) for each in texts]
        wanted = wanted_hashes(sets)
        parts = part_files(store.local(corpus), "train")
        meter = Meter("overlap", "parts")
        with partition_map(dask_address, shared=out, small=len(parts) <= _SMALL_TO_SEARCH) as parallel:
            in_corpus = find_in_corpus(wanted, parts, out, parallel, lambda done, of: meter("corpus", done, of))
        counts: dict[str, Any] = {}
        for each, test in zip(texts, sets, strict=True):
            own = None
            if each.train is not None:
                mine = wanted_hashes([test])
                train = ((text,) for row in each.train() for text in row)
                own = asdict(overlap(test, mine, find_in_texts(mine, train)))
            counts[each.name] = {"corpus": asdict(overlap(test, wanted, in_corpus)), "train": own}
        return {"sets": counts}

    return build(store, recipe, produce, "overlap", _overlapping)


def _overlapping(counts: Mapping[str, Any]) -> str:
    overlaps = [each.corpus for each in OverlapCounts.parse(counts).sets.values()]
    share = sum(each.found for each in overlaps) / max(1, sum(each.ngrams for each in overlaps))
    return f"{100 * share:.2f} % of the {N}-grams of {len(overlaps)} test sets"
