"""The faults that `python -m tests.trials.chaos` makes: the same from the same seed, and what they say they are."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from gptcore.base.errors import InputError
from gptcore.nlu.own_task import read_own_task
from gptcore.nlu.readers import iterate
from gptcore.papers.graphs.entities import Gazetteer, read_links
from tests.realdata import real_data
from tests.trials import linking
from tests.trials.chaos import proxy as proxies
from tests.trials.chaos.faults import SOURCE, Switch
from tests.trials.chaos.fixture import Moment, moments
from tests.trials.chaos.proxy import SHARES, FaultPlan, Proxy
from tests.trials.pages.real_tasks import REAL_TASKS, write_real_tasks
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
    """A plan that gives every request one and the same fault."""

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


# --- found mentions beside given links: what counts as a link, as found, as right; files that do not belong together


U = linking.UNLINKED


def names(**entities: list[int]) -> Gazetteer:
    """Entities by the pieces of their names; no piece goes on a word."""
    listed = sorted(entities.values(), key=lambda name: (len(name), name))
    order = [list(entities.values()).index(name) for name in listed]
    pieces = np.array([piece for name in listed for piece in name])
    return Gazetteer(pieces, np.cumsum([len(name) for name in listed]), np.array(order), np.zeros(30_522, bool))


def test_links_are_counted_once_each_and_by_what_is_found_at_their_first_piece() -> None:
    gazetteer = names(king=[3], old_king=[2, 3], river=[7])
    numbers = {"Qking": 0, "Qold": 1, "Qriver": 2}
    tokens = [2, 3, 9, 3, 7, 3, 3, 7]
    links = ["Qold", "Qold", U, "Qriver", "Qunknown", U, "Qking", "Qking"]
    counts = linking.compare(gazetteer, numbers, tokens, links)
    assert dict(counts) == {"pieces": 8, "mentions": 4, "links": 3, "found": 6, "right": 2, "wrong": 1}
    assert not linking.compare(gazetteer, numbers, [], []).total()


def test_articles_become_books_and_a_file_of_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "york", "duke", "of", "walked"]
    for folder in ("vocabulary", "graph", "linked"):
        (tmp_path / folder).mkdir()
    (tmp_path / "vocabulary" / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "graph" / "train.txt").write_text("/m/town\tseat_of\t/m/duke\n/m/town\tnear\t/m/town\n")
    about = {"/m/town": {"label": "York", "wikidata_id": "Q1"}, "/m/duke": {"label": "Duke", "wikidata_id": "Q2"}}
    (tmp_path / "graph" / "entity2wikidata.json").write_text(json.dumps(about))
    sentences = [(["york", "walked"], ["Q2", U]), (["duke", "of", "york"], ["Q9", "Q9", "Q9"]), (["york"], ["Q2"])]
    rows = [(str(len(its)), *its) for pair in sentences for its in pair]
    ids = [[cell if cell.isdigit() else str(words.index(cell)) for cell in row] for row in rows[::2]]
    for name, found in ((linking.TOKENS, ids), (linking.LINKS, rows[1::2])):
        (tmp_path / "linked" / name).write_text("\t".join(["3", *chain.from_iterable(found)]) + "\n")
    folders = [str(tmp_path / folder) for folder in ("graph", "linked", "vocabulary")]
    linking.main([*folders, "--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert "6 pieces, 3 links, 2 of them to the graph's entities" in printed
    assert "as the same entity: 0 (0.0%), as another: 2 (100.0%)" in printed
    assert "told the links of each article: 2 (100.0%), as another: 0" in printed
    assert (tmp_path / "out" / "books" / "article-001.txt").read_text() == "york walked\n\nduke of york\n\nyork\n"
    assert read_links(str(tmp_path / "out" / "links.tsv")) == {
        "article-001.txt": {"york": "/m/duke", "duke of york": "Q9"}
    }


def test_the_two_files_are_read_sentence_by_sentence(tmp_path: Path) -> None:
    (tmp_path / linking.TOKENS).write_text("2\t2\t5\t6\t1\t7\n1\t0\n")
    (tmp_path / linking.LINKS).write_text(f"2\t2\t{U}\tQ1\t1\tQ2\n1\t0\n")
    assert list(linking.articles(tmp_path)) == [[([5, 6], [U, "Q1"]), ([7], ["Q2"])], [([], [])]]
    (tmp_path / linking.LINKS).write_text(f"2\t1\t{U}\t1\tQ2\n1\t0\n")
    with pytest.raises(InputError, match="wiki_entity, line 1: found other sentences than wiki_token"):
        list(linking.articles(tmp_path))
    (tmp_path / linking.LINKS).write_text("1\t0\n")
    with pytest.raises(InputError, match="2 lines in wiki_token, 1 in wiki_entity"):
        list(linking.articles(tmp_path))


def test_the_sample_has_as_many_links_as_its_authors_say() -> None:
    found = list(chain.from_iterable(linking.articles(real_data("wiki-entities"))))
    assert (len(found), sum(len(tokens) for tokens, _ in found)) == (16_365, 596_572)
    empty = names(nothing=[1, 1, 1])
    assert sum((linking.compare(empty, {}, *each)["mentions"] for each in found), 0) == 18_505


# --- tasks of real rows that the registry does not know, as `tests.trials.pages` fills them into the form


def test_three_formats_and_kinds_of_label_are_read_as_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPTMILL_REAL_DATA", str(real_data()))
    files = write_real_tasks(tmp_path / "tasks")
    specs = {name: read_own_task(file, "").spec for name, file in files.items()}
    rows = {name: {s: list(iterate(spec, "", s)) for s in ("train", "dev")} for name, spec in specs.items()}
    formats = {"wnli": "jsonl", "news-relations": "csv", "arxiv-years": "tsv"}
    assert {name: spec.format for name, spec in specs.items()} == formats
    assert (len(rows["wnli"]["train"]), len(rows["wnli"]["dev"])) == (635, 71)
    assert len(specs["news-relations"].labels) == 20
    assert (len(rows["news-relations"]["train"]), len(rows["news-relations"]["dev"])) == (1600, 400)
    years = {row.label for found in rows["arxiv-years"].values() for row in found}
    assert years <= {float(year) for year in range(1990, 2020)}
    assert any('"' in row.fields[0] for found in rows["arxiv-years"].values() for row in found), "quotes stay text"


def test_without_real_rows_it_says_what_it_misses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", str(tmp_path)):
        monkeypatch.setenv("GPTMILL_REAL_DATA", value)
        with pytest.raises(InputError, match=rf"GPTMILL_REAL_DATA: found no {REAL_TASKS['wnli']} there"):
            write_real_tasks(tmp_path / "tasks")
    assert not (tmp_path / "tasks").exists()
