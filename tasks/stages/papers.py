"""Stages `papers` and `papers-ids`: the arXiv Archive as documents in order of date, and as token ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.abstracts.arxiv import archive_files, archive_fingerprint, read_archive
from gptcore.abstracts.documents import (
    SPLITS,
    distribution,
    encode_papers,
    read_papers,
    split_by_date,
    write_papers,
    write_texts,
)
from gptcore.abstracts.fields import field_of
from gptcore.base.files import sha256_json
from gptcore.base.synthetic import is_synthetic
from gptcore.text.tokenizer import Tokenizer
from tasks.report.card import amount, publish_table
from tasks.stages.stage import STAGE_OPTIONS, build
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store
from tasks.tracking.logs import Meter

VERSION = 2


@task(name="papers", task_run_name="papers", **STAGE_OPTIONS)
def collect_papers(store: Store, arxiv_url: str, categories: Sequence[str] = ()) -> Artifact:
    """Titles and abstracts, each paper once, by date and split 9 : 0.5 : 0.5: ``train.txt`` and its like, and rows.

    :param arxiv_url: a file of the arXiv Archive, or a folder of them.
    :param categories: see :func:`gptcore.abstracts.arxiv.read_archive`.
    :raises InputError: none there, one that is broken, or too few papers.
    """
    files = archive_files(arxiv_url)
    settings = {"categories": sorted(categories)}
    recipe = Recipe("papers", VERSION, settings, {"files": sha256_json(archive_fingerprint(files))})

    def produce(out: Path) -> dict[str, Any]:
        archive = read_archive(files, Meter("papers", "files").counting("read", len(files)), categories)
        splits = split_by_date(archive.papers)
        write_papers(splits, out)
        write_texts(splits, out)
        counts = {"papers": len(archive.papers), "read": archive.read, "repeated": archive.repeated}
        fields = Counter(field_of(paper) or "none" for paper in archive.papers)
        return {
            **counts,
            "empty": archive.empty,
            "of other categories": archive.other,
            "by category": dict(fields.most_common()),
            "files": len(files),
            "synthetic": is_synthetic(arxiv_url),
        }

    return build(store, recipe, produce, "papers", _collected).artifact


@task(name="papers-ids", task_run_name="ids of papers {papers.short}", **STAGE_OPTIONS)
def encode_abstracts(store: Store, papers: Artifact, tokenizer: Artifact) -> Artifact:
    """The documents as token ids; the counts' ``distribution`` is the paper's Table 1.

    :raises InputError: a tokenizer without an end of text.
    """
    recipe = Recipe("papers-ids", VERSION, {}, {"papers": papers, "tokenizer": tokenizer})

    def produce(out: Path) -> dict[str, Any]:
        words = Tokenizer.load(str(store.local(tokenizer)))
        splits = {name: read_papers(store.local(papers), name) for name in SPLITS}
        rows = distribution(splits, encode_papers(splits, words, out))
        synthetic = store.manifest(papers)["counts"]["synthetic"]
        return {
            "distribution": rows,
            "tokenizer_digest": words.digest,
            "n_vocab": words.n_vocab,
            "synthetic": synthetic,
        }

    built = build(store, recipe, produce, "papers-ids", _encoded)
    publish_table(built.manifest["counts"]["distribution"], "abstracts-table-1", "Table 1: train, validation, test")
    return built.artifact


def _collected(counts: Mapping[str, Any]) -> str:
    return f"{counts['read']:,} records of {counts['files']} files -> {counts['papers']:,} papers"


def _encoded(counts: Mapping[str, Any]) -> str:
    train, valid, test, _ = (row["bpe_tokens"] for row in counts["distribution"])
    return f"{amount(train)} tokens to train on, {amount(valid)} + {amount(test)} held out"
