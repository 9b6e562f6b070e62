"""The model that a `--checkpoint` or a `--model` means: a REF of the store, or one of MLflow's registry.

The one place where the two meet: the store knows nothing of the tracker.
"""

from __future__ import annotations

from gptcore.base.errors import InputError
from gptcore.nlu.own_task import is_task_file, own_task_name
from gptcore.nlu.registry import REGISTRY, task_spec
from tasks.store import references
from tasks.store.artifact import Artifact
from tasks.store.store import Store
from tasks.tracking.registry import SCHEME, registered_artifact
from tasks.tracking.tracker import Tracker

WORDS = {"pretrain": "a pre-trained model", "finetune": "a fine-tuned model", "adapt": "a model that writes abstracts"}
"""Stage -> what its artifacts are to people."""


def pretrained_model(store: Store, ref: str, generates: bool = False) -> Artifact:
    """See :func:`tasks.store.references.pretrained_model`; ``ref`` may be `models:/NAME@ALIAS` too.

    :raises InputError: where none fits, or several do.
    """
    return references.pretrained_model(store, in_store(store, ref, ("pretrain",)), generates)


def teacher_model(store: Store, ref: str) -> Artifact:
    """See :func:`tasks.store.references.teacher_model`; ``ref`` may be `models:/NAME@ALIAS` too.

    :raises InputError: where none fits, or several do.
    """
    return references.teacher_model(store, in_store(store, ref, ("pretrain",)))


def fine_tuned_model(store: Store, ref: str, task: str) -> Artifact:
    """See :func:`tasks.store.references.fine_tuned_model`; ``ref`` may be `models:/NAME@ALIAS` too.

    :raises InputError: where none fits, or the one that does is of another task.
    """
    return references.fine_tuned_model(store, in_store(store, ref, ("finetune",)), task)


def named_task(store: Store, task: str, in_folder: bool = False) -> str:
    """The name of a task: one with an entry, a user's own by its file, or one that the store has a model for.

    :param in_folder: whether the model is in a folder, which alone knows its task.
    :raises InputError: an unknown task.
    """
    if is_task_file(task):
        return own_task_name(task)
    if in_folder or (task not in REGISTRY and task in references.fine_tuned_tasks(store)):
        return task
    return task_spec(task).name


def in_store(store: Store, ref: str, stages: tuple[str, ...]) -> str:
    """``ref`` in the store's own words: a registered model's digest, or its address where ``store`` lacks it.

    :param stages: of which the model may be: keys of :data:`WORDS`.
    :raises InputError: no such registered model, or one of another stage.
    """
    if not ref.startswith(SCHEME):
        return ref
    artifact = registered_artifact(Tracker(), ref)
    if artifact.stage not in stages:
        expected = " or ".join(WORDS[stage] for stage in stages)
        raise InputError(f"{ref}: found {WORDS.get(artifact.stage, artifact.stage)}, expected {expected}")
    return artifact.digest if store.find(artifact.stage, artifact.digest) else artifact.url
