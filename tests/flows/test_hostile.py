"""What a client may do to `gptmill serve`: it is told within a second, costs little memory, and others are answered."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import requests

from tests.flows.test_serving import Shelf
from tests.trials.scenarios import free_ports

MEGABYTE = 1_000_000
GENERATE = b"POST /generate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
ENDLESS = {"prompt": "the cat", "max_tokens": 10**8}
"""The trial's own setting allows so many."""


class Served:
    """A server of a language model, seen from outside."""

    def __init__(self, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.process, self.port, self.log, self.url = process, port, log, f"http://127.0.0.1:{port}"

    def ask(self, body: object, seconds: float = 10) -> requests.Response:
        return requests.post(f"{self.url}/generate", json=body, timeout=seconds)

    def peak(self) -> int:
        """The most memory since the kernel was told to forget, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5", encoding="ascii")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)


@contextmanager
def served(folder: Path, most_tokens: int) -> Iterator[Served]:
    shelf, (port,) = Shelf(folder / "store"), free_ports(1)
    command = [sys.executable, "-m", "flows.cli", "serve", shelf.checkpoint.short, "--store", shelf.store.url]
    command += ["--port", str(port), "--max-tokens", str(most_tokens)]
    environment = {**os.environ, "GPTMILL_HOME": str(folder / "home")}
    with open(folder / "log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        try:
            assert process.stdout is not None
            assert "/generate" in process.stdout.readline(), (folder / "log").read_text(encoding="utf-8")
            yield Served(process, port, folder / "log")
        finally:
            process.kill()
            process.communicate()


def told(connection: socket.socket) -> tuple[int, str]:
    """An answer's status, and its error."""
    answer = b""
    with suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            answer += piece
            head, _, body = answer.partition(b"\r\n\r\n")
            if body.rstrip().endswith(b"}"):
                return int(head.split()[1]), json.loads(body)["error"]
    raise AssertionError(f"found no answer but {answer!r}")


def sent(*pieces: bytes, pause: float = 0.0, times: int = 1) -> Callable[[Served], tuple[int, str]]:
    """What a connection is told that sends the first piece, then the others again and again while it is not told."""

    def send(server: Served) -> tuple[int, str]:
        first, *others = pieces
        with closing(server.connect()) as connection:

            def go_on() -> None:
                with suppress(OSError):
                    connection.sendall(first)
                    for _ in range(times):
                        for piece in others:
                            connection.sendall(piece)
                            time.sleep(pause)

            sender = threading.Thread(target=go_on, daemon=True)
            sender.start()
            found = told(connection)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        sender.join(10)
        return found

    return send


def body(text: str) -> Callable[[Served], tuple[int, str]]:
    data = text.encode()
    return sent(GENERATE + b"Content-Length: %d\r\n\r\n" % len(data) + data)


def prompt(value: str) -> Callable[[Served], tuple[int, str]]:
    return body(f'{{"prompt": "{value}"}}')


HOSTILE: dict[str, tuple[Callable[[Served], tuple[int, str]], int, str]] = {
    "a billion tokens": (body(json.dumps({**ENDLESS, "max_tokens": 10**9})), 400, "max_tokens: found 1,000,000,000,"),
    "a number of a thousand digits": (body('{"prompt": "a", "temperature": 1' + "0" * 1000 + "}"), 400, "temperature"),
    "a gigabyte": (
        sent(GENERATE + b"Content-Length: 1000000000\r\n\r\n", b" " * MEGABYTE, times=1000),
        413,
        "found 1,000,000,000 bytes or more, expected at most 2,097,152",
    ),
    "a gigabyte of unknown length": (
        sent(GENERATE + b"Transfer-Encoding: chunked\r\n\r\n", b"F4240\r\n" + b" " * MEGABYTE + b"\r\n", times=1000),
        413,
        "or more, expected at most 2,097,152",
    ),
    "a head without end, slowly": (sent(GENERATE, b"a", pause=0.1, times=100), 408, "found no end of its head"),
    "a head without end, fast": (sent(GENERATE, b"A: b\r\n" * 1000, times=1000), 400, "a head that is too long"),
    "no HTTP": (sent(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"), 400, "found no HTTP"),
    "a prompt without end": (prompt("a " * MEGABYTE), 400, "prompt: found 2,000,000 characters"),
    "half of a pair": (prompt(r"\ud800"), 400, "half of a surrogate pair"),
    "half of a pair for a name": (body(r'{"prompt": "a", "\uD8AB": 1}'), 400, "half of a surrogate pair"),
    "brackets": (body("[" * 2 * MEGABYTE), 400, "found brackets in brackets"),
    "lists": (body("[" + "[]," * (2 * MEGABYTE // 3) + "[]]"), 400, "found no prompt"),
    "a foreign name": (sent(b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 400, "Host 'evil.example'"),
}


def test_a_hostile_request_is_told_at_once_and_harms_nobody(tmp_path: Path) -> None:
    with served(tmp_path, 10**8) as server:
        for _ in range(3):
            assert server.ask({"prompt": "the cat", "max_tokens": 5}).status_code == 200
        idle, waits, ended = psutil.Process(server.process.pid).memory_info().rss, [], threading.Event()
        server.forget_peak()

        def others() -> None:
            while not ended.wait(0.05):
                began = time.monotonic()
                answer = server.ask({"prompt": "the cat", "max_tokens": 2})
                waits.append(time.monotonic() - began if answer.status_code == 200 else 1e9)

        other = threading.Thread(target=others)
        other.start()
        loris = [server.connect() for _ in range(200)]
        for connection in loris:
            connection.sendall(GENERATE)
        try:
            for name, (request, status, words) in HOSTILE.items():
                began = time.monotonic()
                found, error = request(server)
                seconds = time.monotonic() - began
                assert (found, words in error) == (status, True), (name, found, error)
                assert seconds < 1 or psutil.getloadavg()[0] > 4, f"{name}: told after {seconds:.1f} s"
            assert {told(connection)[0] for connection in loris} == {408}
            with closing(server.connect()) as silent, closing(server.connect()) as left:
                data = json.dumps(ENDLESS).encode()
                left.sendall(GENERATE + b"Content-Length: %d\r\n\r\n" % len(data) + data)
                time.sleep(0.2)
                left.close()  # the pass that it began ends, or nobody would be answered any more
                assert server.ask({"prompt": "the cat", "max_tokens": 2}).status_code == 200
                assert silent.recv(1) == b"", "who says nothing is left after some seconds"
        finally:
            ended.set()
            other.join()
            for connection in loris:
                connection.close()
        assert max(waits) < 5
        assert len(waits) > 20
        assert server.peak() - idle < 100 * MEGABYTE
        page = requests.get(f"{server.url}/metrics", timeout=10)
        assert page.headers["content-type"].startswith("text/plain; version=")
        answered = f'gptmill_requests_total{{path="/generate",status="200"}} {len(waits) + 4:.1f}'
        assert answered in page.text
        assert f"gptmill_rows_total {len(waits) + 4:.1f}" in page.text
        assert 'gptmill_requests_total{path="/generate",status="499"} 1.0' in page.text
        assert "process_resident_memory_bytes" in page.text
        log = server.log.read_text(encoding="utf-8")
        assert "POST /generate 200" in log
        assert "Traceback" not in log
        assert "the cat" not in log


@pytest.mark.slow
@pytest.mark.parametrize("state", ["idle", "starting", "busy"])
def test_a_server_ends_in_time_whatever_it_does(tmp_path: Path, state: str) -> None:
    """Busy: in an answer without end, with others in the queue, a head and a body that do not come on."""
    with served(tmp_path, 10**8) as server:
        statuses: list[int] = []
        ended = server.process

        def ask() -> None:
            statuses.append(server.ask(ENDLESS, 30).status_code)

        asking = [threading.Thread(target=ask) for _ in range(4 if state == "busy" else 0)]
        for thread in asking:
            thread.start()
        if state == "busy":
            halves = [server.connect() for _ in range(2)]
            for connection, rest in zip(halves, (b"", b"Content-Length: 100\r\n\r\n{"), strict=True):
                connection.sendall(GENERATE + rest)
            time.sleep(0.5)
        elif state == "starting":
            ended = subprocess.Popen([*server.process.args, "--port", str(free_ports(1)[0])])  # type: ignore[misc]
            time.sleep(1.5)
        began = time.monotonic()
        ended.send_signal(signal.SIGTERM)
        assert ended.wait(15) == 128 + signal.SIGTERM
        assert time.monotonic() - began < (15 if state == "busy" else 5)
        for thread in asking:
            thread.join()
        assert statuses == [503] * len(asking), "told, and not cut off"
