"""How likely sentences are: one question that a network and an n-gram model answer alike.

Legend of the shape comments: N sequences or, flattened, scored tokens; B sequences of a batch, T positions, D width, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from gptcore.data.batches import by_length
from gptcore.models.build import load_language_model
from gptcore.models.network import LanguageModel
from gptcore.text.tokenizer import Specials

_BATCH_TOKENS = 4096  # of one forward pass
_CPU_LOGITS = 1 << 22  # numbers held at once (16 MB): whole, a batch's would be 660 MB at V = 40,478
_GPU_LOGITS = 1 << 28


class Likelihood(Protocol):
    """A language model that scores sentences: :class:`NetworkLikelihood`, `gptcore.evaluation.ngram.NgramModel`."""

    n_vocab: int

    def log_probabilities(
        self, sequences: Sequence[Sequence[int]], progress: Callable[[int, int], object] | None = None
    ) -> NDArray[np.float64]:
        """Sum of log P(id | the ids before it) over every id of a sequence but its first, in nats: float64 [N].

        :param sequences: ids, each sequence by itself.
        :param progress: called with (parts scored, in all): sequences, or the windows that long ones are cut into.
        """


class NetworkLikelihood:
    """A network, the Transformer or the LSTM, as a :class:`Likelihood`; in float32, on the GPU where there is one."""

    def __init__(self, model: LanguageModel) -> None:
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model = model.to(self._device).eval()
        self.n_vocab = model.config.n_vocab

    def log_probabilities(
        self, sequences: Sequence[Sequence[int]], progress: Callable[[int, int], object] | None = None
    ) -> NDArray[np.float64]:
        """See :class:`Likelihood`.

        A sequence beyond n_ctx goes on in a further window, whose first id is the last of the one before, as for
        perplexity (:func:`gptcore.data.sampler.sequential_windows`): every id but the first is scored once.
        """
        n_ctx = self._model.config.n_ctx
        windows, owners = [], []  # [<= n_ctx + 1] each
        for owner, ids in enumerate(sequences):
            for begin in range(0, len(ids) - 1, n_ctx):
                windows.append(np.asarray(ids[begin : begin + n_ctx + 1], dtype=np.int64))
                owners.append(owner)
        totals = np.zeros(len(sequences))
        np.add.at(totals, owners, self._scores(windows, [1] * len(windows), progress, _log_probability)[0])
        return totals

    def continuations(
        self,
        pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
        progress: Callable[[int, int], object] | None = None,
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Sum of log P(id | the ids before it) over the continuation of each (context, continuation), in nats.

        A pair too long for the model loses its beginning, the text farthest from what is scored. The first id of a
        pair without context is not scored: nothing predicts it.

        :param progress: called with (pairs scored, in all).
        :returns: the sums, float64 [N], and of how many ids each is, int64 [N].
        """
        windows, firsts = self._cut(pairs)
        counts = [max(0, len(window) - first) for window, first in zip(windows, firsts, strict=True)]
        (sums,) = self._scores(windows, firsts, progress, _log_probability)
        return sums, np.asarray(counts, dtype=np.int64)

    def greedy_continuations(
        self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The sums of :meth:`continuations`, and whether greedy decoding gives each continuation; in one pass.

        :returns: float64 [N], and bool [N]: whether each of its ids is the likeliest one there.
        """
        sums, others = self._scores(*self._cut(pairs), None, _log_probability, _is_not_likeliest)
        return sums, others == 0

    def _cut(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[list[NDArray[np.int64]], list[int]]:
        """What of each pair the model has positions for, and where in it the continuation begins (>= 1)."""
        windows, firsts = [], []
        for context, continuation in pairs:
            ids = np.asarray([*context, *continuation], dtype=np.int64)
            cut = max(0, len(ids) - self._model.config.n_ctx - 1)  # the last id is only predicted
            windows.append(ids[cut:])
            firsts.append(max(1, len(context) - cut))
        return windows, firsts

    def _scores(
        self,
        windows: Sequence[NDArray[np.int64]],
        firsts: Sequence[int],
        progress: Callable[[int, int], object] | None,
        *scores: Callable[[Tensor, Tensor], Tensor],
    ) -> NDArray[np.float64]:
        """What each window's ids from the one at ``firsts`` (>= 1) on add up to, in batches of like length.

        :param scores: of logits [N, V] and the ids [N] that came, for each of them a number.
        :returns: [scores, windows].
        """
        sums, done = np.zeros((len(scores), len(windows))), 0
        for rows in by_length(np.asarray([len(window) for window in windows], dtype=np.int64), _BATCH_TOKENS):
            begins = np.asarray([firsts[row] for row in rows])
            sums[:, rows] = self._batch([windows[row] for row in rows], begins, scores)
            done += len(rows)
            if progress is not None:
                progress(done, len(windows))
        return sums

    @torch.inference_mode()
    def _batch(
        self,
        windows: Sequence[NDArray[np.int64]],
        firsts: NDArray[np.int64],
        scores: Sequence[Callable[[Tensor, Tensor], Tensor]],
    ) -> NDArray[np.float64]:
        tokens = np.zeros((len(windows), max(2, *map(len, windows))), dtype=np.int64)  # (B, T + 1)
        for row, window in enumerate(windows):
            tokens[row, : len(window)] = window
        lengths = np.asarray([len(window) for window in windows])
        targets_at = np.arange(1, tokens.shape[1])
        owners, positions = np.nonzero((firsts[:, None] <= targets_at) & (targets_at < lengths[:, None]))  # (N,)
        states = self._model.hidden(torch.from_numpy(tokens[:, :-1]).to(self._device))  # (B, T, D)
        states = states[torch.from_numpy(owners), torch.from_numpy(positions)]  # (N, D)
        targets = torch.from_numpy(tokens[owners, positions + 1]).to(self._device)  # (N,)
        n_rows = max(1, (_CPU_LOGITS if self._device.type == "cpu" else _GPU_LOGITS) // self.n_vocab)
        sums = np.zeros((len(scores), len(windows)))
        for at in range(0, len(targets), n_rows):
            some = slice(at, at + n_rows)
            logits = self._model.logits(states[some]).float()
            for row_sums, score in zip(sums, scores, strict=True):
                np.add.at(row_sums, owners[some], score(logits, targets[some]).double().cpu().numpy())
        return sums


def network_likelihood(folder: str, pieces: Specials | None) -> NetworkLikelihood:
    """The likelihood of the model in a folder, which predicts the next token.

    :param pieces: not read: a decoder's special rows come after its vocabulary.
    :raises InputError: no model, or an encoder.
    """
    return NetworkLikelihood(load_language_model(folder))


def _log_probability(logits: Tensor, targets: Tensor) -> Tensor:
    """Log-probability of each id, in nats: [N]."""
    return -F.cross_entropy(logits, targets, reduction="none")


def _is_not_likeliest(logits: Tensor, targets: Tensor) -> Tensor:
    """1 where an id is not the likeliest one, else 0."""
    return (logits.argmax(dim=-1) != targets).float()
