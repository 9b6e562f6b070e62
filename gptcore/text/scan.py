"""Pass 1 over a corpus: every document decoded once, noted by its hash, its length and what tells it from others."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from gptcore.config import CorpusConfig
from gptcore.text.near_duplicates import PERMUTATIONS, Sketch
from gptcore.text.selection import STATS, DocumentStats
from gptcore.text.sources import Read, Source, read_documents

_NOT_TEXT = bytes([*range(9), 11, *range(14, 32), 127])
_NOT_TEXT_EITHER = "".join(map(chr, range(0x80, 0xA0)))


@dataclass
class Scan:
    """What pass 1 found in one source."""

    documents: DocumentStats
    read: Read


def scan(source: Source, config: CorpusConfig) -> Scan:
    """Hash and measure every document of one file, in bounded memory.

    A document's hash is the SHA-256 of its text after decoding and stripping, in UTF-8.

    :raises InputError: see :func:`gptcore.text.sources.read_documents`.
    """
    read, found = Read(), bytearray()
    compared = config.drop_duplicates and config.near_duplicates < 1
    for text in read_documents(source, config, read):
        digest, characters, unreadable, sketch = hashlib.sha256(), 0, 0, Sketch()
        for piece in text:
            encoded = piece.encode()
            digest.update(encoded)
            characters += len(piece)
            unreadable += len(encoded) - len(encoded.translate(None, _NOT_TEXT)) + piece.count("\ufffd")
            if 4 * encoded.count(b"\xc2") > len(piece):  # before most control characters beyond ASCII
                unreadable += sum(map(piece.count, _NOT_TEXT_EITHER))
            if compared:
                sketch.update(encoded)
        found += digest.digest() + characters.to_bytes(8, "little") + unreadable.to_bytes(8, "little")
        found += sketch.signature().astype("<u4").tobytes() if compared else bytes(4 * PERMUTATIONS)
    return Scan(np.frombuffer(bytes(found), STATS), read)
