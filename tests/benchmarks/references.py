"""What finding a model costs in a store of many, on the S3 server of `gptmill up --full`.

The artifacts are made up: manifests as stages write them, with a byte for each file, and the pack of manifests as those
who publish keep it up. `ARTIFACTS=10000` for as many fine-tunes (they take some minutes to be sent).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fsspec

from flows.servers import credentials
from flows.servers.stack import s3
from flows.servers.stack.processes import start, stop, wait_until_ready
from flows.servers.stack.services import Layout, service
from gptcore.base.settings import recorded
from gptcore.config import ModelConfig
from gptcore.nlu.registry import REGISTRY
from tasks.store.artifact import Artifact, Recipe
from tasks.store.manifest import Manifest
from tasks.store.records import _ONE_IN, share
from tasks.store.references import best_models, fine_tuned_model
from tasks.store.store import Store
from tests.benchmarks.table import Rate, line
from tests.flows.test_stack import free_ports, s3_port

_FINE_TUNES = int(os.environ.get("ARTIFACTS", "500"))
_PRETRAINED = 20
_TURNS = 5
_FILES = ("model/config.json", "model/model.safetensors", "predictions/dev.jsonl", "metrics.jsonl", "result.json")
_AT_ONCE = 3_000  # objects
_ROOT = "files-0123456789ab"
_BYTE = b"x"


def run(_seconds: float, folder: Path) -> None:
    """Row 17; a look-up is timed whole."""
    os.environ["GPTMILL_HOME"] = str(folder)
    prefect, mlflow, database = free_ports(3)
    layout = Layout(True, prefect, mlflow, database, s3_port())
    secrets = credentials.ensure_credentials(layout.prefect_url, layout.mlflow_url, layout.s3_url)
    s3.prepare(secrets)
    server = service("s3", layout, secrets)
    process = start(server, folder)
    try:
        wait_until_ready(server, process, folder)
        os.environ.update({key: secrets[key] for key in credentials.S3})
        _measure(*_filled(Store(s3.STORE)))
    finally:
        stop([(process, signal.SIGKILL)])


def _measure(store: Store, checkpoint: Artifact, model: Artifact) -> None:
    kept, pack = store.scratch / ".manifests", f"{store.url.removeprefix('s3://')}/.manifests/finetune.json.gz"
    fs, _ = fsspec.core.url_to_fs(store.url)

    def lookup(
        what: str, find: Callable[[], Any], before: Callable[[], Any] = lambda: None, turns: int = _TURNS
    ) -> None:
        spent = []
        for _ in range(turns):
            before()
            began = time.perf_counter()
            assert find()
            spent.append(time.perf_counter() - began)
        line("17", f"{what}, of {_FINE_TUNES:,} fine-tunes in S3", Rate(tuple(spent)), None, "s", "< 3 s")

    def latest() -> Artifact:
        return fine_tuned_model(store, "latest", "rte")

    packed = fs.cat_file(pack) if fs.exists(pack) else b""

    def forgets() -> None:
        shutil.rmtree(kept, ignore_errors=True)
        if packed:
            fs.pipe_file(pack, packed)  # as the last of those who publish left it

    lookup("latest of a task, by a new host", latest, forgets)
    if packed:
        shutil.rmtree(kept)
        fs.rm_file(pack)
        lookup("latest of a task, by a new host without a pack", latest, turns=1)
    lookup("a whole digest", lambda: store.resolve(model.digest, "finetune"))
    lookup("the beginning of a digest", lambda: store.resolve(model.short, "finetune"))
    lookup("latest of a task", latest)
    lookup("best of a task", lambda: fine_tuned_model(store, "best", "rte"))
    lookup("best of every task", lambda: best_models(store, checkpoint, False))


def _filled(store: Store) -> tuple[Store, Artifact, Artifact]:
    """The store, one of its pre-trained models and one of those that were fine-tuned from it."""
    words = _recipe("tokenizer", 0)
    pretrained = [
        _recipe("pretrain", number, {"model": recorded(ModelConfig())}, {"tokenizer": words.digest})
        for number in range(_PRETRAINED)
    ]
    files = hashlib.sha256(b"files").hexdigest()
    rows = {task: _recipe("dataset", 0, {"task": task}, {"files": files}) for task in REGISTRY}
    tuned = [
        _recipe(
            "finetune",
            number,
            {"task": task, "finetune": {f"setting_{one}": one / 7 for one in range(25)}},
            {
                "dataset": store.artifact("dataset", rows[task].digest),
                "checkpoint": store.artifact("pretrain", pretrained[number % _PRETRAINED].digest),
            },
        )
        for number, task in zip(range(_FINE_TUNES), itertools.cycle(REGISTRY), strict=False)
    ]
    fs, base = fsspec.core.url_to_fs(store.url)
    objects: dict[str, bytes] = {}
    for number, recipe in enumerate([words, *pretrained, *rows.values(), *tuned]):
        manifest = _manifest(recipe, number)
        objects |= _objects(base, manifest)
        if len(objects) > _AT_ONCE or recipe is tuned[-1] or int(recipe.digest[:8], 16) % _ONE_IN == 0:
            fs.pipe(objects)
            objects = {}
            share(fs, base, manifest, store.scratch)
    return store, store.artifact("pretrain", pretrained[0].digest), store.artifact("finetune", tuned[0].digest)


def _recipe(
    stage: str, number: int, config: Mapping[str, Any] | None = None, inputs: Mapping[str, Any] | None = None
) -> Recipe:
    return Recipe(stage, 1, {"number": number, **(config or {})}, inputs or {})


def _manifest(recipe: Recipe, number: int) -> Manifest:
    inputs = {
        role: {"digest": item} if isinstance(item, str) else {"stage": item.stage, "digest": item.digest}
        for role, item in recipe.inputs.items()
    }
    return {
        "stage": recipe.stage,
        "version": 1,
        "digest": recipe.digest,
        "config": recipe.config,
        "inputs": inputs,
        "files": [{"path": path, "size": 1, "sha256": hashlib.sha256(_BYTE).hexdigest()} for path in _FILES],
        "counts": {
            "dev/score": number % 97 / 97,
            "rows": {"dev": 9},
            **{f"dev/{one}": 0.123456789 for one in range(15)},
        },
        "code": {"package": "0", "git": "0" * 40, "dirty": False},
        "created": (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number)).isoformat(timespec="microseconds"),
        "duration_seconds": 1.0,
        "root": _ROOT,
    }


def _objects(base: str, manifest: Manifest) -> dict[str, bytes]:
    """What a stage would have published: files, manifest and mark."""
    stage, digest = manifest["stage"], manifest["digest"]
    folder = f"{base}/{stage}/{digest}"
    return {
        **{f"{folder}/{_ROOT}/{path}": _BYTE for path in _FILES},
        f"{folder}/manifest.json": json.dumps(manifest, sort_keys=True, indent=2).encode(),
        f"{base}/.manifests/{stage}/{digest}-{_ROOT}/published": b"",
    }
