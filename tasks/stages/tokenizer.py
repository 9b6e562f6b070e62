"""Stage `tokenizer`: a vocabulary, learnt from the cleaned training documents or chosen before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import task

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.base.settings import recorded
from gptcore.config import TokenizerConfig
from gptcore.families import FAMILIES
from gptcore.text.parts import part_files, read_corpus
from gptcore.text.tokenizer import Tokenizer
from gptcore.text.word_edges import has_signs
from tasks.jobs.parallel import partition_map
from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact
from tasks.store.references import named_tokenizer
from tasks.store.store import Store
from tasks.tracking.logs import Meter, logger

_LOOKED_AT = 200_000
"""Words, more by those of one row."""
_OFTEN = 0.01
_MADE = "{n_vocab:,} pieces".format_map


@task(name="tokenizer", task_run_name="tokenizer {config.n_merges} merges", **STAGE_OPTIONS)
def train_tokenizer(store: Store, corpus: Artifact, config: TokenizerConfig, dask_address: str = "") -> Artifact:
    """Learn ``config.n_merges`` merges or pieces (GPT-1's paper: 40,000) from the training documents only."""
    recipe = recipe_of("tokenizer", recorded(config), {"corpus": corpus})

    def produce(out: Path) -> dict[str, Any]:
        folder = store.local(corpus)
        files = len(part_files(folder, "train"))
        done = Meter("tokenizer", "files").counting("count", files)
        with partition_map(dask_address, shared=out, small=files == 1) as parallel:
            learnt = _kind(config).from_corpus(folder, config.n_merges, out / ".counts", parallel, done)
        _tell_of_signs(folder, learnt)
        return _saved(learnt, out)

    return build(store, recipe, produce, "tokenizer", _MADE).artifact


@task(name="tokenizer", task_run_name="tokenizer {ref}", **STAGE_OPTIONS)
def pin_tokenizer(store: Store, ref: str, config: TokenizerConfig) -> Artifact:
    """The tokenizer that ``ref`` names, whatever the corpus: one of the store's, or a folder's, which becomes one.

    A folder's (any fsspec URL; also a released vocabulary) goes by its content, wherever it lies.

    :param ref: a digest or its beginning, latest, an artifact's address, or a folder with a tokenizer of any kind.
    :param config: says of which kind it has to be.
    :raises InputError: where none fits, or several do, or the one that does is of another kind.
    """
    named = named_tokenizer(store, ref)
    if isinstance(named, Artifact):
        check_kind(store, named, config)
        return named
    return _pinned(store, _of_kind(Tokenizer.load(named), config, named))


def pin_own_tokenizer(store: Store, url: str) -> Artifact:
    """The tokenizer in a model's folder (any fsspec URL), of whichever kind it is, as an artifact of the store.

    :raises InputError: there is none, or it cannot be read.
    """
    return _pinned(store, Tokenizer.load(url))


def _pinned(store: Store, tokenizer: Tokenizer) -> Artifact:
    inputs = {"vocabulary and merges": tokenizer.digest}
    inputs |= {"settings": sha256_json(tokenizer.beside)} if tokenizer.beside else {}
    recipe = recipe_of("tokenizer", {"imported": True}, inputs)
    return build(store, recipe, lambda out: _saved(tokenizer, out), "tokenizer", _MADE).artifact


def check_kind(store: Store, tokenizer: Artifact, config: TokenizerConfig) -> None:
    """:raises InputError: a tokenizer of the store of another kind than ``config`` asks for."""
    _of_kind(Tokenizer.load(str(store.local(tokenizer))), config, tokenizer.short)


def _of_kind(tokenizer: Tokenizer, config: TokenizerConfig, name: str) -> Tokenizer:
    if not isinstance(tokenizer, kind := _kind(config)):
        raise InputError(
            f"tokenizer {name}: a {tokenizer.kind} one, expected a {kind.kind} one for the family's texts (--family)"
        )
    return tokenizer


def _kind(config: TokenizerConfig) -> type[Tokenizer]:
    kind: type[Tokenizer] = FAMILIES[config.family].part("tokenizer")
    return kind


def _tell_of_signs(corpus: Path, tokenizer: Tokenizer) -> None:
    """Warn where words of the corpus lose more than accents to an uncased vocabulary."""
    words, marked, example = 0, 0, ""
    rows = (row for _, rows in read_corpus(corpus, "train") for row in rows) if tokenizer.drops_signs else iter(())
    while words < _LOOKED_AT and (row := next(rows, "")):
        found = row.split()
        signs = list(filter(has_signs, found))
        words, marked, example = words + len(found), marked + len(signs), example or next(iter(signs), "")
    if marked > _OFTEN * words:
        told = "%.0f %% of the words lose vowel signs or other marks with the accents, as uncased vocabularies have it"
        logger().warning(f"{told} (%s); --family gpt2 keeps them", 100 * marked / words, example[:40])


def _saved(tokenizer: Tokenizer, out: Path) -> dict[str, Any]:
    tokenizer.save(out)
    return {"n_vocab": tokenizer.n_vocab, "tokenizer_digest": tokenizer.digest}
