"""More training rows from a task's own: words replaced by what a masked language model would put there.

TinyBERT's data augmentation (Jiao et al. 2020, Algorithm 1): of each word that is one piece an encoder, which sees the
text with that word masked, proposes the likeliest others; a copy of a row has each such word replaced with some
probability, by one of them. Words of several pieces stay (the paper asks GloVe's vectors for those).

Legend of the shape comments: N masked copies of a batch, T positions, V vocabulary, K proposals.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from gptcore.base.errors import InputError
from gptcore.base.seeds import derive_seed
from gptcore.base.types import Bools, Ints
from gptcore.data.feed import by_length
from gptcore.models.encoder import Encoder
from gptcore.models.network import load_model
from gptcore.nlu.forms.form import Ids
from gptcore.nlu.inputs import EncodedExample
from gptcore.text.tokenizer import Specials

PROPOSALS = 15
"""Words that are drawn from, "M" in the released code."""
SHARE = 0.4
"""Probability of a word's replacement (section 4.1)."""
_BATCH_TOKENS = 8192


class WordProposer:
    """An encoder that says which words could stand in the place of each.

    :param encoder: with a head for masked words, in eval mode.
    :param pieces: the ids of the vocabulary's special pieces.
    :param tail: [V] which pieces go on a word, and so are none.
    :param special: [V] which pieces stand for no text.
    """

    def __init__(self, encoder: Encoder, pieces: Specials, tail: Bools, special: Bools) -> None:
        self._encoder, self._pieces, self._tail = encoder.eval(), pieces, tail
        self._device = next(encoder.parameters()).device
        self._none = torch.from_numpy(tail | special).to(self._device)  # never proposed

    @classmethod
    def load(cls, folder: Path, pieces: Specials, tail: Bools, special: Bools) -> WordProposer:
        """The proposer of a pre-trained model's folder.

        :raises InputError: it has no head for masked words.
        """
        model = load_model(str(folder))
        if not isinstance(model, Encoder) or not model.config.words:
            raise InputError(f"{folder}: has no head for masked words; expected a model that proposes some")
        return cls(model, pieces, tail, special)

    def places(self, text: Ids) -> Ints:
        """Where words of one piece stand, as far as the encoder sees a text."""
        ids = np.asarray(text[: self._encoder.config.n_ctx - 2], dtype=np.int64)
        goes_on = np.append(self._tail[ids[1:]], False) if len(ids) else np.zeros(0, bool)
        return np.flatnonzero(~self._tail[ids] & ~goes_on & (ids != self._pieces.unk))

    @torch.inference_mode()
    def propose(self, texts: Sequence[Ids]) -> list[Ints]:
        """For each text [n, K]: the likeliest others at each of :meth:`places`, the word itself never among them."""
        places = [self.places(text) for text in texts]
        proposed = [np.zeros((len(at), PROPOSALS), np.int64) for at in places]
        owners = np.array([(row, at) for row, its in enumerate(places) for at in range(len(its))]).reshape(-1, 2)
        lengths = np.array([len(texts[row]) + 2 for row, _ in owners], dtype=np.int64)
        for chosen in by_length(lengths, _BATCH_TOKENS):
            ids = self._asked([(texts[row], int(places[row][at])) for row, at in owners[chosen]])
            for (row, at), words in zip(owners[chosen], ids, strict=True):
                proposed[row][at] = words
        return proposed

    def _asked(self, masked: Sequence[tuple[Ids, int]]) -> Ints:
        """[N, K] proposals for one place of each text."""
        room = self._encoder.config.n_ctx - 2
        texts = [text[:room] for text, _ in masked]
        places = [place for _, place in masked]
        scores = self._encoder.hidden_word_scores(texts, places, self._pieces, max(map(len, texts)) + 2).float()
        scores[:, self._none] = -torch.inf
        own = torch.tensor([int(text[place]) for text, place in masked], device=self._device)
        scores.scatter_(1, own[:, None], -torch.inf)
        return scores.topk(PROPOSALS, dim=1).indices.cpu().numpy()


def augmented(
    rows: Sequence[EncodedExample], proposer: WordProposer, copies: int, seed: int
) -> Iterator[EncodedExample]:
    """Every row, and behind it ``copies`` of it with words replaced; labels stay.

    A copy in which nothing was replaced is left out.

    :param seed: names the draws, of which each row's are its own.
    """
    texts = {part.tobytes(): part for row in rows for part in (*row.fields, *row.choices)}
    proposed = dict(zip(texts, proposer.propose(list(texts.values())), strict=True))
    for number, row in enumerate(rows):
        yield row
        draws = np.random.default_rng(derive_seed(seed, "augmentation", number))
        for _ in range(copies):
            fields, choices = (
                tuple(_replaced(part, proposer, proposed, draws) for part in parts)
                for parts in (row.fields, row.choices)
            )
            if any(
                not np.array_equal(new, old)
                for new, old in zip((*fields, *choices), (*row.fields, *row.choices), strict=True)
            ):
                yield dataclasses.replace(row, fields=fields, choices=choices)


def _replaced(text: Ids, proposer: WordProposer, proposed: Mapping[bytes, Ints], draws: np.random.Generator) -> Ids:
    """A text with some of its words replaced."""
    places, words = proposer.places(text), proposed[text.tobytes()]
    chosen, which = draws.random(len(places)) < SHARE, draws.integers(PROPOSALS, size=len(places))
    replaced = text.copy()
    replaced[places[chosen]] = words[chosen, which[chosen]]
    return replaced
