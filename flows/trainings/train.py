"""A training as a run of its own: what a worker of the pool `gpu` starts for a pipeline or a fan-out.

Its parameters are a stage, the address of the store, and the other arguments of the stage's task as :func:`packed`
writes them: what can cross to another machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from prefect import flow

from flows.servers import signals
from gptcore.abstracts.config import AdaptConfig
from gptcore.config import DistilConfig, FinetuneConfig, PretrainConfig
from gptcore.families import FAMILIES
from tasks.jobs.placement import slots, slots_and_threads
from tasks.stages.adapt import adapt_model
from tasks.stages.finetune import finetune_model
from tasks.stages.pretrain import pretrain_model
from tasks.store.artifact import Artifact
from tasks.store.store import Store

TRAININGS: dict[str, Any] = {"pretrain": pretrain_model, "finetune": finetune_model, "adapt": adapt_model}
"""Stage -> its task."""
_NETWORKS = {family.part("config") for family in FAMILIES.values()}
_RECORDS = {
    kind.__name__: kind for kind in (AdaptConfig, Artifact, DistilConfig, FinetuneConfig, PretrainConfig, *_NETWORKS)
}


@flow(name="train", persist_result=False)
def train(stage: str, store: str, arguments: dict[str, Any]) -> None:
    """One training of a pipeline or a fan-out, which starts it, waits for it and reads its result from the store."""
    signals.listen()
    given = unpacked(arguments)
    if "threads" in given:
        _, given["threads"] = slots_and_threads(slots())  # of this machine, and as many as its worker takes
    TRAININGS[stage](Store(store), **given)


def packed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A task's arguments as JSON; :func:`unpacked` reads them back."""
    return {
        name: {"kind": type(value).__name__, "fields": dataclasses.asdict(value)} if _is_record(value) else value
        for name, value in arguments.items()
    }


def unpacked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`packed` wrote."""
    return {
        name: _RECORDS[value["kind"]](**value["fields"]) if isinstance(value, dict) else value
        for name, value in arguments.items()
    }


def _is_record(value: object) -> bool:
    return type(value) in _RECORDS.values()
