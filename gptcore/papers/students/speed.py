"""How fast a fine-tuned classifier answers on one core, and what it takes: a job.

    python -m gptcore.papers.students.speed JOB.json

JOB.json: {"model": folder of a fine-tuned model, "tokenizer": its folder, "dataset": folder of its encoded task,
"workspace": folder}.

The workspace then holds result.json: "parameters", "rows", "device", and for each of :data:`KINDS` "milliseconds" of a
row at batch 1 (median), "rows_per_second" at batches of 32, "bytes" on disk, "peak_memory_bytes" above what the process
had before it read the model, and "score", of an export on the dev rows that it was compared on (of torch null). Each
kind is measured in a process of its own. Times are this machine's.
"""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gptcore.base.files import checked_object, read_json, write_json_atomic
from gptcore.config import network_config
from gptcore.evaluation.exported import INT8, MODEL, write_onnx
from gptcore.evaluation.predict import EVAL_ROW_SEED
from gptcore.families import FAMILIES
from gptcore.machine import process
from gptcore.machine.device import device_name
from gptcore.models.classifier import Classifier
from gptcore.models.onnx import OnnxClassifier
from gptcore.nlu.inputs import RowReader, TaskBatch
from gptcore.nlu.registry import recorded_task
from gptcore.nlu.rows import split_rows
from gptcore.text.tokenizer import Tokenizer

KINDS = ("torch", "onnx", "int8")
"""As it is, in float32; the same as ONNX, run by onnxruntime; with int8 weights."""
_ROWS = 320  # of the dev split, drawn by a seed
_BATCH = 32
_SECONDS = 1.0  # of each of the two measurements at least, after one pass that nobody times


@dataclass(frozen=True)
class SpeedJob:
    """A job file, checked."""

    model: Path
    tokenizer: Path
    dataset: Path
    workspace: Path

    @classmethod
    def parse(cls, job: Mapping[str, Any]) -> SpeedJob:
        """:raises InputError: naming the field that is missing or no text."""
        names = [each.name for each in fields(cls)]
        found = checked_object(dict(job), "speed job", "a JSON object", dict.fromkeys(names, str))
        return cls(**{name: Path(found[name]) for name in names})


def run(job: Mapping[str, Any], stop: process.StopRequest) -> None:
    """Export and measure, each in another process, whose memory is not this one's.

    :raises InputError: no such model, or none that can be exported.
    :raises Interrupted: after SIGTERM.
    """
    parsed = SpeedJob.parse(job)
    exported = parsed.workspace / "exported"
    shutil.rmtree(exported, ignore_errors=True)
    _apart(parsed, stop, _export, exported)
    found: dict[str, Any] = {}
    for kind in KINDS:
        measured = parsed.workspace / f"{kind}.json"
        _apart(parsed, stop, _measure, kind, exported, measured)
        found[kind] = read_json(measured)
    network = Classifier.load(parsed.model)[0].network
    result = {"parameters": network.num_parameters, "device": device_name(torch.device("cpu")), **found}
    write_json_atomic(parsed.workspace / "result.json", result)


def _apart(job: SpeedJob, stop: process.StopRequest, work: Callable[..., None], *arguments: Any) -> None:
    """``work(job, *arguments)`` in a process of its own.

    :raises BrokenProcessPool: something ended it; else what it raised.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        done = pool.submit(work, job, *arguments)
    if stop.requested:
        raise process.Interrupted("SIGTERM during a measurement")
    done.result()


def _export(job: SpeedJob, out: Path) -> None:
    torch.set_num_threads(1)
    write_onnx(job.model, Tokenizer.load(str(job.tokenizer)), job.dataset, out, int8=True)


def _measure(job: SpeedJob, kind: str, exported: Path, out: Path) -> None:
    torch.set_num_threads(1)
    config = read_json(job.model / "config.json")
    network = network_config(config["model"])
    reads: type[RowReader] = FAMILIES[network.family].part("inputs")
    reader = reads(recorded_task(config), network.n_ctx, network.n_vocab)
    rows = split_rows(reader, job.dataset, "dev", _ROWS, EVAL_ROW_SEED)
    one = [rows.batch([row]) for row in range(len(rows))]
    many = [rows.batch(range(at, min(at + _BATCH, len(rows)))) for at in range(0, len(rows), _BATCH)]
    before = _peak_memory()
    path = {"torch": job.model / "model.safetensors", "onnx": exported / MODEL, "int8": exported / INT8}[kind]
    model: nn.Module
    model = Classifier.load(job.model)[0].eval() if kind == "torch" else OnnxClassifier(path, threads=1)
    singly, batched = (_seconds(model, batches) for batches in (one, many))
    compared = read_json(exported / "comparison.json")
    write_json_atomic(
        out,
        {
            "milliseconds": 1000 * statistics.median(singly),
            "rows_per_second": len(rows) * len(batched) / len(many) / sum(batched),
            "bytes": path.stat().st_size,
            "peak_memory_bytes": max(0, _peak_memory() - before),
            "score": compared[path.name]["score"] if kind != "torch" else None,
            "rows": len(rows),
        },
    )


@torch.inference_mode()
def _seconds(model: nn.Module, batches: list[TaskBatch]) -> list[float]:
    """What each of the batches took, pass after pass, all equally often."""
    found: list[float] = []
    started = 0.0
    while not found or time.perf_counter() - started < _SECONDS:
        times = []
        for batch in batches:
            begun = time.perf_counter()
            model(batch.tokens, batch.clf_position, **batch.marks)
            times.append(time.perf_counter() - begun)
        if started:
            found += times
        else:
            started = time.perf_counter()  # the first pass is none of them
    return found


def _peak_memory() -> int:
    """Bytes that this process has had at most."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    sys.exit(process.main(run, sys.argv[1:]))
