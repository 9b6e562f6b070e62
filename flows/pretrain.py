"""Pre-training alone, on shards of the store."""

from __future__ import annotations

import dataclasses

from prefect import flow

from flows.forms.choices import list_checkpoints
from flows.forms.parameters import PretrainParameters
from flows.forms.run_names import from_form
from flows.forms.settings import chosen_preset
from flows.servers import signals
from flows.trainings.chain import given_model, pretraining, taught_by
from tasks.stages.pretrain import PretrainRequest
from tasks.stages.tokenizer import check_kind
from tasks.store.artifact import Artifact
from tasks.store.lineage import ancestor
from tasks.store.store import Store


@flow(name="pretrain", flow_run_name=from_form, persist_result=False)
def pretrain(parameters: PretrainParameters) -> Artifact:
    """Pre-train on encoded shards, from random weights or a checkpoint's; a run that was stopped is resumed."""
    signals.listen()
    request = asked_for(parameters)
    checkpoint = request.task(request)
    list_checkpoints(request.store)
    return checkpoint


def asked_for(parameters: PretrainParameters) -> PretrainRequest:
    """The pre-training that the form asks for."""
    preset = chosen_preset(parameters)
    config = dataclasses.replace(preset.pretrain, steps=parameters.steps) if parameters.steps else preset.pretrain
    store = Store(parameters.store)
    shards = store.resolve(parameters.shards, "shards")
    check_kind(store, ancestor(store, shards, "tokenizer"), preset.tokenizer)
    store.adopt(ancestor(store, shards, "corpus"))  # of another store's shards: the model's card tells of it
    start = given_model(store, parameters.start) if parameters.start else None
    distillation = taught_by(store, parameters.teacher, preset)
    return pretraining(store, parameters, dataclasses.replace(preset, pretrain=config), shards, start, distillation)
