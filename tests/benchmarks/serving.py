"""Models that answer: tables of rows, and `gptmill serve` under load, beside transformers' pipeline and onnxruntime.

A network of the preset small's shape with random weights, rows of SST-2. The clients are threads of this process, on
the same cores as the server.
"""

from __future__ import annotations

import dataclasses
import http.client
import itertools
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pandas as pd
import psutil
import torch
from transformers import OpenAIGPTForSequenceClassification

from gptcore.config import small
from gptcore.evaluation.exported import INT8, MODEL
from gptcore.models.classifier import ClassificationModel
from gptcore.models.files.export import export_hugging_face
from gptcore.models.onnx import OnnxClassifier, export_onnx, quantise_onnx
from gptcore.models.transformer import GPT
from gptcore.nlu.readers import load_task
from gptcore.nlu.registry import task_spec
from gptcore.text.tokenizer import Tokenizer
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store
from tasks.tracking.pyfunc import TaskPredictor
from tests.benchmarks.finetune import network, sources
from tests.benchmarks.peer_server import pipeline_of
from tests.benchmarks.step import as_transformers
from tests.benchmarks.table import Rate, Work, beside, line

_TASK = "sst2"
_ROWS = 512
_SERVERS = {
    "pipeline": ("transformers' pipeline, a plain server", ">= 1.0x"),
    "compiled": ("the same compiled", ">= 1.0x"),
    "onnx": ("ours with the network in onnxruntime", ""),
}
_CLIENTS, _TURNS = (1, 16), 3


def run(seconds: float, folder: Path) -> None:
    """Rows 15 and 16."""
    datasets, tokenizer = sources(folder)
    texts = [row.fields[0] for row in load_task(_TASK, str(datasets), "dev")]
    model = stored(folder / "store", tokenizer)
    _exports(Path(model.url), tokenizer, folder)
    _tables(model, texts, folder, seconds)
    _load(model, texts, folder, seconds)


def stored(root: Path, tokenizer: Tokenizer) -> Artifact:
    """A fine-tuned model in a store."""
    store, spec = Store(root), task_spec(_TASK)
    extra = {"task": _TASK, "labels": list(spec.labels), "tokenizer_digest": tokenizer.digest}

    def words(out: Path) -> dict[str, str]:
        tokenizer.save(out)
        return {}

    def weights(out: Path) -> dict[str, str]:
        network(spec, tokenizer.n_vocab).save(out / "model", extra)
        return {}

    vocabulary = store.build(Recipe("tokenizer", 1, {}, {}), words).artifact
    return store.build(Recipe("finetune", 1, {"task": _TASK}, {"tokenizer": vocabulary}), weights).artifact


def _exports(artifact: Path, tokenizer: Tokenizer, folder: Path) -> None:
    """The model for onnxruntime, and a network of its sizes for transformers."""
    (folder / "model").symlink_to(artifact / "model")
    tokenizer.save(folder / "tokenizer")
    export_onnx(ClassificationModel.load(folder / "model")[0], folder / MODEL)
    quantise_onnx(folder / MODEL, folder / INT8)
    config = dataclasses.replace(small().model, n_vocab=tokenizer.n_vocab)
    export_hugging_face(GPT(config, torch.Generator().manual_seed(0)), tokenizer, folder / "peer")
    OpenAIGPTForSequenceClassification(as_transformers(config)).save_pretrained(folder / "peer")


