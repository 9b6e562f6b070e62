"""The model that a person means by a REF: a digest or its beginning, an artifact's address, latest, or best."""

from __future__ import annotations

import re

from gptcore.errors import InputError
from tasks.store.artifact import Artifact
from tasks.store.store import Store

_LABEL = re.compile(r"^([0-9a-f]{12}) .*$")
"""What :func:`checkpoint_label` writes; no address and no digest has a blank there."""


def pretrained_model(store: Store, ref: str) -> Artifact:
    """The `pretrain` artifact that ``ref`` names; latest is the newest Transformer.

    The LSTM of Table 5 lies beside it and is newer after that analysis; it is asked for by its digest.

    :param ref: a digest or its beginning, an address, latest, or a :func:`checkpoint_label`.
    :raises InputError: where none fits, or several do.
    """
    ref = _LABEL.sub(r"\1", ref)
    if ref == "latest":
        for artifact in store.list("pretrain"):  # newest first
            if "n_units" not in store.manifest(artifact)["config"]["model"]:
                return artifact
    return store.resolve(ref, "pretrain")


def checkpoint_label(store: Store, artifact: Artifact) -> str:
    """A pre-trained model in one line for people, its digest first: "8f3a12cd4e56 4 layers x 128, perplexity 2.6"..."""
    manifest = store.manifest(artifact)
    model, result = manifest["config"]["model"], manifest["counts"]
    shape = f"LSTM of {model['n_units']}" if "n_units" in model else f"{model['n_layer']} layers x {model['n_embd']}"
    perplexity = f"perplexity {result['validation/perplexity']:.3g}"
    seen = f"{result['tokens_seen'] / 1e6:.3g} M tokens"
    return f"{artifact.short} {shape}, {perplexity}, {seen}, {manifest['created'][:10]}"


def fine_tuned_model(store: Store, ref: str, task: str) -> Artifact:
    """The `finetune` artifact of a task that ``ref`` names; latest is its newest, best that of the best dev score.

    :raises InputError: where none fits, or the one that does is of another task.
    """
    if ref in ("latest", "best"):
        of_task = [artifact for artifact in store.list("finetune") if _task(store, artifact) == task]
        if not of_task:
            raise InputError(f"--model {ref}: found no model for {task} in {store.url}, expected a fine-tuned one")
        return of_task[0] if ref == "latest" else max(of_task, key=lambda artifact: _dev_score(store, artifact))
    artifact = store.resolve(ref, "finetune")
    if (found := _task(store, artifact)) != task:
        raise InputError(f"--model {ref}: a model for {found}, expected one for {task}")
    return artifact


def best_models(store: Store, checkpoint: Artifact) -> dict[str, Artifact]:
    """Task -> of the models fine-tuned from a checkpoint's weights, the one of best dev score; of equals the newest.

    So one of several seeds, and no ablation unless it is the better model; from-scratch runs have no checkpoint.
    """
    models: dict[str, Artifact] = {}
    for artifact in store.list("finetune"):  # newest first
        if store.manifest(artifact)["inputs"].get("checkpoint", {}).get("digest") != checkpoint.digest:
            continue
        task = _task(store, artifact)
        if task not in models or _dev_score(store, artifact) > _dev_score(store, models[task]):
            models[task] = artifact
    return models


def _task(store: Store, artifact: Artifact) -> str:
    return str(store.manifest(artifact)["config"]["task"])


def _dev_score(store: Store, artifact: Artifact) -> float:
    return float(store.manifest(artifact)["counts"]["dev/score"])
