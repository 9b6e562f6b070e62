"""A task's rows as sequences that a pre-trained network can read, a decoder's and an encoder's.

A decoder's are those of Figure 1, right; a symmetric pair stands in both orders, whose two representations are summed
before the linear layer:

    a text       [s] text [e]
    pair         [s] premise [$] hypothesis [e]
    choices      [s] document question [$] answer_k [e], one sequence an answer, softmax over them

The start, delimiter and classify tokens are the three rows appended after the vocabulary (original code).

An encoder's are those of BERT's Figure 1, right (Devlin et al. 2019, sections 3 and 4; ALBERT and ELECTRA keep it):

    a text       [CLS] text [SEP]
    pair         [CLS] first [SEP] second [SEP], once also where neither text comes first
    choices      [CLS] document question [SEP] answer_k [SEP], one sequence an answer, softmax over them
    span         [CLS] question [SEP] passage [SEP], a window of the passage at a time

Up to the first [SEP] tokens are of segment 0, behind it of segment 1. The special pieces belong to the vocabulary, so
that no row is appended to the embedding.

All of this is numpy; torch is imported only where a batch is made, so that stages that merely encode do not pay for it.

Legend: N sequences, B batch, C sequences an example (choices or orders), T positions, K classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import InputError, require
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.data.shards import token_dtype
from gptcore.nlu.examples import Example
from gptcore.nlu.forms import form_of
from gptcore.nlu.forms.form import Ids, Sides
from gptcore.nlu.spec import TaskSpec
from gptcore.text.tokenizer import Specials as Pieces
from gptcore.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

PADDING = 0
"""Right padding; harmless because attention is causal and its targets are ignored (original code)."""
N_SPECIAL = 3
MARKS = ("segments", "mask", "words")
"""What some networks are told of their tokens, by the names of their parameters; the fields of a batch, too."""


class Specials(NamedTuple):
    """Ids of the rows appended to the vocabulary for fine-tuning, in the original code's order."""

    start: int
    delimiter: int
    classify: int


def specials(n_vocab: int) -> Specials:
    """The three special ids after a vocabulary of ``n_vocab`` pieces."""
    return Specials(n_vocab, n_vocab + 1, n_vocab + 2)


@dataclass(frozen=True)
class EncodedExample:
    """One row of a dataset as token ids, before any special token or truncation."""

    fields: tuple[Ids, ...]
    choices: tuple[Ids, ...]
    label: float | None
    """Class index, index of the right choice, or score; None where the row carries no label."""
    subset: str
    row: str
    """``file:line``, to name the row in messages and predictions."""


def encode_rows(
    examples: Sequence[Example], tokenizer: Tokenizer, last: list[Ids] | None = None
) -> list[EncodedExample]:
    """Rows of text as token ids.

    :param last: the ids of each row's last field, where these are known already.
    """
    n_known = 0 if last is None else 1
    others = [example.fields[: len(example.fields) - n_known] for example in examples]
    texts = list(dict.fromkeys(t for fields, e in zip(others, examples, strict=True) for t in (*fields, *e.choices)))
    dtype = token_dtype(tokenizer.n_vocab)
    ids: dict[str, Ids] = {
        text: np.asarray(tokens, dtype=dtype) for text, tokens in zip(texts, tokenizer.encode_batch(texts), strict=True)
    }
    return [
        EncodedExample(
            fields=(*(ids[text] for text in fields), *([] if last is None else [last[at]])),
            choices=tuple(ids[text] for text in example.choices),
            label=example.label,
            subset=example.subset,
            row=example.row,
        )
        for at, (fields, example) in enumerate(zip(others, examples, strict=True))
    ]


