"""Stages `papers`, `papers-ids` and `written`: papers of the arXiv Archive, and abstracts that a model writes.

The papers are documents in order of date, as text and as token ids. A fine-tuned language model writes abstracts under
titles, which are measured.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.abstracts.arxiv import archive_files, archive_fingerprint, field_of, read_archive
from gptcore.abstracts.config import SamplingConfig
from gptcore.abstracts.documents import (
    SPLITS,
    distribution,
    encode_papers,
    read_papers,
    split_by_date,
    write_papers,
    write_texts,
)
from gptcore.abstracts.measures import FieldClassifier, Written, measures
from gptcore.abstracts.published import TITLES
from gptcore.base.files import sha256_json, write_bytes_atomic
from gptcore.base.filesystems import is_synthetic
from gptcore.base.settings import recorded
from gptcore.text.tokenizer import Tokenizer
from tasks.report.card import amount, publish_table
from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact
from tasks.store.counts import PaperIdsCounts, PapersCounts, WrittenCounts
from tasks.store.lineage import ancestor
from tasks.store.store import Store
from tasks.tracking.logs import Meter

FILE = "written.jsonl"
"""One line a title: "title", "generated", "ended", and "real" where the paper is one of the held-out ones."""
_FUTURE = 300  # titles whose words are asked for


@task(name="papers", task_run_name="papers", **STAGE_OPTIONS)
def collect_papers(store: Store, arxiv_url: str, categories: Sequence[str] = ()) -> Artifact:
    """Titles and abstracts, each paper once, by date and split 9 : 0.5 : 0.5: ``train.txt`` and its like, and rows.

    :param arxiv_url: a file of the arXiv Archive, or a folder of them.
    :param categories: see :func:`gptcore.abstracts.arxiv.read_archive`.
    :raises InputError: none there, one that is broken, or too few papers.
    """
    files = archive_files(arxiv_url)
    settings = {"categories": sorted(categories)}
    recipe = recipe_of("papers", settings, {"files": sha256_json(archive_fingerprint(files))})

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
    recipe = recipe_of("papers-ids", {}, {"papers": papers, "tokenizer": tokenizer})

    def produce(out: Path) -> dict[str, Any]:
        words = Tokenizer.load(str(store.local(tokenizer)))
        splits = {name: read_papers(store.local(papers), name) for name in SPLITS}
        rows = distribution(splits, encode_papers(splits, words, out))
        synthetic = PapersCounts.of(store, papers).synthetic
        return {
            "distribution": rows,
            "tokenizer_digest": words.digest,
            "n_vocab": words.n_vocab,
            "synthetic": synthetic,
        }

    built = build(store, recipe, produce, "papers-ids", _encoded)
    publish_table(
        PaperIdsCounts.parse(built.manifest["counts"]).distribution,
        "abstracts-table-1",
        "Table 1: train, validation, test",
    )
    return built.artifact


def _collected(counts: Mapping[str, Any]) -> str:
    found = PapersCounts.parse(counts)
    return f"{found.read:,} records of {found.files} files -> {found.papers:,} papers"


def _encoded(counts: Mapping[str, Any]) -> str:
    tokens = {split: amount(count) for split, count in PaperIdsCounts.parse(counts).tokens.items()}
    return f"{tokens['train']} tokens to train on, {tokens['valid']} + {tokens['test']} held out"


@task(name="written", task_run_name="abstracts by {model.short}", **STAGE_OPTIONS)
def write_and_measure(store: Store, model: Artifact, papers: Artifact, config: SamplingConfig, titles: int) -> Artifact:
    """Write abstracts under titles and count: those of ``titles`` held-out papers, those of the paper's appendix.

    (The latter where the archive is real.) The held-out ones are spread evenly over the test split. Counts:
    ``generated`` and ``real``, each the measures of :mod:`gptcore.abstracts.measures`, and ``future``, those of
    :func:`gptcore.abstracts.write.future_words`.

    :param model: an `adapt` artifact.
    """
    settings = {**recorded(config), "titles": titles}
    recipe = recipe_of("written", settings, {"model": model, "papers": papers})

    def produce(out: Path) -> dict[str, Any]:
        from gptcore.abstracts.write import (  # torch: not where the store has it all
            future_words,
            title_words,
            words_of,
            write_abstracts,
        )
        from gptcore.machine.device import pick_device
        from gptcore.models.build import load_language_model

        folder = store.local(papers)
        train, test = (read_papers(folder, split) for split in ("train", "test"))
        chosen = [test[n * len(test) // min(titles, len(test))] for n in range(min(titles, len(test)))]
        words = Tokenizer.load(str(store.local(ancestor(store, model, "tokenizer"))))
        network = load_language_model(str(store.local(model, "model"))).to(pick_device(0)).eval()
        appendix = () if PapersCounts.of(store, papers).synthetic else TITLES
        done = Meter("written", "abstracts").counting("write", len(appendix) + len(chosen))
        wanted = [*appendix, *(paper.title for paper in chosen)]
        written = write_abstracts(network, words, wanted, config, done)
        real = [None] * len(appendix) + [paper.abstract for paper in chosen]
        lines = [
            {"title": item.title, "generated": item.abstract, "ended": item.ended, "real": abstract}
            for item, abstract in zip(written, real, strict=True)
        ]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        write_bytes_atomic(out / FILE, text.encode())
        abstracts = [paper.abstract for paper in train]
        seen = {word for paper in train for text in (paper.title, paper.abstract) for word in words_of(text)}
        later = test[:: max(1, len(test) // _FUTURE)]
        generated = written[len(appendix) :]
        titles_of, classifier = [paper.title for paper in chosen], FieldClassifier(train)

        def counted(items: Sequence[Written]) -> dict[str, float]:
            texts = [item.abstract for item in items]
            of_titles = {
                "title_words": title_words(seen, titles_of, texts),
                "field": classifier.share_right(chosen, texts),
            }
            return measures(items, abstracts) | {name: value for name, value in of_titles.items() if value is not None}

        chance = classifier.by_chance(chosen)
        return {
            "generated": counted(generated),
            "real": counted([Written(paper.title, paper.abstract) for paper in chosen]),
            **({} if chance is None else {"field_by_chance": chance}),
            "future": future_words(network, words, seen, later),
            "titles": len(lines),
        }

    return build(store, recipe, produce, "written", _written, model.short, "model").artifact


def read_written(store: Store, written: Artifact) -> list[dict[str, Any]]:
    """The lines of :data:`FILE`."""
    return [json.loads(line) for line in store.read(written, FILE).decode().strip("\n").split("\n")]


def _written(counts: Mapping[str, Any]) -> str:
    found = WrittenCounts.parse(counts)
    return f"{found.titles} abstracts, {100 * found.generated['ended']:.0f} % ended by themselves"
