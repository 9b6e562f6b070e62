"""`gptmill serve`: one model behind HTTP on loopback, for programs of this machine.

    GET  /           a page that says what is served, with an example; /docs and /openapi.json what it takes
    GET  /health     {"status": "ok", ...} once the model answers
    GET  /metrics    requests, rows, seconds and memory, as Prometheus reads them
    POST /predict    a fine-tuned model: a row {"premise": ..., "hypothesis": ...}, or a list of rows
    POST /generate   a language model: {"prompt": ..., "max_tokens": 40, ...}

Requests that arrive while the network is busy are answered together in its next pass: a queue forms by itself where
there is one, and a single request waits for nothing. Many rows are asked in parts, so that others get their turns.
What is refused gets {"error": ...}: a bad row is a 400 that names row and field, found before anything is queued, so
that it harms no other request. What nobody waits for any more is not computed. SIGTERM stops the listening, finishes
what is under way within a grace, and ends. Heads, bodies and connections are bounded while they are read, in bytes,
number and time; the log has a line a request without a word of its texts.

Nobody who only has a browser gets in: a `Host` that is none of this machine's names is refused (a rebound name), and so
is a request with an `Origin`, or without JSON's content type, which no page of another origin can send unasked.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from html import escape
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flows.servers.environment import listener
from flows.servers.guard import LOOPBACK, foreign_host
from flows.serving import pages
from flows.serving.answering import Passes, Service
from flows.serving.connections import Connection
from flows.serving.metrics import Metrics
from gptcore.base.errors import InputError
from gptcore.nlu.readers.text_files import parse_json

_MOST_BYTES = 2 << 20
"""The longest body: some 4,000 rows. The worst JSON of so many bytes takes 70 MB while it is parsed."""
_MOST_HELD = 16 << 20
"""Bytes of all requests that are not answered yet: who would pass them is told to come again."""
_BRIEF_BYTES = 4096
"""The longest body that is read, its texts looked at, on the spot: no sooner were another thread awake."""
_PART_ROWS = 256
"""Rows of one request that are asked before those who wait get their turn."""
_GRACE_SECONDS = 10
_BODY_SECONDS = 5.0
"""The time in which a request has to arrive: less than the grace at the end, so that none is cut off unanswered."""
_BACKLOG = 1024
_GONE = 499  # nginx's: the client has closed the connection, so nobody reads this

_log = logging.getLogger("gptmill.serve")


class Answer(JSONResponse):
    """JSON that ends its line: on a terminal the log's next one begins its own."""

    def render(self, content: Any) -> bytes:
        return bytes(super().render(content)) + b"\n"


class Refused(Exception):
    """A request that is not answered; its status and what its client is told."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def application(service: Service, about: dict[str, Any]) -> ASGIApp:
    """The application of one model.

    :param about: what `/health` says of it.
    """
    passes, metrics, held = Passes(service.answer, service.at_once), Metrics(), 0
    example: Any = None  # the answer to the service's, once somebody looks at a page

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(passes.close)

    async def health(_: Request) -> Answer:
        return Answer({"status": "ok", **about})

    async def measured(_: Request) -> Response:
        return metrics.page()

    async def page(request: Request) -> Response:
        nonlocal example
        if example is None:
            items, _ = service.read(service.example)
            (example,) = await asyncio.wrap_future(passes.submit(items))
        if request.url.path == "/":
            return pages.home(service, about, example, str(request.base_url).rstrip("/"))
        document = pages.openapi(service, example)
        if request.url.path == "/openapi.json":
            return Answer(document)
        return pages.page("docs", document=escape(json.dumps(document, ensure_ascii=False, indent=2)))

    async def answer(request: Request) -> Answer:
        nonlocal held
        mine = 0
        try:
            _check_program(request)
            body = bytearray()
            async with asyncio.timeout(_BODY_SECONDS):
                async for piece in _pieces(request):
                    body += piece
                    held, mine = held + len(piece), mine + len(piece)
                    if held > _MOST_HELD:
                        raise Refused(503, f"request: found {held:,} bytes of requests that wait; ask again later")
            value = _parsed(bytes(body))
            del body
            read = service.read(value) if mine <= _BRIEF_BYTES else await asyncio.to_thread(service.read, value)
            items, several = read
            request.state.rows, answers = len(items), []
            for first in range(0, len(items), _PART_ROWS):
                answers += await _waited(request, passes.submit(items[first : first + _PART_ROWS]))
            return Answer(answers if several else answers[0])
        except TimeoutError:
            return _error(408, f"request: found no end of it within {_BODY_SECONDS:g} s, expected its body")
        except Refused as refused:
            return _error(refused.status, str(refused))
        except InputError as error:  # seen at once, or only by the model
            return _error(400, str(error))
        except ClientDisconnect:
            return _error(_GONE, "request: found its client gone")
        except asyncio.CancelledError:  # as the server does when its grace is over
            return _error(503, f"request: found no answer within {_GRACE_SECONDS} s of the server's end")
        finally:
            held -= mine

    async def no_such_path(request: Request, _: Exception) -> Answer:
        return _error(404, f"request: found the path {request.url.path!r:.100}, expected {service.path} or /health")

    async def no_such_method(request: Request, error: Exception) -> Answer:
        allowed = error.headers if isinstance(error, HTTPException) else None
        expected = "POST" if request.url.path == service.path else "GET"
        message = f"request: found {request.method} {request.url.path}, expected {expected}"
        return _error(405, message, allowed)

    async def failed(_: Request, error: Exception) -> Answer:
        return _error(500, f"request: found a fault of the server ({type(error).__name__}), which its log tells")

    answered = {"/health": health, "/metrics": measured, service.path: answer}
    answered |= dict.fromkeys(("/", "/docs", "/openapi.json"), page)
    routes = [Route(path, call, methods=["POST"] if call is answer else ["GET"]) for path, call in answered.items()]
    refusals: dict[Any, Any] = {404: no_such_path, 405: no_such_method, Exception: failed}
    return _watched(Starlette(routes=routes, lifespan=lifespan, exception_handlers=refusals), metrics, [*answered])


def serve(service: Service, about: dict[str, Any], port: int, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl-C, on 127.0.0.1 alone.

    :param ready: called once requests are taken.
    :raises InputError: the port is taken.
    """
    lines = logging.StreamHandler()
    lines.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    _log.addHandler(lines)
    _log.setLevel(logging.INFO)
    config = uvicorn.Config(
        application(service, about),
        http=Connection,
        ws="none",
        log_level="error",  # what a client does wrong is told in our words, by the log and by its answer
        timeout_graceful_shutdown=_GRACE_SECONDS,
        server_header=False,
    )
    gc.freeze()  # the model and its libraries, which no collection among a request's objects need look through
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


