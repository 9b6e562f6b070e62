"""Where the tokens of a batch stand and what each of them sees; and sequences that begin alike, read once.

Legend of the shape comments: B batch, C sequences an example, T positions of a sequence, S positions that are seen, L
positions of a trunk with its branches, D width, K width of the keys.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Context:
    """Tokens that stand one after the other from the first position on."""

    visible: Tensor | None = None
    """[B, 1, T or 1, S] what each position, or every one, sees: bool, or what is added to the scores. None: all, or as
    ``causal`` says."""
    causal: bool = True
    """Whether without ``visible`` each position sees itself and those before it alone."""
    at: Tensor | None = None
    """[B, N] the positions that are asked for, to which ``visible`` then belongs; None: all of them."""

    def places(self, x: Tensor) -> Tensor:
        """The positions of the tokens of x, [B, T, D]: [T] or [B, T]."""
        return torch.arange(x.shape[1], device=x.device)

    def before(self, k: Tensor) -> Tensor:
        """The key before each one, of the first one itself: [B, T, K] -> the same."""
        return torch.cat([k[:, :1], k[:, :-1]], dim=1)

    def seen(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values that may be seen, given those of these tokens: [B, T, K] each -> [B, S, K] each."""
        return k, v


IN_ORDER = Context()


def rows_at(x: Tensor, at: Tensor | None) -> Tensor:
    """[B, T, D] at positions [B, N] -> [B, N, D]; None: all of them."""
    return x if at is None else x.gather(1, at[..., None].expand(-1, -1, x.shape[-1]))


_TRUNK = -1


@dataclass(frozen=True, kw_only=True)
class Branches(Context):
    """Examples of C sequences each that begin alike, as one: what they share once, then the rest of each.

    In a causal decoder the states of a beginning (the document of several choices) do not depend on what follows, so
    they need not be found once a sequence. Each position sees the trunk and its own branch, up to itself.
    """

    tokens: Tensor
    """[B, L] int64: the trunk, which all begin with, then the branches one after the other."""
    positions: Tensor
    """[B, L] int64: where each token stands in its own sequence."""
    previous: Tensor
    """[B, L] int64: which of the L stands before each token in its sequence; of its first one, itself."""
    origins: Tensor
    """[B, C, T] int64: which of the L a sequence's position is; padding: L."""

    def places(self, x: Tensor) -> Tensor:
        return self.positions

    def before(self, k: Tensor) -> Tensor:
        return rows_at(k, self.previous)

    def asked_at(self, ends: Tensor) -> Branches:
        """A copy in which one position of each sequence is asked for: ``ends`` [B, C]."""
        at = self.origins.gather(2, ends[..., None])[..., 0]  # (B, C)
        assert self.visible is not None
        rows = self.visible.gather(2, at[:, None, :, None].expand(-1, -1, -1, self.visible.shape[-1]))  # (B, 1, C, L)
        return dataclasses.replace(self, at=at, visible=rows)


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
    origins = torch.where(in_trunk, at, starts[..., None] + at - trunk[..., None])  # (B, C, T)
    origins = origins.masked_fill(at > ends[..., None], L)

    def folded(values: Tensor, rest: int) -> Tensor:
        """(B, C, T) -> (B, L); ``rest`` where a shorter example is padded."""
        whole = torch.full((B, L + 1), rest, dtype=torch.int64)
        return whole.scatter_(1, origins.flatten(1), values.expand(B, C, T).flatten(1))[:, :L]

    branch = folded(torch.arange(C)[:, None].masked_fill(in_trunk, _TRUNK), C)  # (B, L)
    same = (branch[:, :, None] == branch[:, None]) | (branch == _TRUNK)[:, None]  # (B, L, L)
    previous = torch.cat([origins[..., :1], origins[..., :-1]], dim=-1)  # (B, C, T)
    return Branches(
        visible=same.tril_()[:, None],
        tokens=folded(tokens, 0),
        positions=folded(at, 0),
        previous=folded(previous, 0),
        origins=origins,
    )
