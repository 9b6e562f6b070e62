"""`gptmill serve`: one model behind HTTP on loopback, for programs of this machine.

    GET  /health     {"status": "ok", ...} once the model answers
    POST /predict    a fine-tuned model: a row {"premise": ..., "hypothesis": ...}, or a list of rows
    POST /generate   a language model: {"prompt": ..., "max_tokens": 40, ...}

Requests that arrive while the network is busy are answered together in its next pass: a queue forms by itself where
there is one, and a single request waits for nothing. What is refused gets {"error": ...}: a bad row is a 400 that names
row and field, found before anything is queued, so that it harms no other request. SIGTERM stops the listening, finishes
what is under way, and ends.

Nobody who only has a browser gets in: a `Host` that is none of this machine's names is refused (a rebound name), and so
is a request with an `Origin`, or without JSON's content type, which no page of another origin can send unasked.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, Protocol

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from flows.servers.environment import listener
from gptcore.base.errors import InputError
from gptcore.evaluation.own_rows import continue_lines, read_records
from gptcore.evaluation.predict import TaskModel
from gptcore.evaluation.sampling import check_sampling
from gptcore.models.network import LanguageModel
from gptcore.text.tokenizer import Tokenizer

_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
_MOST_BYTES = 16 << 20  # of a request: some 10,000 rows
_MOST_ROWS = 4096
_MOST_CHARACTERS = 50_000
"""Of a text: ten times RACE's longest passage. A text whose windows take a minute would keep all others waiting."""
_PASS_ROWS = 512
"""Rows of several requests that are answered together."""
_BRIEF_PASS = 2e9
"""Characters times weights, up to which a second thread is no sooner done than it is awake: some 4 ms on one core."""
_GRACE_SECONDS = 30
_BODY_SECONDS = 10.0
"""For a request to arrive: less than the grace at the end, so that none is cut off without an answer."""
_BACKLOG = 1024
_SETTINGS: dict[str, type] = {"max_tokens": int, "temperature": float, "top_k": int, "top_p": float, "seed": int}


class Service(Protocol):
    """What a model does for one kind of request."""

    path: str

    def read(self, body: Any) -> tuple[list[Any], bool]:
        """The items of a request, and whether they came as a list.

        :raises InputError: something else than this service answers; names row and field.
        """

    def answer(self, items: Sequence[Any]) -> list[Any]:
        """The answers of items, of one request or of several."""


class Predictions:
    """Rows of a task, answered by a fine-tuned model."""

    path = "/predict"

    def __init__(self, model: TaskModel) -> None:
        self._model, self._threads = model, torch.get_num_threads()

    def read(self, body: Any) -> tuple[list[Any], bool]:
        """See :class:`Service`."""
        several = isinstance(body, list)
        rows = body if several else [body]
        if not rows or len(rows) > _MOST_ROWS:
            raise InputError(f"request: found {len(rows):,} rows, expected 1 to {_MOST_ROWS:,}")
        for number, row in enumerate(rows, start=1):
            if not isinstance(row, dict):
                raise InputError(f"request, row {number}: found {row!r:.60}, expected an object with the task's fields")
            for name, text in row.items():
                if isinstance(text, str) and len(text) > _MOST_CHARACTERS:
                    found, most = f"{len(text):,} characters", f"at most {_MOST_CHARACTERS:,}"
                    raise InputError(f"request, row {number}: {name}: found {found}, expected {most}")
        return list(read_records(self._model.spec, rows, "request")), several

    def answer(self, items: Sequence[Any]) -> list[Any]:
        """See :class:`Service`."""
        characters = sum(len(text) for item in items for text in (*item.fields, *item.choices))
        torch.set_num_threads(1 if characters * self._model.n_multiplied <= _BRIEF_PASS else self._threads)
        return list(self._model.described(items))


