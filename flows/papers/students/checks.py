"""Teachers and students: what a form names and asks for, and the students that analyses compare with their teacher.

How deep these are, of which family and by which settings follows from settings: a form asks here before anything is
trained, then the flow for what it trains.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
from flows.forms.references import teacher_model
from flows.forms.settings import chosen_preset, inherited, refuse_setting
from gptcore.base.errors import InputError, require
from gptcore.base.settings import replace_settings
from gptcore.config import (
    EncoderConfig,
    ModelConfig,
    NetworkConfig,
    Preset,
    PretrainConfig,
    distillation,
    network_config,
    preset_named,
)
from gptcore.config.distillation import DistilConfig, student_of
from gptcore.families import DEFAULT, FAMILIES, shape_settings
from tasks.store.store import Store

TAUGHT = ("taught", "layer_epochs", "augmentation")
"""Settings of fine-tuning that only those have who learn from the teacher's models of the tasks."""

Teacher = EncoderConfig | ModelConfig


@dataclass(frozen=True)
class Student:
    """One of the models that are compared with the teacher."""

    label: str
    family: str
    n_layer: int
    distil: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the family's distillation that differ."""
    alone: bool = False
    """Whether it learns from the text alone."""


@dataclass(frozen=True)
class Plan:
    """What a student's pre-training and fine-tunes are made from."""

    student: Student
    preset: Preset
    shape: NetworkConfig
    pretrain: PretrainConfig
    distil: DistilConfig

    @property
    def taught(self) -> dict[str, Any]:
        """What its fine-tunes have of :data:`TAUGHT`, in place of what its teacher's family has."""
        return {name: getattr(self.preset.finetune, name) for name in TAUGHT}


Compared = Callable[[Teacher], list[Student]]
"""The students of a teacher that an analysis compares."""


