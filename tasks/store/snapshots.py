"""The models inside a pre-training's artifact: the final one, and those kept on its way."""

from __future__ import annotations

from pathlib import Path

from gptcore.errors import InputError
from tasks.store.artifact import Artifact
from tasks.store.store import Store


def snapshots(store: Store, checkpoint: Artifact) -> list[int]:
    """The updates whose models a pre-training run kept, ascending; its final model is not among them."""
    folder = store.local(checkpoint) / "snapshots"
    return sorted(int(path.name.removeprefix("step-")) for path in folder.glob("step-*"))


def model_folder(store: Store, checkpoint: Artifact, step: int | None) -> Path:
    """Where the model after ``step`` updates is; None: the final one.

    :raises InputError: the run kept no model of that update.
    """
    if step is None:
        return store.local(checkpoint) / "model"
    if step not in (kept := snapshots(store, checkpoint)):
        raise InputError(f"{checkpoint.url}: found no model after {step} updates, expected one of {kept}")
    return store.local(checkpoint) / f"snapshots/step-{step:07d}"
