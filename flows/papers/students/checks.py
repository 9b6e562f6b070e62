"""Teachers and students: what a form names and asks for, and the students that analyses compare with their teacher.

How deep these are, of which family and by which settings follows from settings: a form asks here before anything is
trained, then the flow for what it trains.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flows.forms import checks
from flows.forms.parameters import AnalysisParameters
from flows.forms.references import teacher_model
from flows.forms.requests import BooksRequest
from flows.forms.settings import Chosen, inherited, refuse_setting
from gptcore.base.errors import InputError, require
from gptcore.config import (
    EncoderConfig,
    ModelConfig,
    NetworkConfig,
    Preset,
    PretrainConfig,
    distillation,
    network_config,
)
from gptcore.config.distillation import DistilConfig, student_of
from gptcore.families import DEFAULT, FAMILIES
from gptcore.nlu.own_task import Task
from tasks.store.artifact import Artifact
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


def teachers_form(form: AnalysisParameters, family: str = "bert") -> AnalysisParameters:
    """The form as it says how the teacher is trained, without what is said of its students' fine-tunes.

    :param family: of the teacher.
    :raises InputError: the form asks for another family.
    """
    if (chosen := form.overrides.get("family", form.family)) not in (DEFAULT, family):
        raise InputError(f"--family {chosen}: found {FAMILIES[family].title} as the teacher; expected no --family")
    return form.model_copy(update={"family": family, "overrides": _without(form.overrides, "family", taught=False)})


def plans(form: AnalysisParameters, teacher: NetworkConfig, where: str, compared: Compared) -> list[Plan]:
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


def _plan(form: AnalysisParameters, teacher: Teacher, where: str, student: Student, schedule: str) -> Plan:
    """:param schedule: the family whose number of updates who learns alone has, too."""

    def preset_of(family: str) -> Preset:
        overrides = _without(form.overrides, "family", "model", taught=FAMILIES[family].taught)
        return form.model_copy(update={"family": family, "overrides": overrides}).chosen_preset

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


@dataclass(frozen=True)
class DistilRequest:
    """A student of a model that is there, and tasks to fine-tune both on."""

    store: Store
    teacher: Artifact
    student: Chosen
    datasets_url: str
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class Comparison(BooksRequest):
    """A teacher, whose preset and text these are, and its students, as a form of an analysis asks for them."""

    form: AnalysisParameters
    """The form with its preset by name, where it takes that of the teacher."""
    model: Artifact | None
    """The teacher; None: it is pre-trained as the form says."""


def comparison_of(store: Store, form: AnalysisParameters, compared: Compared, varied: Sequence[str] = ()) -> Comparison:
    """Check that a teacher's students can be made.

    :param varied: the settings of distillation that the analysis compares, of which none may be given.
    :raises InputError: for the first thing that is not there, or does not fit.
    """
    teacher = teacher_model(store, form.teacher) if form.teacher else None
    form = form.model_copy(update={"preset": inherited(form.preset, teacher).name})
    if teacher is None:
        require(not form.start, f"--from {form.start}: this analysis pre-trains what it compares; expected no --from")
        preset = teachers_form(form).chosen_preset
        shape, where = preset.model, f"--preset {form.preset}"
    else:
        for name in ("corpus", "tokenizer", "start"):
            if getattr(form, name):
                option = checks.ADDRESS_OPTIONS[name]
                raise InputError(
                    f"{option}: the teacher {teacher.short} was made from text of the store; expected none"
                )
        shape, where = network_config(store.manifest(teacher)["config"]["model"]), f"--teacher {teacher.short}"
        preset = teachers_form(form, shape.family).chosen_preset
    checks.check_graph(store, form.graph, shape.family, form.links)
    for plan in plans(form, shape, where, compared):
        checks.check_sharded(form.shard, plan.preset)
    for name in varied:
        refuse_setting(form.overrides, "distil", name)
    tokenizer = checks.given_tokenizer(store, form.tokenizer)
    checks.digest_of(store, tokenizer)
    datasets = checks.datasets_folder(store, form.datasets, form.tasks) if teacher else form.datasets
    checks.check_sources(preset, form.tasks, datasets)
    checks.check_corpus(form.corpus)
    checks.check_dask(form.dask)
    checks.check_tasks(form.tasks, form.datasets)
    books = dataclasses.replace(form.books(store, preset, tokenizer), datasets=datasets)
    return Comparison(**vars(books), form=form, model=teacher)