def fit(lengths: Sequence[int], room: int, context: int | None) -> list[int]:
    """How much of each part to keep so that together they take at most ``room`` tokens.

    The part numbered ``context`` gives way first. If the others alone are too long, the longest of them is cut down to
    the next longest and so on, so that something of each remains. None: no part is the context.
    """
    kept = list(lengths)
    if context is not None:
        kept[context] = max(0, min(kept[context], room - (sum(kept) - kept[context])))
    while (excess := sum(kept) - room) > 0:
        *shorter, longest = sorted(range(len(kept)), key=kept.__getitem__)
        lead = kept[longest] - (kept[shorter[-1]] if shorter else 0)
        kept[longest] -= min(excess, max(lead, 1))
    return kept


def released_part_tokens(n_ctx: int) -> int:
    """Most tokens on either side of the delimiter (original code).

    :raises InputError: if ``n_ctx`` leaves no room for any.
    """
    require(n_ctx >= 6, f"model.n_ctx = {n_ctx} has no room for the released inputs: expected at least 6")
    return n_ctx // 2 - 2


@dataclass(frozen=True)
class TaskBatch:
    """Padded examples, ready for the network."""

    tokens: torch.Tensor  # (B, C, T) int64
    lm_targets: torch.Tensor  # (B, C, T) int64: what each position predicts, IGNORE_INDEX where nothing
    clf_position: torch.Tensor  # (B, C) int64: where each sequence's classify token stands
    labels: torch.Tensor | None  # (B,) int64 classes, or (B, K) float32 soft labels or sets of labels
    segments: torch.Tensor | None = None  # (B, C, T) int64: which part each token belongs to, of families that say so
    mask: torch.Tensor | None = None  # (B, C, T) bool: what is no padding, of families whose words see all others
    words: torch.Tensor | None = None  # (B, C, T, F) int64: features of the word that begins there, else 0

    @property
    def marks(self) -> dict[str, torch.Tensor]:
        """What the network is told of the tokens beside their ids, by the names of its parameters; none: nothing."""
        return {name: mark for name in MARKS if (mark := getattr(self, name)) is not None}

    @property
    def ends(self) -> torch.Tensor:
        """The last position of each sequence that is no padding: (B, C)."""
        return self.clf_position if self.mask is None else self.mask.sum(dim=-1) - 1

    @property
    def n_tokens(self) -> int:
        """Tokens of all sequences, specials included."""
        return int((self.ends + 1).sum())

    def to(self, device: torch.device | str) -> TaskBatch:
        """Copy the batch to another device, without waiting for a GPU."""
        there = {name: part for name, part in vars(self).items() if part is not None}
        return replace(self, **{name: part.to(device, non_blocking=True) for name, part in there.items()})


def encoded_labels(spec: TaskSpec, labels: Sequence[float | None]) -> torch.Tensor | None:
    """Labels (B,) as what the form's loss compares logits with: class indices (B,), for graded labels soft ones (B, K),
    for sets of labels 0 or 1 each (B, K); None if any example has none.
    """
    import torch

    known = [label for label in labels if label is not None]
    if len(known) < len(labels):
        return None
    return torch.from_numpy(form_of(spec).targets(spec, np.asarray(known, dtype=np.float64)))


