"""How likely sentences are: one question that a network and an n-gram model answer alike.

An encoder answers with the pseudo-log-likelihood (Salazar et al. 2020, "Masked Language Model Scoring"): a sentence's
score is the sum over its pieces of log P(piece | the sentence with that piece masked), between [CLS] and [SEP], which
are not scored (section 2.2 there). Each piece takes a pass of its own: as every word sees every other, two sentences
that differ in a word share nothing. It is no probability, and compares with no decoder's: of a word cut into several
pieces each is told by the others.

Legend of the shape comments: N sequences, masked copies of one or, flattened, scored tokens; B sequences of a batch, T
positions, D width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gptcore.base.errors import InputError, require
from gptcore.base.types import Bools, Floats, Ints, Progress, quiet
from gptcore.data.feed import by_length
from gptcore.families import FAMILIES
from gptcore.models.encoder import Encoder
from gptcore.models.network import LanguageModel, load_language_model, load_model
from gptcore.objectives.objective import exponential
from gptcore.text.tokenizer import Specials, Tokenizer
from gptcore.text.word_edges import set_apart

Pairs = Sequence[tuple[Sequence[int], Sequence[int]]]
"""Each a context and its continuation, as ids."""
_Score = Callable[[Tensor, Tensor], Tensor]  # of logits [N, V] and the ids [N] that stand there, numbers [N]
_BATCH_TOKENS = 4096  # of one forward pass
_CPU_LOGITS = 1 << 22  # numbers held at once (16 MB): whole, a batch's would be 660 MB at V = 40,478
_GPU_LOGITS = 1 << 28


class Likelihood(Protocol):
    """A language model that scores sentences: :class:`NetworkLikelihood`, `gptcore.evaluation.ngram.NgramModel`."""

    n_vocab: int

    def log_probabilities(self, sequences: Sequence[Sequence[int]], progress: Progress = quiet) -> Floats:
        """Sum of log P(id | the ids before it) over every id of a sequence but its first, in nats: float64 [N].

        :param sequences: ids, each sequence by itself.
        :param progress: called with (parts scored, in all): sequences, or the windows that long ones are cut into.
        """


class NetworkLikelihood:
    """A network, the Transformer or the LSTM, as a :class:`Likelihood`; in float32, on the GPU where there is one."""

    def __init__(self, model: LanguageModel, opening: tuple[int, ...] = ()) -> None:
        """:param opening: ids that stand before every context, see :attr:`Tokenizer.opening`."""
        self._opening = opening
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model = model.to(self._device).eval()
        self.n_vocab = model.config.n_vocab
        self.longest = model.config.n_ctx
        """Ids of the longest continuation that is scored whole."""

    def log_probabilities(self, sequences: Sequence[Sequence[int]], progress: Progress = quiet) -> Floats:
        """Sum of log P(id | the ids before it) over every id of a sequence but its first, in nats: float64 [N].

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

    def continuations(self, pairs: Pairs, progress: Progress = quiet) -> tuple[Floats, Ints]:
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

    def greedy_continuations(self, pairs: Pairs, progress: Progress = quiet) -> tuple[Floats, Bools]:
        """The sums of :meth:`continuations`, and whether greedy decoding gives each continuation; in one pass.

        :returns: float64 [N], and bool [N]: whether each of its ids is the likeliest one there.
        """
        sums, others = self._scores(*self._cut(pairs), progress, _log_probability, _is_other)
        return sums, others == 0

    def _cut(self, pairs: Pairs) -> tuple[list[Ints], list[int]]:
        """What of each pair the model has positions for, and where in it the continuation begins (>= 1)."""
        windows, firsts = [], []
        for given, continuation in pairs:
            context = [*self._opening, *given]
            ids = np.asarray([*context, *continuation], dtype=np.int64)
            cut = max(0, len(ids) - self._model.config.n_ctx - 1)  # the last id is only predicted
            windows.append(ids[cut:])
            firsts.append(max(1, len(context) - cut))
        return windows, firsts

    def _scores(
        self,
        windows: Sequence[Ints],
        firsts: Sequence[int],
        progress: Progress,
        *scores: _Score,
    ) -> Floats:
        """What each window's ids from the one at ``firsts`` (>= 1) on add up to, in batches of like length.

        :param scores: of logits [N, V] and the ids [N] that came, for each of them a number.
        :returns: [scores, windows].
        """
        sums, done = np.zeros((len(scores), len(windows))), 0
        for rows in by_length(np.asarray([len(window) for window in windows], dtype=np.int64), _BATCH_TOKENS):
            begins = np.asarray([firsts[row] for row in rows])
            sums[:, rows] = self._batch([windows[row] for row in rows], begins, scores)
            done += len(rows)
            progress(done, len(windows))
        return sums

    @torch.inference_mode()
    def _batch(self, windows: Sequence[Ints], firsts: Ints, scores: Sequence[_Score]) -> Floats:
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


def _is_other(logits: Tensor, targets: Tensor) -> Tensor:
    """1 where another id than the one that stands there is the likeliest, else 0: [N]."""
    return (logits.argmax(dim=-1) != targets).float()


_MASKED_TOKENS = 8192  # of one forward pass
_COPIES = 1 << 16  # masked copies listed at once


