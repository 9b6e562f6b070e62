"""How likely sentences are to an encoder: pseudo-log-likelihood (Salazar et al. 2020, "Masked Language Model Scoring").

A sentence's score is the sum over its pieces of log P(piece | the sentence with that piece masked), between [CLS] and
[SEP], which are not scored (section 2.2 there). Each piece takes a pass of its own: as every word sees every other, two
sentences that differ in a word share nothing. It is no probability, and compares with no decoder's: of a word cut into
several pieces each is told by the others.

Legend: N masked copies, B of a batch, T positions, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from gptcore.base.errors import InputError
from gptcore.data.batches import by_length
from gptcore.families import FAMILIES
from gptcore.models.build import load_model
from gptcore.models.encoder import Encoder
from gptcore.text.tokenizer import Specials, Tokenizer

_BATCH_TOKENS = 8192  # of one forward pass
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

    def log_probabilities(
        self, sequences: Sequence[Sequence[int]], progress: Callable[[int, int], object] | None = None
    ) -> NDArray[np.float64]:
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
            np.add.at(totals, owners, self._scores(windows, progress))
        return totals

    def _scores(
        self, windows: Sequence[NDArray[np.int64]], progress: Callable[[int, int], object] | None
    ) -> NDArray[np.float64]:
        """The score of each window; each of its pieces is masked in a copy of its own."""
        scores, done = np.zeros(len(windows)), 0
        lengths = np.asarray([len(window) for window in windows])
        for rows in by_length(lengths, _COPIES):
            copies = np.concatenate(
                [np.stack([np.full(lengths[row], row), np.arange(lengths[row])]) for row in rows], 1
            )
            width = int(lengths[rows].max()) + 2
            per_batch = max(1, _BATCH_TOKENS // width)
            for at in range(0, copies.shape[1], per_batch):
                owner, place = copies[:, at : at + per_batch]
                np.add.at(scores, owner, self._batch(windows, owner, place, width))
            done += len(rows)
            if progress is not None:
                progress(done, len(windows))
        return scores

    @torch.inference_mode()
    def _batch(
        self, windows: Sequence[NDArray[np.int64]], owner: NDArray[np.int64], place: NDArray[np.int64], width: int
    ) -> NDArray[np.float64]:
        """Log-probabilities [B] of the pieces at ``place`` of the windows ``owner``, each masked in its own copy."""
        tokens = np.full((len(owner), width), self._pieces.pad, dtype=np.int64)  # (B, T)
        for row, window in enumerate(owner):
            ids = windows[window]
            tokens[row, 0], tokens[row, 1 : 1 + len(ids)], tokens[row, 1 + len(ids)] = (
                self._pieces.cls,
                ids,
                self._pieces.sep,
            )
        lengths = np.asarray([len(windows[window]) for window in owner]) + 2
        mask = np.arange(width) < lengths[:, None]
        every = np.arange(len(owner))
        targets = torch.from_numpy(tokens[every, place + 1]).to(self._device)
        tokens[every, place + 1] = self._pieces.mask
        given = torch.from_numpy(tokens).to(self._device)
        states = self._encoder.encode(given, None, torch.from_numpy(mask).to(self._device))  # (B, T, D)
        at = torch.from_numpy(place + 1).to(self._device)
        logits = self._encoder.word_scores(states[torch.arange(len(owner), device=self._device), at])  # (B, V)
        return -F.cross_entropy(logits.float(), targets, reduction="none").double().cpu().numpy()


def encoder_likelihood(folder: str, pieces: Specials | None) -> PseudoLikelihood:
    """The likelihood of the encoder in a folder, of ELECTRA's the generator's, which lies inside of its folder.

    :raises InputError: no model, or one that predicts no masked words.
    """
    generator = Path(folder, "generator")
    model = load_model(str(generator) if generator.is_dir() else folder)
    title = FAMILIES[model.config.family].title
    if not isinstance(model, Encoder) or not model.config.words or pieces is None:
        raise InputError(f"{folder}: found {title} without a head for masked words, expected one that predicts them")
    return PseudoLikelihood(model, pieces)


def pseudo_perplexity(
    model: PseudoLikelihood,
    tokenizer: Tokenizer,
    lines: Iterable[str],
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, float]:
    """exp of minus the mean pseudo-log-likelihood a piece (Salazar et al. 2020, section 2.3).

    It compares with other encoders', and with no decoder's perplexity.

    :param lines: each scored by itself; those beyond n_ctx in windows that lie end to end.
    :return: "pieces", "words", "pseudo_nats_per_piece", "pseudo_perplexity" and "pseudo_word_perplexity".
    :raises InputError: no piece at all.
    """
    sequences, n_words = [], 0
    for line in lines:
        ids = tokenizer.encode(line)
        n_words += len(line.split())
        if ids:
            sequences.append([0, *ids])
    n_pieces = sum(map(len, sequences)) - len(sequences)
    if not n_pieces:
        raise InputError("text: found no word, expected one or more")
    nats = -float(model.log_probabilities(sequences, progress).sum())
    return {
        "pieces": n_pieces,
        "words": n_words,
        "pseudo_nats_per_piece": nats / n_pieces,
        "pseudo_perplexity": math.exp(nats / n_pieces),
        "pseudo_word_perplexity": math.exp(nats / n_words) if nats / n_words < 700 else math.inf,
    }
