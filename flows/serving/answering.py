"""What a model answers, one kind of request a class; and the thread that answers, which drops what nobody waits for."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from operator import itemgetter
from typing import Any, Protocol

import torch

from gptcore.base.errors import InputError, require
from gptcore.evaluation.generate import generate
from gptcore.evaluation.predict import TaskModel
from gptcore.evaluation.sampling import check_sampling
from gptcore.models.network import LanguageModel
from gptcore.nlu.examples import Example, Record
from gptcore.nlu.own_rows import asked_about, example_text, passed_on
from gptcore.text.tokenizer import Tokenizer

_MOST_ROWS = 4096
_MOST_CHARACTERS = 50_000
"""The longest text: ten times RACE's longest passage. One whose windows take a minute would keep all others waiting."""
_BRIEF_PASS = 2e9
"""Characters times weights up to which a pass is done before a second thread is awake: some 4 ms on one core."""
_END_SECONDS = 3.0
"""The time in which a pass notices that nobody waits for it: as long as the slowest batch or token takes."""
_SETTINGS: dict[str, Any] = {"max_tokens": 40, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0}
"""How a prompt is continued unless its request says otherwise, by values of the same types."""

Check = Callable[[], None]
"""Called between a pass's batches, or tokens. Raises :class:`Unwanted` where nobody waits any more."""


class Unwanted(Exception):
    """Nobody waits for this answer: its client is gone, or the server's grace is over."""


class Service(Protocol):
    """What a model does for one kind of request."""

    path: str
    at_once: int
    """Items of several requests that are answered together; 1: a request is one item."""
    example: dict[str, Any]
    """A request."""

    def read(self, body: Any) -> tuple[list[Any], bool]:
        """The items of a request, and whether they came as a list.

        :raises InputError: something else than this service answers; names row and field.
        """

    def answer(self, items: Sequence[Any], check: Check) -> list[Any]:
        """The answers of items, of one request or of several."""


class Predictions:
    """Rows of a task, answered by a fine-tuned model."""

    path, at_once = "/predict", 512

    def __init__(self, model: TaskModel) -> None:
        self._model, self._threads = model, torch.get_num_threads()
        columns = (*model.spec.text_columns, *model.spec.choices)
        self.example: dict[str, Any] = {column: example_text(model.spec, column) for column in columns}

    def read(self, body: Any) -> tuple[list[Any], bool]:
        several = isinstance(body, list)
        rows = body if several else [body]
        require(0 < len(rows) <= _MOST_ROWS, f"request: found {len(rows):,} rows, expected 1 to {_MOST_ROWS:,}")
        for number, row in enumerate(rows, start=1):
            if not isinstance(row, dict):
                found = f"request, row {number}: found {json.dumps(row):.60}"
                raise InputError(f"{found}, expected an object with the task's fields")
            for name, text in row.items():
                _check_length(text, f"request, row {number}: {name}")
        records = [Record("request", str(number), row, unit="row") for number, row in enumerate(rows, start=1)]
        return [(record, asked_about(self._model.spec, record)) for record in records], several

    def answer(self, items: Sequence[Any], check: Check) -> list[Any]:
        rows = [row for _, row in items if isinstance(row, Example)]
        characters = sum(len(text) for row in rows for text in (*row.fields, *row.choices))
        torch.set_num_threads(1 if characters * self._model.n_multiplied <= _BRIEF_PASS else self._threads)
        answered = self._model.answered(items, itemgetter(1), progress=lambda _: check())
        return [{**passed_on(self._model.spec, record), **answer} for (record, _), answer in answered]


class Generation:
    """Prompts, continued by a language model one at a time.

    :param max_tokens: the most that a request may ask for; None: the model's n_ctx.
    """

    path, at_once = "/generate", 1

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer, max_tokens: int | None = None) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._most = model.config.n_ctx if max_tokens is None else max_tokens
        self.example: dict[str, Any] = {"prompt": "It was a", **_SETTINGS, "max_tokens": min(8, self._most)}

    def read(self, body: Any) -> tuple[list[Any], bool]:
        if not isinstance(body, dict) or not isinstance(body.get("prompt"), str):
            raise InputError('request: found no prompt, expected an object with the text "prompt"')
        _check_length(body["prompt"], "request: prompt")
        prompt = " ".join(body["prompt"].split())
        if not self._tokenizer.encode(prompt):
            raise InputError(f"request: prompt: found {prompt!r}, expected a word or more to go on from")
        settings = {**_SETTINGS, "max_tokens": min(_SETTINGS["max_tokens"], self._most)}
        for name, value in body.items():
            if name == "prompt":
                continue
            require(name in _SETTINGS, f"request: found {name!r}, expected prompt, {', '.join(_SETTINGS)}")
            if isinstance(value, bool) or not isinstance(value, int | type(_SETTINGS[name])):
                raise InputError(f"request: {name}: found {value!r:.60}, expected a number")
            require(-(1 << 63) < value < 1 << 63, f"request: {name}: found {value!r:.60}, expected a number of 64 bits")
            settings[name] = value
        asked, most = settings["max_tokens"], self._most
        require(asked <= most, f"request: max_tokens: found {asked:,}, expected at most {most:,}")
        check_sampling(**{name: value for name, value in settings.items() if name != "seed"})
        return [(prompt, settings)], False

    def answer(self, items: Sequence[Any], check: Check) -> list[Any]:
        answers = []
        for prompt, settings in items:
            pieces = []
            for piece in generate(self._model, self._tokenizer, prompt, **settings):
                check()
                pieces.append(piece)
            answers.append({"continuation": "".join(pieces)})
        return answers


def _check_length(text: Any, place: str) -> None:
    if isinstance(text, str) and len(text) > _MOST_CHARACTERS:
        raise InputError(f"{place}: found {len(text):,} characters, expected at most {_MOST_CHARACTERS:,}")


class Passes:
    """A thread that answers what is queued, as much as fits into a pass at a time.

    :param at_once: items from which on no other request joins a pass.
    """

    def __init__(self, answer: Callable[[Sequence[Any], Check], list[Any]], at_once: int) -> None:
        self._answer, self._at_once = answer, at_once
        self._waiting: queue.SimpleQueue[tuple[list[Any], Future[list[Any]]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    def submit(self, items: list[Any]) -> Future[list[Any]]:
        """The answers of items, once their pass is done. Who does not wait for them any more cancels the future."""
        future: Future[list[Any]] = Future()
        self._waiting.put((items, future))
        return future

    def close(self) -> None:
        """End once everything that is queued is answered, or cancelled."""
        self._waiting.put(None)
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            requests, n_items = [first], len(first[0])
            while n_items < self._at_once and not self._waiting.empty():  # no other thread takes from it
                if (following := self._waiting.get()) is None:
                    self._waiting.put(None)  # the end, after this pass
                    break
                requests.append(following)
                n_items += len(following[0])
            if wanted := [request for request in requests if not request[1].cancelled()]:
                self._pass(wanted)

    def _pass(self, requests: Sequence[tuple[list[Any], Future[list[Any]]]]) -> None:
        def check() -> None:
            if all(future.cancelled() for _, future in requests):
                raise Unwanted

        try:
            answers = iter(self._answer([item for items, _ in requests for item in items], check))
            for items, future in requests:
                own = [next(answers) for _ in items]
                with suppress(InvalidStateError):  # cancelled meanwhile
                    future.set_result(own)
        except Exception as error:  # told to each who waits; the next pass is another
            for _, future in requests:
                with suppress(InvalidStateError):
                    future.set_exception(error)