def _tables(model: Artifact, texts: Sequence[str], folder: Path, seconds: float) -> None:
    """Row 15: what `mlflow.pyfunc` calls."""
    table = pd.DataFrame({"sentence": list(itertools.islice(itertools.cycle(texts), _ROWS))})

    def answered(file: str = "") -> Work:
        ours = TaskPredictor(model)
        if file:
            ours._model._model = OnnxClassifier(folder / file)
        return lambda: float(len(ours.predict(table)))

    def piped(batch: int, compiled: bool = False) -> Work:
        peer, longest = pipeline_of(folder, compiled), small().model.n_ctx
        rows = list(table["sentence"])
        return lambda: float(len(peer(rows, batch_size=batch, truncation=True, max_length=longest)))

    peers = [
        (piped(1), ">= 2x", "transformers' pipeline"),
        (piped(32), ">= 2x", "the same with batches of 32"),
        (piped(32, compiled=True), ">= 1.3x", "the same compiled"),
        (answered(MODEL), "", "ours with the network in onnxruntime"),
        (answered(INT8), "", "that with int8 weights"),
    ]
    beside("15", f"a table of {_ROWS} rows, {_TASK}", "rows/s", seconds, answered(), *peers, warm=1)


def _load(model: Artifact, texts: Sequence[str], folder: Path, seconds: float) -> None:
    """Row 16: seconds until a server answers, then requests of a row each from so many clients."""
    commands = {"ours": ["flows.cli", "serve", model.url, "--port"]}
    commands |= {kind: ["tests.benchmarks.peer_server", kind, str(folder)] for kind in _SERVERS}
    bodies = [json.dumps({"sentence": text}).encode() for text in texts]
    rates: dict[tuple[str, int], list[float]] = {(kind, n): [] for kind in commands for n in _CLIENTS}
    waits: dict[tuple[str, int], list[float]] = {key: [] for key in rates}
    ready, memory = [], 0.0
    for kind in list(commands) * _TURNS:
        with served(commands[kind]) as (process, port, waited):
            asked(port, bodies, _CLIENTS[-1], seconds)  # their words and lengths have been met then
            for clients in _CLIENTS:
                done, spent = asked(port, bodies, clients, seconds)
                rates[kind, clients].append(len(done) / spent)
                waits[kind, clients] += done
            if kind == "ours":
                ready.append(waited)
                memory = psutil.Process(process.pid).memory_info().rss / 1e9
    line("16", "`gptmill serve`, from its start to its first answer", Rate(tuple(ready)), None, "s", "< 5 s")

    def unit(kind: str, clients: int) -> str:
        return f"p99 {1000 * statistics.quantiles(waits[kind, clients], n=100)[-1]:.0f} ms"

    for clients in _CLIENTS:
        rate = {kind: Rate(tuple(rates[kind, clients])) for kind in commands}
        for kind, (words, target) in _SERVERS.items():
            what = f"`gptmill serve`, requests of a row from {clients} client{'s' * (clients > 1)}"
            ours = f"requests/s, {unit('ours', clients)}, {memory:.2f} GB"
            line("16", what, rate["ours"], rate[kind], ours, target, f"{words}; {unit(kind, clients)}")


@contextmanager
def served(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], int, float]]:
    """The server's process, its port, and how long it took until it answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", *command, str(port)], stdout=subprocess.DEVNULL)
    try:
        while not _healthy(port):
            if process.poll() is not None:
                raise RuntimeError(f"{command} ended with {process.returncode}")
            time.sleep(0.02)
        yield process, port, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except ConnectionError:
        return False
    finally:
        connection.close()


def asked(port: int, bodies: Sequence[bytes], clients: int, seconds: float) -> tuple[list[float], float]:
    """Seconds of each request, of all clients, and how long they asked."""

    def client(first: int, end: Callable[[], bool]) -> list[float]:
        connection, waits = http.client.HTTPConnection("127.0.0.1", port, timeout=60), []
        for body in itertools.islice(itertools.cycle(bodies), first, None):
            if end() and waits:
                break
            began = time.perf_counter()
            connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()
            waits.append(time.perf_counter() - began)
        connection.close()
        return waits

    client(0, lambda: True)  # the first answer
    began = time.perf_counter()
    asking = partial(client, end=lambda: time.perf_counter() - began > seconds)
    with ThreadPoolExecutor(clients) as pool:
        done = [wait for waits in pool.map(asking, range(0, 100 * clients, 100)) for wait in waits]
    return done, time.perf_counter() - began
