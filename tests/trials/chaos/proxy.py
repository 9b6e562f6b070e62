"""One S3 store, the full stack's, for commands elsewhere: over a bad network, and from two hosts at once.

The network is a proxy before the server, which behaves as one does on a bad day, request by request as a seed says.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from flows.servers.credentials import S3
from flows.servers.stack import s3
from tests.expected import expected
from tests.trials.chaos.fixture import LIMIT_SECONDS, Fixture, unclear
from tests.trials.chaos.servers import PORTS
from tests.trials.scenarios import Trial

HOST = "127.0.0.1"
SHARES: Mapping[str, float] = expected(__file__, "SHARES")
"""Fault -> how many of the requests suffer it: the connection is closed before the server hears of the request, or
after it has done what was asked (nobody tells the client); the server says it is broken or busy; the answer ends in
its middle; it comes late."""
_DELAY_SECONDS = 2.0
_LIMIT = 1 << 20  # bytes of a request's head
_CHUNK = 1 << 16
_ERRORS = {"500": (b"500 Internal Server Error", b"InternalError"), "503": (b"503 Service Unavailable", b"SlowDown")}


@dataclass(frozen=True)
class FaultPlan:
    """What happens to which request."""

    seed: str
    shares: Mapping[str, float]

    def fault(self, number: int) -> str:
        """The fault of the ``number``-th request; empty: none. One seed, one plan, in whatever order it is asked."""
        draw = random.Random(f"{self.seed}/{number}").random()
        for name, share in self.shares.items():
            draw -= share
            if draw < 0:
                return name
        return ""


class Proxy:
    """Hands HTTP/1.1 requests on, one connection each, except where its plan says otherwise."""

    def __init__(self, upstream: int, plan: FaultPlan) -> None:
        self.port = 0
        """Where it listens, once it runs."""
        self.requests = 0
        self.faults: Counter[str] = Counter()
        self._upstream, self._plan = upstream, plan

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        """Serve inside the ``with`` block, in a thread."""
        loop = asyncio.new_event_loop()
        started = threading.Event()

        def serve() -> None:
            asyncio.set_event_loop(loop)
            server = loop.run_until_complete(asyncio.start_server(self._client, HOST, 0, limit=_LIMIT))
            self.port = server.sockets[0].getsockname()[1]
            started.set()
            loop.run_forever()
            server.close()
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))

        thread = threading.Thread(target=serve, name="proxy", daemon=True)
        thread.start()
        started.wait()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's requests, one after the other, until it or a fault ends the connection."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while await self._request(reader, writer):
                pass
        writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        headers = _headers(head)
        number, self.requests = self.requests, self.requests + 1
        fault = self._plan.fault(number)
        self.faults[fault] += bool(fault)
        if headers.get(b"expect") == b"100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await _body(reader, headers)
        if fault == "drop":
            return False
        if fault in _ERRORS:
            status, code = _ERRORS[fault]
            xml = b'<?xml version="1.0"?><Error><Code>%b</Code><Message>on purpose</Message></Error>' % code
            form = b"HTTP/1.1 %b\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n"
            writer.write(form % (status, len(xml)))
            writer.write(b"" if head.startswith(b"HEAD ") else xml)
            await writer.drain()
            return True
        if fault == "delay":
            await asyncio.sleep(_DELAY_SECONDS)
        answer = await self._ask(_closing(head) + body)
        if fault == "drop after":
            return False
        start = answer.index(b"\r\n\r\n") + 4
        if fault == "cut" and len(answer) > start:
            writer.write(answer[: start + (len(answer) - start) // 2])
            await writer.drain()
            return False
        writer.write(answer)
        await writer.drain()
        return False  # the server's answer says that the connection ends with it

    async def _ask(self, request: bytes) -> bytes:
        """The server's whole answer."""
        reader, writer = await asyncio.open_connection(HOST, self._upstream)
        try:
            writer.write(request)
            await writer.drain()
            answer = b"".join([part async for part in _parts(reader)])
        finally:
            writer.close()
        if b"\r\n\r\n" not in answer:
            raise ConnectionResetError("the server closed the connection")
        return answer


def _headers(head: bytes) -> dict[bytes, bytes]:
    lines = head.split(b"\r\n")[1:]
    pairs = (line.partition(b":") for line in lines if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _closing(head: bytes) -> bytes:
    """A request as one for a connection of its own. The Connection header is never part of a signature."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in (b"connection", b"expect")]
    return b"\r\n".join([first, *kept, b"Connection: close", b"", b""])


async def _body(reader: asyncio.StreamReader, headers: Mapping[bytes, bytes]) -> bytes:
    """A request's body as it came, chunks and all."""
    if headers.get(b"transfer-encoding", b"").lower() != b"chunked":
        return await reader.readexactly(int(headers.get(b"content-length", b"0")))
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        body += line
        if size == 0:
            while line != b"\r\n":  # trailers
                line = await reader.readuntil(b"\r\n")
                body += line
            return body
        body += await reader.readexactly(size + 2)


async def _parts(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while part := await reader.read(_CHUNK):
        yield part


_COMMANDS = 6


def over_bad_network(fixture: Fixture, name: str, seed: str) -> tuple[str, list[str]]:
    """A pipeline whose store is behind a flaky proxy: the same command, a few times if it must be, ends the same."""
    proxy = Proxy(PORTS["s3"], FaultPlan(seed, SHARES))
    faults = []
    with proxy.running():
        trial = _host(fixture, name, name)
        trial.more[S3[0]] = f"http://{s3.HOST}:{proxy.port}"
        codes: list[int] = []
        while len(codes) < _COMMANDS and (not codes or codes[-1]):
            codes.append(trial.start().wait(LIMIT_SECONDS))
            faults += unclear(trial, codes[-1]) if codes[-1] else []
    how = f"{proxy.faults.total()} of {proxy.requests} requests; exit codes {codes}"
    return how, [*faults, *(["it never came through"] if codes[-1] else []), *fixture.faults(trial)]


def from_two_hosts(fixture: Fixture, name: str) -> tuple[str, list[str]]:
    """Two state folders, one store, the same pipeline at the same time: both end well, with one artifact each."""
    hosts = [_host(fixture, f"{name}-{host}", name) for host in "ab"]
    codes = [process.wait(LIMIT_SECONDS) for process in [host.start() for host in hosts]]
    faults = [f"exit codes {codes}"] if any(codes) else []
    for host in hosts:
        faults += [f"{host.folder.name}: {fault}" for fault in fixture.faults(host)]
        if not faults:
            shutil.rmtree(host.folder)
    return f"exit codes {codes}", faults


def _host(fixture: Fixture, name: str, prefix: str) -> Trial:
    """A host's trial on a store of the S3 server."""
    trial = Trial(fixture.root / name, fixture.world, f"s3://{s3.BUCKET}/{prefix}")
    shutil.rmtree(trial.folder, ignore_errors=True)
    shutil.copytree(fixture.root / "home", trial.home)
    return trial
