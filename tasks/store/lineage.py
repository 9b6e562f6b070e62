"""From an artifact back to what it was made from."""

from __future__ import annotations

from gptcore.errors import InputError
from tasks.store.artifact import Artifact
from tasks.store.store import Store


def ancestor(store: Store, artifact: Artifact, stage: str) -> Artifact:
    """The artifact of ``stage`` that ``artifact`` was made from, directly or through others.

    :raises InputError: there is none, or the store no longer holds it.
    """
    for item in store.manifest(artifact)["inputs"].values():
        if "stage" not in item:
            continue
        parent = store.artifact(item["stage"], item["digest"])
        if parent.stage == stage:
            store.manifest(parent)
            return parent
        try:
            return ancestor(store, parent, stage)
        except InputError:
            continue
    raise InputError(f"{artifact.url}: found no {stage} that it was made from, expected it in {store.url}")


def tokenizer_of(store: Store, artifact: Artifact) -> Artifact:
    """The tokenizer behind shards, a checkpoint or a fine-tuned model."""
    return ancestor(store, artifact, "tokenizer")