def _watched(app: ASGIApp, metrics: Metrics, paths: list[str]) -> ASGIApp:
    """The application for names of this machine alone; each request is measured and gets a line in the log."""

    async def seen(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        began, status, request = time.perf_counter(), 500, Request(scope)

        async def told(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        called = app
        if (host := foreign_host(request.headers.items(), LOOPBACK, any_port=True)) is not None:
            called = _error(400, f"request: found the Host {host!r:.100}, expected {' or '.join(LOOPBACK)}")
        try:
            with metrics.under_way.track_inprogress():
                await called(scope, receive, told)
        finally:
            seconds, rows = time.perf_counter() - began, getattr(request.state, "rows", 0)
            path = scope["path"] if scope["path"] in paths else "other"  # a client's own words may be in any other one
            metrics.add(path, status, rows if status == 200 else 0, seconds)
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST") else "other"
            _log.info("%s %s %d %.1f ms %d rows", method, path, status, 1000 * seconds, rows)

    return seen


def _check_program(request: Request) -> None:
    """:raises Refused: a request that is not a program's of this machine."""
    if "origin" in request.headers:
        raise Refused(403, "request: found an Origin, expected none: pages of a browser are not served")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, f"request: found the content type {kind!r}, expected application/json")


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    """A body as it arrives.

    :raises Refused: it is too long, or says that it will be.
    """
    size = int(request.headers.get("content-length", 0))
    if size <= _MOST_BYTES:
        size = 0
        async for piece in request.stream():
            if (size := size + len(piece)) > _MOST_BYTES:
                break
            yield piece
        else:
            return
    raise Refused(413, f"request: found {size:,} bytes or more, expected at most {_MOST_BYTES:,}")


async def _waited(request: Request, future: Future[list[Any]]) -> list[Any]:
    """What a pass answers.

    :raises ClientDisconnect: the client is gone; so is what it asked, unless that was done.
    """
    answers, gone = asyncio.wrap_future(future), asyncio.ensure_future(request.receive())  # after a body an end alone
    try:
        await asyncio.wait((answers, gone), return_when=asyncio.FIRST_COMPLETED)
        if answers.done():
            return answers.result()
        raise ClientDisconnect
    finally:
        answers.cancel()
        gone.cancel()


def _parsed(body: bytes) -> Any:
    try:
        value = parse_json(body.decode("utf-8-sig"), "request")
        if b"\\ud" in body or b"\\uD" in body:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise InputError(f"request, byte {error.start}: found 0x{body[error.start]:02x}, expected UTF-8 text") from None
    except UnicodeEncodeError:
        raise InputError("request: found half of a surrogate pair, expected text that UTF-8 can hold") from None
    return value


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer({"error": message}, status, headers)
