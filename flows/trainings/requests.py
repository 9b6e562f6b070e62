"""What forms name, as parts of a training; and the kinds of trainings that there are, by their stages."""

from __future__ import annotations

from flows.forms.parameters import OnBooks, PretrainParameters
from flows.forms.references import pretrained_model, teacher_model
from flows.forms.students import check_teacher
from flows.knowledge.graph import mentioned
from gptcore.config import Preset
from gptcore.families import FAMILIES
from tasks.report.card import amount
from tasks.stages.finetune import FinetuneRequest
from tasks.stages.papers import AdaptRequest
from tasks.stages.pretrain import PretrainRequest
from tasks.stages.tokenizer import import_model, is_model_folder
from tasks.stages.training import Distillation, Training
from tasks.store.artifact import Artifact
from tasks.store.references import n_parameters
from tasks.store.store import Store

REQUESTS: dict[str, type[Training[object]]] = {
    kind.stage: kind for kind in (PretrainRequest, FinetuneRequest, AdaptRequest)
}
"""Stage -> its kind of training."""


def given_model(store: Store, ref: str, generates: bool = False) -> Artifact:
    """A pre-trained model that a form names; of a folder of Hugging Face's a copy in the store.

    :param generates: whether "latest" means one that generates text.
    :raises InputError: there is none.
    """
    return import_model(store, ref) if is_model_folder(ref) else pretrained_model(store, ref, generates)


def named_by_size(store: Store, model: Artifact) -> str:
    """What tables call a model beside others: its weights, without the commas that MLflow refuses, and its digest."""
    return f"{amount(n_parameters(store, model)).replace(',', '')} {model.short[:6]}"


def taught_by(store: Store, ref: str, preset: Preset) -> Distillation | None:
    """What a network learns from the teacher that a form names; None where ``ref`` is empty.

    :raises InputError: a teacher that is not there or does not fit, or a family that needs one.
    """
    check_teacher(store, ref, preset)
    if not ref:
        return None
    return Distillation(teacher_model(store, ref), preset.distil)


def pretraining(
    store: Store,
    parameters: OnBooks | PretrainParameters,
    preset: Preset,
    shards: Artifact,
    start: Artifact | None,
    distillation: Distillation | None,
) -> PretrainRequest:
    """The pre-training that a form asks for, by what it names.

    :raises InputError: its parts do not fit together.
    """
    return PretrainRequest(
        store,
        shards,
        preset.model,
        preset.pretrain,
        nproc=parameters.nproc,
        sharded=parameters.shard,
        start=start,
        distillation=distillation,
        mentions=mentioned(store, parameters.graph, parameters.links, FAMILIES[preset.family], shards),
    )
