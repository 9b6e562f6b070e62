"""Figure 1, right: every task's fields as sequences that the pre-trained network can read.

    single       [s] text [e]; the form "labels", too
    pair         [s] premise [$] hypothesis [e]; a symmetric one in both orders, whose two representations are summed
                 before the linear layer
    choices      [s] document question [$] answer_k [e], one sequence an answer, softmax over them

The start, delimiter and classify tokens are the three rows appended after the vocabulary (original code). All of this
is numpy; torch is imported only where a batch is made, so that stages that merely encode do not pay for it.

Legend: N sequences, B batch, C sequences an example (choices or orders), T positions, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import InputError
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.nlu.label_sets import as_numbers, from_numbers
from gptcore.nlu.registry import ONE_TEXT_FORMS, TaskSpec
from gptcore.text.tokenizer import Specials as Pieces

if TYPE_CHECKING:
    import torch

Ids = NDArray[np.integer]
PADDING = 0
"""Right padding; harmless because attention is causal and its targets are ignored (original code)."""
N_SPECIAL = 3
MARKS = ("segments", "mask")
"""What some families tell a network of its tokens, by the names of its parameters; the fields of a batch, too."""


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
    if n_ctx < 6:
        raise InputError(f"model.n_ctx = {n_ctx} has no room for the released inputs: expected at least 6")
    return n_ctx // 2 - 2


def build_sequences(
    spec: TaskSpec,
    fields: Sequence[Ids],
    choices: Sequence[Ids],
    n_ctx: int,
    specials: Specials,
    part_tokens: int | None = None,
) -> tuple[list[Ids], bool]:
    """The token sequences of one example, each at most ``n_ctx`` long, and whether anything had to be cut.

    The context (premise, document, story) is cut at its end, the same for all choices, so that they differ in the
    answer only; question, answer and specials stay whole. Only where these alone do not fit is the longest of them cut.

    :param part_tokens: before that, cut either side of the delimiter to so many tokens at its end, as released. Where
        several fields stand on one side (RACE: article and question) its context gives way first; a single text, which
        the released code did not cover, has no other side to share the room with and keeps all of it.
    :raises InputError: if ``n_ctx`` has no room for the special tokens and a word of each part.
    """
    if part_tokens is not None and spec.form not in ONE_TEXT_FORMS:
        limited = _limit_sides(spec, fields, choices, part_tokens)
        sequences, cut = build_sequences(spec, *limited, n_ctx, specials)
        return sequences, cut or _count(*limited) < _count(fields, choices)
    if n_ctx < N_SPECIAL + len(fields) + bool(choices):
        raise InputError(
            f"model.n_ctx = {n_ctx} has no room for {spec.name}: "
            f"expected at least {N_SPECIAL + len(fields) + bool(choices)}"
        )
    start, delimiter, classify = ([token] for token in specials)
    if spec.form in ONE_TEXT_FORMS:
        kept = fit([len(fields[0])], n_ctx - 2, spec.context)
        (text,) = _cut(fields, kept)
        return [_join(start, text, classify)], kept != [len(fields[0])]
    lengths = [len(part) for part in fields]
    if spec.form == "choices":
        longest_answer = max(len(choice) for choice in choices)
        kept = fit([*lengths, longest_answer], n_ctx - 3, spec.context)
        context = _cut(fields, kept)
        sequences = [_join(start, *context, delimiter, choice[: kept[-1]], classify) for choice in choices]
        return sequences, kept != [*lengths, longest_answer]
    kept = fit(lengths, n_ctx - 3, spec.context)
    first, second = _cut(fields, kept)
    sequences = [_join(start, first, delimiter, second, classify)]
    if spec.symmetric:  # section 3.3: no inherent order, so both
        sequences.append(_join(start, second, delimiter, first, classify))
    return sequences, kept != lengths


def _limit_sides(
    spec: TaskSpec, fields: Sequence[Ids], choices: Sequence[Ids], limit: int
) -> tuple[list[Ids], list[Ids]]:
    if spec.form == "choices":
        kept = fit([len(field) for field in fields], limit, spec.context)
        return _cut(fields, kept), [choice[:limit] for choice in choices]
    return [field[:limit] for field in fields], []


def _count(*groups: Sequence[Ids]) -> int:
    return sum(len(part) for group in groups for part in group)


def _cut(parts: Sequence[Ids], kept: Sequence[int]) -> list[Ids]:
    return [part[:length] for part, length in zip(parts, kept, strict=False)]


def _join(*parts: Ids | list[int]) -> Ids:
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])


@dataclass(frozen=True)
class TaskBatch:
    """Padded examples, ready for the network."""

    tokens: torch.Tensor  # (B, C, T) int64
    lm_targets: torch.Tensor  # (B, C, T) int64: what each position predicts, IGNORE_INDEX where nothing
    clf_position: torch.Tensor  # (B, C) int64: where each sequence's classify token stands
    labels: torch.Tensor | None  # (B,) int64 classes, or (B, K) float32 soft labels or sets of labels
    segments: torch.Tensor | None = None  # (B, C, T) int64: which part each token belongs to, of families that say so
    mask: torch.Tensor | None = None  # (B, C, T) bool: what is no padding, of families whose words see all others

    @property
    def marks(self) -> dict[str, torch.Tensor]:
        """What the network is told of the tokens beside their ids, by the names of its parameters; none: nothing."""
        return {name: mark for name in MARKS if (mark := getattr(self, name)) is not None}

    @property
    def n_tokens(self) -> int:
        """Tokens of all sequences, specials included."""
        return int((self.clf_position + 1).sum() if self.mask is None else self.mask.sum())

    def to(self, device: torch.device | str) -> TaskBatch:
        """The same batch on another device."""
        return TaskBatch(
            self.tokens.to(device, non_blocking=True),
            self.lm_targets.to(device, non_blocking=True),
            self.clf_position.to(device, non_blocking=True),
            None if self.labels is None else self.labels.to(device, non_blocking=True),
            **{name: mark.to(device, non_blocking=True) for name, mark in self.marks.items()},
        )


def collate(
    spec: TaskSpec, sequences: Sequence[Sequence[Ids]], labels: Sequence[float | None], length: int | None = None
) -> TaskBatch:
    """Pad examples of equally many sequences to the longest one, or to ``length``.

    A position's language-model target is the next token; delimiter and classify are predicted too, the start token
    and what follows the classify token are not (original code). Labels become class indices, for a graded label soft
    labels, for sets of them 0 or 1 a label; they are None if any example has none.
    """
    import torch

    rows, columns = len(sequences), len(sequences[0])
    width = length or max(len(sequence) for example in sequences for sequence in example)
    tokens = np.full((rows, columns, width), PADDING, dtype=np.int64)  # (B, C, T)
    targets = np.full((rows, columns, width), IGNORE_INDEX, dtype=np.int64)  # (B, C, T)
    clf_position = np.empty((rows, columns), dtype=np.int64)  # (B, C)
    for row, example in enumerate(sequences):
        for column, sequence in enumerate(example):
            tokens[row, column, : len(sequence)] = sequence
            targets[row, column, : len(sequence) - 1] = sequence[1:]
            clf_position[row, column] = len(sequence) - 1
    found = encoded_labels(spec, labels)
    return TaskBatch(torch.from_numpy(tokens), torch.from_numpy(targets), torch.from_numpy(clf_position), found)


def encoded_labels(spec: TaskSpec, labels: Sequence[float | None]) -> torch.Tensor | None:
    """Labels (B,) as class indices (B,), for a graded label as soft labels (B, K), for sets of labels as 0 or 1 each
    (B, K); None if any example has none.
    """
    import torch

    known = [label for label in labels if label is not None]
    if len(known) < len(labels):
        return None
    scores = np.asarray(known, dtype=np.float64)
    if spec.form == "labels":
        return torch.from_numpy(from_numbers(scores, spec.n_outputs).astype(np.float32))
    return torch.from_numpy(soft_labels(spec, scores) if spec.score_range else scores.astype(np.int64))


def soft_labels(spec: TaskSpec, scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Graded labels (N,) as distributions (N, K) over the whole numbers of the score's range.

    A score y puts floor(y) + 1 - y on class floor(y) and y - floor(y) on the next (original code; Tai et al. 2015), so
    that the distribution's expected class is y.
    """
    assert spec.score_range is not None
    shifted = np.asarray(scores, dtype=np.float64) - spec.score_range[0]
    low = np.minimum(np.floor(shifted), spec.n_outputs - 2).astype(np.int64)  # the top score is all on the last class
    target = np.zeros((len(shifted), spec.n_outputs), dtype=np.float32)  # (N, K)
    row = np.arange(len(shifted))
    target[row, low] = low + 1 - shifted
    target[row, low + 1] = shifted - low
    return target


