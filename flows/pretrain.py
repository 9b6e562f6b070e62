"""Pre-training alone, on shards of the store."""

from __future__ import annotations

from prefect import flow

from flows.forms.choices import list_checkpoints
from flows.forms.parameters import PretrainParameters
from flows.forms.requests import ShardsRequest
from flows.forms.run_names import from_form
from flows.servers import signals
from flows.trainings.chain import pretraining
from tasks.stages.pretrain import PretrainRequest
from tasks.stages.tokenizer import check_kind
from tasks.store.artifact import Artifact
from tasks.store.lineage import ancestor


@flow(name="pretrain", flow_run_name=from_form, persist_result=False)
def pretrain(parameters: PretrainParameters) -> Artifact:
    """Pre-train on encoded shards, from random weights or a checkpoint's; a run that was stopped is resumed."""
    signals.listen()
    training = asked_for(parameters.request)
    checkpoint = training.task(training)
    list_checkpoints(training.store)
    return checkpoint


def asked_for(request: ShardsRequest) -> PretrainRequest:
    """The pre-training that a form asks for."""
    store, shards = request.store, request.shards
    check_kind(store, ancestor(store, shards, "tokenizer"), request.preset.tokenizer)
    store.adopt(ancestor(store, shards, "corpus"))  # of another store's shards: the model's card tells of it
    return pretraining(request, shards)
