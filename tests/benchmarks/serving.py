"""Models that serve: `gptmill serve` under load, and tables of rows beside a transformers pipeline."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import psutil
import requests
import torch
from transformers import AutoTokenizer, OpenAIGPTForSequenceClassification, pipeline

from gptcore.config import small
from gptcore.evaluation.exported import INT8, MODEL, write_onnx
from gptcore.evaluation.predict import predict_rows
from gptcore.models.classifier import ClassificationModel
from gptcore.models.files.layout import export_hugging_face
from gptcore.models.onnx import OnnxClassifier
from gptcore.models.transformer import GPT
from gptcore.nlu.encoded import encode_task
from gptcore.nlu.readers import load_task
from gptcore.nlu.registry import task_spec
from gptcore.text.tokenizer import Tokenizer
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store
from tasks.tracking.pyfunc import TaskPredictor
from tests.benchmarks.finetune import network, sources
from tests.benchmarks.step import as_transformers
from tests.benchmarks.table import Rate, Work, beside, in_turns, line, shown
from tests.gptcore.tiny_tasks import task_rows

_TASK = "sst2"
_CLIENTS, _REQUESTS, _READY = 32, 10_000, 3
_ROWS = 512


def run(seconds: float, folder: Path) -> None:
    """Rows 15 and 16: a fine-tuned model of the preset small's shape, random weights."""
    datasets, tokenizer = sources(folder)
    texts = [row.fields[0] for row in load_task(_TASK, str(datasets), "dev")]
    model = _stored(folder / "store", tokenizer)
    _tables(model, tokenizer, texts, folder, seconds)
    _onnx(model, tokenizer, datasets, folder, seconds)
    _load(model, texts)


def _stored(root: Path, tokenizer: Tokenizer) -> Artifact:
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


def _tables(model: Artifact, tokenizer: Tokenizer, texts: Sequence[str], folder: Path, seconds: float) -> None:
    """Row 15: what `mlflow.pyfunc` calls, beside transformers' own pipeline with the same network and vocabulary."""
    ours = TaskPredictor(model)
    table = pd.DataFrame({"sentence": list(itertools.islice(itertools.cycle(texts), _ROWS))})
    config = dataclasses.replace(small().model, n_vocab=tokenizer.n_vocab)
    export_hugging_face(GPT(config, torch.Generator().manual_seed(0)), tokenizer, folder / "peer")
    theirs = OpenAIGPTForSequenceClassification(as_transformers(config)).eval()
    words = AutoTokenizer.from_pretrained(str(folder / "peer"))
    words.pad_token = words.pad_token or words.unk_token
    theirs.config.pad_token_id = words.pad_token_id
    peer = pipeline("text-classification", model=theirs, tokenizer=words, device="cpu")

    def answered() -> float:
        return float(len(ours.predict(table)))

    def piped(batch: int) -> float:
        return float(len(peer(list(table["sentence"]), batch_size=batch, truncation=True, max_length=config.n_ctx)))

    one = (lambda: piped(1), ">= 2x", "transformers' pipeline")
    batches = (lambda: piped(32), ">= 2x", "the same with batches of 32")
    beside("15", f"a table of {_ROWS} rows, {_TASK}", "rows/s", seconds, answered, one, batches, warm=1)


def _onnx(model: Artifact, tokenizer: Tokenizer, datasets: Path, folder: Path, seconds: float) -> None:
    """Row 15, too: encoded dev rows through onnxruntime, in float32 and with int8 weights, beside torch in float32."""
    spec, cpu, source = task_spec(_TASK), torch.device("cpu"), Path(model.url) / "model"
    encode_task(spec, str(datasets), tokenizer, folder / "encoded")
    write_onnx(source, tokenizer, folder / "encoded", folder / "onnx", int8=True)
    classifier, _ = ClassificationModel.load(source)
    sizes = {name: getattr(classifier.gpt.config, name) for name in ("n_ctx", "n_vocab")}
    rows = task_rows(spec, folder / "encoded", "dev", **sizes, max_rows=_ROWS, seed=0)
    models = {"torch": classifier, "onnx": OnnxClassifier(folder / "onnx" / MODEL)}
    models["int8"] = OnnxClassifier(folder / "onnx" / INT8)

    def passed(name: str) -> Work:
        return lambda: float(len(predict_rows(models[name], spec, rows, cpu).logits))

    found = in_turns({name: passed(name) for name in models}, seconds)
    for name, file in (("onnx", MODEL), ("int8", INT8)):
        size = (folder / "onnx" / file).stat().st_size / 1e6
        what = f"encoded rows, {_TASK}, onnxruntime, {file} ({size:.1f} MB)"
        line("15", what, found[name], found["torch"], "rows/s", "", "ours in torch, float32")


def _load(model: Artifact, texts: Sequence[str]) -> None:
    """Row 16: seconds until a server answers, then 10,000 requests from 32 clients."""
    ready = []
    for turn in range(_READY):
        process, url, waited = _served(model)
        ready.append(waited)
        if turn < _READY - 1:
            process.terminate()
            process.wait()
    line("16", "`gptmill serve`, from its start to its first answer", Rate(tuple(ready)), None, "s", "< 5 s")
    bodies = [{"sentence": texts[n % len(texts)]} for n in range(_REQUESTS)]
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(_CLIENTS) as pool:
        parts = list(pool.map(lambda n: _asked(url, bodies[n::_CLIENTS]), range(_CLIENTS)))
    spent = time.perf_counter() - began
    waits = sorted(wait for part, _ in parts for wait in part)
    failed = sum(errors for _, errors in parts)
    memory = psutil.Process(process.pid).memory_info().rss / 1e9
    process.terminate()
    process.wait()
    what = f"{_REQUESTS:,} requests from {_CLIENTS} clients, a row each"
    line("16", what, Rate((_REQUESTS / spent,)), None, "requests/s", "")
    p50, p95 = (1000 * statistics.quantiles(waits, n=20)[place] for place in (9, 18))
    print(
        f"|    | of these: p50 {p50:.0f} ms, p95 {p95:.0f} ms, {failed} errors, {shown(memory)} GB | | | | 0 errors |"
    )


def _served(model: Artifact) -> tuple[subprocess.Popen[bytes], str, float]:
    """The server's process, its address, and how long it took until it answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "flows.cli", "serve", model.url, "--port", str(port)]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            if requests.get(f"{url}/health", timeout=5).ok:
                return process, f"{url}/predict", time.perf_counter() - began
        except requests.ConnectionError:
            if process.poll() is not None:
                raise RuntimeError(f"gptmill serve ended with {process.returncode}") from None
            time.sleep(0.02)


def _asked(url: str, bodies: Sequence[dict[str, str]]) -> tuple[list[float], int]:
    """Seconds of each request of one client, and how many failed."""
    waits, failed = [], 0
    with requests.Session() as session:
        for body in bodies:
            began = time.perf_counter()
            failed += session.post(url, json=body, timeout=60).status_code != 200
            waits.append(time.perf_counter() - began)
    return waits, failed
