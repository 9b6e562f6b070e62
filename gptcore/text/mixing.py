"""How often the documents of a corpus are read: weights of its folders and files, in the settings' `[corpus] weights`.

A document is read whole, some number of times, so every kind of network sees the mixture: what draws windows, what
packs sentences, what counts n-grams. Nothing is copied; the index of the token shards lists rows again
(:mod:`gptcore.data.shards`). Held-out documents are read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256

from gptcore.base.errors import InputError, near


def weight_of(source: str, weights: Mapping[str, float]) -> float:
    """How often the documents of a file are read, on average: what the first folder or glob that it matches says.

    :param source: the file's path below the corpus' root.
    :param weights: folder, file or glob, below that root, too -> its weight.
    """
    first = _first_match(source, weights)
    return 1.0 if first is None else weights[first]


def copies(document: str, weight: float) -> int:
    """How often a document is read: the whole part of the weight, and once more with the chance of what is left of it.

    :param document: its hash, which draws that, so that no other document plays a part.
    """
    draw = int.from_bytes(sha256(f"weight {document}".encode()).digest()[:6], "big") / (1 << 48)
    return int(weight + draw)


def check_weights(weights: Mapping[str, float] | None, sources: Iterable[str]) -> None:
    """:raises InputError: a weight that is not more than 0, or that holds for no file of the corpus."""
    weights, names = weights or {}, list(sources)
    effective = {_first_match(name, weights) for name in names}
    for pattern, weight in weights.items():
        if not 0 < weight <= _MOST:
            raise InputError(f"corpus.weights.{pattern!r} = {weight:g}: expected more than 0, and {_MOST:g} or less")
        if not any(_matches(name, pattern) for name in names):
            there = sorted({name.rpartition("/")[0] or name for name in names})
            meant = f"; did you mean {meant}?" if (meant := near(pattern, there)) else ""
            some = f"{', '.join(there[:_NAMED])}{', ...' * (len(there) > _NAMED)}"
            raise InputError(
                f"corpus.weights: no file of the corpus matches {pattern!r}, expected one of {some}{meant}"
            )
        if pattern not in effective:
            earlier = next(_first_match(name, weights) for name in names if _matches(name, pattern))
            raise InputError(
                f"corpus.weights.{pattern!r}: an earlier weight holds for all its files, expected it before {earlier!r}"
            )


_MOST = 100.0
_NAMED = 5  # folders, or files in none


def _first_match(source: str, weights: Iterable[str]) -> str | None:
    return next((pattern for pattern in weights if _matches(source, pattern)), None)


def _matches(source: str, pattern: str) -> bool:
    return source == pattern or source.startswith(f"{pattern.rstrip('/')}/") or fnmatchcase(source, pattern)
