"""A fine-tuned model that answers rows of text: any number of them, in bounded memory, without an encoded dataset.

N rows, K classes, C choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gptcore.base.errors import InputError
from gptcore.evaluation.predict import logits_of, passes, predict_rows, reader_for
from gptcore.machine.device import pick_device
from gptcore.models.classifier import Classifier
from gptcore.nlu.examples import Example
from gptcore.nlu.forms import form_of
from gptcore.nlu.inputs import RowReader
from gptcore.nlu.registry import TaskSpec, recorded_task
from gptcore.nlu.rows import Rows
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
        self._settings = config
        self._device = pick_device(0)
        self._model = model.to(self._device)
        self._reader = reader_for(model, self.spec, config.get("part_tokens")).with_pieces(tokenizer.specials)

    def answers(self, examples: Iterable[Example], at_once: int = _ROWS) -> Iterator[Answer]:
        """Every row with its logits, in the order given.

        :param at_once: rows read before the first of them is answered.
        """
        rows = iter(examples)
        while chunk := list(islice(rows, at_once)):
            yield from zip(chunk, logits_of(self._model, self._rows(chunk), self._device), strict=True)

    def described(self, examples: Iterable[Example], at_once: int = _ROWS) -> Iterator[dict[str, Any]]:
        """What each row is answered with, in the order given (:meth:`RowPredictions.described`).

        :param at_once: as in :meth:`answers`.
        """
        rows = iter(examples)
        while chunk := list(islice(rows, at_once)):
            found = predict_rows(self._model, self.spec, self._rows(chunk), self._device)
            yield from found.using(self._settings).described(self.spec)

    def summaries(self, examples: Sequence[Example]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What the linear layer reads of each choice of some rows, and their logits: (N, C, D) and (N, C).

        :raises InputError: a task whose rows have no choices.
        """
        if not form_of(self.spec).choices:
            raise InputError(f"{self.spec.name}: found the form {self.spec.form}, expected rows with choices")
        seen: list[torch.Tensor] = []
        handle = self._model.head.register_forward_pre_hook(lambda _, given: seen.append(given[0].cpu()))
        states: dict[int, NDArray[np.float32]] = {}
        logits: dict[int, NDArray[np.float32]] = {}
        try:
            for chosen, found in passes(self._model, self._rows(examples), self._device):
                states |= zip(chosen.tolist(), seen.pop().numpy(), strict=True)
                logits |= zip(chosen.tolist(), found, strict=True)
        finally:
            handle.remove()
        order = range(len(examples))
        return np.stack([states[row] for row in order]), np.stack([logits[row] for row in order])

    def _rows(self, examples: Sequence[Example]) -> Rows:
        made: Callable[[RowReader, Tokenizer, Sequence[Example]], Rows] = form_of(self.spec).part("asked_rows")
        return made(self._reader, self._tokenizer, examples)
