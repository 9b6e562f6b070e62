"""A cleaned corpus becomes token shards: one job a corpus file, then one a shard, so that nobody writes all of them.

Shards of several folders become those of one by an index that names their files (:func:`compose_shards`).
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gptcore.base.errors import InputError
from gptcore.base.files import write_json_atomic
from gptcore.base.types import Advance, Ints, Map, quiet
from gptcore.config import ShardConfig
from gptcore.data.masking import PieceTable
from gptcore.data.packing import pack_shards
from gptcore.data.shards import Shards, Tokens, token_dtype, write_index, write_shards
from gptcore.text.mixing import copies, weight_of
from gptcore.text.parts import part_files, read_part, read_sources
from gptcore.text.spacy_words import split_sentences
from gptcore.text.tokenizer import Tokenizer

SPLITS = ("train", "validation")
META_FILE = "meta.json"
Ids = npt.NDArray[np.int32]


def encode_corpus(
    corpus: Path, tokenizer: Tokenizer, out: Path, config: ShardConfig, *, map: Map = map, progress: Advance = quiet
) -> dict[str, Any]:
    """Write ``out/train``, ``out/validation`` (see :mod:`gptcore.data.shards`) and, last, ``out/meta.json``.

    Shards with sentence borders have ``out/pieces.json`` as well (:mod:`gptcore.data.masking`). The result does not
    depend on ``map``: the builtin one, or a pool's or a cluster's that gives results in order. Its workers must see the
    local folders ``corpus`` and ``out``.

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
        EncodeJob(split, path, work / "tokenizer", tokenizer.digest, work / split / path.stem, config)
        for split in SPLITS
        for path in part_files(corpus, split)
    ]
    if not any(job.split == "train" for job in jobs):
        raise InputError(f"{corpus / 'train'}: no part-*.arrow here, expected a folder of cleaned text")
    lengths: dict[str, list[Ints]] = {split: [] for split in SPLITS}
    n_documents = dict.fromkeys(SPLITS, 0)
    for job, (rows, documents) in zip(jobs, map(encode_part, jobs), strict=True):
        lengths[job.split].append(rows)
        n_documents[job.split] += documents
        progress(1)
    splits = {}
    for split in SPLITS:
        folders = [job.out for job in jobs if job.split == split]
        sizes = (tokenizer.n_vocab, n_documents[split], config.max_tokens)
        index = pack_shards(folders, lengths[split], out / split, work, *sizes, map)
        if config.weights and split == "train":
            index = _mixed(out / split, index, read_sources(corpus), config.weights)
        splits[split] = {"n_tokens": index["n_tokens"], "n_documents": index["n_documents"]}
    shutil.rmtree(work)
    if config.sentences:
        PieceTable.of(tokenizer).save(out)
    meta = {"tokenizer_digest": tokenizer.digest, "n_vocab": tokenizer.n_vocab, "splits": splits}
    write_json_atomic(out / META_FILE, meta)
    return meta


def _mixed(
    folder: Path, index: Mapping[str, Any], sources: Mapping[str, str], weights: Mapping[str, float]
) -> dict[str, Any]:
    """The index of a folder of shards, written anew, by which documents are read as often as the weights say.

    :param sources: document -> the file that it came from.
    """
    of = {document: weight_of(source, weights) for document, source in sources.items()}
    skipped, again, n_tokens, n_documents = Shards(folder).repeated(lambda each: copies(each, of[each]))
    files = [{**entry, **({"skip": rows} if rows else {})} for entry, rows in zip(index["files"], skipped, strict=True)]
    return write_index(folder, index["n_vocab"], n_documents, files, n_tokens, again)


@dataclass(frozen=True)
class EncodeJob:
    """One corpus file to encode; small, so that it travels well to another process."""

    split: str
    path: Path
    tokenizer: Path
    tokenizer_digest: str
    out: Path
    config: ShardConfig


def encode_part(job: EncodeJob) -> tuple[Ints, int]:
    """Encode one corpus file into shards of its own; returns the tokens of each of their rows, and its documents.

    Whole or not there: of two workers (one was given up, and is not dead) the first to finish has made it.
    """
    if not job.out.exists():
        tokenizer = tokenizer_in(job.tokenizer, job.tokenizer_digest)
        aside = job.out.with_name(f"{job.out.name}.{uuid.uuid4().hex[:8]}.tmp")
        documents = _encoded(job.path, tokenizer, job.config.sentences)
        write_shards(documents, aside, n_vocab=tokenizer.n_vocab, max_tokens=job.config.max_tokens)
        try:
            aside.rename(job.out)
        except OSError:
            if not job.out.exists():
                raise
    made = Shards(job.out)
    return made.lengths, made.n_documents


