"""Link prediction by TransE as others report it, filtered; graphs are known by their size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedVectors:
    """A printed row: what was measured, in per cent; None where it is not printed."""

    method: str
    source: str
    mrr: float | None
    hits_1: float | None
    hits_3: float | None
    hits_10: float | None


GRAPHS: Mapping[tuple[int, int], str] = {(14_541, 237): "FB15k-237", (40_943, 11): "WN18RR"}
"""Entities and relations -> the public graph that has so many."""

_OPENKE = "OpenKE's README"
_TORCHDRUG = "TorchDrug's benchmark"
_COMPARED = "Scientific Reports 2025, s41598-025-98550-7, Table 4"

PUBLISHED: Mapping[str, tuple[PublishedVectors, ...]] = {
    "FB15k-237": (
        PublishedVectors("TransE", _OPENKE, None, None, None, 47.6),
        PublishedVectors("TransE, of a paper", _OPENKE, None, None, None, 48.6),
        PublishedVectors("TransE", _TORCHDRUG, 30.7, 21.1, 34.3, 50.0),
        PublishedVectors("TransE", _COMPARED, 32.9, 23.0, 36.8, 52.6),
    ),
    "WN18RR": (
        PublishedVectors("TransE", _OPENKE, None, None, None, 51.2),
        PublishedVectors("TransE, of a paper", _OPENKE, None, None, None, 50.1),
        PublishedVectors("TransE", _COMPARED, 22.3, 1.4, 40.1, 53.0),
    ),
}
