"""BERT's Figure 1, right: every task's fields as sequences that a pre-trained encoder can read.

    single       [CLS] text [SEP]
    pair         [CLS] first [SEP] second [SEP], once also where neither text comes first
    choices      [CLS] document question [SEP] answer_k [SEP], one sequence an answer, softmax over them
    span         [CLS] question [SEP] passage [SEP], a window of the passage at a time
    tags         [CLS] text [SEP]

("BERT: Pre-training of Deep Bidirectional Transformers", Devlin et al. 2019, sections 3 and 4; ALBERT and ELECTRA keep
it.) Up to the first [SEP] tokens are of segment 0, behind it of segment 1. The special pieces belong to the vocabulary,
so that no row is appended to the embedding. What is too long is cut as for a decoder: the context gives way first.

Legend: B batch, C sequences an example, T positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gptcore.base.errors import InputError
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.nlu.inputs import Ids, TaskBatch, encoded_labels, fit
from gptcore.nlu.registry import TaskSpec
from gptcore.text.tokenizer import Specials


class EncoderInputs:
    """The sequences of a vocabulary's special pieces.

    :param pieces: their ids; None: not known yet, see :meth:`with_pieces`.
    """

    n_special = 0

    def __init__(self, pieces: Specials | None = None) -> None:
        self._known = pieces

    def with_pieces(self, pieces: Specials | None) -> EncoderInputs:
        """The same with the ids of a vocabulary's special pieces.

        :raises InputError: a vocabulary without any.
        """
        if pieces is None:
            raise InputError("tokenizer: found one without [CLS] and [SEP], expected one with an encoder's pieces")
        return EncoderInputs(pieces)

    @property
    def _pieces(self) -> Specials:
        if self._known is None:
            raise ValueError("no ids of special pieces: with_pieces() has to be called first")
        return self._known

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
        """The token sequences of one example, each at most ``n_ctx`` long, and whether anything had to be cut.

        The context is cut at its end, the same for all choices; where the others alone do not fit, the longest of them.

        :param n_vocab: not read: the special pieces are among the vocabulary's.
        :param part_tokens: must be None: it is GPT-1's released code that cuts either side first.
        :raises InputError: if ``n_ctx`` has no room for the special pieces and a word of each part.
        """
        if part_tokens is not None:
            raise ValueError(f"part_tokens = {part_tokens}: an encoder's parts share the room")
        n_special = 2 if len(fields) == 1 and not choices else 3
        n_parts = len(fields) + bool(choices)
        if n_ctx < n_special + n_parts:
            raise InputError(
                f"model.n_ctx = {n_ctx} has no room for {spec.name}: expected at least {n_special + n_parts}"
            )
        lengths = [len(part) for part in fields]
        if spec.form == "choices":
            lengths.append(max(len(choice) for choice in choices))
        kept = fit(lengths, n_ctx - n_special, spec.context)
        parts = [part[:length] for part, length in zip(fields, kept, strict=False)]
        if spec.form == "choices":
            return [self._join(parts, [choice[: kept[-1]]]) for choice in choices], kept != lengths
        return [self._join(parts[:1], parts[1:])], kept != lengths

    def _join(self, first: Sequence[Ids], second: Sequence[Ids]) -> Ids:
        cls, sep = [self._pieces.cls], [self._pieces.sep]
        parts = [cls, *first, sep, *second, sep] if second else [cls, *first, sep]
        return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])

    def collate(self, spec: TaskSpec, sequences: Sequence[Sequence[Ids]], labels: Sequence[float | None]) -> TaskBatch:
        """Examples of equally many sequences, padded to the longest one, with their segments and what is no padding.

        No position has a language-model target, and the first one stands for its sequence.
        """
        import torch

        width = max(len(sequence) for example in sequences for sequence in example)
        shape = (len(sequences), len(sequences[0]), width)
        tokens = np.full(shape, self._pieces.pad, dtype=np.int64)  # (B, C, T)
        segments = np.zeros(shape, dtype=np.int64)  # (B, C, T)
        mask = np.zeros(shape, dtype=np.bool_)  # (B, C, T)
        for row, example in enumerate(sequences):
            for column, sequence in enumerate(example):
                tokens[row, column, : len(sequence)] = sequence
                mask[row, column, : len(sequence)] = True
                end = int(np.argmax(np.asarray(sequence) == self._pieces.sep)) + 1  # no text has that piece
                segments[row, column, end : len(sequence)] = 1
        return TaskBatch(
            tokens=torch.from_numpy(tokens),
            lm_targets=torch.full(shape, IGNORE_INDEX),
            clf_position=torch.zeros(shape[:2], dtype=torch.int64),
            labels=encoded_labels(spec, labels),
            segments=torch.from_numpy(segments),
            mask=torch.from_numpy(mask),
        )


ENCODER_INPUTS = EncoderInputs()
