"""A model behind HTTP: the answers of `predict`, errors that harm nobody else, an end that loses nothing."""

from __future__ import annotations

import asyncio
import concurrent.futures
import http.client
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import requests
import torch
from jsonschema import ValidationError, validate
from starlette.testclient import TestClient

from flows import inference
from flows.cli.models import served_model
from flows.servers.environment import listener
from flows.serving import answering, model_server
from flows.serving.answering import Generation, Passes, Predictions
from flows.serving.model_server import application
from gptcore.base.errors import InputError
from gptcore.evaluation.generate import generate
from gptcore.evaluation.predict import TaskModel
from gptcore.models.network import load_model
from gptcore.text.tokenizer import Tokenizer
from tasks.store.lineage import model_files
from tests.expected import expected
from tests.flows.test_serving import Shelf
from tests.trials.scenarios import free_ports

ROWS = [{"premise": f"the cat sat {n}", "hypothesis": "it sat"} for n in range(5)]
JSON = {"content-type": "application/json"}


def encoded(body: Any) -> bytes:
    return json.dumps(body).encode()


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(tmp_path_factory.mktemp("shelf") / "store")


@pytest.fixture(scope="module")
def client(shelf: Shelf) -> Iterator[TestClient]:
    folder, words = model_files(shelf.finetune("rte", shelf.checkpoint))
    service = Predictions(TaskModel(folder, Tokenizer.load(str(words))))
    with TestClient(application(service, {"task": "rte"}), base_url="http://127.0.0.1") as found:
        yield found


def test_answers_are_those_of_predict(client: TestClient, shelf: Shelf) -> None:
    expected = list(inference.predict(shelf.store, "rte", "latest", [json.dumps(row).encode() for row in ROWS]))
    for answer in expected:
        del answer["line"]
    assert client.post("/predict", json=ROWS).json() == expected
    assert client.post("/predict", json=ROWS[2]).json() == expected[2]
    assert client.get("/health").json() == {"status": "ok", "task": "rte"}


BAD = {
    **{case: (body.encode("latin-1"), 400, message) for case, (body, message) in expected(__file__, "BAD").items()},
    "a text without end": (
        encoded([ROWS[0], {"premise": "a " * 30_000, "hypothesis": "b"}]),
        400,
        "request, row 2: premise: found 60,000 characters, expected at most 50,000",
    ),
    "too long": (b" " * (17 << 20), 413, "expected at most 2,097,152"),
}


@pytest.mark.parametrize(("body", "status", "message"), BAD.values(), ids=BAD)
def test_a_bad_request_names_row_and_field(client: TestClient, body: bytes, status: int, message: str) -> None:
    found = client.post("/predict", content=body, headers=JSON)
    assert found.status_code == status
    assert message in found.json()["error"]


def like(found: dict[str, Any], alone: dict[str, Any]) -> bool:
    """Whether an answer is that of its row alone: a batch of other rows may move a probability's last digit by one."""
    near = pytest.approx(alone["probabilities"], abs=2e-6)
    return found == {**alone, "probabilities": near}


def test_a_row_without_a_text_harms_no_other_and_an_id_comes_back(client: TestClient) -> None:
    rows: list[dict[str, Any]] = [{**ROWS[0], "id": 7}, {"premise": " ", "hypothesis": "a"}, ROWS[1], {"premise": None}]
    rows[3]["hypothesis"] = "the cat sat on the mat " * 50
    body = json.dumps([*rows, {**ROWS[2], "id": float("nan")}])
    first, blank, second, nothing, last = client.post("/predict", content=body, headers=JSON).json()
    alone = client.post("/predict", json=ROWS[0]).json()
    assert like(first, {"id": 7, **alone})
    assert blank == {"label": None, "note": "column 'premise': found ' ', expected text that is not empty"}
    assert like(second, client.post("/predict", json=ROWS[1]).json())
    assert nothing["note"] == "column 'premise': found '', expected text that is not empty"
    assert last["id"] is None
    long = {"premise": "the cat sat on the mat " * 50, "hypothesis": "a"}
    found = client.post("/predict", json=long).json()
    assert re.fullmatch(r"48 of \d+ tokens were read", found.pop("note"))
    assert found.keys() == alone.keys()