def students_of(teacher: Teacher) -> list[Student]:
    """Students of half and a quarter of a teacher's layers, and what learns from the text alone.

    A decoder's are of its own family; an encoder's are DistilBERTs, and a TinyBERT beside them.
    """
    depth = teacher.n_layer
    half, quarter = max(1, depth // 2), max(1, depth // 4)
    encoder = isinstance(teacher, EncoderConfig)
    family = "distilbert" if encoder else teacher.family
    found = [
        Student(f"{FAMILIES[family].title}, {n_layer} of {depth} layers", family, n_layer)
        for n_layer in dict.fromkeys((half, quarter))
    ]
    if encoder and depth % half == 0:  # TinyBERT's layers stand for equal parts of the teacher's
        found.append(Student(f"TinyBERT, {half} of {depth} layers", "tinybert", half))
    alone = "bert" if FAMILIES[teacher.family].teacher else teacher.family  # of a family that needs no teacher
    title, layers = FAMILIES[alone].title, "layer" if half == 1 else "layers"
    return [*found, Student(f"{title} of {half} {layers}, no teacher", alone, half, alone=True)]


def ablations_of(teacher: Teacher) -> list[Student]:
    """DistilBERT and TinyBERT of half of a BERT's layers, or as near below as makes equal parts, and each less a part.

    :raises InputError: the teacher is a decoder.
    """
    if not isinstance(teacher, EncoderConfig):
        raise InputError(f"--teacher: found {FAMILIES[teacher.family].title}, expected BERT, whose students these are")
    half = next(n for n in range(teacher.n_layer // 2, 0, -1) if teacher.n_layer % n == 0)
    return [
        Student("DistilBERT", "distilbert", half),
        Student("no soft targets", "distilbert", half, {"soft_weight": 0.0}),
        Student("no cosine", "distilbert", half, {"cosine_weight": 0.0}),
        Student("no masked words", "distilbert", half, {"word_weight": 0.0}),
        Student("random start", "distilbert", half, {"start": "random"}),
        Student("TinyBERT", "tinybert", half),
        Student("no attention", "tinybert", half, {"attention_weight": 0.0}),
        Student("no hidden states", "tinybert", half, {"hidden_weight": 0.0}),
        Student("no embeddings", "tinybert", half, {"embedding_weight": 0.0}),
    ]


VARIED = tuple(name for student in ablations_of(EncoderConfig(n_layer=2)) for name in student.distil)
"""The settings of distillation that the ablations say."""


def teachers_form(form: Any, family: str = "bert") -> Any:
    """The form as it says how the teacher is trained, without what is said of its students' fine-tunes.

    :param family: of the teacher.
    :raises InputError: the form asks for another family.
    """
    if (chosen := form.overrides.get("family", form.family)) not in (DEFAULT, family):
        raise InputError(f"--family {chosen}: found {FAMILIES[family].title} as the teacher; expected no --family")
    return form.model_copy(update={"family": family, "overrides": _without(form.overrides, "family", taught=False)})


def plans(form: Any, teacher: NetworkConfig, where: str, compared: Compared) -> list[Plan]:
    """How each of the students of a teacher is made.

    :param where: what holds the teacher, for messages.
    :raises InputError: nobody's teacher, settings that a family refuses, or a student that cannot learn from it.
    """
    if not isinstance(teacher, Teacher) or not FAMILIES[teacher.family].distillation:
        raise InputError(f"{where}: {FAMILIES[teacher.family].title} has no students; expected one that has")
    if teacher.n_layer < 2:
        raise InputError(f"{where}: its n_layer is {teacher.n_layer}; expected 2 or more, so that a student has fewer")
    for task, own in form.overrides.get("tasks", {}).items():
        if of_one := [name for name in TAUGHT if name in own]:
            raise InputError(f"tasks.{task}.{of_one[0]}: of all tasks here or of none; expected finetune.{of_one[0]}")
    students = compared(teacher)
    return [_plan(form, teacher, where, student, students[0].family) for student in students]


def _plan(form: Any, teacher: Teacher, where: str, student: Student, schedule: str) -> Plan:
    """:param schedule: the family whose number of updates who learns alone has, too."""

    def preset_of(family: str) -> Preset:
        overrides = _without(form.overrides, "family", "model", taught=FAMILIES[family].taught)
        return chosen_preset(form.model_copy(update={"family": family, "overrides": overrides}))

    preset = preset_of(student.family)
    shape = student_of(teacher, preset.model, student.n_layer)
    distil = dataclasses.replace(preset.distil, **student.distil)
    if student.alone:
        return Plan(student, preset, shape, preset_of(schedule).pretrain, distil)
    distillation.check_teacher(distil, shape, teacher, where)
    return Plan(student, preset, shape, preset.pretrain, distil)


def _without(overrides: Mapping[str, Any], *sections: str, taught: bool) -> dict[str, Any]:
    """Settings without some sections, and without those of :data:`TAUGHT` where nobody is taught."""
    found = {name: value for name, value in overrides.items() if name not in sections}
    if not taught and isinstance(section := found.get("finetune"), Mapping):
        found["finetune"] = {name: value for name, value in section.items() if name not in TAUGHT}
    return found


def distilled_preset(form: Any, teacher: NetworkConfig, short: str) -> Preset:
    """The preset of a form of distillation: the student in its teacher's shape, with fewer layers.

    A decoder's student is of the decoder's family. What the settings say of the network stands.

    :param short: what messages call the teacher.
    :raises InputError: an unknown setting, a value that does not fit, or a student that cannot learn from the teacher.
    """
    family = _students_family(form, teacher, short)
    preset = preset_named(form.preset, {**form.overrides, "family": family})
    depth = form.layers or max(1, getattr(teacher, "n_layer", 2) // 2)
    size = form.overrides.get("shape")
    said = {**(shape_settings(size, "overrides")["model"] if size else {}), **form.overrides.get("model", {})}
    if form.layers and said.get("n_layer", form.layers) != form.layers:
        raise InputError(f"--layers {form.layers}: the settings have model.n_layer = {said['n_layer']}; expected one")
    shape = distillation.student_of(teacher, preset.model, said.get("n_layer", depth))
    model = replace_settings(shape, said, "overrides: model")
    distillation.check_teacher(preset.distil, model, teacher, f"--teacher {short}")
    return dataclasses.replace(preset, model=model)


def _students_family(form: Any, teacher: NetworkConfig, short: str) -> str:
    """The family of a teacher's student: a decoder's own, an encoder's as the form or its settings say.

    :raises InputError: the form or its settings say another one, or two.
    """
    said, own = form.overrides.get("family"), FAMILIES[teacher.family]
    unsaid = type(form).model_fields["family"].default
    if own.generates:
        is_one = f"a student of {own.title} ({short}) is one, too; expected none"
        require(said in (None, own.name), f"family = {said!r} in the settings: {is_one}")
        require(form.family in (own.name, unsaid), f"--family {form.family}: {is_one}")
        return own.name
    if said is not None and form.family not in (said, unsaid):
        raise InputError(f"family = {said!r} in the settings, --family {form.family}; expected one of the two")
    return str(said or form.family)


# --- what a form names, looked up before anything is computed ---


def check_distil(store: Store, form: Any) -> None:
    """See that the teacher of a form is there, and that its student can be made.

    :raises InputError: for the first thing that is not there, or does not fit.
    """
    from tasks.stages.tokenizer import is_model_folder

    if is_model_folder(form.teacher):  # which is looked at as it is imported
        require(form.corpus, f"--teacher {form.teacher}: a folder, whose text nobody knows; expected --corpus")
        check_corpus(form.corpus)
    else:
        found = teacher_model(store, form.teacher)
        if form.corpus:
            raise InputError(f"--corpus: the teacher {found.short} was made from text of the store; expected none")
        form, _ = inherited(form, found)
        preset = distilled_preset(form, network_config(store.manifest(found)["config"]["model"]), found.short)
        check_sources(preset, form.tasks, datasets_folder(store, form.datasets, form.tasks))
    chosen_tasks(form.tasks, datasets_folder(store, form.datasets, form.tasks))


def check_students(store: Store, form: Any) -> Any:
    """See that a teacher's students can be made, and that their speed can be measured.

    :return: the form with its preset by name, where it takes that of the teacher that it may name.
    :raises InputError: for the first thing that is not there, or does not fit.
    """
    from gptcore.models.onnx import require_onnx

    require_onnx("analysis students")
    return _check_students(store, form, students_of)


def check_distillation(store: Store, form: Any) -> Any:
    """See that the students can be made whose loss has one part less, and that no setting says which.

    :return: see :func:`check_students`.
    :raises InputError: for the first thing that is not there, or does not fit.
    """
    form = _check_students(store, form, ablations_of)
    for name in VARIED:
        refuse_setting(form, "distil", name)
    return form


def _check_students(store: Store, form: Any, compared: Compared) -> Any:
    found = teacher_model(store, form.teacher) if form.teacher else None
    form, _ = inherited(form, found)
    if found is None:
        require(not form.start, f"--from {form.start}: this analysis pre-trains what it compares; expected no --from")
        preset = chosen_preset(teachers_form(form))
        shape, where = preset.model, f"--preset {form.preset}"
    else:
        for name in ("corpus", "tokenizer", "start"):
            if getattr(form, name):
                option = ADDRESS_OPTIONS[name]
                raise InputError(f"{option}: the teacher {found.short} was made from text of the store; expected none")
        shape, where = network_config(store.manifest(found)["config"]["model"]), f"--teacher {found.short}"
        preset = chosen_preset(teachers_form(form, shape.family))
    check_graph(store, form.graph, shape.family, form.links)
    for plan in plans(form, shape, where, compared):
        check_sharded(form, plan.preset)
    known_tokenizer(store, form.tokenizer)
    datasets = datasets_folder(store, form.datasets, form.tasks) if found else form.datasets
    check_sources(preset, form.tasks, datasets)
    return form
