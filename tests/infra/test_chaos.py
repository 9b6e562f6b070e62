"""The faults that `python -m tests.trials.chaos` makes: the same from the same seed, and what they say they are."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.trials.chaos import proxy as proxies
from tests.trials.chaos.plan import Moment, moments
from tests.trials.chaos.proxy import SHARES, FaultPlan, Proxy
from tests.trials.chaos.shim import SOURCE, Switch
from tests.trials.scenarios import Trial, compile_shim


def test_the_kill_plan_is_fixed_by_its_seed() -> None:
    stages = {"caller": ["a", "b", "c"], "job": ["b"]}
    plan = moments("seed", {"caller": 7, "job": 2}, stages)
    assert plan == moments("seed", {"caller": 7, "job": 2}, stages)
    assert plan[:3] == moments("seed", {"caller": 3}, stages)  # more of them change none
    assert plan[7:] == moments("seed", {"job": 2}, stages)  # nor do other victims
    assert plan != moments("other", {"caller": 7, "job": 2}, stages)
    hit = [moment.stage for moment in plan[:6]]
    assert sorted(hit) == ["a", "a", "b", "b", "c", "c"]
    assert all(0 <= moment.share < 1 for moment in plan)


def test_the_first_kill_never_changes() -> None:
    """A trial that failed can be run again by anybody, later."""
    [first] = moments("chaos-1", {"caller": 1}, {"caller": ["corpus", "pretrain", "finetune"]})
    assert first == Moment("caller", "corpus", 0.25707769710111517, 49698)


def test_the_fault_plan_is_fixed_by_its_seed() -> None:
    plan = FaultPlan("seed", SHARES)
    faults = [plan.fault(number) for number in range(4000)]
    assert faults[::-1] == [FaultPlan("seed", SHARES).fault(number) for number in reversed(range(4000))]
    for name, share in SHARES.items():
        assert faults.count(name) / 4000 == pytest.approx(share, abs=0.015)
    assert faults != [FaultPlan("other", SHARES).fault(number) for number in range(4000)]


class _Objects(BaseHTTPRequestHandler):
    """Stores what is PUT, whole or in chunks, and gives it back."""

    protocol_version = "HTTP/1.1"
    kept: dict[str, bytes]

    def do_PUT(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        self.kept[self.path] = body
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(self.kept[self.path])

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[tuple[int, dict[str, bytes]]]:
    """A port with a server behind it, and what it has stored."""
    kept: dict[str, bytes] = {}
    handler = type("Objects", (_Objects,), {"kept": kept})
    with ThreadingHTTPServer((proxies.HOST, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server.server_port, kept
        server.shutdown()


class _Always(FaultPlan):
    """The same fault for every request."""

    def fault(self, number: int) -> str:
        return self.seed


def put(port: int, body: bytes, *, chunked: bool = False) -> int:
    client = http.client.HTTPConnection(proxies.HOST, port, timeout=10)
    client.request("PUT", "/x", iter([body]) if chunked else body, encode_chunked=chunked)
    return client.getresponse().status


def get(port: int) -> bytes:
    client = http.client.HTTPConnection(proxies.HOST, port, timeout=10)
    client.request("GET", "/x")
    return client.getresponse().read()


def test_a_proxy_without_faults_changes_nothing(upstream: tuple[int, dict[str, bytes]]) -> None:
    port, kept = upstream
    with Proxy(port, _Always("", {})).running() as proxy:
        for body in (b"", os.urandom(300_000)):
            for chunked in (False, True) if body else (False,):
                assert put(proxy.port, body, chunked=chunked) == 200
                assert kept.pop("/x") == body
        kept["/x"] = b"found"
        assert get(proxy.port) == b"found"
    assert not proxy.faults.total()


def test_each_fault_is_what_it_says(upstream: tuple[int, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    port, kept = upstream
    monkeypatch.setattr(proxies, "_DELAY_SECONDS", 0.0)
    for fault, done in [("drop", False), ("drop after", True), ("500", False), ("503", False), ("delay", True)]:
        kept.clear()
        with Proxy(port, _Always(fault, {})).running() as proxy:
            if fault.startswith("drop"):
                with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
                    put(proxy.port, b"body")
            else:
                assert put(proxy.port, b"body") == (200 if fault == "delay" else int(fault))
            assert proxy.faults == {fault: 1}
        assert bool(kept) == done, fault
    kept["/x"] = b"12345678"
    with Proxy(port, _Always("cut", {})).running() as proxy, pytest.raises(http.client.IncompleteRead) as cut:
        get(proxy.port)
    assert cut.value.partial == b"1234"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_a_full_disk_and_a_wrong_clock_are_seen_by_a_child_alone(tmp_path: Path) -> None:
    compile_shim(SOURCE, tmp_path)
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "old").write_bytes(b"0123456789")
    trial = Trial(tmp_path, tmp_path)
    switch = Switch(trial, tmp_path, [tmp_path / "other", disk])
    program = f"""
import os, shutil, sys, time
def write(path, mode, data):
    try:
        with open(path, mode, buffering=0) as file:
            file.seek(0)
            return file.write(data)
    except OSError as error:
        return error.strerror
before = time.time(), time.monotonic()
print(write("{disk}/first", "wb", b"1234"), flush=True)
sys.stdin.readline()
print(write("{disk}/half", "wb", b"1234"), write("{disk}/none", "wb", b"1234"), flush=True)
print(write("{disk}/old", "r+b", b"over"), write("{tmp_path}/elsewhere", "wb", b"1234"), flush=True)
print(shutil.disk_usage("{disk}").free, shutil.disk_usage("{tmp_path}").free > 0, flush=True)
print(round((time.time() - before[0]) / 3600), round((time.monotonic() - before[1]) / 3600), flush=True)
"""
    environment = {**os.environ, **trial.more}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "4\n"
        switch.set(full=True, clock=-7 * 3600)
        said, _ = child.communicate("go on\n", timeout=30)
    assert said.splitlines() == ["2 No space left on device", "4 4", "0 True", "-7 0"]
    assert (disk / "old").read_bytes() == b"over456789"