class PseudoLikelihood:
    """An encoder as a :class:`gptcore.evaluation.likelihood.Likelihood`; float32, on the GPU where there is one.

    :param encoder: with a head for masked words.
    :param pieces: the ids of the vocabulary's special pieces.
    """

    def __init__(self, encoder: Encoder, pieces: Specials) -> None:
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._encoder = encoder.to(self._device).eval()
        self._pieces = pieces
        self.n_vocab = encoder.config.n_vocab
        self.longest = encoder.config.n_ctx - 2
        """Pieces of the longest sequence that can be scored whole."""

    def log_probabilities(self, sequences: Sequence[Sequence[int]], progress: Progress = quiet) -> Floats:
        """The pseudo-log-likelihood of every sequence after its first id, which stands for what is before: float64 [N].

        A sequence beyond n_ctx is scored in windows that lie end to end, each between [CLS] and [SEP].

        :param progress: called with (windows scored, in all).
        """
        windows, owners = [], []
        for owner, (_, *ids) in enumerate(sequences):
            for start in range(0, len(ids), self.longest):
                windows.append(np.asarray(ids[start : start + self.longest], dtype=np.int64))
                owners.append(owner)
        totals = np.zeros(len(sequences))
        if windows:
            np.add.at(totals, owners, self._scores(windows, [0] * len(windows), progress)[0])
        return totals

    def greedy_continuations(self, pairs: Pairs, progress: Progress = quiet) -> tuple[Floats, Bools]:
        """The pseudo-log-likelihood of each continuation, between its context and [SEP], in nats.

        The context is seen and not scored. A pair too long for the encoder loses its beginning.

        :returns: float64 [N], and bool [N]: whether each piece is the likeliest one in its own mask.
        """
        windows = [np.asarray([*context, *ids][-self.longest :], dtype=np.int64) for context, ids in pairs]
        firsts = [max(0, len(window) - len(ids)) for window, (_, ids) in zip(windows, pairs, strict=True)]
        sums, others = self._scores(windows, firsts, progress)
        return sums, others == 0

    def _scores(self, windows: Sequence[Ints], firsts: Sequence[int], progress: Progress) -> Floats:
        """What the pieces from ``firsts`` on add up to, each masked in a copy of its own: [2, windows].

        The log-probabilities, and how many pieces are not the likeliest ones.
        """
        scores, done = np.zeros((2, len(windows))), 0
        lengths = np.asarray([len(window) for window in windows], dtype=np.int64)
        for rows in by_length(lengths, _COPIES):
            masked = [np.arange(firsts[row], lengths[row]) for row in rows]
            copies = np.concatenate(
                [np.stack([np.full_like(places, row), places]) for row, places in zip(rows, masked, strict=True)], 1
            )
            width = int(lengths[rows].max()) + 2
            per_batch = max(1, _MASKED_TOKENS // width)
            for at in range(0, copies.shape[1], per_batch):
                owner, place = copies[:, at : at + per_batch]
                np.add.at(scores.T, owner, self._batch(windows, owner, place, width).T)
            done += len(rows)
            progress(done, len(windows))
        return scores

    @torch.inference_mode()
    def _batch(self, windows: Sequence[Ints], owner: Ints, place: Ints, width: int) -> Floats:
        """Both numbers [2, B] of the pieces at ``place`` of the windows ``owner``, each masked in its own copy."""
        texts = [windows[window] for window in owner]
        targets = torch.tensor([text[at] for text, at in zip(texts, place, strict=True)], device=self._device)
        logits = self._encoder.hidden_word_scores(texts, place.tolist(), self._pieces, width).float()  # (B, V)
        return torch.stack([score(logits, targets) for score in (_log_probability, _is_other)]).double().cpu().numpy()


def encoder_likelihood(folder: str, pieces: Specials | None) -> PseudoLikelihood:
    """The likelihood of the encoder in a folder.

    :raises InputError: no model, or one that predicts no masked words.
    """
    model = load_model(folder)
    title = FAMILIES[model.config.family].title
    if not isinstance(model, Encoder) or not model.config.words or pieces is None:
        raise InputError(f"{folder}: found {title} without a head for masked words, expected one that predicts them")
    return PseudoLikelihood(model, pieces)


def pseudo_perplexity(model: PseudoLikelihood, tokenizer: Tokenizer, lines: Iterable[str]) -> dict[str, float]:
    """exp of minus the mean pseudo-log-likelihood a piece (Salazar et al. 2020, section 2.3).

    It compares with other encoders', and with no decoder's perplexity.

    :param lines: each scored by itself; those beyond n_ctx in windows that lie end to end.
    :return: "pieces", "words", "pseudo_nats_per_piece", "pseudo_perplexity" and "pseudo_word_perplexity".
    :raises InputError: no piece at all.
    """
    sequences, n_words = [], 0
    for line in lines:
        ids = tokenizer.encode(line)
        n_words += len(set_apart(line).split())
        if ids:
            sequences.append([0, *ids])
    n_pieces = sum(map(len, sequences)) - len(sequences)
    require(n_pieces, "text: found no word, expected one or more")
    nats = -float(model.log_probabilities(sequences).sum())
    return {
        "pieces": n_pieces,
        "words": n_words,
        "pseudo_nats_per_piece": nats / n_pieces,
        "pseudo_perplexity": math.exp(nats / n_pieces),
        "pseudo_word_perplexity": exponential(nats / n_words),
    }
