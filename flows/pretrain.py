"""Pre-training alone, on shards of the store."""

from __future__ import annotations

import dataclasses
from typing import Any

from prefect import flow

from flows.forms.choices import list_checkpoints
from flows.forms.parameters import PretrainParameters
from flows.forms.run_names import from_form
from flows.forms.settings import chosen_preset
from flows.knowledge.graph import mentioned
from flows.servers import signals
from flows.trainings.chain import started_from, taught_by
from gptcore.families import FAMILIES
from tasks.stages.pretrain import pretrain_model
from tasks.stages.tokenizer import check_kind
from tasks.store.artifact import Artifact
from tasks.store.lineage import ancestor
from tasks.store.store import Store


@flow(name="pretrain", flow_run_name=from_form, persist_result=False)
def pretrain(parameters: PretrainParameters) -> Artifact:
    """Pre-train on encoded shards, from random weights or a checkpoint's; a run that was stopped is resumed."""
    signals.listen()
    preset = chosen_preset(parameters)
    config = dataclasses.replace(preset.pretrain, steps=parameters.steps) if parameters.steps else preset.pretrain
    store = Store(parameters.store)
    shards = store.resolve(parameters.shards, "shards")
    check_kind(store, ancestor(store, shards, "tokenizer"), preset.tokenizer)
    store.adopt(ancestor(store, shards, "corpus"))  # of another store's shards: the model's card tells of it
    start = started_from(store, parameters.start) if parameters.start else None
    how: dict[str, Any] = {
        "nproc": parameters.nproc,
        "sharded": parameters.shard,
        **taught_by(store, parameters.teacher, preset),
        **mentioned(store, parameters.graph, parameters.links, FAMILIES[preset.family], shards),
    }
    checkpoint: Artifact = pretrain_model(store, shards, preset.model, config, start=start, **how)
    list_checkpoints(store)
    return checkpoint
