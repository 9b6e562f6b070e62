"""Stage `tokenizer`: byte pair encoding learnt from the cleaned training documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.config import TokenizerConfig, recorded
from gptcore.text.bpe import Tokenizer
from gptcore.text.corpus import read_corpus
from tasks.stages.stage import STAGE_OPTIONS, build
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store

VERSION = 1


@task(name="tokenizer", task_run_name="tokenizer {config.n_merges} merges", **STAGE_OPTIONS)
def train_tokenizer(store_url: str, corpus: Artifact, config: TokenizerConfig) -> Artifact:
    """Learn ``config.n_merges`` merges (paper: 40,000) from the training documents only."""
    store = Store(store_url)
    recipe = Recipe("tokenizer", VERSION, recorded(config), {"corpus": corpus})

    def produce(out: Path) -> dict[str, Any]:
        tokenizer = Tokenizer.train(_rows(store.local(corpus)), config.n_merges)
        tokenizer.save(out)
        return {"n_vocab": tokenizer.n_vocab, "tokenizer_digest": tokenizer.digest}

    return build(store, recipe, produce, "tokenizer", _made).artifact


def _made(counts: Mapping[str, Any]) -> str:
    return f"{counts['n_vocab']:,} pieces"


def _rows(corpus: Path) -> Iterator[str]:
    for _, texts in read_corpus(corpus, "train"):
        yield from texts