def encode_partition(corpus: Path, tokenizer: Tokenizer, out: Path, config: ShardConfig) -> dict[str, Any]:
    """Encode a small corpus by itself into ``out/train`` and ``out/validation``; returns each split's index.

    See :func:`compose_shards` for what many of them make together.
    """
    indices = {}
    for split in SPLITS:
        parts = (_encoded(path, tokenizer, config.sentences) for path in part_files(corpus, split))
        documents = chain.from_iterable(parts)
        indices[split] = write_shards(documents, out / split, n_vocab=tokenizer.n_vocab, max_tokens=config.max_tokens)
    return indices


@lru_cache(maxsize=1)
def tokenizer_in(folder: Path, digest: str) -> Tokenizer:
    """The tokenizer with its remembered words, kept from one job of a process to the next."""
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.digest == digest
    return tokenizer


def _encoded(path: Path, tokenizer: Tokenizer, sentences: bool) -> Iterator[tuple[str, Iterator[Tokens]]]:
    """The documents of a corpus file as ids: behind each sentence its border, or around the whole the kind's mark."""
    dtype = token_dtype(tokenizer.n_vocab)
    end = None if sentences else tokenizer.end_of_text
    border = [] if end is None else [np.asarray([end], dtype)]
    encoded = partial(_sentences, separator=PieceTable.of(tokenizer).sep) if sentences else _row
    for (_, document), rows in groupby(read_part(path), key=lambda row: row[:2]):
        pieces = chain.from_iterable(encoded(tokenizer, text) for _, _, text in rows)
        yield document, chain(border, (ids.astype(dtype) for ids in pieces), border)


def _row(tokenizer: Tokenizer, text: str) -> Iterator[Ids]:
    yield tokenizer.encode_clean(text)


def _sentences(tokenizer: Tokenizer, text: str, separator: int) -> Iterator[Ids]:
    """Ids of each sentence, the separator last; one without ids is none.

    A row of half a million characters ends a sentence as well, wherever it was cut.
    """
    for sentence in split_sentences(text):
        if len(ids := tokenizer.encode_clean(sentence)):
            yield np.append(ids, np.int32(separator))


@dataclass(frozen=True)
class Piece:
    """The shards of one partition."""

    place: str
    """The folder of the partition's shards, relative to the composed one."""
    indices: Mapping[str, Mapping[str, Any]]
    """Split -> what its index.json holds."""
    dropped: frozenset[str] = frozenset()
    """Documents to leave out."""
    weight: float = 1.0
    """How often each of its training documents is read, on average."""
    folder: Path | None = None
    """Where it can be read; needed only where not every document is read once."""


def compose_shards(pieces: Sequence[Piece], out: Path, tokenizer_digest: str, n_vocab: int) -> dict[str, Any]:
    """Write ``out/train``, ``out/validation`` and, last, ``out/meta.json``: all pieces in order, no tokens copied.

    :returns: what meta.json holds, as :func:`encode_corpus` does.
    """
    splits = {}
    for split in SPLITS:
        files: list[dict[str, Any]] = []
        again: list[int] = []
        n_tokens = n_documents = n_rows = 0
        for piece in pieces:
            index, weight = piece.indices[split], piece.weight if split == "train" else 1.0
            skipped: list[list[int]] = [[]] * len(index["files"])
            repeated: list[int] = []
            tokens, documents = index["n_tokens"], index["n_documents"]
            if piece.dropped or weight != 1:
                assert piece.folder is not None, "a piece whose documents are not read once each has a folder"
                often = partial(_copies_in, piece.dropped, weight)
                skipped, repeated, tokens, documents = Shards(piece.folder / split).repeated(often)
            for entry, rows in zip(index["files"], skipped, strict=True):
                skip = {"skip": rows} if rows else {}
                files.append({**entry, "name": f"../{piece.place}/{split}/{entry['name']}", **skip})
            again += [n_rows + row for row in repeated]
            n_rows += sum(entry["n_rows"] for entry in index["files"]) - sum(map(len, skipped))
            n_tokens += tokens
            n_documents += documents
        (out / split).mkdir(parents=True, exist_ok=True)
        write_index(out / split, n_vocab, n_documents, files, n_tokens, again)
        splits[split] = {"n_tokens": n_tokens, "n_documents": n_documents}
    meta = {"tokenizer_digest": tokenizer_digest, "n_vocab": n_vocab, "splits": splits}
    write_json_atomic(out / META_FILE, meta)
    return meta


def _copies_in(dropped: frozenset[str], weight: float, document: str) -> int:
    return 0 if document in dropped else copies(document, weight)