class Read(HTMLParser):
    """The links and the preformatted texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag == "pre":
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] == ["pre"]:
            self.texts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.tags.append("")


@pytest.mark.parametrize("kind", ["task", "language model"])
def test_its_page_says_what_it_serves_and_how_to_ask(kind: str, client: TestClient, shelf: Shelf) -> None:
    with ExitStack() as kept:
        if kind == "language model":
            folder, words = model_files(shelf.checkpoint)
            service = Generation(load_model(str(folder)).eval(), Tokenizer.load(str(words)), 5)
            served = TestClient(application(service, {"model": "<b>a</b>"}), base_url="http://localhost:8080")
            client = kept.enter_context(served)
        page = client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        read = Read(page.text)
        assert {*read.tags}.isdisjoint({"script", "img", "iframe", "b"})
        assert {*read.links} == {"/docs", "/openapi.json", "/health", "/metrics"}
        assert {client.get(link).status_code for link in read.links} == {200}
        curl, _, url, _, header, _, body = shlex.split(read.texts[0].replace("\\\n", ""))
        assert (curl, header) == ("curl", "Content-Type: application/json")
        answer = client.post(url, content=body, headers=JSON)
        assert answer.json() == json.loads(read.texts[1])
        document = client.get("/openapi.json").json()
        (asked,) = (post["post"] for post in document["paths"].values() if "post" in post)
        content = asked["requestBody"]["content"]["application/json"]
        assert content["example"] == json.loads(body)
        schema = content["schema"]["anyOf"][0] if kind == "task" else content["schema"]
        assert schema["properties"].keys() == json.loads(body).keys()
        told = asked["responses"]["200"]["content"]["application/json"]
        assert told["example"] == answer.json()
        whole = json.loads(body)
        for given in [whole, *([dict.fromkeys(whole, ""), dict.fromkeys(whole), [whole]] if kind == "task" else [])]:
            validate(given, content["schema"])
            validate(client.post(url, json=given).json(), told["schema"])
        for given in ([],) if kind == "task" else ({}, {"max_tokens": 3}):
            refusal = asked["responses"]["default"]["content"]["application/json"]["schema"]
            validate(client.post(url, json=given).json(), refusal)
            with pytest.raises(ValidationError):
                validate(given, content["schema"])
        assert json.loads(Read(client.get("/docs").text).texts[0]) == document
        assert client.get("/", headers={"host": "evil.example"}).status_code == 400


def test_another_path_or_method_is_told_as_a_bad_row_is(client: TestClient) -> None:
    for method, path, status, message in expected(__file__, "test_another_path_or_method_is_told_as_a_bad_row_is"):
        found = client.request(method, path)
        assert (found.status_code, found.json()) == (status, {"error": message})
    assert client.get("/predict").headers["allow"] == "POST"


def test_pages_and_rebound_names_are_refused(client: TestClient) -> None:
    body = json.dumps(ROWS[0])
    assert client.post("/predict", content=body, headers={**JSON, "origin": "http://evil.example"}).status_code == 403
    assert client.post("/predict", content=body, headers={**JSON, "host": "evil.example"}).status_code == 400
    assert client.get("/health", headers={"host": "evil.example:8080"}).status_code == 400
    assert client.post("/predict", content=body, headers={"content-type": "text/plain"}).status_code == 415
    preflight = client.options(
        "/predict", headers={"origin": "http://evil.example", "access-control-request-method": "POST"}
    )
    assert "access-control-allow-origin" not in preflight.headers


def test_text_is_generated_with_the_settings_of_the_request(shelf: Shelf) -> None:
    folder, words = model_files(shelf.checkpoint)
    tokenizer = Tokenizer.load(str(words))
    service = Generation(load_model(str(folder)).eval(), tokenizer)
    alone = "".join(generate(*inference.language_model(shelf.store, "latest"), "the cat", max_tokens=5, seed=3))
    with TestClient(application(service, {}), base_url="http://localhost") as client:
        found = client.post("/generate", json={"prompt": "the cat", "max_tokens": 5, "seed": 3})
        assert found.json() == {"continuation": alone}
        for body, message in expected(__file__, "BAD_PROMPTS"):
            answer = client.post("/generate", json=body)
            assert (answer.status_code, message in answer.json()["error"]) == (400, True)


def test_a_request_that_does_not_arrive_is_told_so(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the end's grace is over, or it would be cut off without an answer."""
    assert model_server._BODY_SECONDS < model_server._GRACE_SECONDS <= 10
    monkeypatch.setattr(model_server, "_BODY_SECONDS", 0.05)
    folder, words = model_files(shelf.finetune("rte", shelf.checkpoint))
    served = application(Predictions(TaskModel(folder, Tokenizer.load(str(words)))), {})
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        raise AssertionError("nothing more comes")

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"content-length", b"100")]
    scope = {"type": "http", "method": "POST", "path": "/predict", "headers": headers, "query_string": b""}
    asyncio.run(served(scope, receive, send))
    assert sent[0]["status"] == 408
    assert b"found no end of it within" in sent[1]["body"]


