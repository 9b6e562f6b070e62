"""Stage `corpus`: raw books to cleaned Arrow text, split into train and validation by document."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.base.files import sha256_json
from gptcore.base.settings import recorded
from gptcore.config import CorpusConfig
from gptcore.text.corpus import build_corpus, read_corpus
from gptcore.text.sources import RawCorpus, fingerprint, local_path
from tasks.jobs.parallel import partition_map
from tasks.report.card import amount, publish_table, shown
from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact
from tasks.store.counts import CorpusCounts
from tasks.store.state import FileDigests
from tasks.store.store import Built, Store
from tasks.tracking.logs import Meter, logger

_SMALL = 1_000_000
"""Bytes that are cleaned before other processes have started."""
_WARNED = 10  # documents left out


@task(name="corpus", task_run_name="corpus", **STAGE_OPTIONS)
def clean_corpus(store: Store, raw: RawCorpus, config: CorpusConfig, dask_address: str = "") -> Artifact:
    """Clean every document of a raw corpus (section 4.1: ftfy, standardised punctuation, spaCy tokenizer).

    The digest follows from the files' content, not from where they lie: changing one book changes it, moving the
    folder does not.

    :raises InputError: an unreadable source, or nothing left after filtering.
    """
    with FileDigests() as digests:
        sources = sha256_json(fingerprint(raw.sources, digests.sha256))
    recipe = recipe_of("corpus", recorded(config), {"sources": sources})

    def produce(out: Path) -> dict[str, Any]:
        small = sum(source.size for source in raw.sources) <= _SMALL
        with partition_map(dask_address, shared=out, reads=local_path(raw.sources[0]), small=small) as parallel:
            return build_corpus(raw, out, config, map=parallel, progress=Meter("corpus", "MB", 1_000_000))

    built = build(store, recipe, produce, "corpus", corpus_made)
    publish_report(built, raw.url)
    return built.artifact


def held_out_bytes(store: Store, corpus: Artifact) -> int:
    """UTF-8 bytes of the cleaned held-out documents: what their tokens spell."""
    documents = read_corpus(store.local(corpus), "validation")
    return sum(len(text.encode()) for _, rows in documents for text in rows)


def corpus_made(counts: Mapping[str, Any]) -> str:
    """A corpus in few words."""
    corpus = CorpusCounts.parse(counts)
    documents = corpus.documents
    kept = f"{documents.train:,} train + {documents.validation:,} held out"
    return f"{documents.read:,} documents -> {kept}, {amount(corpus.words)} words"


def publish_report(built: Built, corpus_url: str) -> None:
    """The corpus' counts as a table on the run's page; what was left out, and a held-out end, in the log, too."""
    counts = CorpusCounts.parse(built.manifest["counts"])
    if counts.divided:
        logger().warning(
            "no document fell into the validation split, so the end of one is held out: %s", counts.divided
        )
    for line in counts.left_out[:_WARNED]:
        logger().warning("left out: %s", line)
    if (more := len(counts.left_out) - _WARNED) > 0:
        logger().warning("left out: %d more documents, named in the corpus' report", more)
    table = [{"what": name, "count": shown(count)} for name, count in _flat(built.manifest["counts"])]
    table += [{"what": "left out", "count": line} for line in counts.left_out]
    publish_table(table, "corpus-report", f"Corpus {built.artifact.short} from {corpus_url}")


def _flat(report: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested counts as rows: ``documents / dropped / duplicate``."""
    rows: list[tuple[str, Any]] = []
    for name, value in report.items():
        label = f"{prefix}{name.replace('_', ' ')}"
        if isinstance(value, dict):
            rows += _flat(value, f"{label} / ")
        elif not isinstance(value, list):
            rows.append((label, value))
    return rows
