"""What a form names as a teacher, and the students that it asks for, looked up before anything is computed."""

from __future__ import annotations

from typing import Any

from flows.forms.checks import (
    ADDRESS_OPTIONS,
    check_corpus,
    check_graph,
    check_sharded,
    check_sources,
    chosen_tasks,
    datasets_folder,
    known_tokenizer,
)
from flows.forms.references import in_store
from flows.forms.settings import chosen_preset, distilled_preset, refuse_setting
from flows.forms.students import VARIED, Compared, ablations_of, plans, students_of, teachers_form
from gptcore.base.errors import InputError
from gptcore.config import Preset, network_config
from tasks.store import references
from tasks.store.references import teacher_model
from tasks.store.store import Store


def check_teacher(store: Store, teacher: str, preset: Preset, start: str = "") -> None:
    """See that a network that learns from a teacher has one that it can learn from.

    :param start: the model whose weights it goes on from, empty: none.
    :raises InputError: there is none, it does not fit, or both it and ``start`` give the first weights.
    """
    found = teacher_model(store, in_store(store, teacher, ("pretrain",))) if teacher else None
    references.check_teacher(store, found, preset.model, preset.distil, start)


def check_distil(store: Store, form: Any) -> None:
    """See that the teacher of a form is there, and that its student can be made.

    :raises InputError: for the first thing that is not there, or does not fit.
    """
    from tasks.stages.tokenizer import is_model_folder

    if is_model_folder(form.teacher):  # which is looked at as it is imported
        if not form.corpus:
            raise InputError(f"--teacher {form.teacher}: a folder, whose text nobody knows; expected --corpus")
        check_corpus(form.corpus)
    else:
        found = teacher_model(store, in_store(store, form.teacher, ("pretrain",)))
        if form.corpus:
            raise InputError(f"--corpus: the teacher {found.short} was made from text of the store; expected none")
        preset = distilled_preset(form, network_config(store.manifest(found)["config"]["model"]), found.short)
        check_sources(preset, form.tasks, datasets_folder(store, form.datasets, form.tasks))
    chosen_tasks(form.tasks, datasets_folder(store, form.datasets, form.tasks))


def check_students(store: Store, form: Any) -> None:
    """See that a teacher's students can be made, and that their speed can be measured.

    :raises InputError: for the first thing that is not there, or does not fit.
    """
    from gptcore.models.onnx import require_onnx

    require_onnx("analysis students")
    _check_students(store, form, students_of)


def check_distillation(store: Store, form: Any) -> None:
    """See that the students can be made whose loss has one part less, and that no setting says which.

    :raises InputError: for the first thing that is not there, or does not fit.
    """
    _check_students(store, form, ablations_of)
    for name in VARIED:
        refuse_setting(form, "distil", name)


def _check_students(store: Store, form: Any, compared: Compared) -> None:
    if not form.teacher:
        if form.start:
            raise InputError(f"--from {form.start}: this analysis pre-trains what it compares; expected no --from")
        preset = chosen_preset(teachers_form(form))
        check_graph(store, form.graph, preset.family, form.links)
        for plan in plans(form, preset.model, f"--preset {form.preset}", compared):
            check_sharded(form, plan.preset)
        known_tokenizer(store, form.tokenizer)
        check_sources(preset, form.tasks, form.datasets)
        return
    found = teacher_model(store, in_store(store, form.teacher, ("pretrain",)))
    for name in ("corpus", "tokenizer", "start"):
        if getattr(form, name):
            option = ADDRESS_OPTIONS[name]
            raise InputError(f"{option}: the teacher {found.short} was made from text of the store; expected none")
    shape = network_config(store.manifest(found)["config"]["model"])
    preset = chosen_preset(teachers_form(form, shape.family))
    check_graph(store, form.graph, shape.family, form.links)
    for plan in plans(form, shape, f"--teacher {found.short}", compared):
        check_sharded(form, plan.preset)
    check_sources(preset, form.tasks, datasets_folder(store, form.datasets, form.tasks))