def predict(spec: TaskSpec, logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Predictions (N,) from task logits: (N, K) classes, or (N, C) one score a choice.

    The likeliest class or choice; for a graded label the expected class, on the label's own scale; of sets of labels
    those that are likelier than not.
    """
    scores = np.asarray(logits, dtype=np.float64)
    if spec.form == "labels":
        return as_numbers(scores > 0)
    if spec.score_range is None:
        predictions = np.argmax(scores, axis=1)
    else:
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))  # (N, K)
        classes = np.arange(spec.n_outputs) + spec.score_range[0]
        predictions = weights @ classes / weights.sum(axis=1)
    return np.asarray(predictions, dtype=np.float64)


class Inputs(Protocol):
    """What a family makes of a task's rows: its special ids, how many sequences a row becomes, where they are cut."""

    @property
    def n_special(self) -> int:
        """Rows that fine-tuning appends to the embedding."""
        ...

    def with_pieces(self, pieces: Pieces | None) -> Inputs:
        """The same for a vocabulary with special pieces of its own.

        :param pieces: their ids; None: it has none.
        :raises InputError: a vocabulary without them, and a family that needs them.
        """
        ...

    def sequences(
        self,
        spec: TaskSpec,
        fields: Sequence[Ids],
        choices: Sequence[Ids],
        *,
        n_ctx: int,
        n_vocab: int,
        part_tokens: int | None = None,
    ) -> tuple[list[Ids], bool]:
        """The token sequences of one row, each at most ``n_ctx`` long, and whether anything had to be cut."""
        ...

    def collate(self, spec: TaskSpec, sequences: Sequence[Sequence[Ids]], labels: Sequence[float | None]) -> TaskBatch:
        """Rows of equally many sequences as one padded batch."""
        ...


class DecoderInputs:
    """GPT-1's, Figure 1: start, delimiter and classify tokens, the symmetric pairs in both orders."""

    n_special = N_SPECIAL

    def with_pieces(self, pieces: Pieces | None) -> Self:
        """The same: what the specials are follows from the size of the vocabulary."""
        return self

    def sequences(
        self,
        spec: TaskSpec,
        fields: Sequence[Ids],
        choices: Sequence[Ids],
        *,
        n_ctx: int,
        n_vocab: int,
        part_tokens: int | None = None,
    ) -> tuple[list[Ids], bool]:
        """See :func:`build_sequences`."""
        return build_sequences(spec, fields, choices, n_ctx, specials(n_vocab), part_tokens)

    def collate(self, spec: TaskSpec, sequences: Sequence[Sequence[Ids]], labels: Sequence[float | None]) -> TaskBatch:
        """See :func:`collate`."""
        return collate(spec, sequences, labels)


DECODER_INPUTS = DecoderInputs()
