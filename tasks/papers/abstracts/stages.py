"""Stages `papers`, `papers-ids`, `adapt` and `written`: papers of the arXiv Archive, and abstracts that a model writes.

The papers are documents in order of date, as text and as token ids. A pre-trained language model goes on with them, in
a child process, and writes abstracts under titles, which are measured.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from prefect import Task, task

from gptcore.base.files import sha256_json, write_bytes_atomic
from gptcore.base.filesystems import is_synthetic
from gptcore.base.settings import recorded
from gptcore.families import recorded_family
from gptcore.papers.abstracts import documents
from gptcore.papers.abstracts.config import TITLES, AdaptConfig, SamplingConfig
from gptcore.papers.abstracts.measures import FieldClassifier, Written, measures
from gptcore.text.tokenizer import Tokenizer
from tasks.jobs.placement import slots, slots_and_threads
from tasks.papers.abstracts.counts import AdaptCounts, PaperIdsCounts, PapersCounts, WrittenCounts
from tasks.report.card import amount, cost, publish_table, synthetic_note
from tasks.stages.stage import CHECKPOINTS, JOB_OPTIONS, STAGE_OPTIONS, build, recipe_of
from tasks.stages.training import Training, Work, follow_job, network_of, report
from tasks.store.artifact import Artifact, Recipe
from tasks.store.lineage import load_tokenizer
from tasks.store.store import Built, Store
from tasks.tracking.logs import Meter
from tasks.tracking.provenance import run_tags
from tasks.tracking.tracker import Run, Tracker
from tasks.tracking.views import ABSTRACTS

FILE = "written.jsonl"
"""One line a title: "title", "generated", "ended", and "real" where the paper is one of the held-out ones."""
_FUTURE = 300  # titles whose words are asked for


@task(name="papers", task_run_name="papers", **STAGE_OPTIONS)
def collect_papers(store: Store, arxiv_url: str, categories: Sequence[str] = ()) -> Artifact:
    """Titles and abstracts, each paper once, by date and split 9 : 0.5 : 0.5: ``train.txt`` and its like, and rows.

    :param arxiv_url: a file of the arXiv Archive, or a folder of them.
    :param categories: see :func:`gptcore.papers.abstracts.documents.read_archive`.
    :raises InputError: none there, one that is broken, or too few papers.
    """
    files = documents.archive_files(arxiv_url)
    settings = {"categories": sorted(categories)}
    recipe = recipe_of("papers", settings, {"files": sha256_json(documents.archive_fingerprint(files))})

    def produce(out: Path) -> dict[str, Any]:
        archive = documents.read_archive(files, Meter("papers", "files").counting("read", len(files)), categories)
        splits = documents.split_by_date(archive.papers)
        documents.write_papers(splits, out)
        documents.write_texts(splits, out)
        counts = {"papers": len(archive.papers), "read": archive.read, "repeated": archive.repeated}
        fields = Counter(documents.field_of(paper) or "none" for paper in archive.papers)
        return {
            **counts,
            "empty": archive.empty,
            "of other categories": archive.other,
            "by category": dict(fields.most_common()),
            "files": len(files),
            "synthetic": is_synthetic(arxiv_url),
        }

    made = "{read:,} records of {files} files -> {papers:,} papers"
    return build(store, recipe, produce, "papers", made.format_map).artifact


@task(name="papers-ids", task_run_name="ids of papers {papers.short}", **STAGE_OPTIONS)
def encode_abstracts(store: Store, papers: Artifact, tokenizer: Artifact) -> Artifact:
    """The documents as token ids; the counts' ``distribution`` is the paper's Table 1.

    :raises InputError: a tokenizer without an end of text.
    """
    recipe = recipe_of("papers-ids", {}, {"papers": papers, "tokenizer": tokenizer})

    def produce(out: Path) -> dict[str, Any]:
        words = Tokenizer.load(str(store.local(tokenizer)))
        splits = {name: documents.read_papers(store.local(papers), name) for name in documents.SPLITS}
        rows = documents.distribution(splits, documents.encode_papers(splits, words, out))
        known = {"tokenizer_digest": words.digest, "n_vocab": words.n_vocab}
        return {**known, "distribution": rows, "synthetic": PapersCounts.of(store, papers).synthetic}

    built = build(store, recipe, produce, "papers-ids", _encoded)
    rows = PaperIdsCounts.parse(built.counts).distribution
    publish_table(rows, "abstracts-table-1", "Table 1: train, validation, test")
    return built.artifact


def _encoded(counts: Mapping[str, Any]) -> str:
    tokens = {split: amount(count) for split, count in PaperIdsCounts.parse(counts).tokens.items()}
    return f"{tokens['train']} tokens to train on, {tokens['valid']} + {tokens['test']} held out"


@task(name="written", task_run_name="abstracts by {model.short}", **STAGE_OPTIONS)
def write_and_measure(store: Store, model: Artifact, papers: Artifact, config: SamplingConfig, titles: int) -> Artifact:
    """Write abstracts under titles and count: those of ``titles`` held-out papers, those of the paper's appendix.

    (The latter where the archive is real.) The held-out ones are spread evenly over the test split. Counts:
    ``generated`` and ``real``, each the measures of :mod:`gptcore.papers.abstracts.measures`, and ``future``, those of
    :func:`gptcore.papers.abstracts.write.future_words`.

    :param model: an `adapt` artifact.
    """
    settings = {**recorded(config), "titles": titles}
    recipe = recipe_of("written", settings, {"model": model, "papers": papers})

    def produce(out: Path) -> dict[str, Any]:
        from gptcore.machine.device import pick_device  # torch: not where the store has it all
        from gptcore.models.network import load_language_model
        from gptcore.papers.abstracts.write import future_words, title_words, words_of, write_abstracts

        folder = store.local(papers)
        train, test = (documents.read_papers(folder, split) for split in ("train", "test"))
        chosen = [test[n * len(test) // min(titles, len(test))] for n in range(min(titles, len(test)))]
        words = load_tokenizer(store, model)
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
    counted = WrittenCounts.parse(counts)
    return f"{counted.titles} abstracts, {100 * counted.generated['ended']:.0f} % ended by themselves"


@dataclass(frozen=True)
class AdaptRequest(Training[Artifact]):
    """The fine-tuning of a language model on encoded papers (sections 3.2 and 4)."""

    stage = shown_as = "adapt"

    ids: Artifact
    """The papers as token ids, stage `papers-ids`."""
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
    def item(self) -> str:
        return "pre-trained" if self.config.pretrained else "from scratch"

    @property
    def encoded(self) -> PaperIdsCounts:
        """What is known of the papers' ids."""
        return PaperIdsCounts.of(self.store, self.ids)

    @cached_property
    def recipe(self) -> Recipe:
        settings = {"adapt": recorded(self.config), "model": self.store.manifest(self.checkpoint)["config"]["model"]}
        return recipe_of("adapt", settings, {"ids": self.ids, "checkpoint": self.checkpoint})

    @property
    def work(self) -> Work:
        config, model = self.config, network_of(self.store, self.checkpoint)
        n_tokens = config.epochs * self.encoded.tokens["train"]
        updates = n_tokens / (config.block_size * config.batch_size * config.accumulation)
        return Work(model.flops_per_token(model.n_ctx, 1.0) * n_tokens, updates)

    def job(self, workspace: Path, threads: int) -> dict[str, Any]:
        return {
            "adapt": self.recipe.config["adapt"],
            "model": str(self.store.local(self.checkpoint, "model")),
            "n_special": documents.N_MARKS,
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
    title = f"{recorded_family(settings['model']).titled(request.item)} {recipe.digest[:6]}"
    with Tracker().open(ABSTRACTS, title, recipe.digest, tags, settings) as run:

        def produce(workspace: Path) -> dict[str, Any]:
            job = request.job(workspace, threads)
            result = follow_job(store, recipe, job, run, request.shown_as, request.item, alone=not beside)
            return {**result, "tokenizer_digest": encoded.tokenizer_digest}

        built = build(store, recipe, produce, request.shown_as, _made, request.item, transient=CHECKPOINTS)
        if not run.finished:
            _report(built, run, title, request)
    return built.artifact


def _made(counts: Mapping[str, Any]) -> str:
    result = AdaptCounts.parse(counts)
    return f"test perplexity {result.figures['test/perplexity']:.2f} after {amount(result.tokens_seen)} tokens"


def _report(built: Built, run: Run, title: str, request: AdaptRequest) -> None:
    measured = built.counts
    result = AdaptCounts.parse(measured)
    results = {
        **{
            f"{split} {name}": result.figures[f"{split}/{name}"]
            for name in ("perplexity", "loss")
            for split in documents.SPLITS
        },
        "tokens seen": result.tokens_seen,
        "updates": result.steps,
        "tokens/s": result.tokens_per_second,
        "cost": cost(result.wall_seconds, result.threads or 0, result.device, result.world_size),
        "peak memory (MB)": result.peak_memory_bytes / 1e6,
        "device": f"{result.device}, {result.precision}, {result.world_size} process(es)",
    }
    notes = synthetic_note(request.store.manifest(request.ids))
    report(request.store, built, run, "adapt-card", title, results, measured, notes)
