"""What stands behind HTTP in `gptmill serve`'s place: python -m tests.benchmarks.peer_server KIND FOLDER PORT.

`pipeline`: transformers' of the folder's `peer`, a thread a connection and a row at a time in the network; `compiled`:
the same under torch.compile. `onnx`: our own server with the folder's export in onnxruntime.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gptcore.evaluation.exported import MODEL
from gptcore.evaluation.predict import TaskModel
from gptcore.models.onnx import OnnxClassifier
from gptcore.text.tokenizer import Tokenizer


def by_onnx(folder: Path) -> TaskModel:
    """The model of `model`, whose network is the export `model.onnx` beside it."""
    model = TaskModel(folder / "model", Tokenizer.load(str(folder / "tokenizer")))
    model._model = OnnxClassifier(folder / MODEL)  # type: ignore[assignment]  # stands in for the network
    return model


def pipeline_of(folder: Path, compiled: bool) -> Any:
    """transformers' pipeline of texts and their classes."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

    model = AutoModelForSequenceClassification.from_pretrained(folder / "peer").eval()
    words = AutoTokenizer.from_pretrained(folder / "peer")
    words.pad_token = words.pad_token or words.unk_token
    model.config.pad_token_id = words.pad_token_id
    if compiled:
        model.compile(dynamic=True)
    return pipeline("text-classification", model=model, tokenizer=words, device="cpu")


def _serve_pipeline(piped: Any, port: int) -> None:
    turn = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def _send(self, answer: Any) -> None:
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._send({"status": "ok"})

        def do_POST(self) -> None:
            row = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with turn:
                answer = piped(row["sentence"], truncation=True, max_length=piped.model.config.n_positions)
            self._send(answer)

        def log_message(self, *_: Any) -> None:
            pass

    piped(["a film", "a film that is longer by some words"], batch_size=1)  # compiled before anybody asks
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def main(kind: str, folder: Path, port: int) -> None:
    """Serve until the process is ended."""
    if kind == "onnx":
        from flows.serving.answering import Predictions
        from flows.serving.model_server import serve

        serve(Predictions(by_onnx(folder)), {}, port, lambda: None)
    else:
        _serve_pipeline(pipeline_of(folder, kind == "compiled"), port)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
