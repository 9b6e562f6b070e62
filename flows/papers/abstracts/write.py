"""Abstracts under titles of a user's own, by a model of the store."""

from __future__ import annotations

from collections.abc import Sequence

from flows.forms.references import in_store
from gptcore.machine.device import pick_device
from gptcore.models.network import load_language_model
from gptcore.papers.abstracts import write
from gptcore.papers.abstracts.config import SamplingConfig
from tasks.store.artifact import Artifact
from tasks.store.lineage import ancestor, load_tokenizer
from tasks.store.store import Store


def write_abstracts(
    store: Store, model: str | None, titles: Sequence[str], sampling: SamplingConfig
) -> list[tuple[str, str]]:
    """An abstract under each title, by a model of stage `adapt`; "..." behind one that the most tokens have cut.

    :param model: its digest (or beginning) or address; None: the one whose abstracts the store got last.
    :raises InputError: no such model.
    """
    artifact = abstracts_model(store, model)
    network = load_language_model(str(store.local(artifact, "model"))).to(pick_device(0)).eval()
    written = write.write_abstracts(network, load_tokenizer(store, artifact), titles, sampling)
    return [(item.title, item.abstract + ("" if item.ended else " ...")) for item in written]


def abstracts_model(store: Store, model: str | None) -> Artifact:
    """A model of stage `adapt` by any name of it; None: whose abstracts the store got last.

    :raises InputError: no such model.
    """
    if model:
        return store.resolve(in_store(store, model, ("adapt",)), "adapt")
    return ancestor(store, store.resolve("latest", "written"), "adapt")
