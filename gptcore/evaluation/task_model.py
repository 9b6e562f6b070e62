"""A fine-tuned model that answers rows of text: any number of them, in bounded memory, without an encoded dataset.

N rows, K classes, C choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gptcore.base.errors import InputError
from gptcore.data.batches import by_length, evaluation_tokens
from gptcore.evaluation.answers import described, described_places
from gptcore.evaluation.predict import predict_rows
from gptcore.evaluation.predictions import Predictions
from gptcore.families import FAMILIES
from gptcore.machine.device import pick_device
from gptcore.models.classifier import Classifier
from gptcore.nlu.inputs import Inputs
from gptcore.nlu.marked import marked_examples
from gptcore.nlu.readers import Example
from gptcore.nlu.registry import PLACE_FORMS, TaskSpec, recorded_task
from gptcore.nlu.windows import WindowRows
from gptcore.text.tokenizer import Tokenizer

_ROWS = 1024  # rows held at a time: enough to sort by length with little padding, few enough to see progress

Answer = tuple[Example, NDArray[np.float32]]
"""A row, and its logits: (K,) classes, or (C,) choices."""


class TaskModel:
    """A fine-tuned model, the task that it was fine-tuned on, and its tokenizer.

    It answers in float32 whatever it was trained in: in bfloat16 a row's probabilities would depend, in their third
    decimal, on the rows that it happens to be answered with.

    :param folder: what :meth:`Classifier.save` wrote.
    :raises InputError: no fine-tuned model, one with other labels than the registry's, or of another tokenizer.
    """

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        model, config = Classifier.load(folder)
        self.spec: TaskSpec = recorded_task(config)
        if config["labels"] != list(self.spec.labels):
            raise InputError(f"{folder / 'config.json'}: labels = {config['labels']}, expected {self.spec.labels}")
        if config["tokenizer_digest"] != tokenizer.digest:
            expected = config["tokenizer_digest"][:12]
            raise InputError(f"{folder}: found the tokenizer {tokenizer.digest[:12]}, expected the model's, {expected}")
        self._tokenizer = tokenizer
        self._part_tokens: int | None = config.get("part_tokens")
        self._settings = config
        self._device = pick_device(0)
        self._model = model.to(self._device)
        inputs: Inputs = FAMILIES[model.network.config.family].part("inputs")
        self._inputs = inputs.with_pieces(tokenizer.specials)

    def answers(self, examples: Iterable[Example], at_once: int = _ROWS) -> Iterator[Answer]:
        """Every row with its logits, in the order given.

        :param at_once: rows read before the first of them is answered.
        """
        rows = iter(examples)
        while chunk := list(islice(rows, at_once)):
            yield from zip(chunk, self._logits(chunk), strict=True)

    def described(self, examples: Iterable[Example], at_once: int = _ROWS) -> Iterator[dict[str, Any]]:
        """What each row is answered with, in the order given (:mod:`gptcore.evaluation.answers`).

        :param at_once: as in :meth:`answers`.
        """
        if self.spec.form not in PLACE_FORMS:
            yield from (described(self.spec, logits) for _, logits in self.answers(examples, at_once))
            return
        rows, config = iter(examples), self._model.network.config
        while chunk := list(islice(rows, at_once)):
            marked = marked_examples(self._tokenizer, chunk)
            windows = WindowRows(self.spec, marked, self._inputs, n_ctx=config.n_ctx, n_vocab=config.n_vocab)
            found = predict_rows(self._model, self.spec, windows, self._device).using(self._settings)
            assert not isinstance(found, Predictions), "windows are asked for places"
            yield from described_places(found)

    @torch.inference_mode()
    def summaries(self, examples: Sequence[Example]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What the linear layer reads of each choice of some rows, and their logits: (N, C, D) and (N, C).

        :raises InputError: a task whose rows have no choices.
        """
        if self.spec.form != "choices":
            raise InputError(f"{self.spec.name}: found the form {self.spec.form}, expected rows with choices")
        seen: list[torch.Tensor] = []
        handle = self._model.head.register_forward_pre_hook(lambda _, given: seen.append(given[0].cpu()))
        states: dict[int, NDArray[np.float32]] = {}
        logits: dict[int, NDArray[np.float32]] = {}
        try:
            for chosen, found in self._passes(examples):
                states |= zip(chosen, seen.pop().numpy(), strict=True)
                logits |= zip(chosen, found, strict=True)
        finally:
            handle.remove()
        order = range(len(examples))
        return np.stack([states[row] for row in order]), np.stack([logits[row] for row in order])

    @torch.inference_mode()
    def _logits(self, rows: Sequence[Example]) -> NDArray[np.float32]:
        """(N, K) classes, or (N, C) choices."""
        logits: dict[int, NDArray[np.float32]] = {}
        for chosen, found in self._passes(rows):
            logits |= zip(chosen, found, strict=True)
        return np.stack([logits[row] for row in range(len(rows))])

    def _passes(self, rows: Sequence[Example]) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Rows of like lengths by their numbers, and their logits."""
        config = self._model.network.config
        texts = list(dict.fromkeys(text for row in rows for text in (*row.fields, *row.choices)))
        ids = {text: np.asarray(found) for text, found in zip(texts, self._tokenizer.encode_batch(texts), strict=True)}
        sequences = []
        for row in rows:
            fields, choices = ([ids[text] for text in part] for part in (row.fields, row.choices))
            built, _ = self._inputs.sequences(
                self.spec,
                fields,
                choices,
                n_ctx=config.n_ctx,
                n_vocab=config.n_vocab,
                part_tokens=self._part_tokens,
            )
            sequences.append(built)
        sizes = np.asarray([len(row) * max(map(len, row)) for row in sequences], dtype=np.int64)
        for chosen in by_length(sizes, evaluation_tokens(self._device)):
            rows_chosen = [sequences[row] for row in chosen]
            batch = self._inputs.collate(self.spec, rows_chosen, [None] * len(chosen)).to(self._device)
            found, _ = self._model(batch.tokens, batch.clf_position, **batch.marks)
            yield [int(row) for row in chosen], found.cpu().numpy()
