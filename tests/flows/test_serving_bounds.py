"""What `gptmill serve` counts and bounds, with its figures: bytes, rows, seconds, connections, who still waits."""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import h11
import pytest
import uvicorn
from starlette.testclient import TestClient
from uvicorn.server import ServerState

from flows.serving import answering, connections, model_server
from flows.serving.answering import Passes, Unwanted
from flows.serving.connections import Connection
from flows.serving.model_server import application
from gptcore.base.errors import InputError

JSON = {"content-type": "application/json"}


class Doubled:
    """A service without a model: numbers, doubled; it fails on -1, which only its answer looks at."""

    path, at_once = "/predict", 512

    def __init__(self) -> None:
        self.example: dict[str, Any] = {"number": 1}
        self.sizes: list[int] = []

    def read(self, body: Any) -> tuple[list[Any], bool]:
        several = isinstance(body, list)
        return [row["number"] for row in (body if several else [body])], several

    def answer(self, items: Sequence[Any], _: Any) -> list[Any]:
        self.sizes.append(len(items))
        if -1 in items:
            raise InputError("request: found -1, expected more")
        return [2 * item for item in items]


@pytest.fixture
def service() -> Doubled:
    return Doubled()


@pytest.fixture
def client(service: Doubled) -> Iterator[TestClient]:
    with TestClient(application(service, {}), base_url="http://127.0.0.1") as found:
        yield found


def sized(size: int) -> bytes:
    """A request of one row that has so many bytes."""
    return b'{"number": 3}'.ljust(size)


def counted(client: TestClient, name: str) -> float:
    """A number on the page for Prometheus."""
    return float(client.get("/metrics").text.partition(f"\n{name} ")[2].split()[0])