@dataclass(frozen=True)
class RowReader(ABC):
    """How a network reads the rows of a task: its special ids, how many sequences a row becomes, where they are cut.

    Each family names its own kind.
    """

    n_special: ClassVar[int]
    """Rows that fine-tuning appends to the embedding."""
    spec: TaskSpec
    n_ctx: int
    """Most tokens of a sequence."""
    n_vocab: int
    """Pieces of the vocabulary, behind which a decoder's special ids stand."""
    part_tokens: int | None = None
    """Cut either side of the delimiter to so many tokens first, as released; None: cut only what does not fit."""
    pieces: Pieces | None = None
    """The ids of the vocabulary's own special pieces; None: it has none."""
    words: bool = False
    """Whether batches of tagged words hold their features, see :mod:`gptcore.nlu.word_features`."""

    @property
    @abstractmethod
    def delimiter(self) -> int:
        """Id of the token that stands between two texts, the first of its kind in a sequence."""

    @property
    def joints(self) -> int:
        """How many delimiters stand between two texts."""
        return self.pieces.joints if self.pieces else 1

    @abstractmethod
    def sequences(self, fields: Sequence[Ids], choices: Sequence[Ids]) -> tuple[list[Ids], bool]:
        """The token sequences of one row, each at most ``n_ctx`` long, and whether anything had to be cut.

        :raises InputError: ``n_ctx`` has no room for the special tokens and a word of each part, or the vocabulary has
            no special pieces, and the family needs them.
        """

    @abstractmethod
    def collate(self, sequences: Sequence[Sequence[Ids]], labels: Sequence[float | None]) -> TaskBatch:
        """Rows of equally many sequences as one padded batch; ``labels``: see :func:`encoded_labels`."""

    def fitted_sides(self, fields: Sequence[Ids], choices: Sequence[Ids], needed: int) -> tuple[list[Sides], bool]:
        """The parts of each of a row's sequences, cut so that they fit, and whether anything had to be cut.

        The context (premise, document, story) is cut at its end, the same for all choices, so that they differ in the
        answer only; question, answer and specials stay whole. Only where these alone do not fit is the longest of them
        cut.

        :param needed: the special tokens for which there has to be room beside a token of each part.
        :raises InputError: there is none.
        """
        if self.n_ctx < (least := needed + len(fields) + bool(choices)):
            raise InputError(f"model.n_ctx = {self.n_ctx} has no room for {self.spec.name}: expected at least {least}")
        parts = [*fields, max(choices, key=len)] if choices else list(fields)
        lengths = [len(part) for part in parts]
        kept = fit(lengths, self.n_ctx - (2 if len(parts) == 1 else 2 + self.joints), self.spec.context)
        fields = [part[:length] for part, length in zip(fields, kept, strict=False)]
        sides = form_of(self.spec).sides(fields, [choice[: kept[-1]] for choice in choices])
        return sides, kept != lengths


class DecoderReader(RowReader):
    """GPT-1's, Figure 1: start, delimiter and classify tokens, the symmetric pairs in both orders."""

    n_special = N_SPECIAL

    @property
    def delimiter(self) -> int:
        return specials(self.n_vocab).delimiter

    def sequences(self, fields: Sequence[Ids], choices: Sequence[Ids]) -> tuple[list[Ids], bool]:
        """The token sequences of one row as Figure 1 has them, and whether anything had to be cut.

        With ``part_tokens`` either side of the delimiter is cut first to so many tokens at its end, as released. Where
        several fields stand on one side (RACE: article and question) its context gives way first; a single text, which
        the released code did not cover, has no other side to share the room with and keeps all of it.
        """
        given, limit = [*fields, *choices], self.part_tokens
        if limit is not None and len(given) > 1:
            kept = fit([len(part) for part in fields], limit, self.spec.context) if choices else [limit] * len(fields)
            fields = [part[:length] for part, length in zip(fields, kept, strict=True)]
            choices = [part[:limit] for part in choices]
        limited = sum(map(len, (*fields, *choices))) < sum(map(len, given))
        start, delimiter, classify = ([token] for token in specials(self.n_vocab))
        sides, cut = self.fitted_sides(fields, choices, N_SPECIAL)
        if self.spec.symmetric:  # section 3.3: no inherent order, so both
            sides = [order for first, second in sides for order in ((first, second), (second, first))]
        return [
            _join(start, *first, *([delimiter] if second else []), *second, classify) for first, second in sides
        ], cut or limited

    def collate(self, sequences: Sequence[Sequence[Ids]], labels: Sequence[float | None]) -> TaskBatch:
        """Rows of equally many sequences as one batch, padded to the longest one.

        A position's language-model target is the next token; delimiter and classify are predicted too, the start token
        and what follows the classify token are not (original code).
        """
        import torch

        tokens, mask = _padded(sequences, PADDING)
        targets = np.full_like(tokens, IGNORE_INDEX)  # (B, C, T)
        targets[..., :-1] = np.where(mask[..., 1:], tokens[..., 1:], IGNORE_INDEX)
        clf_position = mask.sum(axis=-1) - 1  # (B, C)
        classes = encoded_labels(self.spec, labels)
        return TaskBatch(torch.from_numpy(tokens), torch.from_numpy(targets), torch.from_numpy(clf_position), classes)