class Generation:
    """Prompts, continued by a language model one at a time."""

    path = "/generate"

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer) -> None:
        self._model, self._tokenizer = model, tokenizer

    def read(self, body: Any) -> tuple[list[Any], bool]:
        """See :class:`Service`."""
        if not isinstance(body, dict) or not isinstance(body.get("prompt"), str):
            raise InputError('request: found no prompt, expected an object with the text "prompt"')
        prompt = " ".join(body["prompt"].split())
        if not self._tokenizer.encode(prompt):
            raise InputError(f"request: prompt: found {prompt!r}, expected a word or more to go on from")
        settings: dict[str, Any] = {"max_tokens": 40, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        for name, value in body.items():
            if name == "prompt":
                continue
            kind = _SETTINGS.get(name)
            if kind is None:
                raise InputError(f"request: found {name!r}, expected prompt, {', '.join(_SETTINGS)}")
            if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
                raise InputError(f"request: {name}: found {value!r:.60}, expected a number")
            settings[name] = value
        check_sampling(**{name: value for name, value in settings.items() if name != "seed"})
        return [(prompt, settings)], False

    def answer(self, items: Sequence[Any]) -> list[Any]:
        """See :class:`Service`."""
        found = []
        for prompt, settings in items:
            (line,) = continue_lines(self._model, self._tokenizer, [prompt.encode()], **settings)
            found.append({"continuation": line["continuation"]})
        return found


class Passes:
    """A thread that answers what is queued, as much as fits into a pass at a time."""

    def __init__(self, answer: Callable[[Sequence[Any]], list[Any]]) -> None:
        self._answer = answer
        self._waiting: queue.SimpleQueue[tuple[list[Any], Future[list[Any]]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    def submit(self, items: list[Any]) -> Future[list[Any]]:
        """The answers of a request's items, once their pass is done."""
        future: Future[list[Any]] = Future()
        self._waiting.put((items, future))
        return future

    def close(self) -> None:
        """End once everything that is queued is answered."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            requests, n_items, last = [first], len(first[0]), False
            while n_items < _PASS_ROWS:
                try:
                    following = self._waiting.get_nowait()
                except queue.Empty:
                    break
                if following is None:
                    last = True
                    break
                requests.append(following)
                n_items += len(following[0])
            self._pass(requests)
            if last:
                return

    def _pass(self, requests: Sequence[tuple[list[Any], Future[list[Any]]]]) -> None:
        try:
            answers = iter(self._answer([item for items, _ in requests for item in items]))
            for items, future in requests:
                future.set_result([next(answers) for _ in items])
        except Exception as error:  # told to each who waits; the next pass is another
            for _, future in requests:
                if not future.done():
                    future.set_exception(error)


def application(service: Service, about: dict[str, Any]) -> Starlette:
    """The application of one model.

    :param about: what `/health` says of it.
    """
    passes = Passes(service.answer)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(passes.close)

    async def health(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok", **about})

    async def answer(request: Request) -> JSONResponse:
        if refused := _refused(request):
            return refused
        try:
            body = await asyncio.wait_for(request.body(), _BODY_SECONDS)
        except TimeoutError:
            return _error(408, f"request: found no end of it within {_BODY_SECONDS:g} s, expected its body")
        if len(body) > _MOST_BYTES:
            return _error(413, f"request: found {len(body):,} bytes, expected at most {_MOST_BYTES:,}")
        try:
            items, several = service.read(_parsed(body))
        except InputError as error:
            return _error(400, str(error))
        try:
            found = await asyncio.wrap_future(passes.submit(items))
        except InputError as error:  # one that only the model could see
            return _error(400, str(error))
        return JSONResponse(found if several else found[0])

    async def no_such_path(request: Request, _: Exception) -> JSONResponse:
        return _error(404, f"request: found the path {request.url.path!r:.100}, expected {service.path} or /health")

    async def no_such_method(request: Request, error: Exception) -> JSONResponse:
        allowed = error.headers if isinstance(error, HTTPException) else None
        expected = "POST" if request.url.path == service.path else "GET"
        message = f"request: found {request.method} {request.url.path}, expected {expected}"
        return _error(405, message, allowed)

    routes = [Route("/health", health), Route(service.path, answer, methods=["POST"])]
    refusals: dict[Any, Any] = {404: no_such_path, 405: no_such_method}
    application = Starlette(routes=routes, lifespan=lifespan, exception_handlers=refusals)
    application.add_middleware(TrustedHostMiddleware, allowed_hosts=_HOSTS)
    return application


def serve(service: Service, about: dict[str, Any], port: int, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl-C, on 127.0.0.1 alone.

    :param ready: called once requests are taken.
    :raises InputError: the port is taken.
    """
    config = uvicorn.Config(
        application(service, about), log_level="warning", timeout_graceful_shutdown=_GRACE_SECONDS, server_header=False
    )
    with listener(port, _BACKLOG) as listening:
        _Server(config, ready).run(sockets=[listening])


class _Server(uvicorn.Server):
    """uvicorn's server, which says when it takes requests."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._ready()


def _refused(request: Request) -> JSONResponse | None:
    """Why a request is not a program's of this machine; None where it is one."""
    if "origin" in request.headers:
        return _error(403, "request: found an Origin, expected none: pages of a browser are not served")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        return _error(415, f"request: found the content type {kind!r}, expected application/json")
    return None


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"request: found no JSON ({error}), expected an object or a list of objects") from None


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": message}, status, headers)