def test_a_brief_pass_has_one_thread(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    chosen: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    folder, words = model_files(shelf.finetune("rte", shelf.checkpoint))
    service = Predictions(TaskModel(folder, Tokenizer.load(str(words))))
    for most in (1e12, 0.0):
        monkeypatch.setattr(answering, "_BRIEF_PASS", most)
        assert service.answer(service.read(ROWS[0])[0], lambda: None)
    assert chosen == [1, 3]


def test_requests_that_wait_are_answered_together_and_apart() -> None:
    """One that the model fails on fails those of its pass, and no later one; an end waits for what is queued."""
    sizes: list[int] = []
    begun, begin = threading.Event(), threading.Event()

    def answer(items: Sequence[Any], _: Any) -> list[Any]:
        begun.set()
        begin.wait(10)
        sizes.append(len(items))
        if "bad" in items:
            raise ValueError("bad")
        return [item * 2 for item in items]

    passes = Passes(answer, 512)
    first = passes.submit(["a"])
    assert begun.wait(10)
    others = [passes.submit([str(n), str(n)]) for n in range(4)]
    begin.set()
    assert first.result(10) == ["aa"]
    assert [other.result(10) for other in others] == [[str(n) * 2] * 2 for n in range(4)]
    assert sizes == [1, 8]
    with pytest.raises(ValueError, match="bad"):
        passes.submit(["bad"]).result(10)
    last = [passes.submit(["b"]) for _ in range(3)]
    passes.close()
    assert [future.result(0) for future in last] == [["bb"]] * 3


def test_which_model_is_meant(shelf: Shelf) -> None:
    model = shelf.finetune("rte", shelf.checkpoint)
    assert served_model(shelf.store, "rte", "latest") == model
    assert served_model(shelf.store, "rte", "") == model
    assert served_model(shelf.store, model.short, "") == model
    assert served_model(shelf.store, shelf.checkpoint.url, "") == shelf.checkpoint
    with pytest.raises(InputError, match="ret: found no task and no model of this name"):
        served_model(shelf.store, "ret", "")
    message = f"--model best: found {model.short} beside it, a model itself; expected a task or no --model"
    with pytest.raises(InputError, match=f"^{message}$"):
        served_model(shelf.store, model.short, "best")


@pytest.mark.slow
def test_an_answer_waits_for_no_receipt_of_its_first_part() -> None:
    (port,) = free_ports(1)
    with listener(port) as listening, closing(socket.create_connection(("127.0.0.1", port))):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_server_takes_many_clients_and_ends_without_losing_one(shelf: Shelf, tmp_path: Path) -> None:
    shelf.finetune("rte", shelf.checkpoint)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "flows.cli", "serve", "rte", "--store", shelf.store.url, "--port", str(port)]
    environment = {**os.environ, "GPTMILL_HOME": str(tmp_path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        assert f"http://127.0.0.1:{port}/predict" in process.stdout.readline()
        assert "spacy" in Path(f"/proc/{process.pid}/maps").read_text(), "no client waits for what words are split with"
        url = f"http://127.0.0.1:{port}/predict"

        def ask(n: int) -> int:
            body = {"premise": "x"} if n % 10 == 0 else {"premise": f"the cat {n}", "hypothesis": "it sat"}
            return requests.post(url, json=body, timeout=30).status_code

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            codes = list(pool.map(ask, range(200)))
        assert codes == [400 if n % 10 == 0 else 200 for n in range(200)]
        taken = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
        said = rf"gptmill: error: --port {port}: Address already in use; --port \d+ is free\n"
        assert taken.returncode == 2
        assert re.fullmatch(said, taken.stderr)
        body = encoded([{"premise": "the cat " * 20, "hypothesis": "it sat"}] * 2000)
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as client:
            client.putrequest("POST", "/predict")
            for name, value in {**JSON, "content-length": str(len(body)), "expect": "100-continue"}.items():
                client.putheader(name, value)
            client.endheaders()
            assert client.sock.recv(100).startswith(b"HTTP/1.1 100 "), "it waits for the body: the request is under way"
            process.send_signal(signal.SIGTERM)
            client.send(body)
            answer = client.getresponse()
            assert answer.status == 200
            assert len(json.loads(answer.read())) == 2000
        assert process.wait(30) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.communicate()
