"""Stages of a text: `corpus` and `shards` make it, `ngrams` counts it.

Books become cleaned Arrow text, split by document, and that becomes token ids, memory-mapped Arrow files of bounded
size. N-grams that are counted alone predict held-out documents, too: their perplexity stands beside the model's. Where
nobody gives any books, a generated world stands in for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.base.named import named_part
from gptcore.base.settings import flatten, recorded
from gptcore.config import CorpusConfig, ShardConfig
from gptcore.data.encode import encode_corpus
from gptcore.data.shards import Shards
from gptcore.evaluation.held_rows import rows_and_search
from gptcore.evaluation.ngram import ngram_perplexity
from gptcore.text.corpus import build_corpus
from gptcore.text.mixing import check_weights
from gptcore.text.parts import read_corpus
from gptcore.text.sources import RawCorpus, fingerprint, local_path
from gptcore.text.tokenizer import Tokenizer
from tasks.jobs.parallel import partition_map
from tasks.report.card import amount, publish_table, shown
from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.stages.table import STAGES
from tasks.store.artifact import Artifact, Recipe
from tasks.store.counts import CorpusCounts, NgramCounts, ShardsCounts
from tasks.store.lineage import home_of
from tasks.store.state import FileDigests
from tasks.store.store import Built, Store
from tasks.tracking.logs import Meter, logger

SEED = 42
"""The seed of the generated world that stands in for books, datasets and a graph."""


def generate_world(store: Store) -> Artifact:
    """The generated world that stands in for books, datasets and a graph where nobody gives any.

    :raises InputError: no package here has a stage that generates one.
    """
    if (stage := STAGES.get("storyworld")) is None:
        raise InputError(
            "found no stage `storyworld` to generate books and datasets; expected the address of real ones"
        )
    world: Artifact = named_part(stage.task)(store, SEED)
    return world


_SMALL_TO_CLEAN, _SMALL_TO_ENCODE = 1_000_000, 4_000_000
"""Bytes that this process is done with before others have started."""
SHARDS_PART = "shards-part"
"""Stage of the shards of one partition (:mod:`tasks.stages.partitions`)."""
_DOWNLOADS = 8  # at a time
_OTHER_SCRIPTS = 0.01  # share of the words from which on it is told
_WARNED = 10  # documents left out, files damaged


@task(name="corpus", task_run_name="corpus", **STAGE_OPTIONS)
def clean_corpus(store: Store, raw: RawCorpus, config: CorpusConfig, dask_address: str = "") -> Artifact:
    """Clean every document of a raw corpus (section 4.1: ftfy, standardised punctuation, spaCy tokenizer).

    The digest follows from the files' content, not from where they lie: changing one book changes it, moving the
    folder does not.

    :raises InputError: an unreadable source, or nothing left after filtering.
    """
    check_weights(config.weights, (source.name for source in raw.sources))
    with FileDigests() as digests:
        sources = sha256_json(fingerprint(raw.sources, digests.sha256, config.encoding))
    rows, search = rows_and_search(config.decontaminate)
    recipe = recipe_of("corpus", recorded(config), {"sources": sources, **rows})
    recipe = as_before(store, recipe, recipe.inputs)

    def produce(out: Path) -> dict[str, Any]:
        small = sum(source.size for source in raw.sources) <= _SMALL_TO_CLEAN
        with partition_map(dask_address, shared=out, reads=local_path(raw.sources[0]), small=small) as parallel:
            report = build_corpus(
                raw, out, config, search=search, map=parallel, progress=Meter("corpus", "MB", 1_000_000)
            )
        return {**report, "files": raw.files}

    built = build(store, recipe, produce, "corpus", lambda counts: corpus_made({**counts, "files": raw.files}))
    publish_report(built, raw.url)
    return built.artifact


def as_before(store: Store, recipe: Recipe, inputs: Mapping[str, Artifact | str]) -> Recipe:
    """A recipe, or its version 2 of such inputs if the store has that, and it dropped nothing as a near duplicate: then
    letters beyond ASCII hardly told two books apart. What stayed whole is found, and what was trained on it.
    """
    second = replace(recipe, version=2, inputs=inputs)
    kept = store.find(second)
    return second if kept and not store.manifest(kept)["counts"]["documents"]["dropped"]["near duplicate"] else recipe


def held_out_bytes(store: Store, corpus: Artifact) -> int:
    """UTF-8 bytes of the cleaned held-out documents: what their tokens spell."""
    documents = read_corpus(store.local(corpus), "validation")
    return sum(len(text.encode()) for _, rows in documents for text in rows)


def corpus_made(counts: Mapping[str, Any]) -> str:
    """A corpus in few words."""
    corpus = CorpusCounts.parse(counts)
    documents = corpus.documents
    kept = f"{documents.train:,} train + {documents.validation:,} held out"
    left_out = documents.left_out and f"left out: {documents.left_out}"
    more = (f"; {told}" for told in (left_out, corpus.kinds_of_files) if told)
    return f"{documents.read:,} documents -> {kept}, {amount(corpus.words)} words{''.join(more)}"


def publish_report(built: Built, corpus_url: str) -> None:
    """The corpus' counts as a table on the run's page; what was left out or is damaged, and a held-out end, in the log,
    too.
    """
    counts = CorpusCounts.parse(built.counts)
    if counts.divided:
        logger().warning(
            "no document fell into the validation split, so the end of one is held out: %s", counts.divided
        )
    if (share := counts.words_in_other_scripts / max(1, counts.words)) >= _OTHER_SCRIPTS:
        told = (
            "%.0f %% of the words are in other scripts than the Latin one, whose text ftfy, spaCy's English tokenizer"
        )
        logger().warning(
            f"{told} and lower case are made for; --family gpt2 keeps any text, bert and albert all but vowel signs",
            100 * share,
        )
    listed = {"left out": (counts.left_out, "documents"), "damaged": (counts.damaged, "files")}
    for what, (lines, of) in listed.items():
        for line in lines[:_WARNED]:
            logger().warning("%s: %s", what, line)
        if (more := len(lines) - _WARNED) > 0:
            logger().warning("%s: %d more %s, named in the corpus' report", what, more, of)
    counted = {name: count for name, count in flatten(built.counts, " / ").items() if not isinstance(count, list)}
    table = [{"what": name.replace("_", " "), "count": shown(count)} for name, count in counted.items()]
    table += [{"what": what, "count": line} for what, (lines, _) in listed.items() for line in lines]
    publish_table(table, "corpus-report", f"Corpus {built.artifact.short} from {corpus_url}")


@task(name="shards", task_run_name="shards of corpus {corpus.short}", **STAGE_OPTIONS)
def encode_shards(
    store: Store, corpus: Artifact, tokenizer: Artifact, config: ShardConfig, dask_address: str = ""
) -> Artifact:
    """Encode both splits of the corpus; the folder carries the tokenizer's digest.

    :raises InputError: by chance (each document's own hash decides) nothing was held out.
    """
    recipe = recipe_of("shards", recorded(config), {"corpus": corpus, "tokenizer": tokenizer})

    def produce(out: Path) -> dict[str, Any]:
        loaded = Tokenizer.load(str(store.local(tokenizer)))
        folder = store.local(corpus)
        files = list(folder.glob("*/part-*.arrow"))
        done = Meter("shards", "files").counting("encode", len(files))
        small = sum(file.stat().st_size for file in files) <= _SMALL_TO_ENCODE
        with partition_map(dask_address, shared=out, small=small) as parallel:
            report = encode_corpus(folder, loaded, out, config, map=parallel, progress=done)
        require_validation(report)
        return {**report, **{name: told for name, told in recorded(config).items() if name == "weights"}}

    return build(store, recipe, produce, "shards", shards_made).artifact


def require_validation(report: Mapping[str, Any]) -> None:
    """:raises InputError: nothing was held out, or the weights leave nothing to train on."""
    if not report["splits"]["train"]["n_documents"]:
        raise InputError("corpus.weights: no training document is read by these, expected one or more; raise a weight")
    if not report["splits"]["validation"]["n_documents"]:
        read = report["splits"]["train"]["n_documents"]
        raise InputError(
            f"corpus: none of its {read} documents fell into the validation split, expected at least 1; "
            "add documents or raise corpus.validation_fraction"
        )


def local_shards(store: Store, shards: Artifact) -> Path:
    """A local folder with shards that can be read; those of partitions lie beside it, where its index looks."""
    parts = [item for item in store.manifest(shards)["inputs"].values() if item.get("stage") == SHARDS_PART]
    home = home_of(shards)
    with ThreadPoolExecutor(_DOWNLOADS) as pool:
        for _ in pool.map(lambda item: home.local(home.artifact(item["stage"], item["digest"])), parts):
            pass
    return store.local(shards)


def shards_made(counts: Mapping[str, Any]) -> str:
    shards = ShardsCounts.parse(counts)
    train, validation = (shards.splits[name].n_tokens for name in ("train", "validation"))
    mixed = "".join(f", {pattern} x {weight:g}" for pattern, weight in shards.weights)
    return f"{amount(train)} tokens to train on{mixed}, {amount(validation)} held out"


SMALL = 8_000_000
"""Tokens that are counted before other processes have started."""
LARGE = 100_000_000
"""Tokens of a text whose n-grams are counted only where they are asked for: each distinct one takes 100 bytes."""
ORDERS = {"bigram": 2, "trigram": 3}
"""Name of a model -> its order."""


@task(name="ngrams", task_run_name="n-grams of shards {shards.short}", **STAGE_OPTIONS)
def measure_ngrams(store: Store, shards: Artifact, dask_address: str = "") -> Artifact:
    """Interpolated Kneser-Ney bigram and trigram, counted on the training documents, scored on the held-out ones.

    The manifest's counts hold, for each, ``perplexity``, ``nats`` (a token) and ``tokens`` (scored).
    """
    recipe = _ngrams_recipe(shards)

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


def ngrams_beside(store: Store, shards: Artifact, dask_address: str = "", asked: bool = False) -> Artifact | None:
    """:func:`measure_ngrams`; None where the training text is large, unless they are asked for or in the store."""
    n_tokens = ShardsCounts.of(store, shards).splits["train"].n_tokens
    if asked or n_tokens <= LARGE or store.find(_ngrams_recipe(shards)):
        return measure_ngrams(store, shards, dask_address)
    told = "n-grams of %s tokens are counted where --ngrams asks for them: each takes 100 bytes of memory"
    logger().info(told, amount(n_tokens))
    return None


def _ngrams_recipe(shards: Artifact) -> Recipe:
    return recipe_of("ngrams", {"orders": sorted(ORDERS.values())}, {"shards": shards})


def _perplexities(counts: Mapping[str, Any]) -> str:
    return "held-out perplexity: " + ", ".join(
        f"{name} {NgramCounts.parse(counts[name]).perplexity:.1f}" for name in ORDERS
    )