def test_bytes_are_given_back_however_a_request_ends(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held by one at a time, a thousand bytes are enough for any number of requests; one byte more is refused."""
    monkeypatch.setattr(model_server, "_MOST_HELD", 1000)
    for _ in range(5):
        for body, status in ((sized(1000), 200), (b"{".ljust(900), 400), (b'{"number": -1}'.ljust(900), 400)):
            assert client.post("/predict", content=body, headers=JSON).status_code == status
        found = client.post("/predict", content=sized(1001), headers=JSON)
        told = {"error": "request: found 1,001 bytes of requests that wait; ask again later"}
        assert (found.status_code, found.json()) == (503, told)


def test_bytes_are_held_while_a_request_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two requests of 600 bytes the second is refused while the first one's answer is being made."""
    monkeypatch.setattr(model_server, "_MOST_HELD", 1000)
    begun, begin = threading.Event(), threading.Event()

    class Slow(Doubled):
        def answer(self, items: Sequence[Any], check: Any) -> list[Any]:
            begun.set()
            assert begin.wait(10)
            return super().answer(items, check)

    codes = list[int]()
    with TestClient(application(Slow(), {}), base_url="http://127.0.0.1") as client:

        def ask() -> None:
            codes.append(client.post("/predict", content=sized(600), headers=JSON).status_code)

        first = threading.Thread(target=ask)
        first.start()
        assert begun.wait(10)
        assert counted(client, "gptmill_requests_under_way") == 2, "the first one, and this one"
        ask()
        begin.set()
        first.join()
        ask()
    assert codes == [503, 200, 200]


def test_a_body_has_two_megabytes_at_most(client: TestClient) -> None:
    assert client.post("/predict", content=sized(2_097_152), headers=JSON).status_code == 200
    told = {"error": "request: found 2,097,153 bytes or more, expected at most 2,097,152"}
    for given in (sized(2_097_153), iter([sized(2_097_152), b" "])):  # with a length, and without one
        found = client.post("/predict", content=given, headers=JSON)
        assert (found.status_code, found.json()) == (413, told)


@pytest.mark.parametrize("half", [r"\ud800", r"\uD800", r"\udc00 \uD83D"])
def test_half_of_a_surrogate_pair_is_told(half: str, client: TestClient) -> None:
    found = client.post("/predict", content=f'{{"number": "{half}"}}', headers=JSON)
    told = {"error": "request: found half of a surrogate pair, expected text that UTF-8 can hold"}
    assert (found.status_code, found.json()) == (400, told)
    whole = client.post("/predict", content=r'{"number": "\ud83d\ude00"}', headers=JSON)
    assert whole.json() == 2 * "\N{GRINNING FACE}"


def test_many_rows_are_asked_256_at_a_time(client: TestClient, service: Doubled) -> None:
    rows = [{"number": number} for number in range(600)]
    assert client.post("/predict", json=rows).json() == list(range(0, 1200, 2))
    assert service.sizes == [256, 256, 88]


def test_what_is_counted_and_logged(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows of answered requests alone; seconds on the page, milliseconds in the log; no word of a client's own."""
    clock = iter(range(1000))
    monkeypatch.setattr(model_server, "time", SimpleNamespace(perf_counter=lambda: next(clock) / 4))
    caplog.set_level(logging.INFO, "gptmill.serve")
    rows = [{"number": number} for number in (1, 2, 3)]
    assert client.post("/predict", json=rows).status_code == 200
    assert client.post("/predict", json=[*rows, {"number": -1}]).status_code == 400
    assert client.post("/predict", json=rows[0]).status_code == 200
    assert client.get("/secret").status_code == 404
    assert client.request("BREW", "/predict").status_code == 405
    assert [record.getMessage() for record in caplog.records if record.name == "gptmill.serve"] == [
        "POST /predict 200 250.0 ms 3 rows",
        "POST /predict 400 250.0 ms 4 rows",
        "POST /predict 200 250.0 ms 1 rows",
        "GET other 404 250.0 ms 0 rows",
        "other /predict 405 250.0 ms 0 rows",
    ]
    page = client.get("/metrics").text
    for line in (
        "gptmill_rows_total 4.0",
        'gptmill_requests_total{path="/predict",status="200"} 2.0',
        'gptmill_requests_total{path="/predict",status="400"} 1.0',
        'gptmill_requests_total{path="other",status="404"} 1.0',
        'gptmill_request_seconds_sum{path="/predict"} 1.0',
        'gptmill_request_seconds_count{path="/predict"} 4.0',
        'gptmill_request_seconds_bucket{le="0.1",path="/predict"} 0.0',
        'gptmill_request_seconds_bucket{le="0.25",path="/predict"} 4.0',
        "gptmill_requests_under_way 1.0",
    ):
        assert f"\n{line}\n" in page, line


class Held:
    """A service whose passes go on when they are told to, and look then whether anybody waits."""

    def __init__(self) -> None:
        self.begun, self.go_on = queue.Queue[list[str]](), queue.Queue[None]()
        self.ended = list[list[str]]()

    def answer(self, items: Sequence[str], check: Any) -> list[str]:
        self.begun.put([*items])
        self.go_on.get(timeout=10)
        try:
            check()
        except Unwanted:
            self.ended.append([*items])
            raise
        return [item.upper() for item in items]


def test_a_client_that_leaves_ends_nobody_elses_pass() -> None:
    """Of two in one pass one leaves, and the other is answered; a pass that both have left ends, and no other one."""
    held = Held()
    passes = Passes(held.answer, 512)
    first = passes.submit(["first"])
    assert held.begun.get(timeout=10) == ["first"]
    pairs = []
    for leave in (1, 2):
        before = first if leave == 1 else pairs[0][1]
        pair = [passes.submit(["a"]), passes.submit(["b"])]
        held.go_on.put(None)
        assert before.result(10)
        assert held.begun.get(timeout=10) == ["a", "b"]
        for future in pair[:leave]:
            future.cancel()
        pairs.append(pair)
    last = passes.submit(["c"])
    held.go_on.put(None)
    assert held.begun.get(timeout=10) == ["c"]
    held.go_on.put(None)
    assert (pairs[0][1].result(10), last.result(10)) == (["B"], ["C"])
    assert held.ended == [["a", "b"]]
    passes.close()
    assert not passes._thread.is_alive()


def test_who_has_left_before_their_pass_is_not_asked_about() -> None:
    held = Held()
    passes = Passes(held.answer, 512)
    futures = [passes.submit(["a"])]
    assert held.begun.get(timeout=10) == ["a"]
    futures += [passes.submit([item]) for item in "bc"]
    futures[1].cancel()
    held.go_on.put(None)
    assert held.begun.get(timeout=10) == ["c"]
    held.go_on.put(None)
    assert futures[2].result(10) == ["C"]
    passes.close()


@pytest.mark.parametrize(("sizes", "passed"), [([1, 2, 1, 5], [1, 3, 5]), ([1, 3, 1], [1, 3, 1]), ([1, 9], [1, 9])])
def test_a_pass_takes_requests_until_it_is_full(sizes: list[int], passed: list[int]) -> None:
    """Room for three items: what comes after a request that fills it waits for the next pass."""
    held, found = Held(), list[int]()
    passes = Passes(held.answer, 3)
    futures = [passes.submit(["a"] * sizes[0])]
    found.append(len(held.begun.get(timeout=10)))
    futures += [passes.submit(["a"] * size) for size in sizes[1:]]
    for _ in passed:
        held.go_on.put(None)
    assert [len(future.result(10)) for future in futures] == sizes
    found += [len(held.begun.get(timeout=10)) for _ in passed[1:]]
    assert (found, held.begun.empty()) == (passed, True)
    passes.close()


class Wire:
    """What a connection writes to, and the clock that it sets."""

    def __init__(self, others: int = 0) -> None:
        self.written, self.closed, self.timers = b"", False, list[SimpleNamespace]()
        state = ServerState()
        state.connections |= {object() for _ in range(others)}  # type: ignore[misc]  # which are only counted
        loop = SimpleNamespace(call_later=self.call_later, create_task=self.create_task)
        config = uvicorn.Config(self.answers, ws="none", log_level="error")
        self.connection = Connection(config, state, {}, loop)  # type: ignore[arg-type]  # what it uses of one
        self.connection.connection_made(self)  # type: ignore[arg-type]  # as above

    async def answers(self, scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("no request is handed on here")

    def create_task(self, running: Any, **_: Any) -> Mock:
        running.close()
        return Mock()

    def call_later(self, seconds: float, call: Any) -> SimpleNamespace:
        timer = SimpleNamespace(seconds=seconds, call=call, cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        self.timers.append(timer)
        return timer

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, _: str) -> None:
        return None

    @property
    def waiting(self) -> list[float]:
        """Seconds of the clocks that still run."""
        return [timer.seconds for timer in self.timers if not timer.cancelled]

    @property
    def told(self) -> tuple[int, Any]:
        head, _, body = self.written.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)["error"]


def test_the_1025th_connection_is_refused() -> None:
    taken, refused = Wire(others=1023), Wire(others=1024)
    assert (taken.closed, taken.written, taken.waiting) == (False, b"", [5])
    told = "request: found 1,024 connections, expected no more; ask again"
    assert (refused.closed, refused.told, refused.waiting) == (True, (503, told), [])


def test_what_is_no_http_is_told_so() -> None:
    wire = Wire()
    wire.connection.data_received(b"\x16\x03\x01\r\n\r\n")
    told = "request: found no HTTP that can be read, or a head that is too long"
    assert (wire.closed, wire.told, wire.waiting) == (True, (400, told), [])


def test_a_head_has_less_than_a_second_from_its_first_byte() -> None:
    wire = Wire()
    wire.connection.data_received(b"GET /health HTTP/1.1\r\n")
    wire.connection.data_received(b"Host: 127.0.0.1\r\n")
    assert wire.waiting == [0.8], "one clock, from the first byte on; and none any more for a silent client"
    wire.connection.data_received(b"\r\n")
    assert (wire.waiting, wire.closed) == ([], False)
    late = Wire()
    late.connection.data_received(b"GET ")
    late.timers[-1].call()
    assert (late.closed, late.told) == (True, (408, "request: found no end of its head within 0.8 s"))
    gone = Wire()
    gone.connection.data_received(b"GET ")
    gone.connection.connection_lost(None)
    assert gone.waiting == []
    broken = Wire()
    broken.connection.connection_lost(ConnectionResetError())
    assert broken.waiting == [], "nor uvicorn's of a silent client, which it leaves running after an error"


def test_the_rest_of_a_refused_body_has_two_seconds() -> None:
    """Then its client has had its answer: the connection is closed without another one."""
    wire = Wire()
    wire.connection.data_received(b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{")
    assert wire.waiting == [], "while the application has not answered"
    wire.connection.conn.send(h11.Response(status_code=413, headers=[("content-length", "0")], reason=b""))
    wire.connection.conn.send(h11.EndOfMessage())
    wire.connection.cycle.response_complete = True
    wire.connection.on_response_complete()
    assert sorted(wire.waiting) == [2.0, 5], "uvicorn's own of a silent client beside it"
    wire.timers[-1].call()
    assert (wire.closed, wire.written) == (True, b"")


def test_figures_that_bound_a_request() -> None:
    assert (answering._MOST_ROWS, answering._MOST_CHARACTERS) == (4096, 50_000)
    assert (model_server._MOST_HELD, model_server._BODY_SECONDS, model_server._GRACE_SECONDS) == (16_777_216, 5.0, 10)
    assert (connections._HEAD_SECONDS, connections._REST_SECONDS, connections._MOST) == (0.8, 2.0, 1024)
