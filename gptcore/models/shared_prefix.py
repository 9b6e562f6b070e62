"""Sequences that begin alike, as one: what they share once, then the rest of each (the choices of one document).

In a causal decoder the states of a beginning do not depend on what follows, so they need not be found once a sequence.

B batch, C sequences an example, T positions of a sequence, L positions of a trunk with its branches.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_TRUNK = -1


class Branches(NamedTuple):
    """Examples of C sequences each, folded together."""

    tokens: Tensor  # (B, L) int64: the trunk, which all begin with, then the branches one after the other
    positions: Tensor  # (B, L) int64: where each token stands in its own sequence
    previous: Tensor  # (B, L) int64: which of the L stands before each token in its sequence; of its first one, itself
    visible: Tensor  # (B, 1, L, L) bool: the trunk and its own branch, up to itself
    places: Tensor  # (B, C, T) int64: which of the L a sequence's position is; padding: L


def fold(tokens: Tensor, ends: Tensor) -> Branches:
    """Fold ids [B, C, T], each sequence up to its last token at ``ends`` [B, C], which always is in its own branch."""
    B, C, T = tokens.shape
    at = torch.arange(T)
    alike = (tokens == tokens[:, :1]).all(dim=1).cumprod(dim=1).sum(dim=1)  # (B,)
    trunk = torch.minimum(alike, ends.amin(dim=1))[:, None]  # (B, 1)
    own = ends + 1 - trunk  # (B, C)
    starts = trunk + own.cumsum(dim=1) - own  # (B, C)
    L = int((starts + own).max())
    in_trunk = at < trunk[..., None]  # (B, 1, T)
    places = torch.where(in_trunk, at, starts[..., None] + at - trunk[..., None])  # (B, C, T)
    places = places.masked_fill(at > ends[..., None], L)

    def folded(values: Tensor, rest: int) -> Tensor:
        """(B, C, T) -> (B, L); ``rest`` where a shorter example is padded."""
        whole = torch.full((B, L + 1), rest, dtype=torch.int64)
        return whole.scatter_(1, places.flatten(1), values.expand(B, C, T).flatten(1))[:, :L]

    branch = folded(torch.arange(C)[:, None].masked_fill(in_trunk, _TRUNK), C)  # (B, L)
    same = (branch[:, :, None] == branch[:, None]) | (branch == _TRUNK)[:, None]  # (B, L, L)
    previous = torch.cat([places[..., :1], places[..., :-1]], dim=-1)  # (B, C, T)
    return Branches(folded(tokens, 0), folded(at, 0), folded(previous, 0), same.tril_()[:, None], places)
