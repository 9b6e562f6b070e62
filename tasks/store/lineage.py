"""From an artifact back to what it was made from."""

from __future__ import annotations

from gptcore.errors import InputError
from tasks.store.artifact import Artifact
from tasks.store.store import Store


def ancestor(store: Store, artifact: Artifact, stage: str) -> Artifact:
    """The artifact of ``stage`` that ``artifact`` was made from, directly or through others; the nearest of several.

    :raises InputError: there is none, or the store no longer holds it.
    """
    level = [artifact]
    seen: set[str] = set()
    while level:
        parents: dict[str, Artifact] = {}
        for child in level:
            for item in _inputs(store, child):
                if item.stage == stage:
                    store.manifest(item)
                    return item
                parents.setdefault(item.digest, item)
        level = [item for digest, item in parents.items() if digest not in seen]
        seen |= parents.keys()
    raise InputError(f"{artifact.url}: found no {stage} that it was made from, expected it beside it")


def _inputs(store: Store, artifact: Artifact) -> list[Artifact]:
    """What an artifact was made from; nothing where it is gone itself."""
    try:
        inputs = store.manifest(artifact)["inputs"].values()
    except InputError:
        return []
    home = Store(artifact.url.removesuffix(f"/{artifact.stage}/{artifact.digest}"))  # an address may be another store's
    return [home.artifact(item["stage"], item["digest"]) for item in inputs if "stage" in item]


def tokenizer_of(store: Store, artifact: Artifact) -> Artifact:
    """The tokenizer behind shards, a checkpoint or a fine-tuned model."""
    return ancestor(store, artifact, "tokenizer")


def own_tokenizer(store: Store, artifact: Artifact) -> Artifact:
    """A model's tokenizer, for what is made from the model here; of another store's model it is copied."""
    return store.adopt(tokenizer_of(store, artifact))
