"""The models inside a pre-training's artifact: the final one, and those kept on its way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gptcore.base.errors import InputError
from gptcore.base.files import parse_json
from tasks.store.artifact import Artifact
from tasks.store.store import Store

_FOLDER = "snapshots"


def snapshots(store: Store, checkpoint: Artifact) -> list[int]:
    """The updates whose models a pre-training run kept, ascending; its final model is not among them."""
    listed = (file["path"].split("/") for file in store.manifest(checkpoint)["files"])
    return sorted({int(path[1].removeprefix("step-")) for path in listed if path[0] == _FOLDER})


def model_folder(store: Store, checkpoint: Artifact, step: int | None) -> Path:
    """Where the model after ``step`` updates is; None: the final one. The others are not fetched.

    :raises InputError: the run kept no model of that update.
    """
    if step is None:
        return store.local(checkpoint, "model")
    if step not in (kept := snapshots(store, checkpoint)):
        raise InputError(f"{checkpoint.url}: found no model after {step} updates, expected one of {kept}")
    return store.local(checkpoint, _place(step))


def snapshot_scores(store: Store, checkpoint: Artifact, step: int) -> dict[str, Any]:
    """What was measured of the model after ``step`` updates, one of :func:`snapshots`: "validation/perplexity" ..."""
    return dict(parse_json(store.read(checkpoint, f"{_place(step)}/meta.json")))


def _place(step: int) -> str:
    return f"{_FOLDER}/step-{step:07d}"
