"""A cleaned corpus becomes token shards: one job a corpus file, then one writer that keeps the corpus' order."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.config import ShardConfig
from gptcore.data.shards import Shards, Tokens, token_dtype, write_shards
from gptcore.errors import InputError
from gptcore.files import write_json_atomic
from gptcore.text.parts import part_files, read_part
from gptcore.text.tokenizer import Tokenizer

SPLITS = ("train", "validation")
META_FILE = "meta.json"


def encode_corpus(
    corpus: Path,
    tokenizer: Tokenizer,
    out: Path,
    config: ShardConfig,
    *,
    map: Callable[[Callable[[EncodeJob], Path], Iterable[EncodeJob]], Iterable[Path]] = map,
    progress: Callable[[int], object] | None = None,
) -> dict[str, Any]:
    """Write ``out/train``, ``out/validation`` (see :mod:`gptcore.data.shards`) and, last, ``out/meta.json``.

    The result does not depend on ``map``: the builtin one, or a pool's or a cluster's that gives results in order.
    Its workers must see the local folders ``corpus`` and ``out``.

    :param corpus: a folder of cleaned text, as :mod:`gptcore.text.corpus` writes it.
    :param progress: called with 1 for each file of the corpus encoded.
    :returns: what meta.json holds: ``tokenizer_digest``, ``n_vocab``, ``splits`` -> ``n_tokens`` and ``n_documents``.
    :raises InputError: no training text in ``corpus``.
    """
    out.mkdir(parents=True, exist_ok=True)
    (out / META_FILE).unlink(missing_ok=True)
    work = out / ".parts"
    shutil.rmtree(work, ignore_errors=True)  # left by an encoding that was interrupted
    tokenizer.save(work / "tokenizer")
    jobs = [
        EncodeJob(split, path, work / "tokenizer", tokenizer.digest, work / split / path.stem, config.max_tokens)
        for split in SPLITS
        for path in part_files(corpus, split)
    ]
    if not any(job.split == "train" for job in jobs):
        raise InputError(f"{corpus / 'train'}: no part-*.arrow here, expected a folder of cleaned text")
    encoded: dict[str, list[Path]] = {split: [] for split in SPLITS}
    for job, folder in zip(jobs, map(encode_part, jobs), strict=True):
        encoded[job.split].append(folder)
        if progress is not None:
            progress(1)
    splits = {}
    for split in SPLITS:
        documents = chain.from_iterable(Shards(folder).documents() for folder in encoded[split])
        index = write_shards(documents, out / split, n_vocab=tokenizer.n_vocab, max_tokens=config.max_tokens)
        splits[split] = {"n_tokens": index["n_tokens"], "n_documents": index["n_documents"]}
    shutil.rmtree(work)
    meta = {"tokenizer_digest": tokenizer.digest, "n_vocab": tokenizer.n_vocab, "splits": splits}
    write_json_atomic(out / META_FILE, meta)
    return meta


@dataclass(frozen=True)
class EncodeJob:
    """One corpus file to encode; small, so that it travels well to another process."""

    split: str
    path: Path
    tokenizer: Path
    tokenizer_digest: str
    out: Path
    max_tokens: int


def encode_part(job: EncodeJob) -> Path:
    """Encode one corpus file into shards of its own; returns their folder.

    Whole or not there: of two workers (one was given up, and is not dead) the first to finish has made it.
    """
    if job.out.exists():
        return job.out
    tokenizer = tokenizer_in(job.tokenizer, job.tokenizer_digest)
    aside = job.out.with_name(f"{job.out.name}.{uuid.uuid4().hex[:8]}.tmp")
    write_shards(_encoded(job.path, tokenizer), aside, n_vocab=tokenizer.n_vocab, max_tokens=job.max_tokens)
    try:
        aside.rename(job.out)
    except OSError:
        if not job.out.exists():
            raise
    return job.out


def encode_partition(corpus: Path, tokenizer: Tokenizer, out: Path, config: ShardConfig) -> dict[str, Any]:
    """Encode a small corpus by itself into ``out/train`` and ``out/validation``; returns each split's index.

    See :func:`gptcore.data.composed.compose_shards` for what many of them make together.
    """
    indices = {}
    for split in SPLITS:
        documents = chain.from_iterable(_encoded(path, tokenizer) for path in part_files(corpus, split))
        indices[split] = write_shards(documents, out / split, n_vocab=tokenizer.n_vocab, max_tokens=config.max_tokens)
    return indices


@lru_cache(maxsize=1)
def tokenizer_in(folder: Path, digest: str) -> Tokenizer:
    """The tokenizer with its remembered words, kept from one job of a process to the next."""
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.digest == digest
    return tokenizer


def _encoded(path: Path, tokenizer: Tokenizer) -> Iterator[tuple[str, Iterator[Tokens]]]:
    dtype = token_dtype(tokenizer.n_vocab)
    border = [] if tokenizer.end_of_text is None else [np.asarray([tokenizer.end_of_text], dtype)]
    for (_, document), rows in groupby(read_part(path), key=lambda row: row[:2]):
        yield document, chain(border, (tokenizer.encode_clean(text).astype(dtype) for _, _, text in rows), border)
