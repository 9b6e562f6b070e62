"""Token shards made of other folders' shards: an index that names their files, and no copy of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.base.files import write_json_atomic
from gptcore.data.encode import META_FILE, SPLITS
from gptcore.data.shards import INDEX_FILE, Shards, token_dtype


@dataclass(frozen=True)
class Piece:
    """The shards of one partition."""

    place: str
    """Its folder, relative to the composed one."""
    indices: Mapping[str, Mapping[str, Any]]
    """Split -> what its index.json holds."""
    dropped: frozenset[str] = frozenset()
    """Documents to leave out."""
    folder: Path | None = None
    """Where it can be read; needed only where documents are dropped."""


def compose_shards(pieces: Sequence[Piece], out: Path, tokenizer_digest: str, n_vocab: int) -> dict[str, Any]:
    """Write ``out/train``, ``out/validation`` and, last, ``out/meta.json``: all pieces in order, no tokens copied.

    :returns: what meta.json holds, as :func:`gptcore.data.encode.encode_corpus` does.
    """
    splits = {}
    for split in SPLITS:
        files: list[dict[str, Any]] = []
        n_tokens = n_documents = 0
        for piece in pieces:
            index = piece.indices[split]
            skipped, tokens, documents = _left_out(piece, split) if piece.dropped else ({}, 0, 0)
            for entry in index["files"]:
                skip = {"skip": skipped[entry["name"]]} if entry["name"] in skipped else {}
                files.append({**entry, "name": f"../{piece.place}/{split}/{entry['name']}", **skip})
            n_tokens += index["n_tokens"] - tokens
            n_documents += index["n_documents"] - documents
        (out / split).mkdir(parents=True, exist_ok=True)
        index = {"n_vocab": n_vocab, "dtype": token_dtype(n_vocab).name, "n_tokens": n_tokens}
        write_json_atomic(out / split / INDEX_FILE, {**index, "n_documents": n_documents, "files": files})
        splits[split] = {"n_tokens": n_tokens, "n_documents": n_documents}
    meta = {"tokenizer_digest": tokenizer_digest, "n_vocab": n_vocab, "splits": splits}
    write_json_atomic(out / META_FILE, meta)
    return meta


def _left_out(piece: Piece, split: str) -> tuple[dict[str, list[int]], int, int]:
    """File -> rows of dropped documents; how many tokens, and documents, those are."""
    assert piece.folder is not None, "a piece with dropped documents has a folder"
    shards, skipped, first = Shards(piece.folder / split), {}, 0
    names = np.array([shards.document(row) for row in range(shards.n_rows)], object)
    gone = np.isin(names, list(piece.dropped))
    for entry in piece.indices[split]["files"]:
        rows = np.flatnonzero(gone[first : first + entry["n_rows"]])
        if len(rows):
            skipped[entry["name"]] = rows.tolist()
        first += entry["n_rows"]
    return skipped, int(shards.lengths[gone].sum()), len(set(names[gone]))