class EncoderReader(RowReader):
    """The sequences of a vocabulary's special pieces."""

    n_special = 0

    @property
    def _pieces(self) -> Pieces:
        if self.pieces is None:
            raise InputError(
                "tokenizer: found one without [CLS] and [SEP], expected an encoder's [CLS] A [SEP] B [SEP]"
            )
        return self.pieces

    @property
    def delimiter(self) -> int:
        return self._pieces.sep

    def sequences(self, fields: Sequence[Ids], choices: Sequence[Ids]) -> tuple[list[Ids], bool]:
        """The token sequences of one row between the vocabulary's special pieces, and whether anything had to be cut.

        ``part_tokens`` must be None: it is GPT-1's released code that cuts either side first.
        """
        if self.part_tokens is not None:
            raise ValueError(f"part_tokens = {self.part_tokens}: an encoder's parts share the room")
        sides, cut = self.fitted_sides(fields, choices, 2 if len(fields) == 1 and not choices else 2 + self.joints)
        cls, sep = [self._pieces.cls], [self._pieces.sep]
        hidden = self._without_separators
        sequences = []
        for first, second in sides:
            joint = sep * self.joints if second else []
            sequences.append(_join(cls, *map(hidden, first), joint, *map(hidden, second), sep))
        return sequences, cut

    def _without_separators(self, text: Ids) -> Ids:
        """A text's ids, that of [SEP] negative, so that it is known from those between texts until a batch is made."""
        ids = text.astype(np.int64)
        return np.where(ids == self._pieces.sep, -1 - ids, ids)

    def collate(self, sequences: Sequence[Sequence[Ids]], labels: Sequence[float | None]) -> TaskBatch:
        """Examples of equally many sequences, padded to the longest one, with their segments and what is no padding.

        No position has a language-model target, and the first one stands for its sequence.
        """
        import torch

        tokens, mask = _padded(sequences, self._pieces.pad)
        separators = np.cumsum(tokens == self._pieces.sep, axis=-1)
        behind = separators - (tokens == self._pieces.sep) >= self.joints  # (B, C, T): all between two texts
        second = mask & behind & (self._pieces.segments > 1)
        tokens = np.where(tokens < 0, -1 - tokens, tokens)
        return TaskBatch(
            tokens=torch.from_numpy(tokens),
            lm_targets=torch.full(tokens.shape, IGNORE_INDEX),
            clf_position=torch.zeros(tokens.shape[:2], dtype=torch.int64),
            labels=encoded_labels(self.spec, labels),
            segments=torch.from_numpy(second.astype(np.int64)),
            mask=torch.from_numpy(mask),
        )


def _padded(sequences: Sequence[Sequence[Ids]], padding: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Rows of equally many sequences, padded to the longest of all, and what of them is no padding: (B, C, T) each."""
    width = max(len(sequence) for example in sequences for sequence in example)
    tokens = np.full((len(sequences), len(sequences[0]), width), padding, dtype=np.int64)
    mask = np.zeros(tokens.shape, dtype=np.bool_)
    for row, example in enumerate(sequences):
        for column, sequence in enumerate(example):
            tokens[row, column, : len(sequence)] = sequence
            mask[row, column, : len(sequence)] = True
    return tokens, mask


def _join(*parts: Ids | Sequence[int]) -> Ids:
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])
